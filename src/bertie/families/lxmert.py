"""LXMERT: ViLBERT's two streams with one co-attention for both directions. Tan and Bansal 2019, arXiv:1908.07490.

Its heads that predict objects and attributes of regions are not implemented; their weights are not read.
"""

from collections.abc import Mapping
from dataclasses import replace

from bertie.families.bert import BERT_KEYS, BUFFERS, old_names
from bertie.families.bert import BERT_WEIGHT_TABLE as BERT_TABLE
from bertie.models.codec import WeightRow, WeightTable, same
from bertie.models.head_config import HeadConfigs, SequenceConfig
from bertie.models.streams import TwoStreamConfig, TwoStreamEncoder
from bertie.models.variant import Variant

_MODEL = "lxmert."
_BASE = TwoStreamConfig(
    num_hidden_layers=9,
    visual_pos_dim=4,
    norm_each=True,
    v_num_hidden_layers=5,
    co_layers=5,
    co_attention="shared",
    classifier_dropout=0.0,
    heads=HeadConfigs(sequence=SequenceConfig(sequence_mlp=True)),
)


def _attention(ours: str, theirs: str, norm: str, inside: str = "self") -> tuple[WeightRow, ...]:
    parts = tuple(f"{theirs}.{inside}.{name}.*" for name in ("query", "key", "value"))
    fused: tuple[WeightRow, ...] = ((f"{ours}.qkv.*", parts),)
    if inside == "att":
        fused = ((f"{ours}.query.*", parts[0]), (f"{ours}.kv.*", parts[1:]))
    return (*fused, (f"{ours}.output.*", f"{theirs}.output.dense.*"), (norm, f"{theirs}.output.LayerNorm.*"))


def _layer(ours: str, attention: str, inter: str, output: str) -> tuple[WeightRow, ...]:
    return (
        *_attention(f"{ours}.attention", attention, f"{ours}.attention_norm.*"),
        (f"{ours}.up.*", f"{inter}.dense.*"),
        (f"{ours}.down.*", f"{output}.dense.*"),
        (f"{ours}.output_norm.*", f"{output}.LayerNorm.*"),
    )


def _plain(ours: str, theirs: str) -> tuple[WeightRow, ...]:
    return _layer(ours, f"{theirs}.attention", f"{theirs}.intermediate", f"{theirs}.output")


ENCODER = f"{_MODEL}encoder"
BLOCK, CROSS = f"{ENCODER}.x_layers.{{}}", "encoder.co_layers.{}"
_TABLE = WeightTable(
    base=_MODEL,
    rows=(
        *(row for row in BERT_TABLE.rows if row[0].startswith("heads.mlm.") or row[0].startswith("heads.pair.")),
        ("encoder.embeddings.word.*", f"{_MODEL}embeddings.word_embeddings.*"),
        ("encoder.embeddings.position.*", f"{_MODEL}embeddings.position_embeddings.*"),
        ("encoder.embeddings.segment.*", f"{_MODEL}embeddings.token_type_embeddings.*"),
        ("encoder.embeddings.norm.*", f"{_MODEL}embeddings.LayerNorm.*"),
        ("encoder.regions.projection.*", f"{ENCODER}.visn_fc.visn_fc.*"),
        ("encoder.regions.norm.*", f"{ENCODER}.visn_fc.visn_layer_norm.*"),
        ("encoder.regions.location.*", f"{ENCODER}.visn_fc.box_fc.*"),
        ("encoder.regions.location_norm.*", f"{ENCODER}.visn_fc.box_layer_norm.*"),
        *_plain("encoder.layers.{}", f"{ENCODER}.layer.{{}}"),
        *_plain("encoder.v_layers.{}", f"{ENCODER}.r_layers.{{}}"),
        *_attention(f"{CROSS}.shared.attention", f"{BLOCK}.visual_attention", f"{CROSS}.shared.norm.*", "att"),
        *_layer(f"{CROSS}.text", f"{BLOCK}.lang_self_att", f"{BLOCK}.lang_inter", f"{BLOCK}.lang_output"),
        *_layer(f"{CROSS}.regions", f"{BLOCK}.visn_self_att", f"{BLOCK}.visn_inter", f"{BLOCK}.visn_output"),
        ("encoder.pooler.*", f"{_MODEL}pooler.dense.*"),
        ("heads.sequence.transform.dense.*", "answer_head.logit_fc.0.*"),
        ("heads.sequence.transform.norm.*", "answer_head.logit_fc.2.*"),
        ("heads.sequence.classifier.*", "answer_head.logit_fc.3.*"),
    ),
    old=(*old_names(_MODEL), *BERT_TABLE.old[-1:]),
    ignored=BUFFERS,
)
UNREAD = ("task_obj_predict", "task_qa")  # which heads a pre-training folder has besides ours


def _flattened(public: Mapping[str, object]) -> Mapping[str, object]:
    return {key: value for key, value in public.items() if key not in UNREAD}


LXMERT = Variant(
    model_type="lxmert",
    about="A text and the regions of a picture in two streams, with one co-attention for both directions.",
    source="Tan and Bansal 2019, arXiv:1908.07490",
    tokenizer="wordpiece",
    base=_BASE,
    presets={
        "lxmert-base-uncased": _BASE,
        "lxmert-tiny": replace(
            _BASE,
            hidden_size=128,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=512,
            visual_feat_dim=192,
            v_num_hidden_layers=1,
            co_layers=2,
        ),
    },
    table=_TABLE,
    architectures={
        "LxmertModel": (),
        "LxmertForPreTraining": ("mlm", "pair"),
        "LxmertForQuestionAnswering": ("sequence",),
    },
    keys={
        **{
            ours: key
            for ours, key in BERT_KEYS.items()
            if ours not in ("num_hidden_layers", "classifier_dropout", "layer_norm_eps", "pad_token_id")
        },
        "num_hidden_layers": "l_layers",
        "v_num_hidden_layers": "r_layers",
        "co_layers": "x_layers",
        **same("visual_feat_dim", "visual_pos_dim"),
    },
    flattened=_flattened,
    fixed=dict.fromkeys(UNREAD, False),
    label_count="num_qa_labels",
    recipe={  # paper, 3.2, without its objectives on regions and its questions
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None, "itm": {}},
        "max_length": 20,
        "optim": {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "warmup": 35_000},
        "train": {"steps": 700_000, "batch_size": 256},
    },
    encoder=TwoStreamEncoder,
)
