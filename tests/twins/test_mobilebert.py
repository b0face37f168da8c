"""MobileBERT against `transformers`."""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from torch.nn import functional as F

from bertie.families.mobilebert import MOBILEBERT
from bertie.models import families
from bertie.models.kinds import Bottleneck
from bertie.nn.layout import Packed

TINY: dict[str, Any] = {
    **parity.TINY,
    "embedding_size": 12,
    "intra_bottleneck_size": 16,
    "initializer_range": 0.2,
    "num_feedforward_networks": 3,
}


@pytest.mark.parametrize("architecture", MOBILEBERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, transformers.MobileBertConfig(**TINY), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"use_bottleneck_attention": True, "num_feedforward_networks": 2},
        {"num_feedforward_networks": 1, "hidden_act": "gelu"},
        {"classifier_activation": False},
        {"embedding_size": 20},
        # their embeddings have a layer normalization with the default epsilon of torch
        {"normalization_type": "layer_norm", "layer_norm_eps": 1e-5, "num_feedforward_networks": 1},
    ],
)
def test_its_own_choices(changes: dict[str, Any], tmp_path: Path) -> None:
    for architecture in ("MobileBertForPreTraining", "MobileBertModel"):
        config = transformers.MobileBertConfig(**TINY | changes)
        parity.check(architecture, config, tmp_path / architecture)


def test_a_sequence_ends_where_its_padding_begins(tmp_path: Path) -> None:
    """In a batch as alone; `transformers` lets the last token see [PAD]'s vector where there is padding."""
    theirs = transformers.MobileBertModel(transformers.MobileBertConfig(**TINY)).eval()
    with torch.no_grad():
        theirs.embeddings.word_embeddings.weight[0] = 1.0  # as the published one, which was trained with padding
    theirs.save_pretrained(tmp_path)
    ours, _ = families.load(tmp_path)
    batch = parity.inputs(ours.config)
    with torch.no_grad():
        together = ours.encoder(**batch).last_hidden_state
        for i, length in enumerate(parity.LENGTHS):
            alone = theirs(**{name: x[i : i + 1, :length] for name, x in batch.items()}).last_hidden_state[0]
            parity.close(together[i, :length], alone, "alone")


def test_sizes() -> None:
    """As `transformers` counts its default, which has a pooler; the published model reads the first token itself."""
    assert parity.parameters("mobilebert-uncased", pooler_dense=True) == 24_844_544
    assert parity.parameters("mobilebert-uncased") == 24_844_544 - (512 * 512 + 512)


def test_the_teacher_of_the_paper(tmp_path: Path) -> None:
    """Table 1: 293 million parameters. transformers has no layer whose queries read hidden states directly."""
    assert parity.parameters("ib-bert-large", pooler=False) == pytest.approx(293e6, rel=0.005)
    small = {"vocab_size": 50, "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 40}
    layer = Bottleneck(bottleneck_size=32, shared_bottleneck=False)
    config = families.config("ib-bert-large", **small, embedding_size=8).replace(layer=layer)
    model = families.build(config, variant="mobilebert", seed=3).eval()
    families.save(model, tmp_path)
    again, report = families.load(tmp_path)
    assert not report.fresh
    assert again.config == model.config
    batch = parity.inputs(config)
    with torch.no_grad():
        parity.close(
            again.eval().encoder(**batch).last_hidden_state, model.encoder(**batch).last_hidden_state, "read again"
        )
    hidden = torch.randn(5, 16)
    one = model.encoder.layers[0]
    plan = Packed.from_lengths(torch.tensor([5]))
    with torch.no_grad():
        states, _ = one(hidden, plan, None)
        narrow = one.input_norm(one.input(hidden))
        q, k = (x.view(5, 4, 8).transpose(0, 1) for x in one.attention.qk(hidden).chunk(2, -1))
        v = one.attention.value(hidden).view(5, 4, 8).transpose(0, 1)
        context = ((q @ k.mT / 8**0.5).softmax(-1) @ v).transpose(0, 1).flatten(1)
        x = one.attention_norm(narrow + one.attention.output(context))
        x = one.output_norm(x + one.down(F.gelu(one.up(x))))
        expected = one.widen_norm(hidden + one.widen(x))
    parity.close(states, expected, "figure 1 (b)")


def test_published_names() -> None:
    """google/mobilebert-uncased, a MobileBertForPreTraining, as `transformers`' conversion from TensorFlow names it."""

    def normed(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
        return {**parity.both(f"{name}.dense", outputs, inputs), **parity.both(f"{name}.LayerNorm", outputs)}

    layer = {
        **parity.both("attention.self.query", 128, 128),
        **parity.both("attention.self.key", 128, 128),
        **parity.both("attention.self.value", 128, 512),
        **normed("attention.output", 128, 128),
        **parity.both("intermediate.dense", 512, 128),
        **normed("output", 128, 512),
        **normed("output.bottleneck", 512, 128),
        **normed("bottleneck.input", 128, 512),
        **normed("bottleneck.attention", 128, 512),
    }
    for i in range(3):
        layer |= {**parity.both(f"ffn.{i}.intermediate.dense", 512, 128), **normed(f"ffn.{i}.output", 128, 512)}
    recorded = {
        "mobilebert.embeddings.position_ids": (1, 512),
        "mobilebert.embeddings.word_embeddings.weight": (30_522, 128),
        "mobilebert.embeddings.position_embeddings.weight": (512, 512),
        "mobilebert.embeddings.token_type_embeddings.weight": (2, 512),
        **parity.both("mobilebert.embeddings.embedding_transformation", 512, 384),
        **parity.both("mobilebert.embeddings.LayerNorm", 512),
        **{f"mobilebert.encoder.layer.{i}.{name}": shape for i in range(24) for name, shape in layer.items()},
        "cls.predictions.bias": (30_522,),
        **parity.both("cls.predictions.transform.dense", 512, 512),
        **parity.both("cls.predictions.transform.LayerNorm", 512),
        "cls.predictions.dense.weight": (384, 30_522),
        **parity.both("cls.predictions.decoder", 30_522, 128),
        **parity.both("cls.seq_relationship", 2, 512),
    }
    parity.published("mobilebert", "mobilebert-uncased", ("mlm", "pair"), recorded, pooler=True)
