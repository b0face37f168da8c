"""BERT: its published sizes, the names of its weights, its config.json. Devlin et al. 2018; Turc et al. 2019."""

from dataclasses import replace

from bertie.models.codec import WeightRow, WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.variant import Variant, same

BERT_BASE = EncoderConfig()


def sized_bert(layers: int, hidden: int, base: EncoderConfig = BERT_BASE) -> EncoderConfig:
    """Returns a BERT of another size: heads of size 64, an intermediate size of four times the hidden size (section
    3)."""
    return replace(
        base,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


CASED = replace(BERT_BASE, vocab_size=28_996)
_PRESETS = {
    "bert-tiny": sized_bert(2, 128),
    "bert-mini": sized_bert(4, 256),
    "bert-small": sized_bert(4, 512),
    "bert-medium": sized_bert(8, 512),
    "bert-base": BERT_BASE,
    "bert-large": sized_bert(24, 1024),
    "bert-base-ltr": replace(BERT_BASE, causal=True),  # the paper's ablation: left to right (section 5.1)
    "bert-base-cased": CASED,
    "bert-large-cased": sized_bert(24, 1024, CASED),
    "bert-base-multilingual-cased": replace(BERT_BASE, vocab_size=119_547),
    "bert-base-multilingual-uncased": replace(BERT_BASE, vocab_size=105_879),
    "bert-base-chinese": replace(BERT_BASE, vocab_size=21_128),
    # the 24 miniatures of "Well-Read Students Learn Better" (Turc et al. 2019), by their published names
    **{
        f"bert_uncased_L-{layers}_H-{hidden}_A-{hidden // 64}": sized_bert(layers, hidden)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    },
}


def encoder_rows(base: str) -> tuple[WeightRow, ...]:
    """Returns the names of an encoder's weights, which much of the family shares except for the prefix."""
    attention = f"{base}encoder.layer.{{}}.attention"
    return (
        ("encoder.embeddings.word.*", f"{base}embeddings.word_embeddings.*"),
        ("encoder.embeddings.position.*", f"{base}embeddings.position_embeddings.*"),
        ("encoder.embeddings.segment.*", f"{base}embeddings.token_type_embeddings.*"),
        ("encoder.embeddings.norm.*", f"{base}embeddings.LayerNorm.*"),
        (
            "encoder.layers.{}.attention.qkv.*",
            (f"{attention}.self.query.*", f"{attention}.self.key.*", f"{attention}.self.value.*"),
        ),
        ("encoder.layers.{}.attention.output.*", f"{attention}.output.dense.*"),
        ("encoder.layers.{}.attention_norm.*", f"{attention}.output.LayerNorm.*"),
        ("encoder.layers.{}.up.*", f"{base}encoder.layer.{{}}.intermediate.dense.*"),
        ("encoder.layers.{}.down.*", f"{base}encoder.layer.{{}}.output.dense.*"),
        ("encoder.layers.{}.output_norm.*", f"{base}encoder.layer.{{}}.output.LayerNorm.*"),
        ("encoder.pooler.*", f"{base}pooler.dense.*"),
    )


def old_names(base: str) -> tuple[tuple[str, str], ...]:
    """Names in older files of the whole family."""
    return (
        (r"^(embeddings|encoder|pooler)\.", rf"{base}\1."),  # an encoder saved without heads
        (r"\.gamma$", ".weight"),  # TensorFlow's names of a norm's two parameters
        (r"\.beta$", ".bias"),
    )


def architectures(prefix: str, *pretraining: str) -> dict[str, tuple[str, ...]]:
    """Returns the public classes that much of the family has, and their heads. pretraining: those of ForPreTraining."""
    return {
        f"{prefix}Model": (),
        **({f"{prefix}ForPreTraining": pretraining} if pretraining else {}),
        f"{prefix}ForMaskedLM": ("mlm",),
        f"{prefix}ForSequenceClassification": ("sequence",),
        f"{prefix}ForMultipleChoice": ("choice",),
        f"{prefix}ForTokenClassification": ("token",),
        f"{prefix}ForQuestionAnswering": ("span",),
    }


BUFFERS = (r"embeddings\.(position_ids|token_type_ids)$",)  # 0, 1, 2 ... and 0, 0, 0 ..., in older files
LABEL_ROWS: tuple[WeightRow, ...] = (
    ("heads.token.classifier.*", "classifier.*"),
    ("heads.choice.classifier.*", "classifier.*"),
    ("heads.span.classifier.*", "qa_outputs.*"),
)
BERT_WEIGHT_TABLE = WeightTable(
    base="bert.",
    rows=(
        *encoder_rows("bert."),
        ("heads.mlm.dense.*", "cls.predictions.transform.dense.*"),
        ("heads.mlm.norm.*", "cls.predictions.transform.LayerNorm.*"),
        ("heads.mlm.bias", "cls.predictions.bias"),
        ("heads.mlm.weight", "cls.predictions.decoder.weight"),
        ("heads.lm.weight", "cls.predictions.decoder.weight"),
        ("heads.lm.dense.*", "cls.predictions.transform.dense.*"),
        ("heads.lm.norm.*", "cls.predictions.transform.LayerNorm.*"),
        ("heads.lm.bias", "cls.predictions.bias"),
        ("heads.pair.classifier.*", "cls.seq_relationship.*"),
        ("heads.sequence.classifier.*", "classifier.*"),
        *LABEL_ROWS,
    ),
    old=(
        *old_names("bert."),
        (r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),
    ),
    ignored=BUFFERS,
)

BERT_KEYS = same(
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)
UNTIED = {"mlm_tied": "tie_word_embeddings"}
BERT_FIXED_KEYS = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

BERT = Variant(
    model_type="bert",
    about="Transformer encoder: pre-trained on masked tokens and next-sentence prediction.",
    source="Devlin et al. 2018, arXiv:1810.04805",
    tokenizer="wordpiece",
    base=BERT_BASE,
    presets=_PRESETS,
    table=BERT_WEIGHT_TABLE,
    architectures={
        **architectures("Bert", "mlm", "pair"),
        "BertLMHeadModel": ("lm",),
        "BertForNextSentencePrediction": ("pair",),
    },
    keys={**BERT_KEYS, **UNTIED, "causal": "is_decoder"},
    unpooled=frozenset({"causal"}),  # the public pooler reads [CLS], which sees nothing but itself there
    fixed={key: value for key, value in BERT_FIXED_KEYS.items() if key != "is_decoder"},
    recipe={  # paper, A.2: the first nine tenths of the steps at length 128, the rest at 512
        "objectives": {"mlm": {"rate": 0.15}, "nsp": {}},
        "max_length": 512,
        "optim": {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "warmup": 10_000},
        "train": {"steps": 1_000_000, "batch_size": 256},
    },
)
