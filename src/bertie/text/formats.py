"""The tokenizers of the families: which files they come in, what stands around a text, how text is normalized.

A row says all of it. tokenizer.json, where there is one, holds the same in the engine's own words and is preferred;
a row then tells only what the special tokens are called.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Regex, normalizers

from bertie.files import read_json
from bertie.text.engine import SPECIAL_TOKENS, special_token

Settings = Mapping[str, Any]
Normalize = Callable[[Settings, bytes], normalizers.Normalizer | None]
"""(tokenizer_config.json, a SentencePiece model's compiled rules) -> what text passes first."""

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "tokenizer.model")
VOCABULARY, BYTE_VOCABULARY, MERGES = "vocab.txt", "vocab.json", "merges.txt"

TOKENIZER_FILES = ("tokenizer.json", VOCABULARY, BYTE_VOCABULARY, *MODEL_FILES)  # a folder with one has a tokenizer


@dataclass(frozen=True, kw_only=True)
class Format:
    """A family's tokenizer as a value.

    special: role -> token; a role that is not in it does not exist. template: where they stand around one text and
    two, in the engine's words; None: as BERT has them or, with a byte vocabulary, RoBERTa.
    """

    classes: tuple[str, ...]  # of `transformers`; the first is written
    model_types: tuple[str, ...]
    special: Mapping[str, str]
    files: tuple[str, ...]  # one of them must be there, where there is no tokenizer.json
    template: tuple[str, str] | None = None
    extra: tuple[str, ...] = ()  # more special tokens
    eager_mask: bool = True  # the mask token takes the space before it, as it stands for a word with its space
    word_end: str = ""  # how a piece that ends a word is marked; pieces are then of characters, not of bytes
    # a SentencePiece model's pieces: how many of the first are left out, and what stands before and after the others
    skip: int = 0
    first: tuple[tuple[str, float], ...] = ()
    last: tuple[str, ...] = ()
    normalize: Normalize = field(default=lambda settings, charsmap: _precompiled(charsmap))
    split_numbers: bool = False  # "9," is never one piece (ALBERT's and XLNet's release)
    split_spaces: bool = True  # no piece reaches over a space


def _precompiled(charsmap: bytes) -> normalizers.Normalizer | None:
    return normalizers.Precompiled(charsmap) if charsmap else None


def _quotes_and_accents(lowercase: bool) -> Normalize:
    """ALBERT's and XLNet's preprocess_text: two ways to write a quotation mark, accents, case."""

    def normalize(settings: Settings, charsmap: bytes) -> normalizers.Normalizer:
        steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not settings.get("keep_accents"):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.get("do_lower_case", lowercase):
            steps.append(normalizers.Lowercase())
        return normalizers.Sequence(steps + ([normalizers.Precompiled(charsmap)] if charsmap else []))

    return normalize


def _one_space(settings: Settings, charsmap: bytes) -> normalizers.Normalizer:
    spaces = normalizers.Replace(Regex(" {2,}"), "▁")
    return normalizers.Sequence([normalizers.Precompiled(charsmap), spaces] if charsmap else [spaces])


BRACKETED = {"unk": "<unk>", "pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
AROUND_BERT = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
AROUND_FAIRSEQ = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
END = "<|endoftext|>"

BERT = Format(
    classes=("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"),
    model_types=("bert", "distilbert", "electra", "mobilebert"),
    special=SPECIAL_TOKENS,
    files=(VOCABULARY,),
)
ROBERTA = Format(
    classes=("RobertaTokenizer", "LongformerTokenizer"),
    model_types=("roberta", "longformer"),
    special=FAIRSEQ,
    files=(BYTE_VOCABULARY,),
)
GPT2 = Format(  # one special token for all; padding has none of its own, and what is padding nobody reads
    classes=("GPT2Tokenizer",),
    model_types=("gpt2",),
    special=dict.fromkeys(("unk", "bos", "eos", "pad"), END),
    files=(BYTE_VOCABULARY,),
)
OPENAI_GPT = Format(
    classes=("OpenAIGPTTokenizer",),
    model_types=("openai-gpt",),
    special={"unk": "<unk>"},
    files=(BYTE_VOCABULARY,),
    word_end="</w>",
)
XLMR = Format(  # fairseq's four stand before the pieces, without the three the model has of its own
    classes=("XLMRobertaTokenizer",),
    model_types=("xlm-roberta",),
    special=FAIRSEQ,
    files=MODEL_FILES,
    template=AROUND_FAIRSEQ,
    skip=3,
    first=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
    last=("<mask>",),
)
CAMEMBERT = replace(
    XLMR,
    classes=("CamembertTokenizer",),
    model_types=("camembert",),
    extra=("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
    skip=1,
    first=(("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)),
)
ALBERT = Format(
    classes=("AlbertTokenizer",),
    model_types=("albert",),
    special=BRACKETED,
    files=MODEL_FILES,
    template=AROUND_BERT,
    normalize=_quotes_and_accents(lowercase=True),
    split_numbers=True,
)
BIGBIRD = Format(
    classes=("BigBirdTokenizer",),
    model_types=("big_bird",),
    special={**BRACKETED, "bos": "<s>", "eos": "</s>"},
    files=MODEL_FILES,
    template=AROUND_BERT,
    normalize=_one_space,
    split_spaces=False,
)
T5_EXTRA = tuple(f"<extra_id_{i}>" for i in reversed(range(100)))
T5 = Format(
    classes=("T5Tokenizer",),
    model_types=("t5",),
    special={"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    files=MODEL_FILES,
    template=("$A </s>", "$A </s> $B </s>"),
    extra=T5_EXTRA,
    last=T5_EXTRA,
)
XLNET = Format(
    classes=("XLNetTokenizer",),
    model_types=("xlnet",),
    special={**FAIRSEQ, "cls": "<cls>", "sep": "<sep>"},
    files=MODEL_FILES,
    template=("$A:0 <sep>:0 <cls>:2", "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2"),
    extra=("<eop>", "<eod>"),
    normalize=_quotes_and_accents(lowercase=False),
    split_numbers=True,
)
FORMATS = (BERT, ROBERTA, OPENAI_GPT, GPT2, XLMR, CAMEMBERT, ALBERT, BIGBIRD, T5, XLNET)


def find(folder: Path, settings: Settings) -> Format | None:
    """The format a folder names: by its tokenizer's class, or by its model's family. None when neither says."""
    named = settings.get("tokenizer_class")
    if isinstance(named, str):
        for row in FORMATS:
            if named.removesuffix("Fast") in row.classes:
                return row
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    named = config.get("model_type") if isinstance(config, dict) else None
    family = named.removeprefix("bertie-") if isinstance(named, str) else None  # as models/codec.py writes it
    return next((row for row in FORMATS if family in row.model_types), None)


def guess(vocabulary: Mapping[str, int]) -> Format:
    """The format of a vocabulary by its special tokens, where nothing else tells."""
    if "[CLS]" in vocabulary:
        return BERT if "<pad>" not in vocabulary else ALBERT
    if "<s>" in vocabulary and "<mask>" in vocabulary:
        return XLNET if "<cls>" in vocabulary else ROBERTA
    return GPT2 if END in vocabulary else BERT


def names(settings: Settings, row: Format) -> dict[str, str]:
    """What each special token is called: as tokenizer_config.json says, else as the family does."""
    found = {role: special_token(settings, role, row.special.get(role)) for role in ROLES}
    return {role: token for role, token in found.items() if token is not None}
