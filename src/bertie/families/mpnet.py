"""MPNet: relative and absolute positions, pre-trained on text that is permuted and masked. Song et al. 2020."""

from dataclasses import replace

from bertie.families.bert import UNTIED, architectures, encoder_rows, sized_bert
from bertie.families.roberta import ROBERTA, ROBERTA_BASE
from bertie.models.codec import WeightTable
from bertie.models.kinds import LearnedRelative

_BASE = replace(ROBERTA_BASE, vocab_size=30_527, type_vocab_size=0, positions=LearnedRelative(positions_after_pad=True))
_PUBLISHED = replace(_BASE, max_position_embeddings=514, layer_norm_eps=1e-5)

_ATTENTION = "mpnet.encoder.layer.{}.attention"
THEIRS: dict[str, str | tuple[str, ...]] = {  # what is called otherwise than in BERT
    "encoder.layers.{}.attention.qkv.*": tuple(f"{_ATTENTION}.attn.{part}.*" for part in "qkv"),
    "encoder.layers.{}.attention.output.*": f"{_ATTENTION}.attn.o.*",
    "encoder.layers.{}.attention_norm.*": f"{_ATTENTION}.LayerNorm.*",
}
_TABLE = WeightTable(
    base="mpnet.",
    rows=(
        ("encoder.relative.bias.*", "mpnet.encoder.relative_attention_bias.*"),
        *((ours, THEIRS.get(ours, theirs)) for ours, theirs in encoder_rows("mpnet.")),
        *(row for row in ROBERTA.table.rows if row[0].startswith("heads.")),
    ),
    old=tuple((pattern, name.replace("roberta.", "mpnet.")) for pattern, name in ROBERTA.table.old),
    ignored=ROBERTA.table.ignored,
)

MPNET = replace(
    ROBERTA,
    model_type="mpnet",
    about="BERT with relative position biases: pre-trained on permuted text; the encoder of all-mpnet-base-v2.",
    source="Song et al. 2020, arXiv:2004.09297",
    tokenizer="wordpiece",
    base=_BASE,
    presets={"mpnet-base": _PUBLISHED, "mpnet-large": sized_bert(24, 1024, _PUBLISHED)},
    table=_TABLE,
    architectures=architectures("MPNet"),
    keys={
        **{ours: key for ours, key in ROBERTA.keys.items() if ours not in ("classifier_dropout", "type_vocab_size")},
        **UNTIED,
    },
    values={**ROBERTA.values, "pad_token_id": ((1, 1),)},  # `transformers` counts positions from id 1, whatever the pad
    fixed={"relative_attention_num_buckets": 32},  # and its code has this number, whatever config.json says
    recipe={  # paper, 3.1; mlm instead of its own objective, which permutes tokens and sees all positions
        **ROBERTA.recipe,
        "optim": {"lr": 6e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01, "warmup": 24_000},
    },
)
