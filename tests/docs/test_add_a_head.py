"""The head of docs/add-a-head.md works as the page says: one file and one row, and all else asks what it needs."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import bertie
from bertie.models import families, heads
from bertie.models.facts import OF_ENCODER
from bertie.models.heads import HeadSpec
from bertie.models.heads.base import Needs
from bertie.nn.layout import Packed
from bertie.registry import Registry
from packages import blocks, install, python

PAGE = Path(__file__).parents[2] / "docs" / "add-a-head.md"
TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module")
def table() -> Iterator[Registry[HeadSpec]]:
    """HEADS with the page's head, registered as in a script."""
    (code,) = blocks(PAGE, "python")
    module = ModuleType("bertie_mean")
    exec(code, module.__dict__)
    bertie.register("head", "average", module.AVERAGE)
    yield heads.HEADS
    del heads.HEADS._own["average"]


def test_the_package_of_the_page(tmp_path: Path) -> None:
    (code,), (pyproject,) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    site = install(pyproject, code, tmp_path)
    assert "MeanHead" in python(site, "from bertie.models.heads import HEADS; print(HEADS['average'])")


@pytest.mark.parametrize("preset", ["bert-tiny", "roberta-base", "gpt2", "electra-small-discriminator"])
def test_the_head_of_the_page(preset, table, tmp_path):
    """It is built, computes the same packed and padded, learns, and its folder opens again with it."""
    model = families.build(preset, heads=lambda config: {"average": table["average"](config, 3)}, **TINY)
    ids, lengths = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(0)), torch.tensor([9, 4])
    mask = torch.arange(9) < lengths[:, None]
    model.eval()
    padded = model(ids, mask)["average"]
    packed = model(ids[mask], layout=Packed.from_lengths(lengths))["average"]
    assert padded.shape == (2, 3)
    torch.testing.assert_close(padded, packed, rtol=0, atol=1e-5)

    model.train()
    model(ids, mask)["average"].logsumexp(-1).sum().backward()
    for name in ("heads.average.classifier.weight", "encoder.embeddings.word.weight"):
        assert model.get_parameter(name).grad.abs().max() > 0, name

    model.eval().save_pretrained(tmp_path / "model", labels=("x", "y", "z"))
    again, report = families.load(tmp_path / "model")
    assert report.fresh + report.unused == ()
    assert again.labels == ("x", "y", "z")
    assert torch.equal(again(ids, mask)["average"], model(ids, mask)["average"])
    assert "pipeline_tag: text-classification" in (tmp_path / "model" / "README.md").read_text()


def test_what_it_needs_reaches_the_encoder(table):
    """Its global token is one where attention is windowed: then the last token is seen by the first, far away."""
    shape = TINY | {"attention_window": 2, "max_position_embeddings": 42, "num_hidden_layers": 1}
    model = families.build(
        "longformer-base-4096", heads=lambda config: {"average": table["average"](config, 3)}, **shape
    )
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        first, other = (model.eval()(x)["average"] for x in (ids, torch.cat([ids[:, :-1], ids[:, :1]], 1)))
        model.heads["average"].needs = Needs()
        local = model(ids)["average"]
    assert not torch.equal(first, other)
    assert not torch.equal(first, local)


def test_no_head_has_the_name_of_another_array(table):
    """An engine would return the pooled vectors in the place of the logits."""
    assert not dict(table.items()).keys() & OF_ENCODER.keys()
