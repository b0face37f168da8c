"""Longformer: RoBERTa for 4,096 tokens with windowed attention and global tokens. Beltagy et al. 2020."""

from dataclasses import replace

from bertie.families.bert import architectures, sized_bert
from bertie.families.roberta import ROBERTA, ROBERTA_PUBLISHED
from bertie.families.roberta import ROBERTA_WEIGHT_TABLE as ROBERTA_TABLE
from bertie.models.kinds import Window
from bertie.models.variant import same

# transformers' defaults where config.json says nothing
_BASE = replace(ROBERTA.base, vocab_size=30_522, sep_token_id=2, attention=Window(attention_window=512))
_PUBLISHED = replace(
    ROBERTA_PUBLISHED, sep_token_id=2, attention=Window(attention_window=512), max_position_embeddings=4_098
)

_ATTENTION = "longformer.encoder.layer.{}.attention.self"
_TABLE = replace(
    ROBERTA_TABLE,
    base="longformer.",
    rows=(
        *(
            (
                ours,
                theirs.replace("roberta.", "longformer.")
                if isinstance(theirs, str)
                else tuple(name.replace("roberta.", "longformer.") for name in theirs),
            )
            for ours, theirs in ROBERTA_TABLE.rows
        ),
        (
            "encoder.layers.{}.attention.qkv_global.*",
            (f"{_ATTENTION}.query_global.*", f"{_ATTENTION}.key_global.*", f"{_ATTENTION}.value_global.*"),
        ),
    ),
    old=tuple((pattern, name.replace("roberta.", "longformer.")) for pattern, name in ROBERTA_TABLE.old),
)

LONGFORMER = replace(
    ROBERTA,
    model_type="longformer",
    about="RoBERTa for 4,096 tokens: windowed attention of 512 tokens, and global tokens; linear cost.",
    source="Beltagy et al. 2020, arXiv:2004.05150",
    base=_BASE,
    presets={"longformer-base-4096": _PUBLISHED, "longformer-large-4096": sized_bert(24, 1024, _PUBLISHED)},
    table=_TABLE,
    architectures=architectures("Longformer"),
    keys={
        **{ours: key for ours, key in ROBERTA.keys.items() if ours != "classifier_dropout"},  # always that of hidden
        **same("attention_window", "attention_dilation", "sep_token_id"),
    },
    recipe={  # paper, section 5: RoBERTa's weights, positions copied eight times, 65,000 steps of 64 x 4,096 tokens
        **ROBERTA.recipe,
        "max_length": 4_096,
        "optim": {**ROBERTA.recipe["optim"], "lr": 3e-5, "warmup": 500},
        "train": {"steps": 65_000, "batch_size": 64},
    },
)
