"""The task that docs/add-a-task.md shows works as the page says: it trains, is saved, recognised and used."""

import importlib.util
import random
import re
import string
import sys
from pathlib import Path

import bertie
from bertie import families, tasks
from bertie.infer.predict import Predictor
from bertie.models.config import EncoderConfig
from bertie.registry import Registry
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import finetune
from bertie.runs.models import load
from bertie.text.tokenizer import Tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "add-a-task.md"


def pretrained(folder: Path) -> Path:
    folder.mkdir()
    letters = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]))
    tokenizer = Tokenizer.load(folder)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.1,
    )
    families.save(families.build(config), folder, tokenizer=tokenizer)
    return folder


def test_the_task_of_the_page_learns_an_order(tmp_path, monkeypatch):
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "ordinal.py").write_text(shown, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("ordinal", tmp_path / "ordinal.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ordinal", module)
    spec.loader.exec_module(module)
    registry = Registry("task", [*tasks.TASKS.items(), ("ordinal", module.OrdinalTask)])
    monkeypatch.setattr(tasks, "TASKS", registry)
    monkeypatch.setattr("bertie.runs.examples.TASKS", registry)

    rng = random.Random(0)  # the more z, the more stars
    rows = []
    for number in range(240):
        letters = ["z"] * (number % 3) + [rng.choice("abcd") for _ in range(4)]
        rng.shuffle(letters)
        rows.append(f"{' '.join(letters)}\t{number % 3 + 1}\n")
    (tmp_path / "stars.tsv").write_text("text\tlabel\n" + "".join(rows))
    config = FinetuneConfig.model_validate(
        {
            "model": str(pretrained(tmp_path / "pretrained")),
            "task": "ordinal",
            "task_options": {"threshold": 0.45, "calibrate": True},
            "train_file": str(tmp_path / "stars.tsv"),
            "epochs": 12,
            "optim": {"lr": 3e-3},
            "max_length": 24,
            "train": {"batch_size": 16, "precision": "fp32"},
        }
    )
    results = finetune(config, tmp_path / "run")
    assert results["dev"]["accuracy"] > 0.8
    assert "ece" not in results["dev"]  # its answers have no probability
    model = load(tmp_path / "run" / "model")
    assert Predictor(model).task == module.OrdinalTask(("1", "2", "3"), threshold=0.45, calibrate=True)
    assert [p.label for p in bertie.predict(model, ["a b c d", "a z c z b d"])] == ["1", "3"]
