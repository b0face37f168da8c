"""VisualBERT: BERT whose sequence continues with regions of a picture. Li et al. 2019, arXiv:1908.03557."""

from dataclasses import replace

from bertie.families.bert import BERT_BASE, BERT_KEYS, BUFFERS, UNTIED, encoder_rows, old_names, sized_bert
from bertie.families.bert import BERT_WEIGHT_TABLE as BERT_TABLE
from bertie.models.codec import WeightTable
from bertie.models.kinds import Regions
from bertie.models.variant import Variant, same

_MODEL = "visual_bert."
_BASE = replace(
    BERT_BASE,
    inputs=Regions(visual_embedding_dim=512),
    pad_token_id=1,  # what a config.json without the key means there, although BERT's vocabulary pads with 0
)
VQA = replace(_BASE, inputs=Regions(visual_embedding_dim=2048), pad_token_id=0)  # of a detector's regions
_TABLE = WeightTable(
    base=_MODEL,
    rows=(
        *encoder_rows(_MODEL),
        ("encoder.embeddings.features.projection.*", f"{_MODEL}embeddings.visual_projection.*"),
        ("encoder.embeddings.features.segment.*", f"{_MODEL}embeddings.visual_token_type_embeddings.*"),
        ("encoder.embeddings.features.position.*", f"{_MODEL}embeddings.visual_position_embeddings.*"),
        *(row for row in BERT_TABLE.rows if row[0].startswith(("heads.mlm.", "heads.pair."))),
        ("heads.sequence.classifier.*", "cls.*"),
        ("heads.choice.classifier.*", "cls.*"),
    ),
    old=(*old_names(_MODEL), *BERT_TABLE.old[-1:]),
    ignored=BUFFERS,
)

VISUAL_BERT = Variant(
    model_type="visual_bert",
    about="BERT that reads regions of a picture after the text, in one sequence.",
    source="Li et al. 2019, arXiv:1908.03557",
    tokenizer="wordpiece",
    base=_BASE,
    presets={
        "visualbert-tiny": replace(sized_bert(2, 128, VQA), inputs=Regions(visual_embedding_dim=64)),
        "visualbert-vqa": VQA,
        "visualbert-nlvr2": replace(VQA, inputs=Regions(visual_embedding_dim=1024)),
    },
    table=_TABLE,
    architectures={
        "VisualBertModel": (),
        "VisualBertForPreTraining": ("mlm", "pair"),
        "VisualBertForVisualReasoning": ("sequence",),
        "VisualBertForMultipleChoice": ("choice",),
    },
    keys={
        **{ours: key for ours, key in BERT_KEYS.items() if ours != "classifier_dropout"},
        **UNTIED,
        **same("visual_embedding_dim"),
    },
    fixed={"bypass_transformer": False},
    copied={  # special_visual_initialize: the tables of the regions start as those of the text
        f"encoder.embeddings.features.{table}.weight": f"encoder.embeddings.{table}.weight"
        for table in ("segment", "position")
    },
    recipe={  # paper, 4: ten epochs of COCO's captions, then the same objectives on the task's own data
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None, "itm": {}},
        "max_length": 128,
        "optim": {"lr": 5e-5, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "warmup": 8_850},
        "train": {"steps": 88_500, "batch_size": 64},
    },
)
