"""Attention of a text: rollout and flow against plain twins, statistics of made-up heads, and the page."""

import io
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertie.apps.explain.attention import (
    FLOW_TOKENS,
    HeadStatistics,
    attentions,
    classify_head,
    flow,
    read_vectors,
    rollout,
    with_norms,
)
from bertie.apps.explain.attention_page import TextAttention, most_tokens, render_attention_page
from bertie.apps.explain.picture import png
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.text.encoding import Encoding
from bertie.text.tokenizer import Tokenizer
from toys import SPECIAL, toy_model

WORDS = [*"abcdefgh", "영화", "<", ">", "/"]
SIZES = {
    "vocab_size": 20,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
}
GIVEN = np.array(  # one head per layer
    [
        [[[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]],
        [[[0.2, 0.2, 0.6], [0.7, 0.2, 0.1], [0.4, 0.4, 0.2]]],
    ]
)


def drawn(layers: int, heads: int, size: int) -> Any:
    return np.random.default_rng(0).dirichlet(np.full(size, 0.3), (layers, heads, size))


def test_rollout_of_two_layers_by_hand() -> None:
    wanted = [[0.4925, 0.2075, 0.3], [0.29875, 0.53875, 0.1625], [0.235, 0.265, 0.5]]
    assert rollout(GIVEN)[-1] == pytest.approx(np.array(wanted), abs=1e-6)


def test_rollout_is_the_sum_over_all_paths() -> None:
    """Every way through three layers, one after the other."""
    probs, size = drawn(3, 2, 4), 4
    mixed = (probs.mean(1) + np.eye(size)) / 2
    wanted = np.zeros((size, size))
    for top, b, c, bottom in np.ndindex(size, size, size, size):
        wanted[top, bottom] += mixed[2][top, b] * mixed[1][b, c] * mixed[0][c, bottom]
    found = rollout(probs)
    assert found[-1] == pytest.approx(wanted, abs=1e-12)
    assert found.sum(-1) == pytest.approx(np.ones((3, size)))


def test_flow_is_that_of_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    probs, size = drawn(2, 3, 4), 4
    graph = networkx.DiGraph()
    for layer, one in enumerate((probs.mean(1) + np.eye(size)) / 2):
        for top, below in np.ndindex(size, size):
            graph.add_edge((layer + 1, top), (layer, below), capacity=one[top, below])
    wanted = np.array(
        [[networkx.maximum_flow_value(graph, (2, top), (0, below)) for below in range(size)] for top in range(size)]
    )
    assert flow(probs) == pytest.approx(wanted / wanted.sum(-1, keepdims=True), abs=1e-6)
    with pytest.raises(UsageError, match=f"at most {FLOW_TOKENS} tokens"):
        flow(np.ones((1, 1, FLOW_TOKENS + 1, FLOW_TOKENS + 1)))


def tokenizer(folder: Path) -> Tokenizer:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]), encoding="utf-8")
    return Tokenizer.load(folder)


