"""ALBERT: shared weights of all layers, small embeddings, sentence-order prediction. Lan et al. 2019."""

from dataclasses import replace

from bertie.families.bert import (
    BERT_FIXED_KEYS,
    BERT_KEYS,
    BUFFERS,
    LABEL_ROWS,
    UNTIED,
    architectures,
    old_names,
    sized_bert,
)
from bertie.models.codec import WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.head_config import HeadConfigs, PairConfig
from bertie.models.kinds import Groups
from bertie.models.variant import Variant, same

_BASE = EncoderConfig(  # transformers' defaults, which are the xxlarge model's
    vocab_size=30_000,
    embedding_size=128,
    hidden_size=4096,
    num_attention_heads=64,
    intermediate_size=16_384,
    sharing=Groups(num_hidden_groups=1),
    hidden_act="gelu_tanh",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout=0.1,
    heads=HeadConfigs(pair=PairConfig(pair_dropout=True)),
    project_embeddings=True,
)


_SIZES = {  # paper, table 1; heads as released
    "base": sized_bert(12, 768, _BASE),
    "large": sized_bert(24, 1024, _BASE),
    "xlarge": replace(sized_bert(24, 2048, _BASE), num_attention_heads=16),
    "xxlarge": _BASE,
}

_ATTENTION = "albert.encoder.albert_layer_groups.{}.albert_layers.{}.attention"
_LAYER = "albert.encoder.albert_layer_groups.{}.albert_layers.{}"
_TABLE = WeightTable(
    base="albert.",
    rows=(
        ("encoder.embeddings.word.*", "albert.embeddings.word_embeddings.*"),
        ("encoder.embeddings.position.*", "albert.embeddings.position_embeddings.*"),
        ("encoder.embeddings.segment.*", "albert.embeddings.token_type_embeddings.*"),
        ("encoder.embeddings.norm.*", "albert.embeddings.LayerNorm.*"),
        ("encoder.embeddings.projection.*", "albert.encoder.embedding_hidden_mapping_in.*"),
        (
            "encoder.layers.{}.{}.attention.qkv.*",
            (f"{_ATTENTION}.query.*", f"{_ATTENTION}.key.*", f"{_ATTENTION}.value.*"),
        ),
        ("encoder.layers.{}.{}.attention.output.*", f"{_ATTENTION}.dense.*"),
        ("encoder.layers.{}.{}.attention_norm.*", f"{_ATTENTION}.LayerNorm.*"),
        ("encoder.layers.{}.{}.up.*", f"{_LAYER}.ffn.*"),
        ("encoder.layers.{}.{}.down.*", f"{_LAYER}.ffn_output.*"),
        ("encoder.layers.{}.{}.output_norm.*", f"{_LAYER}.full_layer_layer_norm.*"),
        ("encoder.pooler.*", "albert.pooler.*"),
        ("heads.mlm.dense.*", "predictions.dense.*"),
        ("heads.mlm.norm.*", "predictions.LayerNorm.*"),
        ("heads.mlm.bias", "predictions.bias"),
        ("heads.mlm.weight", "predictions.decoder.weight"),
        ("heads.pair.classifier.*", "sop_classifier.classifier.*"),
        ("heads.sequence.classifier.*", "classifier.*"),
        *LABEL_ROWS,
    ),
    old=(
        *old_names("albert."),
        (r"^predictions\.decoder\.bias$", "predictions.bias"),
    ),
    ignored=BUFFERS,
)

ALBERT = Variant(
    model_type="albert",
    about="All layers share one set of weights; embeddings of size 128; sentence-order prediction instead of NSP.",
    source="Lan et al. 2019, arXiv:1909.11942",
    tokenizer="unigram",
    base=_BASE,
    presets={
        **{
            f"albert-{name}-v1": replace(
                shape,
                hidden_act="gelu",
                hidden_dropout_prob=0.0 if name == "xxlarge" else 0.1,
                attention_probs_dropout_prob=0.0 if name == "xxlarge" else 0.1,
            )
            for name, shape in _SIZES.items()
        },
        **{f"albert-{name}-v2": shape for name, shape in _SIZES.items()},
    },
    table=_TABLE,
    architectures=architectures("Albert", "mlm", "pair"),
    keys={
        **BERT_KEYS,
        **UNTIED,
        **same("embedding_size", "num_hidden_groups", "inner_group_num"),
        "classifier_dropout": "classifier_dropout_prob",
    },
    fixed={key: BERT_FIXED_KEYS[key] for key in ("position_embedding_type",)},
    recipe={  # paper, 4.1
        "objectives": {"mlm": {"rate": 0.15, "masking": "ngram"}, "nsp": None, "sop": {}},
        "max_length": 512,
        "optim": {"name": "lamb", "lr": 1.76e-3, "eps": 1e-6, "weight_decay": 0.01, "warmup": 3_125},
        "train": {"steps": 125_000, "batch_size": 4_096},
    },
)
