"""Static word vectors, alone or below an LSTM, a GRU or convolutions: what people compare BERT with.

No other program has these folders. Nobody pre-trains them: runs/untrained.py has their vocabulary and their vectors.
"""

from bertie.families.bert import LABEL_ROWS
from bertie.models.codec import WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.head_config import HeadConfigs, LabelConfig
from bertie.models.kinds import NoPositions, Recurrent
from bertie.models.variant import Stds, Variant, same

_LSTM = EncoderConfig(
    hidden_size=300,
    num_hidden_layers=1,
    num_attention_heads=1,
    intermediate_size=300,
    hidden_act="relu",
    hidden_dropout_prob=0.3,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.1,
    layer_norm_eps=1e-5,
    positions=NoPositions(),
    layer=Recurrent(),
    pooler=False,
    # without the norm of embeddings, an LSTM of 128 had 0.521 F1 on names instead of 0.706
    embedding_dropout=0.0,
    heads=HeadConfigs(label=LabelConfig(label_pooling="max")),
)


def _stds(config: EncoderConfig) -> Stds:
    """Those of torch's uniform first values: the root of a third of the number of inputs."""
    h, widths = config.hidden_size, getattr(config.layer, "filter_widths", ())
    filters = {rf"\.filters\.{i}\.": (3 * h * width) ** -0.5 for i, width in enumerate(widths)}
    return {r"\.cell\.": (3 * h / 2) ** -0.5, r"classifier|dense": (3 * h) ** -0.5, **filters}


STATIC = Variant(
    model_type="static",
    about="Word vectors, alone or below an LSTM, a GRU or convolutions: what BERT is compared with.",
    source="Mikolov et al. 2013, arXiv:1301.3781; Kim 2014, arXiv:1408.5882; Conneau et al. 2017, arXiv:1705.02364",
    tokenizer="wordpiece",
    base=_LSTM,
    presets={
        "lstm": _LSTM,
        "gru": _LSTM.replace(recurrent_cell="gru"),
        "cnn": _LSTM.replace(layer="convolutional"),
        "bag": _LSTM.replace(num_hidden_layers=0, label_pooling="mean"),
    },
    table=WeightTable(
        rows=(
            ("encoder.embeddings.word.*", "static.word_embeddings.*"),
            ("encoder.embeddings.segment.*", "static.token_type_embeddings.*"),
            ("encoder.embeddings.norm.*", "static.norm.*"),
            ("encoder.embeddings.projection.*", "static.projection.*"),
            ("encoder.layers.{}.cell.*", "static.layers.{}.cell.*"),
            ("encoder.layers.{}.filters.{}.*", "static.layers.{}.filters.{}.*"),
            ("heads.mlm.dense.*", "predictions.dense.*"),
            ("heads.mlm.norm.*", "predictions.norm.*"),
            ("heads.mlm.bias", "predictions.bias"),
            ("heads.mlm.weight", "predictions.decoder.weight"),
            ("heads.sequence.classifier.*", "classifier.*"),
            *LABEL_ROWS,
        ),
    ),
    architectures={
        "StaticModel": (),
        "StaticForMaskedLM": ("mlm",),
        "StaticForSequenceClassification": ("sequence",),
        "StaticForTokenClassification": ("token",),
        "StaticForMultipleChoice": ("choice",),
        "StaticForQuestionAnswering": ("span",),
    },
    keys=same(
        *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "intermediate_size", "hidden_act"),
        *("layer", "recurrent_cell", "label_pooling", "type_vocab_size", "pad_token_id"),
        *("hidden_dropout_prob", "embedding_dropout", "classifier_dropout", "initializer_range", "layer_norm_eps"),
        "num_attention_heads",
    ),
    values={},
    fixed={},
    stds=_stds,
    random_rate=1e-3,
    recipe={  # masked words in an LSTM; no paper has it
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None},
        "max_length": 128,
        "optim": {"lr": 1e-3, "warmup": 0.1},
        "train": {"batch_size": 128},
    },
)
