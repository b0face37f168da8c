"""LSTM, GRU, convolutions and bags of word vectors: their formulas, their folders, runs from random weights, and
files of word vectors."""

import copy
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bertie
from bertie.apps.export.graph import traced
from bertie.apps.packaged.word_vectors import read_word_vectors
from bertie.errors import BertieError, DataError, UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed

LENGTHS = [5, 1, 3]
REVIEWS = [("good soup", "yes"), ("bad soup", "no"), ("good bread", "yes"), ("bad bread", "no")] * 8


def small(preset: str, head: str = "token", **changes: object) -> TorchModel:
    sizes = {"hidden_size": 12, "vocab_size": 20, "embedding_size": 12, **changes}
    return families.build(preset, heads=lambda config: {head: HEADS[head](config, 3)}, **sizes).eval()


@pytest.mark.parametrize("preset", ["lstm", "gru"])
def test_torchs_own_cells_on_each_text_by_itself(preset: str) -> None:
    """Forward and backward, over two layers, in a packed batch."""
    model = small(preset, num_hidden_layers=2)
    plain = [{"lstm": nn.LSTM, "gru": nn.GRU}[preset](12, 6, bidirectional=True, batch_first=True) for _ in range(2)]
    for one, layer in zip(plain, model.encoder.layers, strict=True):
        one.load_state_dict(layer.cell.state_dict())
    ids = torch.randint(5, 20, (9,))
    ours = model.encoder(ids, layout=Packed.from_lengths(torch.tensor(LENGTHS))).last_hidden_state
    table = model.get_parameter("encoder.embeddings.word.weight").detach().clone().requires_grad_()
    segment = model.get_parameter("encoder.embeddings.segment.weight")[0].detach()
    norm = copy.deepcopy(model.encoder.embeddings.norm)
    theirs = torch.cat([plain[1](plain[0](norm(table[part] + segment)[None])[0])[0][0] for part in ids.split(LENGTHS)])
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    for name, parameter in plain[0].named_parameters():
        grad = model.get_parameter(f"encoder.layers.0.cell.{name}").grad
        torch.testing.assert_close(grad, parameter.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(model.get_parameter("encoder.embeddings.word.weight").grad, table.grad)


def test_torchs_own_convolutions_on_each_text_by_itself() -> None:
    """Forward and backward; an even width reads one token more on the right."""
    model = small("cnn", filter_widths=[3, 4, 1])
    plain = [nn.Conv1d(12, 4, width, padding="same") for width in (3, 4, 1)]
    for one, filters in zip(plain, model.encoder.layers[0].filters, strict=True):
        one.load_state_dict(filters.state_dict())
    ids = torch.randint(5, 20, (9,))
    ours = model.encoder(ids, layout=Packed.from_lengths(torch.tensor(LENGTHS))).last_hidden_state
    embedded = model.encoder.embeddings(ids, None, None, Packed.from_lengths(torch.tensor(LENGTHS)), None).detach()
    theirs = torch.cat(
        [torch.cat([one(part.mT[None]) for one in plain], 1)[0].mT.relu() for part in embedded.split(LENGTHS)]
    )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    for i, one in enumerate(plain):
        grad = model.get_parameter(f"encoder.layers.0.filters.{i}.weight").grad
        torch.testing.assert_close(grad, one.weight.grad, atol=1e-6, rtol=1e-4)


def test_a_bag_is_the_mean_of_its_vectors() -> None:
    model = small("bag", head="sequence")
    ids = torch.tensor([[5, 6, 7]])
    vectors = model.get_parameter("encoder.embeddings.word.weight")[ids[0]]
    segment = model.get_parameter("encoder.embeddings.segment.weight")[0]
    mean = model.encoder.embeddings.norm(vectors + segment).mean(0)
    torch.testing.assert_close(model(ids)["sequence"][0], model.heads["sequence"].classifier(mean))


def test_what_they_refuse() -> None:
    for preset in ("lstm", "cnn"):
        with pytest.raises(UsageError, match="no attention"):
            small(preset).encoder(torch.tensor([[5, 6]]), output_attentions=True)
    for changes in ({"causal": True}, {"positions": "learned"}, {"attention_window": 4}):
        with pytest.raises(BertieError, match="layer=recurrent needs"):
            families.config("lstm", **changes)
    with pytest.raises(BertieError, match="divisible by the number of filter_widths"):
        families.config("cnn", hidden_size=128)
    with pytest.raises(BertieError, match="gates"):
        families.config("cnn", hidden_act="geglu")


def test_graphs() -> None:
    """Convolutions are exported; recurrent layers are refused with the reason."""
    assert traced(small("cnn"))
    with pytest.raises(UsageError, match="packed sequences"):
        traced(small("lstm"))


@pytest.mark.parametrize("preset", ["lstm", "gru", "cnn", "bag"])
def test_a_run_from_random_weights(preset: str, tmp_path: Path) -> None:
    run = bertie.finetune(preset, REVIEWS, REVIEWS[:4], output=tmp_path / "run", epochs=30, lr=1e-2, batch_size=8)
    assert run.scores["accuracy"] == 1.0
    model = bertie.load(tmp_path / "run")
    assert [one.label for one in model.predict(["good soup", "bad bread"])] == ["yes", "no"]
    again = bertie.finetune(preset, REVIEWS, REVIEWS[:4], output=tmp_path / "run", epochs=30, lr=1e-2, batch_size=8)
    assert again.scores["accuracy"] == 1.0


def test_settings_of_random_weights(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lstmm is not a folder\. Did you mean 'lstm'"):
        bertie.finetune("lstmm", REVIEWS)
    with pytest.raises(UsageError, match="settings of lstm"):
        bertie.finetune("starter-en", REVIEWS, settings={"vectors": "x.vec"})
    with pytest.raises(UsageError, match="of pre-trained models"):
        bertie.finetune("lstm", REVIEWS, lora=4)


WORDS = {"good": [1.0, 0.0, 0.5], "bad": [-1.0, 0.25, 0.0], "the": [0.0, 1.0, 2.0]}
TEXT = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in WORDS.items())
BINARY = b"3 3\n" + b"".join(word.encode() + b" " + struct.pack("<3f", *row) + b"\n" for word, row in WORDS.items())
FORMS = {
    "glove.txt": TEXT.encode(),
    "word2vec.txt": f"3 3\n{TEXT}".encode(),
    "fasttext.vec": f"3 3\n{TEXT}".replace("\n", " \n").replace("3 3 \n", "3 3\n").encode(),
    "word2vec.bin": BINARY,
    "glove.txt.gz": gzip.compress(TEXT.encode()),
    "word2vec.bin.gz": gzip.compress(BINARY),
}


@pytest.mark.parametrize("name", FORMS)
def test_files_of_word_vectors(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    (tmp_path / name).write_bytes(FORMS[name])
    words, vectors = read_word_vectors(tmp_path / name)
    assert list(words) == list(WORDS)
    np.testing.assert_array_equal(vectors, np.float32(list(WORDS.values())))
    assert list(read_word_vectors(tmp_path / name, most=2)[0]) == ["good", "bad"]


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"good\n",
        b"A text, which has words.\nAnd another line.\n",
        b"good 1 2 3\nbad 1 2\n",
        b"good 1 nan 3\nbad 1 2 3\n",
        b"good 1 2 x\nbad 1 2 3\n",
        b"99999999999999999 3\ngood 1 2 3\n",
        b"3 99999999999\ngood 1 2 3\n",
        b"0 3\n",
        b"3 3\ngood 1 2 3\n",
        BINARY[:-9],
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        (793_712_314).to_bytes(4, "little") + bytes(100),
        b'{"word": "good", "vector": [1, 2]}\n',
    ],
)
def test_a_damaged_file_of_word_vectors_is_one_error(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.txt is (no file of word vectors|a model of fastText)"):
        read_word_vectors(tmp_path / "x.txt")


def test_a_run_starts_from_word_vectors(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    (tmp_path / "v.vec").write_bytes(FORMS["fasttext.vec"])
    settings = {"vectors": str(tmp_path / "v.vec"), "freeze": 0}
    run = bertie.finetune("lstm", REVIEWS, REVIEWS[:4], epochs=1, batch_size=8, settings=settings)
    module, tokenizer = run.model.module, run.model.tokenizer
    table = module.get_parameter("encoder.embeddings.word.weight")
    for word, row in WORDS.items():  # "the" is in no text, and frequent in the file
        torch.testing.assert_close(table[tokenizer.encode(word).ids[1]], torch.tensor(row))
    with pytest.raises(DataError, match="does not exist"):
        bertie.finetune("lstm", REVIEWS, settings={"vectors": str(tmp_path / "none.vec")})
