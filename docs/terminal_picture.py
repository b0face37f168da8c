"""Makes docs/images/terminal.svg: what commands print on a terminal, run as a reader would.

python docs/terminal_picture.py
"""

import io
import os
import pty
import re
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMANDS = (
    'echo "Angela Merkel met Emmanuel Macron in Berlin." | bertie predict names-en',
    'echo "배우들의 연기가 훌륭하고 이야기도 재미있다." | bertie predict sentiment-ko',
    'bertie search python-docs "How many bytes are in a UUID?" --answer questions-en -n 1',
    'bertie fill-mask starter-en "She was born in [MASK] York City." --top 3',
)
BEFORE = "bertie index python:stdlib -o python-docs --overwrite -q"


def output_of(command: str, folder: Path) -> str:
    """Returns what a command prints on a terminal, with its colors."""
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(
        ["bash", "-c", command], stdout=terminal, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    )
    os.close(terminal)
    parts = list[bytes]()
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:  # the end, on Linux
            break
        if not part:
            break
        parts.append(part)
    if process.wait():
        raise SystemExit(f"{command} failed")
    return b"".join(parts).decode().replace("\r\n", "\n")


def main() -> None:
    """Runs the commands and writes the picture."""

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["bash", "-c", BEFORE], cwd=folder, check=True)
        console = Console(record=True, width=92, file=io.StringIO(), highlight=False)
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(output_of(command, folder).rstrip()))
            console.print()
    picture = console.export_svg(title="bertie")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # no font is fetched from elsewhere
    path = Path(__file__).parent / "images" / "terminal.svg"
    path.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
