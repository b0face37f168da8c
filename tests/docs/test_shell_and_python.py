"""Each row of the table in docs/python.md: the command and the function give the same result, to the last digit."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertie
from bertie.api.results import Written
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model, toy_writer

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
TABLE = PAGE.read_text(encoding="utf-8").partition("| in the shell |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| `(bertie [^`]*)` \| `(bertie\.[^`]*)` \|", TABLE, re.MULTILINE)
TIMES = {
    *("elapsed_s", "seconds", "tokens_per_s", "step_ms", "waited", "peak_gb", "created", "input_mb_per_s", "usage"),
    *("cost", "forecast", "kwh", "identity", "folder"),
}


def world(folder: Path) -> None:
    """Small models and texts."""
    folder.mkdir()
    encoder = toy_model(folder / "encoder", "abcdefghijkl", max_position_embeddings=128)
    heads: dict[str, tuple[str, ...]] = {"classifier": ("bad", "good"), "masked": (), "follows": ()}
    for name, labels in heads.items():
        head = {"classifier": "sequence", "masked": "mlm", "follows": "pair"}[name]
        config = families.config(encoder)
        model = families.build(config, heads={head: HEADS[head](config, len(labels))}, seed=1)
        families.save(model, folder / name, tokenizer=Tokenizer.load(encoder), labels=labels)
    toy_writer(folder / "writer")
    lines = [" ".join("abcdefghijkl"[(i + j) % 12] for j in range(3 + i % 4)) for i in range(40)]
    documents = ["\n".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]
    (folder / "texts.txt").write_text("\n\n".join(documents) + "\n")
    rows = [f"{line},{'bad good'.split()[i % 2]}\n" for i, line in enumerate(lines)]
    (folder / "reviews.csv").write_text("review,stars\n" + "".join(rows))
    (folder / "words.txt").write_text("abba\ncd\n")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with the same files: of the shell, and of Python."""
    home = tmp_path_factory.mktemp("world")
    for name in ("shell", "python"):
        world(home / name)
    return home / "shell", home / "python"


def without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: without_times(one) for name, one in value.items() if name not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list | tuple) else value


def plain(result: Any) -> Any:
    """The result of a function as JSON values."""
    if isinstance(result, bertie.Predictions):
        return [answer.as_json() for answer in result]
    if isinstance(result, np.ndarray):
        return [None if np.isnan(row).any() else row.tolist() for row in result]
    if isinstance(result, bertie.Tokenizer):
        return result.fingerprint
    if isinstance(result, bertie.Run):
        return dict(result.results)
    if isinstance(result, Written):
        return [path.read_bytes().hex() for path in result.files]
    if isinstance(result, list):
        return [plain(one) for one in result]
    if hasattr(result, "changes"):
        return result.changes.as_json()
    if hasattr(result, "as_json"):
        return result.as_json()
    if hasattr(result, "to_dict"):
        return result.to_dict()
    return asdict(result) if hasattr(result, "__dataclass_fields__") else result


def answers(lines: list[Any]) -> list[Any]:
    columns = ("text", "row", "line")
    return [{name: value for name, value in line.items() if name not in columns} for line in lines]


READ: dict[str, Callable[[list[Any]], Any]] = {  # what a command prints -> what its function returns
    "predict": answers,
    "embed": lambda lines: [line.get("vector") for line in lines],
    "convert": lambda lines: {name: value for name, value in lines[0].items() if name != "output"},
    "fill-mask": lambda lines: lines[0]["masks"],
    "write": lambda lines: [line["text"] for line in lines],
    "index": lambda lines: {name: value for name, value in lines[0].items() if name != "folder"},
    "tokenizer train": lambda lines: lines[0]["fingerprint"],
}


@pytest.mark.parametrize(("shell", "python"), ROWS, ids=[row[0].split(" -o")[0] for row in ROWS])
def test_both_columns_give_the_same(
    shell: str, python: str, places: tuple[Path, Path], bertie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bertie as library

    words = shlex.split(shell)[1:]
    name = " ".join(words[:2]) if words[0] in ("tokenizer", "vocabulary") else words[0]
    monkeypatch.chdir(places[0])
    if name == "compare":
        bertie.good(*"finetune encoder --train reviews.csv --text review --label stars -o runs/other epochs=1".split())
    printed = [json.loads(line) for line in bertie.good(*words, "--json").splitlines()]
    monkeypatch.chdir(places[1])
    if name == "compare":
        library.finetune("encoder", "reviews.csv", text="review", label="stars", output="runs/other", epochs=1)
    result = eval(python, {"bertie": library, "Path": Path})  # of the page of this repository
    ours = plain(result)
    if isinstance(result, Written):
        files = [places[0] / path for path in result.files]
        assert ours == [path.read_bytes().hex() for path in files]
        return
    theirs = READ.get(name, lambda lines: lines[0])(printed)
    if name == "fill-mask":
        ours = [[{**vars(one), "probability": round(one.probability, 6)} for one in mask] for mask in result]
    assert without_times(json.loads(json.dumps(ours))) == without_times(theirs)
