"""ELECTRA: a small generator replaces some tokens, and the discriminator detects them. Clark et al. 2020.

    the chef cooked the meal  ->  generator: the chef ate the meal  ->  discriminator: 0 0 1 0 0

The discriminator is the resulting model. Both are of this family, with different heads ("mlm", "rtd").
"""

from dataclasses import replace

from bertie.families.bert import (
    BERT_FIXED_KEYS,
    BERT_KEYS,
    BUFFERS,
    LABEL_ROWS,
    UNTIED,
    architectures,
    encoder_rows,
    old_names,
    sized_bert,
)
from bertie.models.codec import WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.head_config import ChoiceConfig, HeadConfigs, MaskedLMConfig, SequenceConfig
from bertie.models.variant import Variant, same

_BASE = EncoderConfig(  # the small discriminator, and transformers' defaults
    embedding_size=128,
    hidden_size=256,
    num_attention_heads=4,
    intermediate_size=1024,
    pooler=False,
    heads=HeadConfigs(
        mlm=MaskedLMConfig(mlm_act="gelu"),
        sequence=SequenceConfig(sequence_act="gelu"),
        choice=ChoiceConfig(choice_act="gelu", choice_dropout=0.1),
    ),
)


_WIDE = replace(_BASE, embedding_size=768)

_TABLE = WeightTable(
    base="electra.",
    rows=(
        *(row for row in encoder_rows("electra.") if row[0] != "encoder.pooler.*"),
        ("encoder.embeddings.projection.*", "electra.embeddings_project.*"),
        ("heads.mlm.dense.*", "generator_predictions.dense.*"),
        ("heads.mlm.norm.*", "generator_predictions.LayerNorm.*"),
        ("heads.mlm.bias", "generator_lm_head.bias"),
        ("heads.mlm.weight", "generator_lm_head.weight"),
        ("heads.rtd.dense.*", "discriminator_predictions.dense.*"),
        ("heads.rtd.classifier.*", "discriminator_predictions.dense_prediction.*"),
        ("heads.sequence.dense.*", "classifier.dense.*"),
        ("heads.sequence.classifier.*", "classifier.out_proj.*"),
        ("heads.choice.dense.*", "sequence_summary.summary.*"),
        *LABEL_ROWS,
    ),
    old=(
        *old_names("electra."),
        (r"^embeddings_project\.", "electra.embeddings_project."),
    ),
    ignored=BUFFERS,
)

ELECTRA = Variant(
    model_type="electra",
    about="Replaced-token detection: predicts which tokens a small generator has replaced.",
    source="Clark et al. 2020, arXiv:2003.10555",
    tokenizer="wordpiece",
    base=_BASE,
    presets={
        "electra-small-discriminator": _BASE,
        "electra-small-generator": _BASE,
        "electra-base-discriminator": sized_bert(12, 768, _WIDE),
        "electra-base-generator": sized_bert(12, 256, _WIDE),
        "electra-large-discriminator": sized_bert(24, 1024, replace(_BASE, embedding_size=1024)),
        "electra-large-generator": sized_bert(24, 256, replace(_BASE, embedding_size=1024)),
    },
    table=_TABLE,
    architectures=architectures("Electra", "rtd"),
    keys={**BERT_KEYS, **UNTIED, **same("embedding_size"), "choice_dropout": "summary_last_dropout"},
    fixed={**BERT_FIXED_KEYS, "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    recipe={  # paper, table 6 (small)
        "objectives": {"mlm": None, "nsp": None, "rtd": {}},
        "max_length": 128,
        "optim": {"lr": 5e-4, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "warmup": 10_000},
        "train": {"steps": 1_000_000, "batch_size": 128},
    },
)
