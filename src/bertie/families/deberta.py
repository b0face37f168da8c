"""DeBERTa v2 and v3: attention to content and to distance apart. He et al. 2020, arXiv:2006.03654; 2021, 2111.09543.

mDeBERTa, kf-deberta and others are the same on other languages and vocabularies.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from bertie.errors import DataError
from bertie.families.bert import (
    BERT_BASE,
    BERT_KEYS,
    BUFFERS,
    LABEL_ROWS,
    UNTIED,
    architectures,
    encoder_rows,
    old_names,
    sized_bert,
)
from bertie.families.bert import BERT_WEIGHT_TABLE as BERT_TABLE
from bertie.models.codec import WeightTable
from bertie.models.head_config import ChoiceConfig, HeadConfigs, SequenceConfig
from bertie.models.kinds import Disentangled
from bertie.models.variant import ACTIVATIONS, Variant, same

_BASE = replace(
    BERT_BASE,
    vocab_size=128_100,
    type_vocab_size=0,
    layer_norm_eps=1e-7,
    pooler=False,
    positions=Disentangled(position_buckets=0, relative_norm=False),
    heads=HeadConfigs(
        sequence=SequenceConfig(sequence_act="gelu", sequence_input_dropout=False),
        choice=ChoiceConfig(choice_act="gelu"),
    ),
)
V3 = replace(_BASE, positions=Disentangled())
_ATTENTION = "deberta.encoder.layer.{}.attention"
THEIRS: dict[str, str | tuple[str, ...]] = {
    "encoder.layers.{}.attention.qkv.*": tuple(f"{_ATTENTION}.self.{part}_proj.*" for part in ("query", "key", "value"))
}
_TABLE = WeightTable(
    base="deberta.",
    rows=(
        ("encoder.relative.norm.*", "deberta.encoder.LayerNorm.*"),
        ("encoder.relative.weight", "deberta.encoder.rel_embeddings.weight"),
        ("encoder.layers.0.conv.*", "deberta.encoder.conv.conv.*"),
        ("encoder.layers.0.conv_norm.*", "deberta.encoder.conv.LayerNorm.*"),
        *((ours, THEIRS.get(ours, theirs)) for ours, theirs in encoder_rows("deberta.") if "pooler" not in ours),
        *(row for row in BERT_TABLE.rows if row[0].startswith("heads.mlm.")),
        ("heads.sequence.dense.*", "pooler.dense.*"),
        ("heads.choice.dense.*", "pooler.dense.*"),
        ("heads.sequence.classifier.*", "classifier.*"),
        *LABEL_ROWS,
        ("heads.rtd.dense.*", "discriminator_predictions.dense.*"),  # as ELECTRA's: no public class has them
        ("heads.rtd.classifier.*", "discriminator_predictions.dense_prediction.*"),
    ),
    old=(*old_names("deberta.")[1:], (r"^(embeddings|encoder)\.", r"deberta.\1."), *BERT_TABLE.old[-1:]),
    ignored=BUFFERS,
)


_OMITTED_KEYS = {  # what `transformers` reads where config.json lacks these keys
    **{"relative_attention": False, "position_biased_input": True, "share_att_key": False, "pos_att_type": ()},
    **{"max_relative_positions": -1, "conv_act": "tanh"},
}


def _flattened(public: Mapping[str, object]) -> Mapping[str, object]:
    """The two terms of attention to distance, which must both be present; -1 means the default."""
    flat = {**_OMITTED_KEYS, **{key: value for key, value in public.items() if value is not None}}
    kinds = flat["pos_att_type"]
    names = kinds.lower().split("|") if isinstance(kinds, str) else kinds
    if not isinstance(names, Collection) or sorted(str(one).strip() for one in names) != ["c2p", "p2c"]:
        text = str(kinds)[:80] if kinds else "empty or missing"
        raise DataError(f"pos_att_type is {text}; only c2p and p2c together are supported.")
    flat["pos_att_type"] = ["p2c", "c2p"]
    for key, usual in (("position_buckets", 0), ("max_relative_positions", public.get("max_position_embeddings", 512))):
        if flat.get(key) == -1:
            flat[key] = usual
    return flat


DEBERTA = Variant(
    model_type="deberta-v2",
    about="Disentangled attention to content and position. Version 3 is pre-trained with replaced-token detection.",
    source="He et al. 2020, arXiv:2006.03654; He et al. 2021, arXiv:2111.09543",
    tokenizer="unigram",
    base=_BASE,
    presets={
        "deberta-v3-xsmall": replace(sized_bert(12, 384, V3), num_attention_heads=6),
        "deberta-v3-small": sized_bert(6, 768, V3),
        "deberta-v3-base": V3,
        "deberta-v3-large": sized_bert(24, 1024, V3),
        "mdeberta-v3-base": replace(V3, vocab_size=251_000),
        "deberta-v2-xlarge": sized_bert(24, 1536, V3).replace(conv_kernel_size=3),
    },
    table=_TABLE,
    architectures=architectures("DebertaV2"),
    keys={
        **{
            ours: key
            for ours, key in BERT_KEYS.items()
            if ours not in ("max_position_embeddings", "classifier_dropout")
        },
        **same("position_buckets", "max_relative_positions", "conv_kernel_size", "conv_act"),
        **UNTIED,
        "relative_norm": "norm_rel_ebd",
        "sequence_dropout": "cls_dropout",
        "sequence_act": "pooler_hidden_act",
        "choice_act": "pooler_hidden_act",
    },
    values={
        **dict.fromkeys(("hidden_act", "conv_act", "sequence_act", "choice_act"), ACTIVATIONS),
        "relative_norm": ((True, "layer_norm"), (False, "none")),
    },
    flattened=_flattened,
    fixed={
        **{"relative_attention": True, "position_biased_input": False, "share_att_key": True, "legacy": True},
        **{"pooler_dropout": 0, "conv_groups": 1, "pos_att_type": ["p2c", "c2p"]},
    },
    recipe={  # 2021, table 10 (base); v3 learned from replaced tokens: rtd with tied=disentangled
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None},
        "max_length": 512,
        "optim": {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01, "warmup": 10_000},
        "train": {"steps": 500_000, "batch_size": 8_192},
    },
)
