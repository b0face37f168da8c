"""RoBERTa: BERT trained longer on more text, only with masked LM. Liu et al. 2019, arXiv:1907.11692.

XLM-R is this model in a hundred languages, with one SentencePiece vocabulary (Conneau et al. 2020). CamemBERT is it in
French, with whole-word masking and a SentencePiece vocabulary (Martin et al. 2020).
"""

from dataclasses import replace

from bertie.families.bert import (
    BERT_BASE,
    BERT_FIXED_KEYS,
    BERT_KEYS,
    BUFFERS,
    LABEL_ROWS,
    UNTIED,
    architectures,
    encoder_rows,
    old_names,
    sized_bert,
)
from bertie.models.codec import WeightTable
from bertie.models.head_config import ChoiceConfig, HeadConfigs, MaskedLMConfig, SequenceConfig
from bertie.models.kinds import Learned
from bertie.models.variant import Variant

ROBERTA_BASE = replace(
    BERT_BASE,
    vocab_size=50_265,
    pad_token_id=1,
    positions=Learned(
        positions_after_pad=True
    ),  # fairseq counts positions from 2, so the table has two rows nobody reads
    pooler=False,  # no pair is classified in pre-training; a classifier brings its own dense layer
    heads=HeadConfigs(
        mlm=MaskedLMConfig(mlm_act="gelu"),
        sequence=SequenceConfig(sequence_act="tanh"),
        choice=ChoiceConfig(choice_drops_hidden=True),
    ),
)
ROBERTA_PUBLISHED = replace(
    ROBERTA_BASE, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
)  # fairseq's eps

ROBERTA_WEIGHT_TABLE = WeightTable(
    base="roberta.",
    rows=(
        *encoder_rows("roberta."),
        ("heads.mlm.dense.*", "lm_head.dense.*"),
        ("heads.mlm.norm.*", "lm_head.layer_norm.*"),
        ("heads.mlm.bias", "lm_head.bias"),
        ("heads.mlm.weight", "lm_head.decoder.weight"),
        ("heads.sequence.dense.*", "classifier.dense.*"),
        ("heads.sequence.classifier.*", "classifier.out_proj.*"),
        *LABEL_ROWS,
    ),
    old=(
        *old_names("roberta."),
        (r"^lm_head\.decoder\.bias$", "lm_head.bias"),
    ),
    ignored=BUFFERS,
)


ROBERTA = Variant(
    model_type="roberta",
    about="BERT trained longer on more text: no NSP, dynamic masking, byte-level BPE.",
    source="Liu et al. 2019, arXiv:1907.11692",
    tokenizer="byte-bpe",
    base=ROBERTA_BASE,
    presets={
        "roberta-base": ROBERTA_PUBLISHED,
        "roberta-large": sized_bert(24, 1024, ROBERTA_PUBLISHED),
        "distilroberta-base": replace(ROBERTA_PUBLISHED, num_hidden_layers=6),
    },
    table=ROBERTA_WEIGHT_TABLE,
    architectures=architectures("Roberta"),
    keys={**BERT_KEYS, **UNTIED},
    fixed=BERT_FIXED_KEYS,
    recipe={  # paper, table 9 (base); 512 tokens of running text
        "objectives": {"mlm": {"rate": 0.15}, "nsp": None},
        "max_length": 512,
        "packing": "full_sentences",
        "optim": {"lr": 6e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01, "warmup": 24_000},
        "train": {"steps": 500_000, "batch_size": 8_000},
    },
)


_BASE = replace(ROBERTA_PUBLISHED, vocab_size=32_005)

CAMEMBERT = replace(
    ROBERTA,
    model_type="camembert",
    about="RoBERTa for French: whole-word masking, 32,000 SentencePiece tokens.",
    source="Martin et al. 2020, arXiv:1911.03894",
    tokenizer="unigram",
    base=replace(ROBERTA.base, vocab_size=30_522),  # transformers' default where config.json says nothing
    presets={"camembert-base": _BASE, "camembert-large": sized_bert(24, 1024, _BASE)},
    architectures=architectures("Camembert"),
    recipe={  # paper, section 4.2: 100,000 steps of 8,192 sequences, peak rate 0.0007
        **ROBERTA.recipe,
        "optim": {**ROBERTA.recipe["optim"], "lr": 7e-4, "warmup": 10_000},
        "train": {"steps": 100_000, "batch_size": 8_192},
    },
)


_BASE = replace(ROBERTA_PUBLISHED, vocab_size=250_002)

XLMR = replace(
    ROBERTA,
    model_type="xlm-roberta",
    about="RoBERTa on 2.5 TB of text in 100 languages, with one vocabulary of 250,000 tokens.",
    source="Conneau et al. 2020, arXiv:1911.02116",
    tokenizer="unigram",
    base=replace(ROBERTA.base, vocab_size=30_522),  # transformers' default where config.json says nothing
    presets={"xlm-roberta-base": _BASE, "xlm-roberta-large": sized_bert(24, 1024, _BASE)},
    architectures=architectures("XLMRoberta"),
    recipe={  # paper, section 3 and its appendix on the large model: 1.5 million steps of 8,192 sequences
        **ROBERTA.recipe,
        "train": {"steps": 1_500_000, "batch_size": 8_192},
    },
)
