"""NomicBERT: BERT with rotary positions, gates and no biases, for 2,048 tokens. Nussbaum et al. 2024.

The hub's folders ask for code (auto_map) and are refused; those that transformers 5 saves open, with the same weights.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bertie.families.bert import BERT, BERT_BASE, BERT_KEYS, LABEL_ROWS, UNTIED
from bertie.families.modernbert import rope_base
from bertie.models.codec import WeightTable
from bertie.models.kinds import Residual, Rotary
from bertie.models.variant import same

_BASE = replace(
    BERT_BASE,
    vocab_size=30_528,
    hidden_act="swiglu",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=2048,
    positions=Rotary(rope_theta=1_000.0),
    layer=Residual(bias=False),
)
_LAYER = "nomic_bert.encoder.layers.{}"
_TABLE = WeightTable(
    base="nomic_bert.",
    rows=(
        ("encoder.embeddings.word.*", "nomic_bert.embeddings.word_embeddings.*"),
        ("encoder.embeddings.segment.*", "nomic_bert.embeddings.token_type_embeddings.*"),
        ("encoder.embeddings.norm.*", "nomic_bert.emb_ln.*"),
        ("encoder.layers.{}.attention.qkv.*", f"{_LAYER}.attn.Wqkv.*"),
        ("encoder.layers.{}.attention.output.*", f"{_LAYER}.attn.out_proj.*"),
        ("encoder.layers.{}.attention_norm.*", f"{_LAYER}.norm1.*"),
        ("encoder.layers.{}.gate_up.*", (f"{_LAYER}.mlp.fc12.*", f"{_LAYER}.mlp.fc11.*")),
        ("encoder.layers.{}.down.*", f"{_LAYER}.mlp.fc2.*"),
        ("encoder.layers.{}.output_norm.*", f"{_LAYER}.norm2.*"),
        ("encoder.pooler.*", "nomic_bert.pooler.dense.*"),
        ("heads.mlm.dense.*", "cls.predictions.transform.dense.*"),
        ("heads.mlm.norm.*", "cls.predictions.transform.layer_norm.*"),
        ("heads.mlm.bias", "cls.predictions.bias"),
        ("heads.mlm.weight", "cls.predictions.decoder.weight"),
        ("heads.sequence.classifier.*", "classifier.*"),
        LABEL_ROWS[0],
    ),
    old=(
        (r"^(embeddings|encoder|emb_ln|pooler)\.", r"nomic_bert.\1."),
        (r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),
    ),
)


def _flattened(public: Mapping[str, Any]) -> Mapping[str, object]:
    """The base of the turns, which `transformers` 5 keeps in rope_parameters; head_dim where it is not the usual."""
    flat = {key: value for key, value in public.items() if key != "rope_parameters"}
    heads, width = public.get("num_attention_heads"), public.get("hidden_size")
    if isinstance(heads, int) and flat.get("head_dim") and flat["head_dim"] * heads == width:
        del flat["head_dim"]
    for name in ("rope_scaling", "rope_parameters"):
        flat |= rope_base(public.get(name), name, "rope_theta")
    return flat


NOMIC_BERT = replace(
    BERT,
    model_type="nomic_bert",
    about="BERT for 2,048 tokens by rotary positions, with gates and no biases: the encoder of nomic-embed-text.",
    source="Nussbaum et al. 2024, arXiv:2402.01613",
    base=_BASE,
    presets={"nomic-bert-2048": _BASE},
    table=_TABLE,
    architectures={
        "NomicBertModel": (),
        "NomicBertForMaskedLM": ("mlm",),
        "NomicBertForSequenceClassification": ("sequence",),
        "NomicBertForTokenClassification": ("token",),
    },
    keys={**BERT_KEYS, **UNTIED, **same("rope_theta"), "attention_head_size": "head_dim"},
    values={"hidden_act": (("swiglu", "silu"), ("geglu_erf", "gelu"), ("geglu", "gelu_pytorch_tanh"))},
    flattened=_flattened,
    unpooled=frozenset(),
    fixed={},
    recipe={  # paper, 3.2: masks of 30 %, texts of 2,048 tokens, 16 batches of 256 sequences
        "objectives": {"mlm": {"rate": 0.3}, "nsp": None},
        "max_length": 2048,
        "packing": "full_sentences",
        "optim": {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 1e-5},
        "train": {"batch_size": 4_096},
    },
)
