"""Predictions for masked words during training: the same sentences at several steps, in guesses.jsonl."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bertie import Model, Tokenizer
from bertie.platform import File, TorchModel

_LOOK_SHARES = (0.01, 0.05, 0.15, 0.35, 0.65, 1.0)  # when, as shares of pre-training
MASK_TOKEN = "[MASK]"
DEMO_SENTENCES = (
    ("Return the number of [MASK] in the list.", "elements"),
    ("If the file does not [MASK], an error is raised.", "exist"),
    ("Compute the mean and the standard [MASK] of the samples.", "deviation"),
    ("This function returns [MASK] if the two objects are equal.", "true"),
    ("The first argument must be a positive [MASK].", "integer"),
    ("The shape of the output is the same as the shape of the [MASK].", "input"),
    ("Solve a system of linear [MASK].", "equations"),
)  # made up for this; the word each was written with


def looks(steps: int) -> set[int]:
    """Returns the steps of the predictions."""
    return {max(1, round(share * steps)) for share in _LOOK_SHARES}


class Training(Protocol):
    """A run that is training a model."""

    @property
    def model(self) -> TorchModel:
        """The model as it is now."""
        ...


def write_predictions(
    run: Training,
    tokenizer: Tokenizer,
    sentences: Sequence[tuple[str, str]],
    *,
    step: int,
    path: Path,
    top: int = 2,
) -> None:
    """Predicts the masked words, and writes the predictions. Lines of later steps, of an interrupted run, are
    removed."""
    was_training = run.model.training
    model = Model(run.model.eval(), tokenizer)
    guesses = [
        [{"token": g.token, "probability": g.probability} for g in model.fill_mask(text, top=top)[0]]
        for text, _ in sentences
    ]
    run.model.train(was_training)
    row = {"step": step, "sentences": [t for t, _ in sentences], "answers": [a for _, a in sentences]}
    write_lines(path, [*(r for r in read_lines(path) if r["step"] < step), {**row, "guesses": guesses}])


def of_documents(documents: Iterable[Sequence[str]], tokenizer: Tokenizer, count: int) -> list[tuple[str, str]]:
    """Returns up to `count` sentences of some documents, each with one masked word that is one token."""
    sentences: dict[str, str] = {}
    for words in (sentence.split() for document in documents for sentence in document):
        inner = [
            i for i, w in enumerate(words[1:], 1) if len(w) > 1 and w.isalpha() and len(tokenizer.ids([w])[0]) == 1
        ]
        if 6 <= len(words) <= 16 and inner:
            hidden = inner[len(inner) // 2]
            sentences[" ".join([*words[:hidden], MASK_TOKEN, *words[hidden + 1 :]])] = words[hidden]
        if len(sentences) == count:
            break
    return list(sentences.items())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a JSON Lines file; none without a file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Writes JSON Lines atomically."""
    with File(path).write() as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
