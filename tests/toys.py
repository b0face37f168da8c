"""Toys for the tests of tasks: a model folder of one small layer whose vocabulary is given, and the command line."""

import io
import string
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from bertie.apps.cli.table import app
from bertie.console import Verbosity, console
from bertie.infer.engine import Array, Engine
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.program import run
from bertie.tasks.text2text import Text2TextTask
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TASK_OPTIONS: dict[str, dict[str, Any]] = {  # of tasks that need some
    "pattern": {"pattern": "c [MASK] d", "words": {"no": "n", "yes": "y"}},
    "several": {"members": {"x": {"labels": ["no", "yes"], "metric": "accuracy"}, "y": {"metric": "pearson"}}},
}
FAST = ("train.batch_size=16", "train.precision=fp32", "optim.lr=3e-3")


def toy_model(folder: Path, pieces: Iterable[str], **config: Any) -> Path:
    """A model folder: one layer, 32 wide, 64 positions, weights drawn wide enough to learn from quickly."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *dict.fromkeys(pieces)]), encoding="utf-8")
    tokenizer = Tokenizer.load(folder)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.1,
    }
    families.save(
        families.build(EncoderConfig(vocab_size=tokenizer.vocab_size, **sizes | config)), folder, tokenizer=tokenizer
    )
    return folder


def toy_writer(folder: Path, family: str = "t5") -> Path:
    """A model folder of one layer that generates text, with the letters as vocabulary, without dropout."""
    letters = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
    toy_model(folder, letters)
    tokenizer = Tokenizer.load(folder)
    own: dict[str, dict[str, Any]] = {
        "t5": {"num_decoder_layers": 1, "attention_head_size": 16},
        "gpt2": {"max_position_embeddings": 48, "embedding_dropout": 0.0, "initializer_range": 0.2},
    }
    shape = families.VARIANTS[family].base.replace(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        pad_token_id=0,
        eos_token_id=tokenizer.sep_id,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **own[family],
    )
    model = families.build(shape, heads=Text2TextTask().heads, variant=family, seed=1)
    families.save(model, folder, tokenizer=tokenizer)
    return folder


class CommandLine:
    """Runs a command line, that of Bertie or another, in this process."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        program: Callable[[], None] = app,
    ) -> None:
        self.monkeypatch, self.capsys, self.program = monkeypatch, capsys, program

    def __call__(self, *arguments: object, stdin: str = "") -> tuple[int, str, str]:
        """-> exit code, standard output, standard error"""
        self.monkeypatch.setattr(console, "verbosity", Verbosity())
        self.monkeypatch.setattr(sys, "argv", ["bertie", *map(str, arguments)])
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as exit:
            run(self.program)
        code = exit.value.code
        assert isinstance(code, int)
        return (code, *self.capsys.readouterr())

    def good(self, *arguments: object, stdin: str = "") -> str:
        """-> standard output of a command that succeeds"""
        code, out, err = self(*arguments, stdin=stdin)
        assert code == 0, err
        return out


TOY_WORDS = [f"w{i}" for i in range(200)]
TOY_TEXTS = [" ".join(TOY_WORDS[(i * 7 + j * 3) % 200] for j in range(3 + i % 20)) for i in range(400)]


def toy_vectors(model: TorchModel, engine: Engine) -> Array:
    """The mean vectors of the first toy texts."""
    ids = Sequences.of([model.tokenizer.encode(text).ids for text in TOY_TEXTS[:40]])
    return engine.run(ids, ["mean"])["mean"]
