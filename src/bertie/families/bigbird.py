"""BigBird: 4,096 tokens with block-sparse attention. Zaheer et al. 2020."""

from dataclasses import replace

from bertie.families.bert import (
    BERT_BASE,
    BERT_FIXED_KEYS,
    BERT_KEYS,
    BUFFERS,
    LABEL_ROWS,
    UNTIED,
    architectures,
    encoder_rows,
    sized_bert,
)
from bertie.families.bert import BERT_WEIGHT_TABLE as BERT_TABLE
from bertie.models.codec import WeightTable
from bertie.models.head_config import ChoiceConfig, HeadConfigs, SequenceConfig, SpanConfig
from bertie.models.kinds import BlockSparse
from bertie.models.variant import VALUES, Variant, same

_BASE = replace(
    BERT_BASE,
    vocab_size=50_358,
    hidden_act="gelu_tanh",
    max_position_embeddings=4_096,
    attention=BlockSparse(),
    dropout_before_norm=True,
    sep_token_id=66,
    heads=HeadConfigs(
        sequence=SequenceConfig(sequence_act="hidden_act"),
        choice=ChoiceConfig(choice_drops_hidden=True),
        span=SpanConfig(span_layer=True),
    ),
)

_QA_HEAD = "qa_classifier"
_TABLE = WeightTable(
    base="bert.",
    rows=(
        *(row for row in encoder_rows("bert.") if row[0] != "encoder.pooler.*"),
        ("encoder.pooler.*", "bert.pooler.*"),
        *(row for row in BERT_TABLE.rows if row[0].startswith(("heads.mlm.", "heads.pair."))),
        ("heads.sequence.dense.*", "classifier.dense.*"),
        ("heads.sequence.classifier.*", "classifier.out_proj.*"),
        *(row for row in LABEL_ROWS if not row[0].startswith("heads.span.")),
        ("heads.span.layer.up.*", f"{_QA_HEAD}.intermediate.dense.*"),
        ("heads.span.layer.down.*", f"{_QA_HEAD}.output.dense.*"),
        ("heads.span.layer.norm.*", f"{_QA_HEAD}.output.LayerNorm.*"),
        ("heads.span.classifier.*", f"{_QA_HEAD}.qa_outputs.*"),
    ),
    old=BERT_TABLE.old,
    ignored=BUFFERS,
)

BIGBIRD = Variant(
    model_type="big_bird",
    about="4,096 tokens with block-sparse attention: neighboring, first, last and random blocks; linear cost.",
    source="Zaheer et al. 2020, arXiv:2007.14062",
    tokenizer="unigram",
    base=_BASE,
    presets={"bigbird-roberta-base": _BASE, "bigbird-roberta-large": sized_bert(24, 1024, _BASE)},
    table=_TABLE,
    architectures=architectures("BigBird", "mlm", "pair"),
    keys={
        **BERT_KEYS,
        **UNTIED,
        **same("block_size", "num_random_blocks", "rescale_embeddings", "sep_token_id"),
        "attention": "attention_type",
        "attention_bias": "use_bias",
    },
    values={**VALUES, "attention": (("block_sparse", "block_sparse"), ("full", "original_full"))},
    fixed=BERT_FIXED_KEYS,
    recipe={  # paper, appendix E.1, from RoBERTa's weights; the steps are not given
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None},
        "max_length": 4_096,
        "optim": {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "warmup": 10_000},
        "train": {"batch_size": 256},
    },
)
