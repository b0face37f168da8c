"""MobileBERT: as deep as BERT-large with a quarter of its width inside, distilled layer by layer. Sun et al. 2020."""

from dataclasses import replace

from bertie.families.bert import BERT_BASE, BERT_KEYS, BUFFERS, LABEL_ROWS, architectures, old_names
from bertie.models.codec import WeightRow, WeightTable
from bertie.models.head_config import HeadConfigs, MaskedLMConfig
from bertie.models.kinds import Bottleneck
from bertie.models.variant import Variant, same

_BASE = replace(  # paper, table 1
    BERT_BASE,
    embedding_size=128,
    hidden_size=512,
    layer=Bottleneck(bottleneck_size=128, num_feedforward_networks=4),
    num_hidden_layers=24,
    num_attention_heads=4,
    intermediate_size=512,
    hidden_act="relu",
    hidden_dropout_prob=0.0,
    norm_type="affine",
    trigram_embeddings=True,
    heads=HeadConfigs(mlm=MaskedLMConfig(mlm_widened=True)),
)
_IB_BERT = replace(  # paper, table 1: the teacher, whose layers are wide inside and whose vectors are as MobileBERT's
    _BASE,
    layer=Bottleneck(bottleneck_size=1024, shared_bottleneck=False),
    intermediate_size=4096,
    hidden_act="gelu",
    hidden_dropout_prob=0.1,
    norm_type="layer",
)

_LAYER = "mobilebert.encoder.layer.{}"


def _normed(ours: str, our_norm: str, theirs: str) -> tuple[WeightRow, WeightRow]:
    return (f"{ours}.*", f"{theirs}.dense.*"), (f"{our_norm}.*", f"{theirs}.LayerNorm.*")


_TABLE = WeightTable(
    base="mobilebert.",
    rows=(
        ("encoder.embeddings.word.*", "mobilebert.embeddings.word_embeddings.*"),
        ("encoder.embeddings.position.*", "mobilebert.embeddings.position_embeddings.*"),
        ("encoder.embeddings.segment.*", "mobilebert.embeddings.token_type_embeddings.*"),
        ("encoder.embeddings.projection.*", "mobilebert.embeddings.embedding_transformation.*"),
        ("encoder.embeddings.norm.*", "mobilebert.embeddings.LayerNorm.*"),
        *_normed("encoder.layers.{}.input", "encoder.layers.{}.input_norm", f"{_LAYER}.bottleneck.input"),
        *_normed("encoder.layers.{}.shared", "encoder.layers.{}.shared_norm", f"{_LAYER}.bottleneck.attention"),
        ("encoder.layers.{}.attention.qk.*", (f"{_LAYER}.attention.self.query.*", f"{_LAYER}.attention.self.key.*")),
        ("encoder.layers.{}.attention.value.*", f"{_LAYER}.attention.self.value.*"),
        *_normed(
            "encoder.layers.{}.attention.output", "encoder.layers.{}.attention_norm", f"{_LAYER}.attention.output"
        ),
        ("encoder.layers.{}.ffn.{}.up.*", f"{_LAYER}.ffn.{{}}.intermediate.dense.*"),
        *_normed("encoder.layers.{}.ffn.{}.down", "encoder.layers.{}.ffn.{}.norm", f"{_LAYER}.ffn.{{}}.output"),
        ("encoder.layers.{}.up.*", f"{_LAYER}.intermediate.dense.*"),
        *_normed("encoder.layers.{}.down", "encoder.layers.{}.output_norm", f"{_LAYER}.output"),
        *_normed("encoder.layers.{}.widen", "encoder.layers.{}.widen_norm", f"{_LAYER}.output.bottleneck"),
        ("encoder.pooler.*", "mobilebert.pooler.dense.*"),
        ("heads.mlm.columns", "cls.predictions.dense.weight"),
        ("heads.mlm.dense.*", "cls.predictions.transform.dense.*"),
        ("heads.mlm.norm.*", "cls.predictions.transform.LayerNorm.*"),
        ("heads.mlm.bias", "cls.predictions.bias"),
        ("heads.pair.classifier.*", "cls.seq_relationship.*"),
        ("heads.sequence.classifier.*", "classifier.*"),
        *LABEL_ROWS,
    ),
    old=(
        *old_names("mobilebert."),
        (r"^cls\.predictions\.decoder\.weight$", "mobilebert.embeddings.word_embeddings.weight"),  # a copy
        (r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),
    ),
    ignored=BUFFERS,
)

MOBILEBERT = Variant(
    model_type="mobilebert",
    about="24 narrow layers with bottlenecks, without layer normalization: 25 million parameters, for phones.",
    source="Sun et al. 2020, arXiv:2004.02984",
    tokenizer="wordpiece",
    base=_BASE,
    presets={"mobilebert-uncased": replace(_BASE, pooler_dense=False), "ib-bert-large": _IB_BERT},
    table=_TABLE,
    architectures={
        **architectures("MobileBert", "mlm", "pair"),
        "MobileBertForNextSentencePrediction": ("pair",),
    },
    keys={
        **BERT_KEYS,
        **same("embedding_size", "num_feedforward_networks"),
        "bottleneck_size": "intra_bottleneck_size",
        "bottleneck_attention": "use_bottleneck_attention",
        "shared_bottleneck": "key_query_shared_bottleneck",
        "pooler_dense": "classifier_activation",
        "norm_type": "normalization_type",
    },
    values={"norm_type": (("affine", "no_norm"), ("layer", "layer_norm"))},
    fixed={
        "tie_word_embeddings": True,
        "use_bottleneck": True,
        "trigram_input": True,
    },
    recipe={  # paper, 4.2, after 240,000 steps of learning from the teacher's layers
        "objectives": {"mlm": {"rate": 0.15}, "nsp": {}},
        "max_length": 512,
        "optim": {"name": "lamb", "lr": 1.5e-3, "eps": 1e-6, "weight_decay": 0.01, "warmup": 10_000},
        "train": {"steps": 500_000, "batch_size": 2_048},
    },
)
