"""T5: every task as text to text, with an encoder and a decoder. Raffel et al. 2020.

Version 1.1 (and Flan-T5) has a gated feed-forward network and a separate output matrix (Shazeer 2020; release notes of
t5.1.1).
"""

from bertie.models.codec import WeightTable
from bertie.models.config import EncoderConfig
from bertie.models.head_config import HeadConfigs, NextTokenConfig, SequenceConfig
from bertie.models.kinds import Relative, Residual
from bertie.models.variant import Stds, Variant, same

_BASE = EncoderConfig(  # t5-small, and transformers' defaults
    vocab_size=32_128,
    hidden_size=512,
    num_hidden_layers=6,
    num_decoder_layers=6,
    num_attention_heads=8,
    intermediate_size=2048,
    hidden_act="relu",
    positions=Relative(),
    layer=Residual(norm="pre", bias=False, attention_head_size=64, scale_attention=False, dropout_inside=True),
    type_vocab_size=0,
    embedding_norm=False,
    norm_type="rms",
    layer_norm_eps=1e-6,
    pooler=False,
    classifier_dropout=0.0,
    # the sequence head reads the decoder, which reads the text a second time (models/seq2seq.py)
    heads=HeadConfigs(
        sequence=SequenceConfig(sequence_act="tanh"), lm=NextTokenConfig(lm_transform=False, lm_scale=True)
    ),
    eos_token_id=1,
    initializer_range=1.0,  # a factor of all first values (_stds)
)
_GATED = _BASE.replace(hidden_act="geglu", lm_tied=False, lm_scale=False)


def _size(layers: int, hidden: int, heads: int, inner: int, base: EncoderConfig, head_size: int = 64) -> EncoderConfig:
    return base.replace(
        num_hidden_layers=layers,
        num_decoder_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=inner,
        attention_head_size=head_size,
    )


GATED_SIZES = {
    "small": _size(8, 512, 6, 1024, _GATED),
    "base": _size(12, 768, 12, 2048, _GATED),
    "large": _size(24, 1024, 16, 2816, _GATED),
    "xl": _size(24, 2048, 32, 5120, _GATED),
    "xxl": _size(24, 4096, 64, 10_240, _GATED),
}


def _layer(ours: str, theirs: str, halves: tuple[str, str]) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
    """Returns the rows of a layer of encoder or decoder, with attention and the feed-forward network at these of
    `layer.`"""
    attention, feed_forward = (f"transformer.{theirs}.block.{{}}.layer.{half}" for half in halves)
    return (
        (
            f"{ours}.layers.{{}}.attention.qkv.*",
            tuple(f"{attention}.SelfAttention.{part}.*" for part in "qkv"),
        ),
        (f"{ours}.layers.{{}}.attention.output.*", f"{attention}.SelfAttention.o.*"),
        (f"{ours}.layers.{{}}.attention_norm.*", f"{attention}.layer_norm.*"),
        (f"{ours}.layers.{{}}.up.*", f"{feed_forward}.DenseReluDense.wi.*"),
        (
            f"{ours}.layers.{{}}.gate_up.*",
            (f"{feed_forward}.DenseReluDense.wi_0.*", f"{feed_forward}.DenseReluDense.wi_1.*"),
        ),
        (f"{ours}.layers.{{}}.down.*", f"{feed_forward}.DenseReluDense.wo.*"),
        (f"{ours}.layers.{{}}.output_norm.*", f"{feed_forward}.layer_norm.*"),
        (f"{ours}.relative.bias.*", f"transformer.{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.*"),
        (f"{ours}.final_norm.*", f"transformer.{theirs}.final_layer_norm.*"),
    )


def _stds(config: EncoderConfig) -> Stds:
    """Plain normals of one over the root of what a matrix reads, and queries by the head's root too.

    This replaces the division of scores by a root (Mesh TensorFlow, transformer/attention.py; as
    `transformers` has it).
    """
    factor, read = config.initializer_range, config.hidden_size**-0.5
    query = read * config.head_size**-0.5
    stds: dict[str, tuple[float, ...]] = {
        r"embeddings\.word|heads\.lm\.weight": (1.0,),
        r"attention\.qkv": (query, read, read),
        r"cross_attention\.query": (query,),
        r"attention\.output": (config.attention_size**-0.5,),
        r"\.down\.": (config.intermediate_size**-0.5,),
        "": (read,),
    }
    return {pattern: tuple(factor * std for std in parts) for pattern, parts in stds.items()}


