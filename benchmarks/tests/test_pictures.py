"""The masked words of captions: `found` against a plain loop over words, and the command on a file."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import pictures
from bertie.errors import UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.features import Features
from bertie.nn.layout import Packed
from bertie.objectives import ImageTextMatching
from bertie.objectives.captions import Captions, CaptionSource
from bertie.text.tokenizer import Tokenizer
from nano import one_thread

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "blue", "square", "left", "of"]
TEXTS = ("a red square left of a blue square", "a blue square", "left of a square", "a of a red", "blue red blue red")
WORDS = ("red", "blue", "square")
SEED = 2  # of weights with which the counts differ


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, its tokenizer, and a table of captions with regions."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    model = families.build(
        "visualbert-tiny",
        heads=lambda config: {name: HEADS[name](config) for name in ("mlm", "pair")},
        seed=SEED,
        vocab_size=len(VOCAB),
        hidden_size=32,
        num_attention_heads=2,
        visual_embedding_dim=3,
        initializer_range=0.5,  # so that pictures change the predictions
    )
    model.save_pretrained(folder, tokenizer=Tokenizer.load(folder))
    rng = np.random.default_rng(0)
    rows = [{"text": text, "image": rng.normal(size=(2, 3)).round(3).tolist()} for text in TEXTS]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def plain(
    model: TorchModel, tokenizer: Tokenizer, rows: list[dict[str, object]], pictures: list[int] | None
) -> list[int]:
    """How many words are found and how many there are: one word of one caption at a time."""
    right = total = 0
    for number, row in enumerate(rows):
        ids = tokenizer.encode(str(row["text"])).ids
        regions = [] if pictures is None else rows[pictures[number]]["image"]
        vectors = torch.tensor(regions).view(-1, 3)
        features = Features(torch.arange(len(vectors)) + len(ids), vectors) if len(vectors) else None
        for at in [i for i, one in enumerate(ids) if one in map(VOCAB.index, WORDS)]:
            masked = torch.tensor([*ids, *[0] * len(vectors)]).index_fill(0, torch.tensor([at]), tokenizer.mask_id)
            layout = Packed.from_lengths(torch.tensor([len(masked)]))
            with torch.no_grad():
                logits = model.all_logits(model.run_encoder(masked, None, layout, features=features))["mlm"]
            right += int(logits[at].argmax()) == ids[at]
            total += 1
    return [right, total]


def test_as_a_plain_loop(folder: Path) -> None:
    model, tokenizer = families.load(folder)[0], Tokenizer.load(folder)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]
    vectors = [np.array(row["image"], np.float32) for row in rows]
    captions = Captions(tokenizer.ids([row["text"] for row in rows]), vectors)
    source = CaptionSource(captions, tokenizer, ImageTextMatching(), batch_size=1)
    words, every = np.array([VOCAB.index(word) for word in WORDS]), np.arange(len(rows))
    counts = []
    with one_thread():
        for chosen in (every, np.roll(every, 1), None):
            found = list(pictures.found(model, source, words, every, chosen))
            assert found == plain(model, tokenizer, rows, None if chosen is None else chosen.tolist())
            counts.append(found)
    assert counts[0][1] == 12
    assert len({right for right, _ in counts}) > 1  # the pictures are read


def test_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [str(folder), str(folder / "rows.jsonl"), "--features", "image", "--words", ",".join(WORDS), "patch_size=8"]
    monkeypatch.setattr(sys, "argv", ["pictures", *asked])
    with one_thread():
        pictures.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["picture"] for line in lines] == ["own", "another", "none"]
    assert all(line["words"] == 12 and 0 <= line["found"] <= 1 for line in lines)
    assert all(line["interval"][0] <= line["found"] <= line["interval"][1] for line in lines)


@pytest.mark.parametrize(
    ("words", "reason"),
    [("red,rod", "'rod' is not one token"), ("a,", "'' is not one"), ("[MASK]", "none of the words")],
)
def test_words_that_cannot_be_masked(words: str, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the word, or the unknown token, was masked instead."""
    monkeypatch.setattr(
        sys, "argv", ["x", str(folder), str(folder / "rows.jsonl"), "--features=image", "--words", words]
    )
    with pytest.raises(UsageError, match=reason):
        pictures.main()
