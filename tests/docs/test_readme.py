"""Every command and every line of Python in the README runs, in the order they stand there.

Blocks under the comment `<!-- not run here: why -->` are left out. Numbers of steps are lowered: the blocks show real
settings, the test only that they work.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run here: .*? -->\n)?```(bash|python)\n(.*?)```", re.DOTALL)
STEPS = "train.steps=6 train.batch_size=8"


def blocks(readme: str) -> list[tuple[str, str]]:
    """(language, text) of the blocks that are run."""
    found = BLOCK.findall((ROOT / readme).read_text(encoding="utf-8"))
    assert found, f"{readme} shows no code"
    return [(language, text) for skipped, language, text in found if not skipped]


def write_inputs(folder: Path) -> None:
    """The user's own files that the READMEs speak of, made up: articles/ and reviews.csv."""
    rng = random.Random(0)
    who = ["The baker", "A nurse", "The pilot", "Our neighbour", "The gardener", "A teacher"]
    did = ["carried", "counted", "painted", "sold", "lost", "found"]
    what = ["the bread", "seven lamps", "a letter", "the clocks", "two horses", "an old map"]
    when = ["before noon", "in the rain", "on Monday", "by the harbour", "without a word", "once more"]
    articles = [
        " ".join(f"{rng.choice(who)} {rng.choice(did)} {rng.choice(what)} {rng.choice(when)}." for _ in range(30))
        for _ in range(60)
    ]
    (folder / "articles").mkdir()
    (folder / "articles" / "news.txt").write_text("\n\n".join(articles))
    rows = [f"{rng.choice(who)} made {rng.choice(what)} {word},{label}" for label, word in
            [("good", "lovely"), ("good", "fine"), ("bad", "awful"), ("bad", "dull")] * 10]  # fmt: skip
    (folder / "reviews.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (folder / "new.txt").write_text("The baker made the bread lovely\nA nurse made a letter awful\n")


def test_the_code_of_the_readme_runs(tmp_path: Path):
    readme = "README.md"
    write_inputs(tmp_path)
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for language, text in blocks(readme):
        text = re.sub(r"train\.steps=\d+", STEPS, text)
        text = re.sub(r"--seeds \d", "--seeds 1", text)
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{readme}:\n{text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_both_readmes_show_the_same_code():
    assert blocks("README.md") == blocks("README.ko.md")


@pytest.mark.parametrize(
    "page", ["README.md", "README.ko.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_inside_the_repository_lead_somewhere(page: str):
    text = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which is not there"


def test_the_reading_order_names_every_page():
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_the_python_lines_are_few():
    python = [text for language, text in blocks("README.md") if language == "python"]
    assert python
    assert len([line for line in python[0].splitlines() if line.strip()]) < 20
