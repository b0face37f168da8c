"""A model of any task made from one of another task opens in `transformers`, and nothing of the old head stays."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from test_built_opens_there import SIZES

from bertie.models import families
from bertie.models.heads import HEADS, labelled
from bertie.models.variant import OF_LABELS

OUTPUTS = {"sequence": 3, "token": 5, "span": 2, "choice": 1}
OF_TASKS = [
    pytest.param(name, architecture, id=architecture)
    for name, variant in families.VARIANTS.items()
    if name not in ("elmo", "static", "vilbert", "lxmert", "visual_bert")
    for architecture, heads in variant.architectures.items()
    if set(heads) & OUTPUTS.keys() and "decoder" not in heads
]


def made(family: str, folder: Path, **config: Any) -> Path:
    """A model folder of a family, with a classifier of seven labels where it has one."""
    variant = families.VARIANTS[family]
    base = next((h for h in variant.architectures.values() if h in (("sequence",), ("token",))), ())
    heads = lambda config: {name: HEADS[name](config, 7) for name in base}  # noqa: E731
    model = families.build(config.pop("config"), heads=heads, variant=family)
    labels = {"labels": tuple("abcdefg"), "problem_type": "multi_label_classification"} if base else {}
    model.save_pretrained(folder, **labels)
    return folder


@pytest.mark.parametrize(("family", "architecture"), OF_TASKS)
def test_nothing_of_an_old_head_stays(family: str, architecture: str, tmp_path: Path) -> None:
    variant = families.VARIANTS[family]
    own = {name: 16 for name in ("embedding_size", "bottleneck_size") if variant.base.get(name)}
    own |= {"attention_window": 4} if variant.base.get("attention_window") else {}
    own |= {"attention_head_size": 8} if variant.base.get("attention_head_size") else {}
    own |= {"sep_token_id": 3} if variant.base.sep_token_id < 101 else {}
    own |= SIZES if variant.base.positions.kind == "learned" else {k: SIZES[k] for k in SIZES if "position" not in k}
    source = made(family, tmp_path / "source", config=variant.base.replace(**own))
    names = variant.architectures[architecture]
    heads = lambda config: {name: HEADS[name](config, OUTPUTS[name]) for name in names}  # noqa: E731
    model, _ = families.load(source, heads=heads, fresh_heads=True)
    if set(names) & set(labelled()):
        model.labels = tuple("xyzuv"[: OUTPUTS[names[0]]])
    model.save_pretrained(tmp_path / "new")
    public = json.loads((tmp_path / "new" / "config.json").read_text())
    assert public.get("id2label", {}) == {str(i): label for i, label in enumerate(model.labels)}
    assert public.keys() & {*OF_LABELS} == ({"id2label", "label2id"} if model.labels else set())
    theirs, info = getattr(transformers, architecture).from_pretrained(tmp_path / "new", output_loading_info=True)
    fresh = {name for name in info["missing_keys"] if family != "big_bird" or "pooler" not in name}  # none reads it
    assert {*fresh, *info["unexpected_keys"], *info["mismatched_keys"]} == set()
    assert theirs.config.problem_type is None
    assert not families.load(tmp_path / "new")[1].unused
