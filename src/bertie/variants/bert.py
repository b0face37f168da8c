"""BERT: its published sizes, the names of its weights, its config.json. Devlin et al. 2018; Turc et al. 2019."""

from dataclasses import replace

from bertie.models.config import EncoderConfig
from bertie.models.variant import Variant
from bertie.models.weights import WeightTable

BASE = EncoderConfig()


def size(layers: int, hidden: int, base: EncoderConfig = BASE) -> EncoderConfig:
    """A BERT of another size: heads are 64 wide, the feed-forward network is four times as wide (paper, section 3)."""
    return replace(
        base,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


CASED = replace(BASE, vocab_size=28_996)
PRESETS = {
    "bert-tiny": size(2, 128),
    "bert-mini": size(4, 256),
    "bert-small": size(4, 512),
    "bert-medium": size(8, 512),
    "bert-base": BASE,
    "bert-large": size(24, 1024),
    "bert-base-cased": CASED,
    "bert-large-cased": size(24, 1024, CASED),
    "bert-base-multilingual-cased": replace(BASE, vocab_size=119_547),
    # the 24 miniatures of "Well-Read Students Learn Better" (Turc et al. 2019), by their published names
    **{
        f"bert_uncased_L-{layers}_H-{hidden}_A-{hidden // 64}": size(layers, hidden)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    },
}

ATTENTION = "bert.encoder.layer.{}.attention"
TABLE = WeightTable(
    base="bert.",
    rows=(
        ("encoder.embeddings.word.*", "bert.embeddings.word_embeddings.*"),
        ("encoder.embeddings.position.*", "bert.embeddings.position_embeddings.*"),
        ("encoder.embeddings.segment.*", "bert.embeddings.token_type_embeddings.*"),
        ("encoder.embeddings.norm.*", "bert.embeddings.LayerNorm.*"),
        (
            "encoder.layers.{}.attention.qkv.*",
            (f"{ATTENTION}.self.query.*", f"{ATTENTION}.self.key.*", f"{ATTENTION}.self.value.*"),
        ),
        ("encoder.layers.{}.attention.output.*", f"{ATTENTION}.output.dense.*"),
        ("encoder.layers.{}.attention_norm.*", f"{ATTENTION}.output.LayerNorm.*"),
        ("encoder.layers.{}.up.*", "bert.encoder.layer.{}.intermediate.dense.*"),
        ("encoder.layers.{}.down.*", "bert.encoder.layer.{}.output.dense.*"),
        ("encoder.layers.{}.output_norm.*", "bert.encoder.layer.{}.output.LayerNorm.*"),
        ("encoder.pooler.*", "bert.pooler.dense.*"),
        ("heads.mlm.dense.*", "cls.predictions.transform.dense.*"),
        ("heads.mlm.norm.*", "cls.predictions.transform.LayerNorm.*"),
        ("heads.mlm.bias", "cls.predictions.bias"),
        ("heads.pair.classifier.*", "cls.seq_relationship.*"),
        ("heads.sequence.classifier.*", "classifier.*"),
    ),
    old=(
        (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),  # an encoder saved without heads
        (r"\.gamma$", ".weight"),  # TensorFlow's names of a norm's two parameters
        (r"\.beta$", ".bias"),
        (r"^cls\.predictions\.decoder\.weight$", "bert.embeddings.word_embeddings.weight"),  # a copy of what is tied
        (r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),
    ),
    ignored=(r"embeddings\.(position_ids|token_type_ids)$",),  # buffers 0, 1, 2 ... and 0, 0, 0 ...
)

BERT = Variant(
    model_type="bert",
    presets=PRESETS,
    table=TABLE,
    architectures={  # the class that opens the folder elsewhere -> our heads
        "BertModel": (),
        "BertForPreTraining": ("mlm", "pair"),
        "BertForMaskedLM": ("mlm",),
        "BertForNextSentencePrediction": ("pair",),
        "BertForSequenceClassification": ("sequence",),
    },
    keys=(  # fields of EncoderConfig that config.json holds, under the same names
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
    ),
    fixed={  # config.json keys that must have this value, where present, and are written with it
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
)
