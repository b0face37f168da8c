"""CamemBERT: RoBERTa for French with whole-word masking and a SentencePiece vocabulary. Martin et al. 2020."""

from dataclasses import replace

from bertie.families.bert import sized_bert
from bertie.families.roberta import ROBERTA, ROBERTA_PUBLISHED, architectures

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
