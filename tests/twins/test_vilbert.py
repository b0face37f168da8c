"""ViLBERT against the paper's equations, written plainly: one example at a time, one head at a time. Lu et al. 2019.

t tokens · R regions with <IMG> · D numbers of a region
"""

from math import sqrt
from pathlib import Path

import parity
import pytest
import torch
import torch.nn.functional as F
from test_lxmert import inputs, packed
from test_visual_bert import REGIONS, SIZES
from torch import Tensor

from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.streams import TwoStreamConfig
from bertie.nn.features import Features
from bertie.nn.layout import Packed, Padded

LOCATION = (0.0, 0.1, 1.0, 0.9)
SIZES_OF = {  # streams of different sizes, as in the paper, and of the same size
    "paper": {"v_hidden_size": 24, "v_num_attention_heads": 3, "v_intermediate_size": 20, "co_hidden_size": 40},
    "same": {},
}


def _model(sizes: str, heads: tuple[str, ...] = ("mlm", "pair")) -> TorchModel:
    config = TwoStreamConfig(
        **{**parity.TINY, "num_hidden_layers": 2},
        visual_feat_dim=7,
        visual_pos_dim=4,
        image_location=LOCATION,
        co_layers=2,
        co_num_attention_heads=2,
        v_num_hidden_layers=1,
        heads=families.config("vilbert-tiny").heads,
        **SIZES_OF[sizes],
    )
    made = lambda shape: {name: HEADS[name](shape, 3) for name in heads}  # noqa: E731
    model = families.build(config, variant="vilbert", heads=made, seed=1)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():  # no bias is 0 and no norm 1, which would hide a mix-up
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


