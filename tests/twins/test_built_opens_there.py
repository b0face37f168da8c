"""A model built here from values alone, without a config.json to lean on, opens in `transformers` and answers alike."""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers

from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.variant import Variant

SIZES: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,  # the first GPT's is always four times as wide
    "max_position_embeddings": 40,
    "initializer_range": 0.2,
}
CLASSES = [
    pytest.param(variant, architecture, id=architecture)
    for name, variant in families.VARIANTS.items()
    if name not in ("elmo", "vilbert", "lxmert", "static")  # not there; LXMERT needs regions: test_lxmert.py
    for architecture in variant.architectures
]


@pytest.mark.promise("same-numbers-as-transformers")
@pytest.mark.parametrize(("variant", "architecture"), CLASSES)
def test_what_is_built_opens_there(variant: Variant, architecture: str, tmp_path: Path) -> None:
    own = {name: 16 for name in ("embedding_size", "bottleneck_size") if variant.base.get(name)}
    own |= {"attention_window": 4} if variant.base.get("attention_window") else {}
    own |= {"attention_head_size": 8} if variant.base.get("attention_head_size") else {}
    own |= {"sep_token_id": 3} if variant.base.sep_token_id < 101 else {}
    own |= SIZES if variant.base.positions.kind == "learned" else {k: SIZES[k] for k in SIZES if "position" not in k}
    config = variant.base.replace(**own)
    outputs = 2 if "span" in variant.architectures[architecture] else 3
    heads = lambda config: {n: HEADS[n](config, outputs) for n in variant.architectures[architecture]}  # noqa: E731
    ours = families.build(config, heads=heads, variant=variant.model_type, seed=1).eval()
    labels = {"labels": ("x", "y", "z")} if {"sequence", "token"} & set(ours.heads) else {}
    ours.save_pretrained(tmp_path, **labels)
    theirs, info = getattr(transformers, architecture).from_pretrained(tmp_path, output_loading_info=True)
    problems = {*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]}
    assert {name for name in problems if "pooler" not in name} == set()  # a pooler nobody reads may be there or not
    torch.manual_seed(0)
    ids = torch.randint(5, 98, (2, 9))
    ids[:, -1] = ours.config.eos_token_id if ours.config.eos_token_id in range(101) else 4
    written = {"decoder_input_ids": ids} if "decoder" in ours.heads and "sequence" not in ours.heads else {}
    more = {"token_type_ids": torch.zeros_like(ids)} if ours.config.type_vocab_size > 1 else {}
    more |= {"global_attention_mask": torch.zeros_like(ids)} if ours.config.get("attention_window") else {}
    with torch.no_grad():
        mine = ours(ids, **written, **more) if ours.heads else {"hidden": ours.encoder(ids, **more).last_hidden_state}
        given = {name: x[None] for name, x in {"input_ids": ids, **more}.items()} if "choice" in ours.heads else {}
        other = theirs.eval()(**(given or {"input_ids": ids, **written, **more}))
    mine.pop("decoder", None) if len(mine) > 1 else None
    for name, logits in mine.items():
        expected = other.last_hidden_state if name == "decoder" else parity._logits(name, other)
        parity.close(logits, expected.flatten() if name == "choice" else expected, name)


def test_what_config_json_cannot_say_does_not_open_there(tmp_path: Path) -> None:
    """The first GPT's inner size is four times its width, whatever its file says."""
    families.build("openai-gpt", **{**SIZES, "intermediate_size": 48}).save_pretrained(tmp_path)
    assert families.load(tmp_path)[0].config.intermediate_size == 48
    with pytest.raises(ValueError, match="bertie-openai-gpt"):
        transformers.AutoModel.from_pretrained(tmp_path)
