"""An LSTM between the encoder and the head is a value of any task: its formula, its folder, and runs with it."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bertie
from bertie.apps.export.graph import traced
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer
from toys import FAST, CommandLine, toy_model

LENGTHS = [5, 1, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefgh", num_hidden_layers=2)


def with_lstm(folder: Path, head: str, **changes: object) -> TorchModel:
    config = families.config(folder, label_lstm=2, **changes)
    return families.build(config, variant="bert", heads=lambda config: {head: HEADS[head](config, 3)}).eval()


@pytest.mark.parametrize("head", ["sequence", "token", "span", "choice"])
def test_its_formula(folder: Path, head: str) -> None:
    """In a packed batch, torch's own LSTM on each text by itself."""
    model = with_lstm(folder, head)
    made = model.heads[head]
    plain = nn.LSTM(32, 16, num_layers=2, bidirectional=True, batch_first=True)
    plain.load_state_dict(made.reader.lstm.state_dict())
    ids = torch.randint(5, 13, (9,))
    with torch.no_grad():
        found = model.logits(head, model.run_encoder(ids, None, Packed.from_lengths(torch.tensor(LENGTHS))))
        wanted = []
        for part in ids.split(LENGTHS):
            states, _ = plain(model.encoder(part[None]).last_hidden_state)
            row = made.classifier(states[0] if made.rows == "token" else states[:, 0])
            wanted.append(row.squeeze(-1) if head == "choice" else row)
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=0)
    model.train()(ids[None])[head].sum().backward()
    assert model.get_parameter("encoder.embeddings.word.weight").grad.abs().sum() > 0


def test_its_folder_and_what_it_refuses(folder: Path, tmp_path: Path) -> None:
    model = with_lstm(folder, "sequence", label_pooling="max")
    families.save(model, tmp_path, tokenizer=Tokenizer.load(folder), labels=("a", "b", "c"))
    texts = ["a b c d", "h", "g a"]
    again = load_model(tmp_path)
    assert again.config.heads.label.label_lstm == 2
    assert bertie.predict(tmp_path, texts) == bertie.predict(again, texts)
    with pytest.raises(UsageError, match="LSTM"):
        traced(again)
    with pytest.raises(DataError, match="label_lstm needs"):
        families.config(folder, label_lstm=1, label_pooling="cls_layers")


def test_runs_of_two_tasks(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    """A left-to-right model learns with it what only the whole text tells, and keeps it when it is trained on."""
    table, tags = tmp_path / "t.tsv", tmp_path / "t.conll"
    rows = [f"{'a b c' if n % 2 else 'f g h'}\t{'first' if n % 2 else 'last'}\n" for n in range(40)]
    table.write_text("text\tlabel\n" + "".join(rows))
    tags.write_text("".join(f"a {'B-X' if n % 2 else 'O'}\n{'b' if n % 2 else 'f'} O\n\n" for n in range(40)))
    run = tmp_path / "run"
    bertie.good("finetune", folder, "--train", table, "-o", run, "lstm=1", "epochs=8", "max_length=16", *FAST)
    assert '"label": "first"' in bertie.good("predict", run / "model", "-", stdin="a b c\n")
    bertie.good(
        "finetune", run / "model", "--train", table, "-o", tmp_path / "again", "epochs=1", "max_length=16", *FAST
    )
    assert families.load(tmp_path / "again" / "model")[0].config.heads.label.label_lstm == 1
    bertie.good(
        "finetune",
        folder,
        "--task",
        "tagging",
        "--train",
        tags,
        "-o",
        tmp_path / "tags",
        "lstm=1",
        "max_length=16",
        *FAST,
    )
    assert families.load(tmp_path / "tags" / "model")[0].config.heads.label.label_lstm == 1