class Plain:
    """The equations, with the weights of a model by name."""

    def __init__(self, model: TorchModel) -> None:
        self.weights, self.config = dict(model.named_parameters()), model.config

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        centered = x - x.mean(-1, keepdim=True)
        scaled = centered / (centered.square().mean(-1, keepdim=True) + self.config.layer_norm_eps).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        """Each head: softmax(q k^T / sqrt(d)) v."""
        parts = zip(q.chunk(heads, -1), k.chunk(heads, -1), v.chunk(heads, -1), strict=True)
        return torch.cat([(a @ b.T / sqrt(a.shape[-1])).softmax(-1) @ c for a, b, c in parts], -1)

    def halves(self, x: Tensor, attended: Tensor, name: str) -> Tensor:
        """The residual connections, norms and the feed-forward network of a layer."""
        x = self.norm(x + self.linear(attended, f"{name}.attention.output"), f"{name}.attention_norm")
        fed = self.linear(F.gelu(self.linear(x, f"{name}.up")), f"{name}.down")
        return self.norm(x + fed, f"{name}.output_norm")

    def layer(self, x: Tensor, name: str, heads: int) -> Tensor:
        return self.halves(x, self.attention(*self.linear(x, f"{name}.attention.qkv").chunk(3, -1), heads), name)

    def co_layer(self, x: Tensor, other: Tensor, name: str, heads: int) -> Tensor:
        """Figure 2 b: the queries of a stream, and the keys and values of the other."""
        k, v = self.linear(other, f"{name}.attention.kv").chunk(2, -1)
        return self.halves(x, self.attention(self.linear(x, f"{name}.attention.query"), k, v, heads), name)

    def embedded(self, ids: Tensor, types: Tensor) -> Tensor:
        tables = (self.weights[f"encoder.embeddings.{name}.weight"] for name in ("word", "position", "segment"))
        word, position, segment = tables
        return self.norm(word[ids] + position[: len(ids)] + segment[types], "encoder.embeddings.norm")

    def regions(self, features: Tensor, locations: Tensor) -> Tensor:
        """<IMG>, the mean of the features at the location of the picture, then the regions: 2.2."""
        features = torch.cat([features.mean(0, keepdim=True), features])
        locations = torch.cat([torch.tensor([LOCATION], dtype=locations.dtype), locations])
        summed = self.linear(features, "encoder.regions.projection") + self.linear(
            locations, "encoder.regions.location"
        )
        return self.norm(summed, "encoder.regions.norm")

    def __call__(
        self, ids: Tensor, types: Tensor, features: Tensor, locations: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """-> (t, H), (R, V), logits"""
        config = self.config
        assert isinstance(config, TwoStreamConfig)
        heads, v_heads = config.num_attention_heads, config.v_num_attention_heads or config.num_attention_heads
        text, regions = self.embedded(ids, types), self.regions(features, locations)
        for i in range(config.num_hidden_layers):
            text = self.layer(text, f"encoder.layers.{i}", heads)
        for i in range(config.v_num_hidden_layers):
            regions = self.layer(regions, f"encoder.v_layers.{i}", v_heads)
        for i in range(config.co_layers):
            block = f"encoder.co_layers.{i}"
            text, regions = (
                self.co_layer(text, regions, f"{block}.co_text", config.co_heads),
                self.co_layer(regions, text, f"{block}.co_regions", config.co_heads),
            )
            text, regions = self.layer(text, f"{block}.text", heads), self.layer(regions, f"{block}.regions", v_heads)
        pooled = self.linear(text[0], "encoder.pooler").relu() * self.linear(regions[0], "encoder.pooler.image").relu()
        widened = F.gelu(self.linear(text, "heads.mlm.dense"))
        scores = self.norm(widened, "heads.mlm.norm") @ self.weights["encoder.embeddings.word.weight"].T
        pair = self.linear(pooled, "heads.pair.classifier")
        return text, regions[1:], {"mlm": scores + self.weights["heads.mlm.bias"], "pair": pair}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("sizes", SIZES_OF)
def test_the_papers_equations(sizes: str, training: bool) -> None:
    model = _model(sizes).train(training)
    batch = inputs()
    ids, types, layout, features = packed(batch)
    is_text = torch.ones(len(ids), dtype=torch.bool).index_fill(0, features.rows, value=False)
    with parity.computing_in(torch.float64, model):
        features = Features(features.rows, features.vectors.double())
        mine = model.run_encoder(ids, types, layout, features=features)
        logits = model.all_logits(mine)
        plain = Plain(model)
        each = [
            plain(
                batch["input_ids"][b, :size],
                batch["token_type_ids"][b, :size],
                batch["visual_feats"][b, :count].double(),
                batch["visual_pos"][b, :count].double(),
            )
            for b, (size, count) in enumerate(zip(SIZES, REGIONS, strict=True))
        ]
        expected = torch.cat([text for text, _, _ in each])
        parity.close(mine.last_hidden_state[is_text], expected, "text")
        if sizes == "same":
            parity.close(mine.last_hidden_state[~is_text], torch.cat([found for _, found, _ in each]), "regions")
        mlm, pair = torch.cat([one["mlm"] for _, _, one in each]), torch.stack([one["pair"] for _, _, one in each])
        parity.close(logits["mlm"][is_text], mlm, "mlm")
        parity.close(logits["pair"], pair, "pair")
        gradients = []
        for a, b in ((logits["mlm"][is_text], logits["pair"]), (mlm, pair)):
            model.zero_grad()
            sum((x * torch.linspace(-1, 1, x.numel()).view_as(x)).sum() for x in (a, b)).backward()  # type: ignore[union-attr]
            gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        assert gradients[0].keys() >= gradients[1].keys()
        for name, wanted in gradients[1].items():
            assert wanted is not None
            parity.close(gradients[0][name], wanted, f"gradient of {name}")


def test_packed_as_padded_and_alone() -> None:
    """Also with a sequence without regions, and in a batch of its own."""
    model = _model("same").eval()
    ids, types, layout, features = packed(inputs())
    cells = torch.arange(layout.mask().numel()).view_as(layout.mask())[layout.mask()]
    moved, padded = Features(cells[features.rows], features.vectors), Padded(layout.mask())
    alone = ids[: SIZES[0]]
    with torch.no_grad():
        a = model.run_encoder(ids, types, layout, features=features).last_hidden_state
        b = model.run_encoder(layout.rectangle(ids), layout.rectangle(types), padded, features=moved).last_hidden_state
        torch.testing.assert_close(a, b[layout.mask()], atol=1e-5, rtol=0)
        both = Packed.from_lengths(torch.tensor([SIZES[0], *(layout.lengths[1:].tolist())]))
        later = features.rows >= SIZES[0] + REGIONS[0]
        fewer = Features(features.rows[later] - REGIONS[0], features.vectors[later])
        kept = torch.ones(len(ids), dtype=torch.bool)
        kept[SIZES[0] : SIZES[0] + REGIONS[0]] = False
        c = model.run_encoder(ids[kept], types[kept], both, features=fewer).last_hidden_state
        d = model.run_encoder(alone, types[: SIZES[0]], Packed.from_lengths(torch.tensor([SIZES[0]])))
    torch.testing.assert_close(c[: SIZES[0]], d.last_hidden_state, atol=1e-5, rtol=0)
    torch.testing.assert_close(c[SIZES[0] :], a[SIZES[0] + REGIONS[0] :], atol=1e-5, rtol=0)


def test_masked_regions_are_not_seen() -> None:
    """Whatever their features are; their location is seen."""
    model = _model("same").eval()
    ids, types, layout, features = packed(inputs())
    hidden = torch.zeros(len(features.rows), dtype=torch.bool).index_fill(0, torch.tensor([1]), value=True)
    changed = features.vectors.clone()
    changed[1, :7] += 5
    with torch.no_grad():
        a, b = (
            model.run_encoder(ids, types, layout, features=Features(features.rows, x, hidden=hidden)).last_hidden_state
            for x in (features.vectors, changed)
        )
    assert torch.equal(a, b)


def test_the_folder_opens_again(tmp_path: Path) -> None:
    model = _model("paper", ("sequence",)).eval()
    model.labels = ("a", "b", "c")
    model.save_pretrained(tmp_path)
    again, report = families.load(tmp_path)
    assert report.fresh + report.unused == ()
    ids, types, layout, features = packed(inputs())
    with torch.no_grad():
        a, b = (one.all_logits(one.run_encoder(ids, types, layout, features=features)) for one in (model, again))
    assert torch.equal(a["sequence"], b["sequence"])
