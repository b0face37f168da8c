"""ALiBi: its slopes are those of `transformers`, attention is the plain formula, and any length can be read."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import softmax
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from bertie.apps.export.graph import traced
from bertie.errors import DataError
from bertie.infer.native.fits import misfit
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed
from bertie.nn.positions import slopes

SIZES = {"hidden_size": 24, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 30}
LENGTHS = [5, 1, 7]


def small(heads: int = 4, **changes: object) -> TorchModel:
    sizes = {**SIZES, "num_attention_heads": heads, "positions": "alibi", "initializer_range": 0.3, **changes}
    return families.build("bert-base", heads={}, **sizes).eval()


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_the_slopes_of_bloom(heads: int) -> None:
    """Its bias is the slope times the position of the key."""
    biases = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)
    torch.testing.assert_close(torch.tensor(slopes(heads)), biases[:, 0, 1])


@pytest.mark.parametrize("heads", [4, 6])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_the_formula(heads: int, causal: bool) -> None:
    """softmax(q k / sqrt(D) - slope |i - j|), forward and backward, in a packed batch against each text alone."""
    model = small(heads, causal=causal)
    attention = model.encoder.layers[0].attention
    ids = torch.randint(5, 30, (sum(LENGTHS),))
    layout = Packed.from_lengths(torch.tensor(LENGTHS))
    ours = model.encoder(ids, layout=layout).last_hidden_state
    theirs = []
    for part in ids.split(LENGTHS):
        hidden = model.encoder.embeddings(part[None], None, torch.arange(len(part))[None], Packed, None)[0]
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1) for x in attention.qkv(hidden).chunk(3, -1))
        distance = (torch.arange(len(part))[None] - torch.arange(len(part))[:, None]).abs()
        scores = q @ k.mT / q.shape[-1] ** 0.5 - torch.tensor(slopes(heads))[:, None, None] * distance
        if causal:
            scores = scores.masked_fill(torch.ones(len(part), len(part)).triu(1).bool(), -torch.inf)
        context = (softmax(scores, -1) @ v).transpose(0, 1).flatten(1)
        layer = model.encoder.layers[0]
        x = layer.attention_norm(hidden + attention.output(context))
        theirs.append(layer.output_norm(x + layer.down(layer.activation(layer.up(x)))))
    torch.testing.assert_close(ours, torch.cat(theirs), atol=1e-5, rtol=0)
    weights = [attention.qkv.weight, model.get_parameter("encoder.embeddings.word.weight")]
    for one, other in zip(
        torch.autograd.grad((ours**2).sum(), weights),
        torch.autograd.grad((torch.cat(theirs) ** 2).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def test_any_length_and_a_folder(tmp_path: Path) -> None:
    model = small(hidden_act="geglu")
    assert "encoder.embeddings.position.weight" not in dict(model.named_parameters())
    model.save_pretrained(tmp_path)
    again, report = families.load(tmp_path)
    assert report.fresh + report.unused == ()
    ids = torch.randint(5, 30, (1, 1000))
    torch.testing.assert_close(again.encoder(ids).last_hidden_state, model.encoder(ids).last_hidden_state)


def test_engines() -> None:
    """A graph has the biases, and the native engine says that it has no such positions."""
    model = small()
    assert traced(model)
    assert misfit(model.config) == "its positions are alibi"


def test_what_it_refuses() -> None:
    with pytest.raises(DataError, match="positions=alibi needs attention=full"):
        small(attention_window=4)
