"""The commands and the Python of the README and of the tutorials run as they are printed, in their order.

Blocks under the comment `<!-- not run here: why -->` are left out.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOK_NAMES = ("bert-in-ten-minutes.ipynb", "dataframe.ipynb", "correct-labels.ipynb", "search-documents.ipynb")
NOTEBOOKS = [DOCS / "tutorials" / name for name in NOTEBOOK_NAMES]
BLOCK = re.compile(r"(<!-- not run here: .*? -->\n)?```(bash|python)\n(.*?)```", re.DOTALL)
PAGES = ["README.md", "README.ko.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"]
PAGES += [str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
# Made by docs/generate.py; what they link to is checked when the site is built.
PAGES = [page for page in PAGES if not re.match(r"docs/(reference/|project/|_build/|index(\.ko)?\.md)", page)]


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of the blocks that are run."""
    found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} shows no code"
    return [(language, text) for skipped, language, text in found if not skipped]


# Less of the same, where a page is run to see that its lines work.
LESS = {"--rows 600": "--rows 120", "--steps 150": "--steps 2", "epochs=3": "epochs=1",
        "python:stdlib": "python:uuid,json", "python:numpy,scipy": "python:statistics,decimal"}  # fmt: skip


def run(page: str, folder: Path, *, less: dict[str, str] | None = None) -> None:
    """Runs a page's blocks in a folder. less: printed words -> those that are run in their place"""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for language, text in blocks(page):
        for printed, shorter in (less or {}).items():
            text = text.replace(printed, shorter)
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{page}:\n{text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_the_code_of_the_readme_runs(tmp_path: Path):
    printed = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [words for words in LESS if words not in printed] == []
    run("README.md", tmp_path, less=LESS)


@pytest.mark.slow
@pytest.mark.parametrize("pages", [["quick-start.md", "coming-from.md"], ["quick-start.ko.md"], ["korean.ko.md"]])
def test_the_tutorials_run_as_printed_and_their_models_learn(tmp_path: Path, pages: list[str]):
    for page in pages:
        run(f"docs/get-started/{page}", tmp_path)
    troubles = "docs/troubleshooting" + (".ko.md" if ".ko" in pages[0] else ".md")
    run(troubles, tmp_path)
    (results,) = tmp_path.glob("runs/*reviews/results.json")
    accuracy = json.loads(results.read_text())["dev"]["accuracy"]
    assert accuracy >= 8 / 12, "12 reviews are held out; guessing gets 6 of them right"


TUTORIALS = {  # page -> what its last run must reach, by metric
    "classification": ("runs/reviews/seed-0", "accuracy", 0.8),
    "names": ("runs/names", "f1", 0.9),
    "questions": ("runs/questions", "f1", 0.9),
    "search": ("runs/similarity", "spearman", 0.9),
    "production": ("runs/reviews", "accuracy", 0.8),
    "pretrain": ("", "", 0),
    "domain": ("", "", 0),
}


KOREAN = [name for name in TUTORIALS if (DOCS / f"tutorials/{name}.ko.md").exists()]


@pytest.mark.slow
@pytest.mark.parametrize("page", [*TUTORIALS, *(f"{name}.ko" for name in KOREAN)])
def test_a_tutorial_runs_from_an_empty_folder_and_its_model_learns(tmp_path: Path, page: str):
    run(f"docs/tutorials/{page}.md", tmp_path)
    folder, metric, least = TUTORIALS[page.removesuffix(".ko")]
    if folder:
        results = json.loads((tmp_path / folder / "results.json").read_text())
        assert results["dev"][metric] >= least


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_asks_for_an_empty_folder_since_others_have_files_of_the_same_names(name: str):
    assert "an empty folder" in (DOCS / f"tutorials/{name}.md").read_text(encoding="utf-8")
    korean = DOCS / f"tutorials/{name}.ko.md"
    assert not korean.exists() or "빈 폴더" in korean.read_text(encoding="utf-8")


def test_every_tutorial_is_tested():
    written = {path.name.split(".")[0] for path in (DOCS / "tutorials").glob("*.md")}
    assert written - {"notebooks"} == set(TUTORIALS)  # a list of notebooks, which have a test of their own


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_outputs_are_those_that_it_shows(notebook: Path, tmp_path: Path):
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    path = tmp_path / notebook.name
    path.write_bytes(notebook.read_bytes())
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", "--inplace", path.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    kinds = [[output["output_type"] for output in cell["outputs"]] for cell in cells(notebook)]
    assert kinds == [[output["output_type"] for output in cell["outputs"]] for cell in cells(path)]


def test_the_notebook_of_a_data_frame_has_at_most_25_lines_of_code():
    lines = [line for cell in cells(NOTEBOOKS[1]) for line in "".join(cell["source"]).splitlines() if line.strip()]
    assert len(lines) <= 25


def test_every_notebook_is_tested():
    assert {path.name for path in (DOCS / "tutorials").glob("*.ipynb") if ".ko." not in path.name} == {*NOTEBOOK_NAMES}


def cells(notebook: Path) -> list[dict]:
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_executed_and_is_small(notebook: Path):
    assert notebook.stat().st_size < 100_000
    assert [cell["execution_count"] for cell in cells(notebook)] == list(range(1, len(cells(notebook)) + 1))
    assert not any(output["output_type"] == "error" for cell in cells(notebook) for output in cell["outputs"])


@pytest.mark.parametrize("page", ["README.md", "README.ko.md"])
def test_a_readme_is_short(page: str):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 110


@pytest.mark.parametrize("page", PAGES)
def test_links_inside_the_repository_lead_somewhere(page: str):
    text = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which is not there"


def test_the_installation_page_lists_every_extra():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"].keys()
    internal = {"search"}  # the old name of one
    for page in ("installation.md", "installation.ko.md"):
        listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "get-started" / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert set(listed) == extras - internal, page


LISTS = {"README.md": ("research.md", "developers.md", "DECISIONS.md", "tutorials/notebooks.md"), "README.ko.md": ()}


@pytest.mark.parametrize(("listing", "ending"), [("README.md", r"(?<!\.ko)\.md"), ("README.ko.md", r"\.ko\.md")])
def test_the_list_of_pages_names_every_page(listing: str, ending: str):
    """Pages for researchers and developers are in lists of their own, which the list of pages names."""
    listed = {
        os.path.normpath(Path(name).parent / link)
        for name in (listing, *LISTS[listing])
        for link in re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / name).read_text(encoding="utf-8"))
    }
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/") and re.search(ending + "$", page)}
    missing = pages - {listing} - listed
    assert not missing


@pytest.mark.parametrize("listing", ["README.md", "README.ko.md"])
def test_the_list_of_pages_has_at_most_seven_groups_of_seven_links(listing: str):
    groups = re.split(r"^## ", (DOCS / listing).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    groups = [group for group in groups if not group.startswith("Reference")]
    assert len(groups) <= 7
    for group in groups:
        assert len(re.findall(r"^\* ", group, re.MULTILINE)) <= 7, group.splitlines()[0]
