"""GPT and GPT-2: causal language models for text generation. Radford et al. 2018, 2019.

GPT-1 is post-norm as BERT. GPT-2 is pre-norm, with a norm after the last layer.
"""

from dataclasses import replace
from math import sqrt

from bertie.families.bert import sized_bert
from bertie.models.codec import WeightRow, WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.head_config import HeadConfigs, NextTokenConfig, SequenceConfig
from bertie.models.kinds import Residual
from bertie.models.variant import Stds, Variant, same

_BASE = EncoderConfig(
    vocab_size=50_257,
    max_position_embeddings=1024,
    type_vocab_size=0,
    hidden_act="gelu_tanh",
    layer_norm_eps=1e-5,
    embedding_norm=False,
    embedding_dropout=0.1,
    classifier_dropout=0.1,
    layer=Residual(norm="pre"),
    causal=True,
    pooler=False,
    heads=HeadConfigs(sequence=SequenceConfig(sequence_matrix_only=True), lm=NextTokenConfig(lm_transform=False)),
    eos_token_id=50_256,
)


def _stds(config: EncoderConfig) -> Stds:
    """Plain normals; what a layer adds shrinks with the number of additions (2019, 2.3), positions start smaller.

    The release has 0.01 here and 0.02 elsewhere (model.py); `transformers` draws positions as words.
    """
    std = config.initializer_range
    return {
        r"attention\.output|down": std / sqrt(2 * max(1, config.num_hidden_layers)),
        "position": std / 2,
        "": std,
    }


def _plain_normals(config: EncoderConfig) -> Stds:
    """GPT-1's (release file train.py)."""
    return {"": config.initializer_range}


_LAYER = "transformer.h.{}"
LAYER_ROWS: tuple[WeightRow, ...] = (
    ("encoder.layers.{}.attention.qkv.*", f"{_LAYER}.attn.c_attn.*"),
    ("encoder.layers.{}.attention.output.*", f"{_LAYER}.attn.c_proj.*"),
    ("encoder.layers.{}.attention_norm.*", f"{_LAYER}.ln_1.*"),
    ("encoder.layers.{}.up.*", f"{_LAYER}.mlp.c_fc.*"),
    ("encoder.layers.{}.down.*", f"{_LAYER}.mlp.c_proj.*"),
    ("encoder.layers.{}.output_norm.*", f"{_LAYER}.ln_2.*"),
    ("heads.lm.weight", "lm_head.weight"),
    ("heads.sequence.classifier.*", "score.*"),
    ("heads.token.classifier.*", "classifier.*"),
    ("heads.span.classifier.*", "qa_outputs.*"),
)
MASKS = (r"\.attn\.(bias|masked_bias)$",)  # the triangle of what may be seen, in older files
CONV1D = r"\.c_(attn|proj|fc)\.weight$"  # the release multiplies x W, not x W^T
_TABLE = WeightTable(
    base="transformer.",
    rows=(
        ("encoder.embeddings.word.*", "transformer.wte.*"),
        ("encoder.embeddings.position.*", "transformer.wpe.*"),
        ("encoder.final_norm.*", "transformer.ln_f.*"),
        *LAYER_ROWS,
    ),
    old=((r"^(wte|wpe|h|ln_f)\.", r"transformer.\1."),),
    ignored=MASKS,
    transposed=CONV1D,
)

_KEYS = {
    **same("vocab_size", "initializer_range", "pad_token_id", "eos_token_id", "classifier_dropout"),
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop",
    "embedding_dropout": "embd_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "lm_tied": "tie_word_embeddings",
}

GPT2 = Variant(
    model_type="gpt2",
    about="Causal language model for text generation: BERT's layers with pre-layer normalization.",
    source="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    tokenizer="byte-bpe",
    base=_BASE,
    presets={
        "gpt2": _BASE,
        "gpt2-medium": sized_bert(24, 1024, _BASE),
        "gpt2-large": sized_bert(36, 1280, _BASE),
        "gpt2-xl": sized_bert(48, 1600, _BASE),
        "distilgpt2": sized_bert(6, 768, _BASE),
    },
    table=_TABLE,
    architectures={
        "GPT2Model": (),
        "GPT2LMHeadModel": ("lm",),
        "GPT2ForSequenceClassification": ("sequence",),
        "GPT2ForTokenClassification": ("token",),
        "GPT2ForQuestionAnswering": ("span",),
    },
    keys={**_KEYS, "intermediate_size": "n_inner", "hidden_act": "activation_function"},
    implied={"intermediate_size": (4, "hidden_size")},
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    recipe={  # the paper gives the batch (512) and the length; GPT-1's (section 4.1) are taken for the rest
        "objectives": {"mlm": None, "nsp": None, "ltr": {}},
        "max_length": 1024,
        "optim": {"lr": 2.5e-4, "weight_decay": 0.01, "warmup": 2_000},
        "train": {"batch_size": 512},
    },
    stds=_stds,
)

GPT1 = replace(_BASE, vocab_size=40_478, max_position_embeddings=512, layer=Residual(), eos_token_id=None)

OPENAI_GPT = replace(
    GPT2,
    model_type="openai-gpt",
    about="The first GPT: BERT's layers with causal attention.",
    source="Radford et al. 2018, Improving Language Understanding by Generative Pre-Training",
    tokenizer="bpe",
    base=GPT1,
    presets={"openai-gpt": GPT1},
    table=WeightTable(
        base="transformer.",
        rows=(
            ("encoder.embeddings.word.*", "transformer.tokens_embed.*"),
            ("encoder.embeddings.position.*", "transformer.positions_embed.*"),
            *LAYER_ROWS,
        ),
        old=((r"^(tokens_embed|positions_embed|h)\.", r"transformer.\1."),),
        ignored=(*MASKS, r"position_ids$"),
        transposed=CONV1D,
    ),
    architectures={
        "OpenAIGPTModel": (),
        "OpenAIGPTLMHeadModel": ("lm",),
        "OpenAIGPTForSequenceClassification": ("sequence",),
    },
    keys={**_KEYS, "hidden_act": "afn"},
    values={"hidden_act": (("gelu_tanh", "gelu"), ("relu", "relu"), ("silu", "swish"), ("silu", "silu"))},
    fixed={},
    recipe={  # paper, section 4.1
        "objectives": {"mlm": None, "nsp": None, "ltr": {}},
        "max_length": 512,
        "optim": {"lr": 2.5e-4, "weight_decay": 0.01, "warmup": 2_000},
        "train": {"batch_size": 64},
    },
    stds=_plain_normals,
)
