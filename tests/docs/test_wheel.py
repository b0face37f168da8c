"""A wheel of the checkout, installed where the source is not, has everything: command, recipes, types, version.

Its dependencies are those of the running environment, which is only linked: PyTorch is large.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement

from bertie.apps.cli.table import app

ROOT = Path(__file__).parents[2]
CORE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
FAST = "max_length=32 train.precision=fp32 epochs=1"
TINY = "model_overrides.hidden_size=32 model_overrides.num_hidden_layers=1 max_length=32 train.batch_size=4"
# Every command, on files that earlier ones have written. Those that need an extra must name it.
COMMANDS = f"""
sample reviews -o reviews.csv
sample names -o names.conll
sample questions -o questions.jsonl
corpus reviews.csv -o corpus
tokenizer train corpus -o tokenizer --size 300
tokenizer report tokenizer corpus
tokenizer encode tokenizer soup
pretrain --corpus corpus --tokenizer tokenizer -o run {TINY} train.steps=4 train.keep_checkpoints=true
finetune run --train reviews.csv -o tuned {FAST}
finetune run --train names.conll --task tagging -o tags {FAST}
finetune tuned --train reviews.csv -o again {FAST}
report run
verify run
compare tuned again
export-checkpoint run -o exported
info run/model
data
families
help rare-labels
plan model=bert-tiny
fill-mask run "the [MASK] soup"
detect --help
next-sentence run "the soup" "was good"
perplexity run reviews.csv
predict tuned reviews.csv -o answers.csv
predict tuned reviews.csv -o answers.xlsx
evaluate tuned reviews.csv
drift tuned reviews.csv
embed run reviews.csv -o vectors.npy
explain tuned "the soup was good"
attention tuned "the soup was good" -o attention.html
heads tuned --dev reviews.csv
probe run --train names.conll -o probed
words run "the *soup* was good" "a *soup* for me"
trace "the soup" --model run/model
audit run
debias run people.txt -o debiased
counterfactual reviews.csv -o counterfactual.jsonl
cloze --help
vary reviews.csv -o varied.jsonl
tune run --train reviews.csv --vary epochs=1 --confirm 1 -o search {FAST}
index reviews.csv -o documents
search documents soup
evaluate-search --help
negatives --help
compress tuned --neurons 32 --train reviews.csv -o narrow
convert tuned/model -o converted
export tuned -o onnx
grow run/model -o grown --layers 2
shrink run/model -o shrunk --from-layers 0
vocabulary extend run/model words.txt -o extended
vocabulary trim run/model corpus -o trimmed
write --help
download --list
upload --help
serve tuned
reload --help
switch --help
submission --help
demo --help
"""


class Installed:
    """An environment with the wheel. path: its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        self.run(*pip, "wheel", ROOT, "--no-deps", "--quiet", "--wheel-dir", "dist")
        (wheel,) = (folder / "dist").glob("bertie-*.whl")
        venv.create(folder / "empty", with_pip=False)
        self.python = folder / "empty" / "bin" / "python"
        self.run(*pip, "--python", self.python, "install", "--quiet", "--no-deps", wheel)
        (self.site,) = (folder / "empty" / "lib").glob("python*/site-packages")
        self.bertie = folder / "empty" / "bin" / "bertie"

    def ran(self, *command: object, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            list(map(str, command)), cwd=self.folder, env=environment,
            capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, *command: object) -> str:
        done = self.ran(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_works(tmp_path: Path):
    there = Installed(tmp_path)
    # An .egg-link or a .pth of an editable checkout is not followed from here, so bertie can only be the wheel's.
    shared = next(path for path in map(Path, sys.path) if (path / "torch").is_dir())
    (there.site / "shared.pth").write_text(f"{shared}\n")
    run, bertie = there.run, there.bertie

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(bertie, "--version").strip() == f"bertie {version}"
    assert Path(run(there.python, "-c", "import bertie; print(bertie.__file__)").strip()).is_relative_to(there.site)
    run(bertie, "sample", "reviews", "-o", "reviews.csv")
    run(bertie, "corpus", "reviews.csv", "-o", "corpus")
    run(bertie, "tokenizer", "train", "corpus", "-o", "tokenizer", "--size", "300")
    plan = ("--corpus", "corpus", "--tokenizer", "tokenizer", "-o", "run", "--dry-run", "train.batch_size=8")
    run(bertie, "pretrain", "-c", "pretrain-ten-minutes", *plan)  # the recipes are in the wheel
    assert (there.site / "bertie" / "py.typed").exists()


def names(group: typer.core.TyperGroup, before: str = "") -> Iterator[str]:
    """Every command, with the name of its group."""
    for name, command in group.commands.items():
        yield from names(command, f"{before}{name} ") if hasattr(command, "commands") else [before + name]


def test_the_table_has_every_command():
    lines = COMMANDS.strip().splitlines()
    assert all(any(f"{line} ".startswith(f"{name} ") for line in lines) for name in names(typer.main.get_command(app)))


def needed(requirements: list[str], found: dict[str, Path]) -> None:
    """Adds what some requirements install without extras: name in site-packages -> where it is."""
    for requirement in map(Requirement, requirements):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            package = distribution(requirement.name)
        except PackageNotFoundError:
            continue
        tops = {file.parts[0] for file in package.files or () if file.parts[0] != ".."}
        if not tops <= found.keys():
            found |= {top: Path(str(package.locate_file(top))) for top in tops}
            needed(package.requires or [], found)


@pytest.mark.slow
def test_without_extras_every_command_works_or_names_its_extra(tmp_path: Path):
    there, found = Installed(tmp_path), dict[str, Path]()
    needed(CORE, found)
    for name, path in found.items():
        if not (there.site / name).exists():
            (there.site / name).symlink_to(path)
    (tmp_path / "words.txt").write_text("zucchini\n")
    (tmp_path / "people.txt").write_text("the man was here\nthe woman was here\n" * 50)
    wrong = []
    for line in COMMANDS.strip().splitlines():
        done = there.ran(there.bertie, *shlex.split(line))
        told = " ".join(done.stderr.split())
        works = done.returncode == 0
        names_it = done.returncode in (1, 2, 3) and re.search(r"pip install '?bertie\[", told)
        if "Traceback" in told or not (works or names_it):
            wrong.append(f"{line}: {done.returncode} {told[-300:]}")
    assert not wrong, "\n".join(wrong)
