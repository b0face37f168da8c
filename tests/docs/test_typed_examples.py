"""mypy accepts the Python of the notebooks and of docs/python.md in strict mode."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ("dataframe", "correct-labels", "search-documents")
MAGIC = re.compile(r"^[%!].*$", re.MULTILINE)  # of notebooks, which is no Python


def code(notebook: str) -> str:
    cells = json.loads((ROOT / "docs" / "tutorials" / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    return MAGIC.sub("", "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))


def blocks() -> list[str]:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.slow
def test_the_examples_are_typed(tmp_path: Path) -> None:
    files = {f"{name.replace('-', '_')}.py": code(name) for name in NOTEBOOKS}
    files |= {f"page_{number}.py": block for number, block in enumerate(blocks())}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = (
        "[mypy]\nstrict = true\n[mypy-pandas.*,sklearn.*]\nignore_missing_imports = true\nfollow_imports = skip\n"
    )
    (tmp_path / "mypy.ini").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", *files]
    environment = {"MYPYPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    ours = [line for line in done.stdout.splitlines() if line.split(":")[0] in files]
    assert ours == [], "\n".join(ours)
    assert "Traceback" not in done.stderr, done.stderr