def test_statistics_of_heads_whose_answer_is_known(tmp_path: Path) -> None:
    """Heads that attend to the next token, the previous, itself, [CLS], [SEP], and to all alike."""
    size = 6
    nothing = np.zeros((size, size))
    first, last = (np.tile(np.eye(size)[at], (size, 1)) for at in (0, -1))
    after, before = np.eye(size, k=1), np.eye(size, k=-1)
    probs = np.stack([after, before, np.eye(size), first, last, nothing + 1 / size])[None]
    found = HeadStatistics(tokenizer(tmp_path))
    ids = [2, 5, 6, 7, 8, 3]
    found.add(probs, ids)
    found.add(probs, ids)
    rows = found.as_json()
    assert [row["kind"] for row in rows] == ["next", "previous", "self", "first", "separator", ""]
    assert [row[name] for row, name in zip(rows, ("next", "previous", "self", "first", "separator"))] == [1.0] * 5  # noqa: B905
    assert rows[5]["entropy"] == pytest.approx(np.log(size), abs=1e-5)
    sure, other = 0.9999 + 1e-4 / size, 1e-4 / size
    wanted = -sure * np.log(sure) - (size - 1) * other * np.log(other)
    assert rows[2]["entropy"] == pytest.approx(wanted, abs=1e-5)
    assert rows[4]["distance"] == pytest.approx(2.5)
    assert found.texts == 2
    assert classify_head({"previous": 0, "next": 0, "self": 0, "first": 0, "separator": 0, "entropy": 4.0}) == "broad"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in ("bert-base", "roberta-base", "distilbert-base-uncased", "mpnet-base")),
        *((name, {"embedding_size": 16}) for name in ("albert-base-v2", "electra-small-discriminator")),
        ("deberta-v3-small", {}),
        ("ModernBERT-base", {"pad_token_id": 0}),
        ("xlnet-base-cased", {}),
    ],
)
def test_attention_is_that_of_transformers(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """By the published class, opened from our folder, in float32."""
    transformers = pytest.importorskip("transformers")
    model = families.build(name, seed=1, **SIZES, **changes).eval()
    model.save_pretrained(tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids, types = [2, 9, 7, 11, 8, 9, 3], [0] * 7
    found = attentions(model, ids, types)
    with torch.no_grad():
        wanted = theirs(torch.tensor([ids]), output_attentions=True).attentions
    for mine, other in zip(found, wanted, strict=True):
        assert mine == pytest.approx(other[0].numpy(), abs=1e-5)


@pytest.mark.parametrize("name", ["bigbird-roberta-base", "mobilebert-uncased", "gpt2", "t5-small", "nomic-bert-2048"])
def test_rows_add_up_to_one_in_other_families(name: str) -> None:
    """Their probabilities are compared with transformers in tests/twins/."""
    extra = {"mobilebert-uncased": {"embedding_size": 16}}.get(name, {})
    model = families.build(name, seed=1, **SIZES, **extra).eval()
    found = attentions(model, [2, 9, 7, 11, 8, 3], [0] * 6)
    assert found.shape == (3, 4, 6, 6)
    assert found.sum(-1) == pytest.approx(np.ones((3, 4, 6)), abs=1e-5)
    assert (np.triu(found, 1) > 0).any() == (name != "gpt2")


def test_a_window_is_a_square_with_zeros(tmp_path: Path) -> None:
    """Windowed attention, with and without global tokens, against the scores of all pairs under a mask."""
    model = families.build("longformer-base-4096", **SIZES, attention_window=4, max_position_embeddings=64).eval()
    ids = [2, *np.random.default_rng(0).integers(5, 20, 15).tolist(), 3]
    at = np.arange(len(ids))
    near = abs(at[:, None] - at) <= 2
    found = attentions(model, ids, [0] * len(ids))
    assert found.shape == (3, 4, 17, 17)
    assert found.sum(-1) == pytest.approx(np.ones((3, 4, 17)), abs=1e-5)
    assert not found[:, :, ~near].any()
    assert (found[:, :, near] > 0).all()
    model.global_tokens = lambda ids: torch.from_numpy(at == 1)[None]  # type: ignore[method-assign]
    found = attentions(model, ids, [0] * len(ids))
    seen = near | (at == 1) | (at[:, None] == 1)
    assert not found[:, :, ~seen].any()
    assert (found[:, :, seen] > 0).all()
    assert found.sum(-1) == pytest.approx(np.ones((3, 4, 17)), abs=1e-5)


@pytest.mark.parametrize("name", ["bert-base", "albert-base-v2", "ModernBERT-base", "deberta-v3-small"])
def test_what_heads_read_adds_up_to_the_output_of_attention(name: str) -> None:
    """sum over heads and tokens of attention times what is read there, plus the bias."""
    model = families.build(name, seed=1, **SIZES | ({"embedding_size": 16} if "albert" in name else {})).eval()
    ids, types, outputs = [2, 9, 7, 11, 8, 9, 3], [0] * 7, list[torch.Tensor]()
    for module in dict.fromkeys(layer.attention.output for layer in model.encoder.in_order()):
        module.register_forward_hook(
            lambda module, inputs, output: outputs.append((output if module.bias is None else output - module.bias)[0])
        )
    probs, read = torch.from_numpy(attentions(model, ids, types)), read_vectors(model, ids, types)
    assert read.shape == (3, 4, 7, 32)
    for layer in range(3):
        found = (probs[layer] @ read[layer]).sum(0)
        assert torch.allclose(found, outputs[layer], atol=1e-5)
    shares = with_norms(probs.numpy(), read)
    assert shares.sum(-1) == pytest.approx(np.ones((3, 4, 7)), abs=1e-5)
    lengths = np.array([[float(vector.norm()) for vector in one] for one in read[0]])
    wanted = probs[0].numpy() * lengths[:, None]
    assert shares[0] == pytest.approx(wanted / wanted.sum(-1, keepdims=True), abs=1e-6)


def test_asking_for_attention_leaves_the_output_as_it_is() -> None:
    model = families.build("ModernBERT-base", **SIZES).eval()
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        plain, asked = (model.run_encoder(ids, None, _layout(ids), output_attentions=ask) for ask in (False, True))
    assert plain.attentions is None
    assert torch.allclose(plain.last_hidden_state, asked.last_hidden_state, atol=1e-5)


def _layout(ids: torch.Tensor) -> Any:
    from bertie.nn.layout import Padded

    return Padded.of(ids, None)


def test_a_picture_has_a_pixel_for_each_cell() -> None:
    image = pytest.importorskip("PIL.Image")
    matrix = drawn(1, 1, 20)[0, 0]
    read = image.open(io.BytesIO(b64decode(png(matrix).partition(",")[2])))
    assert read.size == (20, 20)
    alpha = np.array(read.convert("RGBA"))[..., 3]
    assert alpha == pytest.approx(255 * np.sqrt(matrix), abs=9)


def test_the_longest_page_is_smaller_than_two_megabytes() -> None:
    """Twelve layers of twelve heads over 128 tokens, with attention that compresses as badly as any."""
    shape = SIZES | {"hidden_size": 24, "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 200}
    model = families.build("bert-base", **shape).eval()
    most = most_tokens(model)
    assert most == 128
    words = [f"word{number:09}" for number in range(most)]
    offsets = [(0, 13)] * most
    encoding = Encoding(list(range(most)), [0] * most, words, offsets, list(range(most)), [0] * most)
    statistics = HeadStatistics.__new__(HeadStatistics)
    statistics.special, statistics.texts, statistics.tokens = [None, None], 0, 0
    statistics._sums, statistics._counts = {}, {}
    probs = np.random.default_rng(0).random((12, 12, most, most)).astype(np.float32)
    statistics.add(probs / 128, encoding.ids)
    found = TextAttention((" ".join(words),), encoding, probs, statistics, (0, 0), 0)
    html = render_attention_page(found, "m").render()
    assert 1_500_000 < len(html.encode()) < 2_000_000
    assert "<script" not in html
    big = families.config("bert-large")
    assert most_tokens(type("M", (), {"config": big})()) == 81


def model(folder: Path) -> TorchModel:
    toy_model(folder, WORDS, num_hidden_layers=2)
    found = families.load(folder)[0].eval()
    found.tokenizer = Tokenizer.load(folder)
    return found


def test_the_command(tmp_path: Path, bertie: Any) -> None:
    toy_model(tmp_path / "m", WORDS, num_hidden_layers=2)
    text = "a b 영화 <b>c</b>"
    out, arrays = tmp_path / "page.html", tmp_path / "a.npz"
    found = json.loads(bertie.good("attention", tmp_path / "m", text, "-o", out, "--json"))
    assert found["tokens"][:3] == ["[CLS]", "a", "b"]
    assert len(found["heads"]) == 4
    assert sum(found["rollout"]) == pytest.approx(1, abs=1e-4)
    assert sum(found["flow"]) == pytest.approx(1, abs=1e-4)
    html = out.read_text(encoding="utf-8")
    assert "영화" in html
    assert "<b>c" not in html
    assert "http:" not in html.replace("http://www.w3.org", "")
    said = bertie.good("attention", tmp_path / "m", "a b", "c d", "--attention-head", "2.1", "-o", arrays, "--card")
    assert "## Attention in a text" in (tmp_path / "m" / "README.md").read_text("utf-8")
    assert "head 2.1" in said
    with np.load(arrays) as file:
        assert file["attention"].shape == (2, 2, 7, 7)
        assert file["tokens"].tolist() == ["[CLS]", "a", "b", "[SEP]", "c", "d", "[SEP]"]
    assert json.loads(bertie.good("attention", tmp_path / "m", text, "--norms", "--json"))["norms"]
    _, _, err = bertie("attention", tmp_path / "m", " ".join("abcdefgh" * 20))
    assert "too long" in err
    for arguments, code, said in (
        (("a b", "--attention-head", "3.1"), 2, "2.2"),
        (("a b", "--attention-head", "x"), 2, "LAYER.HEAD"),
        (("a b", "--max-length", "900"), 2, "--max-length is 900"),
        (("a", "b", "c"), 2, "3 texts"),
        (("a", "-o", out), 2, "--overwrite"),
        (("a", "-o", "x.txt"), 2, ".npz"),
        (("  ",), 3, "no words"),
    ):
        found_code, _, err = bertie("attention", tmp_path / "m", *arguments)
        assert found_code == code, err
        assert said in err


def test_a_family_without_attention_is_refused(tmp_path: Path) -> None:
    elmo = families.build("elmo-small", vocab_size=20, hidden_size=8, intermediate_size=8, filters=((1, 4),)).eval()
    elmo.tokenizer = tokenizer(tmp_path)
    with pytest.raises(UsageError, match="no attention in elmo"):
        TextAttention.of(elmo, ("a b",))
    with pytest.raises(DataError, match="no words"):
        TextAttention.of(model(tmp_path / "bert"), ("",))
