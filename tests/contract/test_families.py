"""What every family promises, asked of every row of the registry."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from bertie.errors import BertieError
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.elmo import ElmoEncoder
from bertie.models.heads import HEADS, labelled
from bertie.models.kinds import MAX_SETTING
from bertie.models.model import TorchModel
from bertie.models.variant import Variant
from bertie.models.weights import public_state
from bertie.nn.layout import Packed
from bertie.runs.config import PretrainConfig
from nano import rounding

SIZES: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "initializer_range": 0.2,
}
FAMILIES = [pytest.param(variant, id=name) for name, variant in families.VARIANTS.items()]
CLASSES = [
    pytest.param(variant, architecture, id=architecture)
    for _, variant in families.VARIANTS.items()
    for architecture in variant.architectures
]

TUNED = ("sequence", "token", "span", "choice")


def small(variant: Variant) -> EncoderConfig:
    narrow = {name: 16 for name in ("embedding_size", "bottleneck_size") if variant.base.get(name)}
    letters = {"filters": ((1, 4), (3, 8))} if hasattr(variant.base, "filters") else {}
    return variant.base.replace(**sizes_of(variant), **narrow, **letters)


def sizes_of(variant: Variant) -> dict[str, Any]:
    """The sizes that the family has."""
    lacking = {*variant.base.unread}
    bounded = variant.base.positions.kind in ("learned", "learned_relative", "rotary")
    lacking |= set() if bounded else {"max_position_embeddings"}
    implied = {name: n * SIZES[of] for name, (n, of) in variant.implied.items() if name in SIZES.keys() - variant.keys}
    return {name: value for name, value in SIZES.items() if name not in lacking} | implied


def built(variant: Variant, architecture: str = "") -> TorchModel:
    names = variant.architectures.get(architecture, ())
    heads = lambda config: {name: HEADS[name](config, 3) for name in names}  # noqa: E731
    model = families.build(small(variant), heads=heads, variant=variant.model_type).eval()
    if isinstance(model.encoder, ElmoEncoder):
        model.encoder.spell(map(str, range(101)))  # a word for every id
    return model


@pytest.mark.promise("same-numbers-as-transformers")
@pytest.mark.parametrize(("variant", "architecture"), CLASSES)
def test_a_folder_comes_back_as_it_was(variant: Variant, architecture: str, tmp_path: Path) -> None:
    model = built(variant, architecture)
    labels = ("x", "y", "z") if set(labelled()) & set(model.heads) else ()
    model.save_pretrained(tmp_path / "a", labels=labels)
    again, report = families.load(tmp_path / "a")
    assert report.fresh + report.unused == ()
    assert again.config == model.config
    assert tuple(again.heads) == tuple(model.heads)
    assert again.labels == labels
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter), name
    again.save_pretrained(tmp_path / "b")
    for name in ("config.json", "model.safetensors", "README.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize(("variant", "architecture"), CLASSES)
def test_pickled_and_copied(variant: Variant, architecture: str) -> None:
    """Other processes, as of a DataLoader, get the same model."""
    model = built(variant, architecture)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert (again.variant, again.config) == (variant, model.config)
        assert all(torch.equal(one, other) for one, other in zip(again.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize(("variant", "architecture"), CLASSES)
def test_only_the_head_of_another_task_is_dropped(variant: Variant, architecture: str, tmp_path: Path) -> None:
    model = built(variant, architecture)
    tuned = set(TUNED) & set(model.heads)
    model.save_pretrained(tmp_path, labels=("x", "y", "z") if set(labelled()) & tuned else ())
    for head in TUNED:
        if f"heads.{head}.classifier.weight" not in variant.table:
            continue
        heads = {head: lambda config, head=head: {head: HEADS[head](config, 2)}}[head]
        again, report = families.load(tmp_path, heads=heads, fresh_heads=True)
        if not tuned:
            assert report.dropped == ()
        assert f"heads.{head}.classifier.weight" in report.fresh
        for name, weight in again.heads[head].named_parameters():  # what it shares with the head of pre-training
            shared = [n for n, _ in model.heads.named_parameters() if not tuned and same(variant, n, f"{head}.{name}")]
            assert all(torch.equal(weight, model.heads.get_parameter(other)) for other in shared)
            assert shared or f"heads.{head}.{name}" in report.fresh


def same(variant: Variant, one: str, other: str) -> bool:
    return variant.table.public(f"heads.{one}") == variant.table.public(f"heads.{other}")


@pytest.mark.promise("text-alone-or-in-a-batch")
@pytest.mark.parametrize("variant", FAMILIES)
def test_alone_in_a_batch_packed_or_padded(variant: Variant) -> None:
    model, lengths = built(variant), [9, 1, 17, 4]
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, 101, (n,), generator=generator) for n in lengths]
    padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=model.config.pad_token_id)
    mask = torch.arange(17)[None] < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        in_batch = model.encoder(padded, attention_mask=mask).last_hidden_state
        packed = model.encoder(torch.cat(texts), layout=Packed.from_lengths(torch.tensor(lengths))).last_hidden_state
        for text, row, part in zip(texts, in_batch, packed.split(lengths), strict=True):
            alone = model.encoder(text[None]).last_hidden_state[0]
            torch.testing.assert_close(row[: len(text)], alone, atol=rounding(alone), rtol=0)
            torch.testing.assert_close(part, alone, atol=rounding(alone), rtol=0)


@pytest.mark.parametrize(("variant", "architecture"), CLASSES)
def test_a_batch_of_no_sequences(variant: Variant, architecture: str) -> None:
    """As the last part of a batch that is divided may be."""
    model, none = built(variant, architecture), torch.zeros(0, 4, dtype=torch.long)
    output = model.encoder(none)
    assert output.last_hidden_state.shape[:2] == (0, 4)
    assert "decoder" in model.heads or all(len(logits) == 0 for logits in model(none).values())


@pytest.mark.parametrize("variant", FAMILIES)
def test_every_weight_has_one_public_name(variant: Variant) -> None:
    """No two weights of a class share a name, and all of them are known to the table."""
    for architecture in variant.architectures:
        names = [
            name
            for name, _ in public_state(dict(built(variant, architecture).named_parameters()), variant.table, base=True)
        ]
        assert len(set(names)) == len(names), architecture
        assert [variant.table.today(name) for name in names] == names, architecture


@pytest.mark.parametrize("variant", FAMILIES)
def test_too_long_is_refused(variant: Variant) -> None:
    model = built(variant)
    most = model.config.max_length
    if most == MAX_SETTING:
        return  # any length has its distances
    model.encoder(torch.full((1, most), 7))
    with pytest.raises(BertieError, match=f"{most}"):
        model.encoder(torch.full((1, most + 1), 7))


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize("variant", FAMILIES)
def test_hostile_configs_are_refused(variant: Variant, tmp_path: Path) -> None:
    built(variant).save_pretrained(tmp_path)
    good = json.loads((tmp_path / "config.json").read_text())
    for field, key in variant.keys.items():
        switch = isinstance(variant.base.get(field), bool)
        usual = field in ("position_buckets", "max_relative_positions")  # there, -1 means the default
        for value in (-(2**62) if usual else -1, 2**62, "x", [1], {}, 1e999, *(() if switch else (True,))):
            (tmp_path / "config.json").write_text(json.dumps({**good, key: value}))
            with pytest.raises(BertieError):  # and nothing else, whatever the key
                families.load(tmp_path)


@pytest.mark.parametrize("variant", FAMILIES)
def test_presets_and_recipes_hold_together(variant: Variant) -> None:
    PretrainConfig(corpus="c", tokenizer="t", **variant.recipe)
    for name, preset in variant.presets.items():
        written = variant.public(preset, {})
        assert variant.config(json.loads(json.dumps(written)), name) == preset, name
