"""Writes docs/reference/*.md, docs/index.md and docs/index.ko.md.

What the program itself knows is not written by hand a second time.

    python docs/generate.py [FOLDER]     FOLDER: where docs/ is, by default the folder of this file

`docs/conf.py` calls `generate` before every build of the site. The files are not committed.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generate_api import python_api
from generate_tables import NOTE, dataclass_table, page, plain, settings, summary, table

DOCS = Path(__file__).parent
PROJECT = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
)  # pages next to docs/, which the site includes


def generate(docs: Path = DOCS) -> list[Path]:
    """Writes every generated page below `docs` and returns their paths."""
    pages = {
        **{f"reference/{name}.md": make() for name, make in REFERENCE.items()},
        **{f"project/{name}": project(name) for name in PROJECT},
        "index.md": index((DOCS / "README.md").read_text(encoding="utf-8")),
        "index.ko.md": index((DOCS / "README.ko.md").read_text(encoding="utf-8")),
    }
    for name, text in pages.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
            path.write_text(text, encoding="utf-8")
    return [docs / name for name in pages]


# Command line --------------------------------------------------------------------------------------------------------


def command_line() -> str:
    """Every command with its arguments, options, defaults and examples, read from the typer app."""
    import typer.main

    from bertie.apps.cli.table import app

    def leaves(group: Any, words: str) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(None):
            inner = group.commands[name]
            yield from leaves(inner, f"{words} {name}") if hasattr(inner, "commands") else [(f"{words} {name}", inner)]

    found = dict(leaves(typer.main.get_command(app), "bertie"))
    parts = [table(("command", "what it does"), (
        (f"[`{name}`](#{name.replace(' ', '-')})", plain(_prose(command)[0])) for name, command in found.items()
    ))]  # fmt: skip
    for name, command in found.items():
        context = command.make_context(name, [], resilient_parsing=True)
        text = f"{command.help or ''}\n{command.epilog or ''}"
        examples = re.findall(r"^ *((?:\S.*[|] )?bertie .*)$", text, re.MULTILINE)
        rows = {True: [], False: []}
        for option in command.params:
            left, *said = option.get_help_record(context) or (option.name,)
            help = (said or [""])[0]
            rows[left.startswith("-")].append((f"`{left}`", plain(help)))
        usage = " ".join([name, *(p.name if p.required else f"[{p.name}]" for p in command.params if _argument(p))])
        parts += [f"## {name}\n", f"```text\n{usage} [options]\n```\n"]
        parts += [plain(line) + "\n" for line in _prose(command)]
        parts += ["```bash\n" + "\n".join(examples) + "\n```\n"] if examples else []
        parts += [table(("argument", "meaning"), rows[False])] if rows[False] else []
        parts += [table(("option", "meaning"), rows[True])]
    return page("Command line", "Every command, as `bertie COMMAND --help` prints it.", *parts)


def _argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _prose(command: Any) -> list[str]:
    """The paragraphs of a help text before its examples."""
    text = re.split(r"\n *\x08\n *Examples?:", command.help or "")[0]
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


# Configuration -------------------------------------------------------------------------------------------------------


def configuration() -> str:
    """Every key of every configuration, read from the models that check it."""
    from bertie.models.config import EncoderConfig
    from bertie.objectives import OBJECTIVES
    from bertie.runs.config import CorpusShare, FinetuneConfig, PhaseConfig, PretrainConfig, TaskShare
    from bertie.runs.corpora import CorpusRecipe
    from bertie.tasks import TASKS

    parts = []
    for title, kind, where in (
        ("Pre-training", PretrainConfig, "`bertie pretrain`: `-c run.yaml`, or `key=value` on the command line."),
        ("Pre-training: one entry of `corpora`", CorpusShare, ""),
        ("Pre-training: one entry of `phases`", PhaseConfig, ""),
        ("Fine-tuning", FinetuneConfig, "`bertie finetune` and `bertie tune`."),
        ("Fine-tuning: one entry of `mix`", TaskShare, ""),
        ("Corpora", CorpusRecipe, "`bertie corpus -c recipe.yaml`, or the option of the same name."),
    ):
        parts += [f"## {title}\n", where + "\n", settings(kind)]
    parts += ["## Objectives\n", "Options of `objectives.NAME` in pre-training.\n"]
    for name, kind in OBJECTIVES.items():
        parts += [f"### {name}\n", summary(kind) + "\n", dataclass_table(kind, skip=())]
    parts += ["## Tasks\n", "Options of `task_options` in fine-tuning. They are saved with the model.\n"]
    for name, kind in TASKS.items():
        own = dataclass_table(kind, skip=("labels",))
        parts += [f"### {name}\n", summary(kind) + "\n", own or "This task has no options.\n"]
    parts += ["## Models\n", "Keys of `model_overrides` in pre-training and of `config.json`.\n"]
    parts += [dataclass_table(EncoderConfig, skip=())]
    intro = "Every key with its type, default, range and meaning. `RUN/run.yaml` lists the values of a run."
    return page("Configuration", intro, *parts)


# Tables --------------------------------------------------------------------------------------------------------------


def datasets() -> str:
    """The published data sets, read from the table that `bertie data` prints."""
    from bertie.tasks.datasets import DATASETS

    rows = []
    for name, row in DATASETS.items():
        sizes = ", ".join(
            f"{split} {file.examples:,}" if file.examples else split for split, file in row.splits.items()
        )
        facts = (row.title, f"`{row.task}`", ", ".join(row.metrics), sizes, row.licence, f"`{row.recipe}`", row.source)
        rows.append((f"`{name}`", *(fact if fact.startswith("`") else plain(fact) for fact in facts)))
    intro = (
        f"The {len(rows)} published data sets that `--data NAME --data-dir FOLDER` reads. No data ships with Bertie. "
        "`bertie data NAME --data-dir FOLDER` checks downloaded files."
    )
    return page("Data sets", intro, table(
        ("name", "title", "task", "metrics", "examples", "license", "recipe", "source"), rows
    ))  # fmt: skip


def recipes() -> str:
    """The recipes with the remark at the top of each file."""
    from bertie.settings import RECIPES

    folder = next(folder for folder in RECIPES if folder.is_dir())
    parts = []
    for path in sorted(folder.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        remark = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
        parts += [f"## {path.stem}\n", plain(remark) + "\n", f"```yaml\n{text.strip()}\n```\n"]
    return page("Recipes", "Complete configurations. Pass one by name: `-c pretrain-bert-base`.", *parts)


def exit_codes() -> str:
    """The exit codes, and the codes of errors, read from the exceptions."""
    from bertie import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BertieError)]
    rows = [("0", "", "The command is done.", "")]
    rows += [
        (str(kind.exit_code), f"`{kind.code}`", plain(inspect.getdoc(kind)), f"`{kind.__name__}`") for kind in kinds
    ]
    rows += [("130", "", "Interrupted with Ctrl-C.", "")]
    about = "What a command returns to the shell, and the `code` of an error under `--json`, in Python and over HTTP."
    return page("Exit codes", about, table(("exit code", "code", "meaning", "exception"), rows))


# The home page -------------------------------------------------------------------------------------------------------


def index(readme: str) -> str:
    """A list of pages (README.md, README.ko.md) as a page of the site, with a hidden tree of each section's pages.

    Each page is in one tree: that of the Korean list has the Korean pages, and is itself a part of the other.
    """
    korean = "(README.md)" in readme.partition("\n## ")[0]
    readme = re.sub(r"\]\(\.\./(\w+\.md)\)", r"](project/\1)", readme)
    readme = re.sub(r"\]\(README(\.ko)?\.md\)", r"](index\1.md)", readme)
    parts = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    trees = [] if korean else [_list_tree(name) for name in LISTS]
    return "\n".join([NOTE, *(part.rstrip() + "\n\n" + _tree(part, korean) for part in parts), *trees])


def _list_tree(name: str) -> str:
    """The tree of a page that is itself a list of pages."""
    text = (DOCS / name).read_text(encoding="utf-8")
    below = f"{Path(name).parent}/" if "/" in name else ""
    text = re.sub(r"\]\(\.\./(\w+\.md)\)", r"](\1)" if below else r"](project/\1)", text)
    text = re.sub(r"^#+ ", "", text, flags=re.MULTILINE)
    if below:
        text = re.sub(r"\]\((?=[\w-]+\.ipynb)", f"]({below}", text)
    return _tree(f"## {text.splitlines()[0]}\n{text}", korean=False)


def project(name: str) -> str:
    """A page of the repository's own folder, with its links as seen from docs/project/."""
    text = (DOCS.parent / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/README(\.ko)?\.md\)", r"](../index\1.md)", text).replace("](docs/", "](../")
    text = text.replace("](benchmarks/", "](../../benchmarks/")
    return NOTE + re.sub(r"\[([^\]]+)\]\(LICENSE\)", r"\1", text)


def _tree(section: str, korean: bool) -> str:
    links = re.findall(r"\[([^]`]+)\]\((?!\.\./)([\w./-]+)\.(?:md|ipynb)\)", section)
    here, below = ("index.ko", r".*\.ko") if korean else ("index", r".*(?<!\.ko)|index\.ko")
    links = [(label, name) for label, name in links if re.fullmatch(below, name) and name != here]
    labels = {name: label[0].upper() + " ".join(label.split())[1:] for label, name in links}
    pages = [f"{label} <{name}>" for name, label in labels.items()]
    title = re.match(r"## (.*)", section)
    if title and title[1] == "Reference":
        pages += [f"reference/{name}" for name in REFERENCE]
    if not pages or not title:
        return ""
    return f"```{{toctree}}\n:hidden:\n:caption: {title[1]}\n\n" + "\n".join(pages) + "\n```\n"


LISTS = ("tutorials/notebooks.md", "research.md", "developers.md", "DECISIONS.md")
REFERENCE = {
    "command-line": command_line,
    "configuration": configuration,
    "python-api": python_api,
    "datasets": datasets,
    "recipes": recipes,
    "exit-codes": exit_codes,
}

if __name__ == "__main__":
    for written in generate(*map(Path, sys.argv[1:2])):
        print(written)
