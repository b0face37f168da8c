"""XLM-R: RoBERTa in a hundred languages with one SentencePiece vocabulary. Conneau et al. 2020."""

from dataclasses import replace

from bertie.families.bert import sized_bert
from bertie.families.roberta import ROBERTA, ROBERTA_PUBLISHED, architectures

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