CROSS = "transformer.decoder.block.{}.layer.1"
_TABLE = WeightTable(
    base="transformer.",
    rows=(
        ("encoder.embeddings.word.*", "transformer.shared.*"),
        *_layer("encoder", "encoder", ("0", "1")),
        *_layer("heads.decoder", "decoder", ("0", "2")),
        ("heads.decoder.layers.{}.cross_attention.query.*", f"{CROSS}.EncDecAttention.q.*"),
        (
            "heads.decoder.layers.{}.cross_attention.kv.*",
            (f"{CROSS}.EncDecAttention.k.*", f"{CROSS}.EncDecAttention.v.*"),
        ),
        ("heads.decoder.layers.{}.cross_attention.output.*", f"{CROSS}.EncDecAttention.o.*"),
        ("heads.decoder.layers.{}.cross_norm.*", f"{CROSS}.layer_norm.*"),
        ("heads.lm.weight", "lm_head.weight"),
        ("heads.sequence.dense.*", "classification_head.dense.*"),
        ("heads.sequence.classifier.*", "classification_head.out_proj.*"),
        ("heads.token.classifier.*", "classifier.*"),
        ("heads.span.classifier.*", "qa_outputs.*"),
    ),
    old=(
        (r"^(shared|encoder|decoder)\.", r"transformer.\1."),  # most classes name them so
        (r"^transformer\.(encoder|decoder)\.embed_tokens\.weight$", "transformer.shared.weight"),  # copies: it is tied
    ),
    ignored=(r"EncDecAttention\.relative_attention_bias\.weight$",),  # in the first files, read by nobody
)

T5 = Variant(
    model_type="t5",
    about="Every task as text to text: an encoder and a decoder that generates the answer.",
    source="Raffel et al. 2020, arXiv:1910.10683",
    tokenizer="unigram",
    base=_BASE,
    presets={
        "t5-small": _BASE,
        "t5-base": _size(12, 768, 12, 3072, _BASE),
        "t5-large": _size(24, 1024, 16, 4096, _BASE),
        "t5-3b": _size(24, 1024, 32, 16_384, _BASE, 128),
        "t5-11b": _size(24, 1024, 128, 65_536, _BASE, 128),
        **{f"t5-v1_1-{name}": config for name, config in GATED_SIZES.items()},
        **{f"flan-t5-{name}": config for name, config in GATED_SIZES.items()},
    },
    table=_TABLE,
    architectures={
        "T5EncoderModel": (),
        "T5Model": ("decoder",),
        "T5ForConditionalGeneration": ("decoder", "lm"),
        "T5ForSequenceClassification": ("decoder", "sequence"),
        "T5ForTokenClassification": ("token",),
        "T5ForQuestionAnswering": ("decoder", "span"),
    },
    bare=("T5Model", "T5ForConditionalGeneration", "T5ForQuestionAnswering"),
    keys={
        **same("vocab_size", "num_decoder_layers", "pad_token_id", "eos_token_id", "decoder_start_token_id"),
        **same("classifier_dropout"),
        **same("relative_attention_num_buckets", "relative_attention_max_distance"),
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "attention_head_size": "d_kv",
        "intermediate_size": "d_ff",
        "hidden_act": "feed_forward_proj",
        "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "dropout_rate",
        "layer_norm_eps": "layer_norm_epsilon",
        "initializer_range": "initializer_factor",
        "lm_tied": "tie_word_embeddings",
        "lm_scale": "scale_decoder_outputs",
    },
    implied={"num_decoder_layers": (1, "num_hidden_layers"), "lm_scale": (1, "lm_tied")},
    values={
        "hidden_act": (
            ("relu", "relu"),
            ("gelu", "gelu"),
            ("gelu_tanh", "gelu_new"),
            ("silu", "silu"),
            ("geglu", "gated-gelu"),
            ("reglu", "gated-relu"),
            ("swiglu", "gated-silu"),
        )
    },
    fixed={},
    recipe={  # paper, 3.1.2 and 3.1.4: 1 / sqrt(max(step, 10,000)), here with a linear warm-up
        "objectives": {"mlm": None, "nsp": None, "span": {}},
        "max_length": 512,
        "optim": {
            "name": "adafactor",
            "lr": 1e-2,
            "warmup": 10_000,
            "decay": "inverse_sqrt",
            "weight_decay": 0.0,
        },
        "train": {"steps": 2**19, "batch_size": 128},
    },
    stds=_stds,
)
