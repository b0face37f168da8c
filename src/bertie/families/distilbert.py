"""DistilBERT: half of BERT's layers, distilled from BERT. Sanh et al. 2019, arXiv:1910.01108."""

from dataclasses import replace

from bertie.families.bert import BERT_BASE, BUFFERS, LABEL_ROWS, UNTIED, architectures, old_names
from bertie.models.codec import WeightTable
from bertie.models.head_config import ChoiceConfig, HeadConfigs, SequenceConfig, SpanConfig
from bertie.models.kinds import Residual
from bertie.models.variant import Variant, same

_BASE = replace(
    BERT_BASE,
    num_hidden_layers=6,
    type_vocab_size=0,
    pooler=False,
    layer=Residual(attended_dropout="none"),
    heads=HeadConfigs(
        sequence=SequenceConfig(sequence_act="relu", sequence_input_dropout=False, sequence_dropout=0.2),
        choice=ChoiceConfig(choice_act="relu"),
        span=SpanConfig(span_dropout=0.1),
    ),
)

_LAYER = "distilbert.transformer.layer.{}"
_TABLE = WeightTable(
    base="distilbert.",
    rows=(
        ("encoder.embeddings.word.*", "distilbert.embeddings.word_embeddings.*"),
        ("encoder.embeddings.position.*", "distilbert.embeddings.position_embeddings.*"),
        ("encoder.embeddings.norm.*", "distilbert.embeddings.LayerNorm.*"),
        (
            "encoder.layers.{}.attention.qkv.*",
            (f"{_LAYER}.attention.q_lin.*", f"{_LAYER}.attention.k_lin.*", f"{_LAYER}.attention.v_lin.*"),
        ),
        ("encoder.layers.{}.attention.output.*", f"{_LAYER}.attention.out_lin.*"),
        ("encoder.layers.{}.attention_norm.*", f"{_LAYER}.sa_layer_norm.*"),
        ("encoder.layers.{}.up.*", f"{_LAYER}.ffn.lin1.*"),
        ("encoder.layers.{}.down.*", f"{_LAYER}.ffn.lin2.*"),
        ("encoder.layers.{}.output_norm.*", f"{_LAYER}.output_layer_norm.*"),
        ("heads.mlm.dense.*", "vocab_transform.*"),
        ("heads.mlm.norm.*", "vocab_layer_norm.*"),
        ("heads.mlm.bias", "vocab_projector.bias"),
        ("heads.mlm.weight", "vocab_projector.weight"),
        ("heads.sequence.dense.*", "pre_classifier.*"),
        ("heads.sequence.classifier.*", "classifier.*"),
        ("heads.choice.dense.*", "pre_classifier.*"),
        *LABEL_ROWS,
    ),
    old=(
        *old_names("distilbert."),
        (r"^transformer\.", "distilbert.transformer."),
    ),
    ignored=BUFFERS,
)

DISTILBERT = Variant(
    model_type="distilbert",
    about="Half of BERT's layers, distilled from it: no segments, no pooler.",
    source="Sanh et al. 2019, arXiv:1910.01108",
    tokenizer="wordpiece",
    base=_BASE,
    presets={
        "distilbert-base-uncased": _BASE,
        "distilbert-base-cased": replace(_BASE, vocab_size=28_996),
        "distilbert-base-multilingual-cased": replace(_BASE, vocab_size=119_547),
    },
    table=_TABLE,
    architectures=architectures("DistilBert"),
    keys={
        **same("vocab_size", "max_position_embeddings", "initializer_range", "pad_token_id"),
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "sequence_dropout": "seq_classif_dropout",
        "span_dropout": "qa_dropout",
        **UNTIED,
    },
    fixed={},
    # paper, section 3, gives large batches by accumulation (up to 4,000) and dynamic masks, no NSP; the numbers are the
    # release's: examples/research_projects/distillation, README.md, train.py, distiller.py. The teacher, and its layers
    # to start from (0, 2, 4, 7, 9, 11 in the release), are left for whoever has one to name.
    recipe={
        "objectives": {"mlm": {"rate": 0.15, "weight": 2.0}, "nsp": None, "distil": {}},
        "max_length": 512,
        "optim": {
            "lr": 5e-4,
            "betas": (0.9, 0.98),
            "eps": 1e-6,
            "weight_decay": 0.0,
            "max_grad_norm": 5.0,
            "warmup": 0.05,
        },
        "train": {"batch_size": 4_000},
    },
)
