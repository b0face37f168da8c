"""ViLBERT: a text and the regions of a picture in two streams with co-attention. Lu et al. 2019, arXiv:1908.02265.

No other library opens its folders. The text's weights have BERT's names, and the rest Bertie's.
"""

from dataclasses import replace

from bertie.families.bert import BERT, BERT_KEYS, UNTIED
from bertie.models.codec import same
from bertie.models.head_config import HeadConfigs, SequenceConfig
from bertie.models.streams import TwoStreamConfig, TwoStreamEncoder

_BASE = TwoStreamConfig(  # paper, 3.1, and bert_base_6layer_6conect.json of its code
    num_hidden_layers=6,
    image_location=(0.0, 0.0, 1.0, 1.0, 1.0),  # left, top, right, bottom, and the share of the picture's area
    v_hidden_size=1024,
    v_num_attention_heads=8,
    v_intermediate_size=1024,
    co_hidden_size=1024,
    co_num_attention_heads=8,
    heads=HeadConfigs(sequence=SequenceConfig(sequence_mlp=True)),
)
TINY = TwoStreamConfig(  # for the patches of `features.patch_size=8`, whose boxes are from -8 to 8
    hidden_size=128,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=512,
    visual_feat_dim=192,
    visual_pos_dim=4,
    image_location=(-8.0, -8.0, 8.0, 8.0),
    co_layers=2,
    heads=_BASE.heads,
)
STREAMS = same(
    *("visual_feat_dim", "visual_pos_dim", "image_location", "norm_each", "v_num_hidden_layers", "v_hidden_size"),
    *("v_num_attention_heads", "v_intermediate_size", "co_layers", "co_attention", "co_hidden_size"),
    *("co_num_attention_heads", "sequence_mlp"),
)

VILBERT = replace(
    BERT,
    model_type="vilbert",
    about="Two streams, a text and the regions of a picture, whose layers attend to each other.",
    source="Lu et al. 2019, arXiv:1908.02265",
    base=TwoStreamConfig(num_hidden_layers=6, heads=_BASE.heads),
    presets={"vilbert-tiny": TINY, "vilbert-base": _BASE},
    table=replace(
        BERT.table,
        rows=(
            *BERT.table.rows,
            ("heads.sequence.transform.dense.*", "answer.dense.*"),
            ("heads.sequence.transform.norm.*", "answer.norm.*"),
        ),
    ),
    architectures={
        "ViLBertModel": (),
        "ViLBertForPreTraining": ("mlm", "pair"),
        "ViLBertForMaskedLM": ("mlm",),
        "ViLBertForClassification": ("sequence",),
        "ViLBertForMultipleChoice": ("choice",),
        "ViLBertForTokenClassification": ("token",),
    },
    keys={**BERT_KEYS, **UNTIED, **STREAMS},
    fixed={},
    unpooled=frozenset(),
    recipe={  # paper, 3.1: ten epochs of Conceptual Captions; masked regions are left out
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None, "itm": {}},
        "max_length": 36,
        "optim": {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "warmup": 6_000},
        "train": {"steps": 60_000, "batch_size": 512},
    },
    encoder=TwoStreamEncoder,
)
