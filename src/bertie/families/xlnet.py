"""XLNet: a permutation language model, with context on both sides and without masks in its text. Yang et al. 2019.

Fine-tuning uses only the content stream; `perm_mask` and `target_positions` add the second (models/xlnet.py). The
memory of earlier segments and the beam-search question head (`XLNetForQuestionAnswering`) are not implemented.
"""

from dataclasses import replace

from bertie.models.codec import WeightTable
from bertie.models.head_config import HeadConfigs, SequenceConfig
from bertie.models.variant import Variant, same
from bertie.models.xlnet import XLNetConfig, XLNetEncoder

_BASE = XLNetConfig(  # xlnet-large-cased, and transformers' defaults
    vocab_size=32_000,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    type_vocab_size=3,  # A, B, and <cls>, which belongs to neither
    pad_token_id=5,
    pooler=False,
    classifier_dropout=0.0,  # what the encoder gives has been dropped out already
    heads=HeadConfigs(sequence=SequenceConfig(sequence_dropout=0.1)),
)

_ATTENTION = "transformer.layer.{}.rel_attn"
_TABLE = WeightTable(
    base="transformer.",
    rows=(
        ("encoder.embeddings.word.*", "transformer.word_embedding.*"),
        ("encoder.mask_embedding", "transformer.mask_emb"),
        ("encoder.layers.{}.attention.query", f"{_ATTENTION}.q"),
        ("encoder.layers.{}.attention.key", f"{_ATTENTION}.k"),
        ("encoder.layers.{}.attention.value", f"{_ATTENTION}.v"),
        ("encoder.layers.{}.attention.output", f"{_ATTENTION}.o"),
        ("encoder.layers.{}.attention.distance", f"{_ATTENTION}.r"),
        ("encoder.layers.{}.attention.ask_content", f"{_ATTENTION}.r_w_bias"),
        ("encoder.layers.{}.attention.ask_distance", f"{_ATTENTION}.r_r_bias"),
        ("encoder.layers.{}.attention.ask_segment", f"{_ATTENTION}.r_s_bias"),
        ("encoder.layers.{}.attention.segment", f"{_ATTENTION}.seg_embed"),
        ("encoder.layers.{}.attention_norm.*", f"{_ATTENTION}.layer_norm.*"),
        ("encoder.layers.{}.up.*", "transformer.layer.{}.ff.layer_1.*"),
        ("encoder.layers.{}.down.*", "transformer.layer.{}.ff.layer_2.*"),
        ("encoder.layers.{}.output_norm.*", "transformer.layer.{}.ff.layer_norm.*"),
        ("encoder.pooler.*", "sequence_summary.summary.*"),
        ("heads.plm.bias", "lm_loss.bias"),
        ("heads.sequence.classifier.*", "logits_proj.*"),
        ("heads.choice.classifier.*", "logits_proj.*"),
        ("heads.token.classifier.*", "classifier.*"),
        ("heads.span.classifier.*", "qa_outputs.*"),
    ),
    old=(
        (r"^(word_embedding|mask_emb|layer)\b", r"transformer.\1"),  # an encoder saved without heads
        (r"^lm_loss\.weight$", "transformer.word_embedding.weight"),  # a copy of what is tied
    ),
)

XLNET = Variant(
    model_type="xlnet",
    about="Permutation language model: predicts tokens in random order; relative positions, so no maximum length.",
    source="Yang et al. 2019, arXiv:1906.08237",
    tokenizer="unigram",
    base=_BASE,
    presets={
        "xlnet-base-cased": replace(
            _BASE, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
        ),
        "xlnet-large-cased": _BASE,
    },
    table=_TABLE,
    architectures={
        "XLNetModel": (),
        "XLNetLMHeadModel": ("plm",),
        "XLNetForSequenceClassification": ("sequence",),
        "XLNetForMultipleChoice": ("choice",),
        "XLNetForTokenClassification": ("token",),
        "XLNetForQuestionAnsweringSimple": ("span",),
    },
    keys={
        **same("vocab_size", "initializer_range", "layer_norm_eps", "pad_token_id"),
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "d_inner",
        "hidden_act": "ff_activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "dropout",
        "sequence_dropout": "summary_last_dropout",
    },
    fixed={
        "attn_type": "bi",
        "bi_data": False,
        "clamp_len": -1,
        "summary_type": "last",
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "tie_word_embeddings": True,
    },
    recipe={  # paper, A.4.1 (large): a sixth of the tokens predicted, in spans; Adam
        "objectives": {"mlm": None, "nsp": None, "plm": {}},
        "max_length": 512,
        "optim": {"lr": 4e-4, "eps": 1e-6, "weight_decay": 0.01, "warmup": 40_000},
        "train": {"steps": 500_000, "batch_size": 8_192},
    },
    encoder=XLNetEncoder,
)
