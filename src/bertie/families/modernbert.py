"""ModernBERT: BERT as one builds it today. Warner et al. 2024, arXiv:2412.13663. mmBERT is the same in 1,800 languages.

Rotary positions, windows between layers that see all, gates, no biases, norms before each half of a layer.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from bertie.errors import DataError
from bertie.families.bert import UNTIED, architectures
from bertie.models.codec import WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.head_config import HeadConfigs, LabelConfig, MaskedLMConfig, SpanConfig
from bertie.models.kinds import Alternating, Residual, Rotary
from bertie.models.variant import Stds, Variant, same

_BASE = EncoderConfig(
    vocab_size=50_368,
    num_hidden_layers=22,
    intermediate_size=1152,
    hidden_act="geglu_erf",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout=0.0,
    embedding_dropout=0.0,
    max_position_embeddings=8192,
    type_vocab_size=0,
    layer_norm_eps=1e-5,
    norm_type="unbiased",
    pooler=False,
    positions=Rotary(rope_theta=160_000.0, local_rope_theta=10_000.0),
    attention=Alternating(local_attention=128),
    layer=Residual(
        norm="pre",
        bias=False,
        first_attention_norm=False,
        attended_dropout="attention",
        fed_dropout=False,
        dropout_inside=True,
    ),
    heads=HeadConfigs(
        mlm=MaskedLMConfig(mlm_act="gelu", mlm_biases=False),
        label=LabelConfig(label_transform="gelu"),
        span=SpanConfig(span_dropout=None),
    ),
)
_PUBLISHED = _BASE.replace(pad_token_id=50_283, sep_token_id=50_282)
_LAYER = "model.layers.{}"
_TABLE = WeightTable(
    base="model.",
    rows=(
        ("encoder.embeddings.word.*", "model.embeddings.tok_embeddings.*"),
        ("encoder.embeddings.norm.*", "model.embeddings.norm.*"),
        ("encoder.layers.{}.attention_norm.*", f"{_LAYER}.attn_norm.*"),
        ("encoder.layers.{}.attention.qkv.*", f"{_LAYER}.attn.Wqkv.*"),
        ("encoder.layers.{}.attention.output.*", f"{_LAYER}.attn.Wo.*"),
        ("encoder.layers.{}.output_norm.*", f"{_LAYER}.mlp_norm.*"),
        ("encoder.layers.{}.gate_up.*", f"{_LAYER}.mlp.Wi.*"),
        ("encoder.layers.{}.down.*", f"{_LAYER}.mlp.Wo.*"),
        ("encoder.final_norm.*", "model.final_norm.*"),
        ("heads.mlm.dense.*", "head.dense.*"),
        ("heads.mlm.norm.*", "head.norm.*"),
        ("heads.mlm.bias", "decoder.bias"),
        ("heads.mlm.weight", "decoder.weight"),
        *((f"heads.{head}.transform.dense.*", "head.dense.*") for head in ("sequence", "token", "span", "choice")),
        *((f"heads.{head}.transform.norm.*", "head.norm.*") for head in ("sequence", "token", "span", "choice")),
        *((f"heads.{head}.classifier.*", "classifier.*") for head in ("sequence", "token", "span", "choice")),
    ),
    old=((r"^(embeddings|layers|final_norm)\.", r"model.\1."),),
)
_LAYER_KINDS = ("full_attention", "sliding_attention")


def _flattened(public: Mapping[str, Any]) -> Mapping[str, object]:
    """The keys of `transformers` 5, layer_types and rope_parameters, as those of the release."""
    flat = {key: value for key, value in public.items() if key not in ("layer_types", "rope_parameters")}
    if layers := public.get("layer_types"):
        every = next((i for i in range(1, len(layers)) if layers[i] == _LAYER_KINDS[0]), len(layers))
        if list(layers) != [_LAYER_KINDS[bool(i % every)] for i in range(len(layers))]:
            raise DataError(f"layer_types is {str(layers)[:80]!r}; the first layer and then every n-th must be global.")
        flat["global_attn_every_n_layers"] = every
    of_kinds = public.get("rope_parameters") or {}
    for kind, key in zip(_LAYER_KINDS, ("global_rope_theta", "local_rope_theta"), strict=True):
        flat |= rope_base(of_kinds.get(kind), f"rope_parameters of {kind}", key)
    return flat | rope_base(public.get("rope_scaling"), "rope_scaling", "global_rope_theta")


def rope_base(rope: object, where: str, key: str) -> dict[str, object]:
    """Returns the base of rotary positions under a key, if it is given. Raises DataError for scaled positions."""
    rope = rope or {}
    plain = {"rope_type": "default", "type": "default", "rope_theta": None}
    if not isinstance(rope, Mapping) or any(plain.get(name, rope) not in (value, None) for name, value in rope.items()):
        raise DataError(f"{where}: {str(rope)[:80]}; only a base (rope_theta) is supported.")
    return {key: rope["rope_theta"]} if "rope_theta" in rope else {}


def _stds(config: EncoderConfig) -> Stds:
    """What a layer adds shrinks with the number of additions; `transformers` cuts these normals at two deviations."""
    added = config.initializer_range / sqrt(2 * max(1, config.num_hidden_layers))
    return {r"attention\.output|down|\.dense\.": added, "classifier": config.hidden_size**-0.5}


MODERNBERT = Variant(
    model_type="modernbert",
    about="BERT with current methods: 8,192 tokens, rotary positions, windows, gated layers, pre-norm, no biases.",
    source="Warner et al. 2024, arXiv:2412.13663",
    tokenizer="byte-bpe",
    base=_BASE,
    presets={
        "ModernBERT-base": _PUBLISHED,
        "ModernBERT-large": _PUBLISHED.replace(
            num_hidden_layers=28, hidden_size=1024, num_attention_heads=16, intermediate_size=2624
        ),
    },
    table=_TABLE,
    architectures=architectures("ModernBert"),
    keys={
        **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        **same("max_position_embeddings", "initializer_range", "pad_token_id", "sep_token_id", "embedding_dropout"),
        **same("local_attention", "global_attn_every_n_layers", "local_rope_theta", "classifier_dropout"),
        **UNTIED,
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        "norm_type": "norm_bias",
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "rope_theta": "global_rope_theta",
        "label_pooling": "classifier_pooling",
    },
    values={
        "hidden_act": (
            ("geglu_erf", "gelu"),
            ("geglu", "gelu_pytorch_tanh"),
            ("geglu", "gelu_new"),
            ("swiglu", "silu"),
        ),
        "norm_type": (("unbiased", False), ("layer", True)),
        "label_pooling": (("cls", "cls"), ("mean", "mean")),
    },
    flattened=_flattened,
    fixed={
        **{"attention_bias": False, "mlp_bias": False, "classifier_bias": False, "decoder_bias": True},
        "classifier_activation": "gelu",
    },
    recipe={  # paper, table 3 and appendix A; first phase, texts of 1,024 tokens
        "objectives": {"mlm": {"rate": 0.3}, "nsp": None},
        "max_length": 1024,
        "packing": "full_sentences",
        "optim": {"lr": 8e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 1e-5},
        "train": {"batch_size": 4_608},
    },
    stds=_stds,
    # the defaults of `transformers` are ids of the published vocabulary, and it warns where a smaller one lacks them
    told_ids={"bos_token_id": ("bos", "cls"), "cls_token_id": ("cls", "bos"), "eos_token_id": ("eos", "sep")},
)
