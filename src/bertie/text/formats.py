"""The tokenizer formats of the families: their files, special tokens, layout of texts, and normalization.

A folder describes itself: tokenizer.json, tokenizer_config.json and special_tokens_map.json name the special tokens and
their positions. A row has the defaults of a family, for folders without these settings and for new vocabularies.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tokenizers import Regex, normalizers

from bertie.errors import DataError
from bertie.files import read_json
from bertie.registry import Registry
from bertie.text.engine import SPECIAL_TOKENS, special_token

TokenizerSettings = Mapping[str, object]
Normalize = Callable[[TokenizerSettings, bytes], normalizers.Normalizer | None]
"""(tokenizer_config.json, a SentencePiece model's compiled rules) -> the first normalizer."""

Algorithm = Literal["wordpiece", "wordpiece-likelihood", "bpe", "character-bpe", "unigram"]
TOKEN_ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "tokenizer.model", "spm.model")
VOCABULARY, BYTE_VOCABULARY, MERGES = "vocab.txt", "vocab.json", "merges.txt"

TOKENIZER_FILES = ("tokenizer.json", VOCABULARY, BYTE_VOCABULARY, *MODEL_FILES)  # a folder with one has a tokenizer
LENGTH_KEYS = tuple(  # in the order in which `sentence-transformers` looks for the longest text; it writes the first
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


def length_file(folder: Path) -> Path:
    """Returns the path of the file with the longest text; that of the usual name where there is none."""
    return next((folder / name for name in LENGTH_KEYS if (folder / name).is_file()), folder / LENGTH_KEYS[0])


def _precompiled(settings: TokenizerSettings, charsmap: bytes) -> normalizers.Normalizer | None:
    return normalizers.Precompiled(charsmap) if charsmap else None


@dataclass(frozen=True, kw_only=True)
class Format:
    """A family's tokenizer as a value.

    special: role -> token, without roles that do not exist. template: the positions of special tokens around one text
    and two, in the library's format; None: BERT's or, with a byte-level vocabulary, RoBERTa's.
    """

    classes: tuple[str, ...]  # of `transformers`; the first is written
    model_types: tuple[str, ...]
    special: Mapping[str, str]
    files: tuple[str, ...]  # one of them must be there, where there is no tokenizer.json
    template: tuple[str, str] | None = None
    extra: tuple[str, ...] = ()  # more special tokens
    eager_mask: bool = True  # the mask token includes the space before it, as a word does
    word_end: str = ""  # how a piece that ends a word is marked; pieces are then of characters, not of bytes
    # a vocabulary made here: how, and the special tokens that have its first ids; `last` are those at its end
    algorithm: Algorithm = "unigram"
    start: tuple[str, ...] = ()
    free_after: int | None = None  # how many of `start` precede the unused rows, "[unused1]" ...; None: all
    # a SentencePiece model's pieces: how many of the first are omitted, and the tokens before and after the others
    skip: int = 0
    first: tuple[tuple[str, float], ...] = ()
    last: tuple[str, ...] = ()  # of every vocabulary that is read or made without tokenizer.json
    normalize: Normalize = _precompiled
    split_numbers: bool = False  # "9," is never one piece (ALBERT's and XLNet's release)
    split_spaces: bool = True  # no piece reaches over a space
    japanese: bool = False  # MeCab finds the words (japanese.py)
    split_punctuation: bool = False  # none reaches over punctuation either, where the settings say split_by_punct


def _quotes_and_accents(settings: TokenizerSettings, charsmap: bytes, *, lowercase: bool) -> normalizers.Normalizer:
    """ALBERT's and XLNet's preprocess_text: quotation marks, accents, case."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.get("keep_accents"):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", lowercase):
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps + ([normalizers.Precompiled(charsmap)] if charsmap else []))


def _one_space(settings: TokenizerSettings, charsmap: bytes) -> normalizers.Normalizer:
    spaces = normalizers.Replace(Regex(" {2,}"), "▁")
    return normalizers.Sequence([normalizers.Precompiled(charsmap), spaces] if charsmap else [spaces])


def _stripped(settings: TokenizerSettings, charsmap: bytes) -> normalizers.Normalizer:
    """DeBERTa's: spaces at the ends are left out, several are one."""
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if settings.get("do_lower_case") is True else []
    steps += [normalizers.Strip(), *([normalizers.Precompiled(charsmap)] if charsmap else [])]
    return normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])


BRACKETED = {"unk": "<unk>", "pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
AROUND_BERT = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
AROUND_FAIRSEQ = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
END = "<|endoftext|>"

BERT_FORMAT = Format(
    classes=("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"),
    model_types=(
        "bert",
        "distilbert",
        "electra",
        "mobilebert",
        "elmo",
        "static",
        "nomic_bert",
        "visual_bert",
        "vilbert",
        "lxmert",
    ),
    special=SPECIAL_TOKENS,
    files=(VOCABULARY,),
    template=AROUND_BERT,
    algorithm="wordpiece",
    start=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    free_after=1,
)
JAPANESE_FORMAT = replace(BERT_FORMAT, classes=("BertJapaneseTokenizer",), model_types=(), japanese=True)
ROBERTA_FORMAT = Format(
    classes=("RobertaTokenizer", "LongformerTokenizer"),
    model_types=("roberta", "longformer"),
    special=FAIRSEQ,
    files=(BYTE_VOCABULARY,),
    algorithm="bpe",
    start=("<s>", "<pad>", "</s>", "<unk>"),
    last=("<mask>",),
)
MODERNBERT_FORMAT = Format(  # BERT's special tokens around pieces of bytes; the two of a pair are of one segment
    classes=("PreTrainedTokenizerFast",),
    model_types=("modernbert",),
    special=SPECIAL_TOKENS,
    files=(BYTE_VOCABULARY,),
    template=("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
    algorithm="bpe",
    start=tuple(SPECIAL_TOKENS.values()),
)
MPNET_FORMAT = Format(  # BERT's pieces between RoBERTa's special tokens
    classes=("MPNetTokenizer",),
    model_types=("mpnet",),
    special={**FAIRSEQ, "unk": "[UNK]"},
    files=(VOCABULARY,),
    algorithm="wordpiece",
    start=("<s>", "<pad>", "</s>", "<unk>", "[UNK]"),
    last=("<mask>",),
)
DEBERTA_FORMAT = Format(
    classes=("DebertaV2Tokenizer",),
    model_types=("deberta-v2",),
    special=SPECIAL_TOKENS,
    files=("spm.model",),
    template=AROUND_BERT,
    normalize=_stripped,
    split_spaces=False,
    split_punctuation=True,
    eager_mask=False,
    start=("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
    last=("[MASK]",),
)
GPT2_FORMAT = Format(  # one special token for all; padding has none of its own, and what is padding nobody reads
    classes=("GPT2Tokenizer",),
    model_types=("gpt2",),
    special=dict.fromkeys(("unk", "bos", "eos", "pad"), END),
    files=(BYTE_VOCABULARY,),
    algorithm="bpe",
    last=(END,),
)
OPENAI_GPT_FORMAT = Format(
    classes=("OpenAIGPTTokenizer",),
    model_types=("openai-gpt",),
    special={"unk": "<unk>"},
    files=(BYTE_VOCABULARY,),
    word_end="</w>",
    algorithm="character-bpe",
    start=("<unk>",),
)
XLMR_FORMAT = Format(  # fairseq's four tokens precede the pieces, without the model's own three
    classes=("XLMRobertaTokenizer",),
    model_types=("xlm-roberta",),
    special=FAIRSEQ,
    files=MODEL_FILES,
    template=AROUND_FAIRSEQ,
    skip=3,
    first=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
    last=("<mask>",),
    start=("<s>", "<pad>", "</s>", "<unk>"),
)
CAMEMBERT_FORMAT = replace(
    XLMR_FORMAT,
    classes=("CamembertTokenizer",),
    model_types=("camembert",),
    extra=("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
    skip=1,
    first=(("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)),
    start=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"),
)
ALBERT_FORMAT = Format(
    classes=("AlbertTokenizer",),
    model_types=("albert",),
    special=BRACKETED,
    files=MODEL_FILES,
    template=AROUND_BERT,
    normalize=partial(_quotes_and_accents, lowercase=True),
    split_numbers=True,
    start=("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
)
BIGBIRD_FORMAT = Format(
    classes=("BigBirdTokenizer",),
    model_types=("big_bird",),
    special={**BRACKETED, "bos": "<s>", "eos": "</s>"},
    files=MODEL_FILES,
    template=AROUND_BERT,
    normalize=_one_space,
    split_spaces=False,
    start=("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
)
T5_EXTRA = tuple(f"<extra_id_{i}>" for i in reversed(range(100)))
T5_FORMAT = Format(
    classes=("T5Tokenizer",),
    model_types=("t5",),
    special={"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    files=MODEL_FILES,
    template=("$A </s>", "$A </s> $B </s>"),
    extra=T5_EXTRA,
    last=T5_EXTRA,
    start=("<pad>", "</s>", "<unk>"),
)
XLNET_FORMAT = Format(
    classes=("XLNetTokenizer",),
    model_types=("xlnet",),
    special={**FAIRSEQ, "cls": "<cls>", "sep": "<sep>"},
    files=MODEL_FILES,
    template=("$A:0 <sep>:0 <cls>:2", "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2"),
    extra=("<eop>", "<eod>"),
    start=("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
    normalize=partial(_quotes_and_accents, lowercase=False),
    split_numbers=True,
)
ANY_CLASS = ("PreTrainedTokenizer", "TokenizersBackend")  # say nothing of the rules: tokenizer.json does, or the family
FORMATS = (
    BERT_FORMAT,
    JAPANESE_FORMAT,
    ROBERTA_FORMAT,
    MODERNBERT_FORMAT,
    MPNET_FORMAT,
    DEBERTA_FORMAT,
    OPENAI_GPT_FORMAT,
    GPT2_FORMAT,
    XLMR_FORMAT,
    CAMEMBERT_FORMAT,
    ALBERT_FORMAT,
    BIGBIRD_FORMAT,
    T5_FORMAT,
    XLNET_FORMAT,
)


BY_FAMILY: Registry[Format] = Registry(
    "tokenizer of the family",
    [(model_type, row) for row in FORMATS for model_type in row.model_types],
    group="bertie.tokenizers",
)
"""The format of each model_type. The packages of families add theirs, which may be one of those above."""


def find_format(folder: Path, settings: TokenizerSettings) -> Format | None:
    """Returns the format of a folder: from Bertie's own entry, its tokenizer class, or its model's family.

    The class is that of tokenizer_config.json, or of config.json, as in older folders.

    None when there is no information. Raises DataError for an unknown class without a complete tokenizer.json.
    """
    facts = settings.get("bertie")
    family = facts.get("family") if isinstance(facts, dict) else None
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    config = config if isinstance(config, dict) else {}
    model_type = config.get("model_type")
    model_type = (
        model_type.removeprefix("bertie-") if isinstance(model_type, str) else None
    )  # as models/codec.py writes
    class_name = settings.get("tokenizer_class") or config.get("tokenizer_class")
    class_name = class_name.removesuffix("Fast") if isinstance(class_name, str) else None
    for row in FORMATS:
        if family in row.model_types or class_name in row.classes:
            return row
    if family in BY_FAMILY:
        return BY_FAMILY[str(family)]
    if class_name is not None and class_name not in ANY_CLASS and not (folder / "tokenizer.json").is_file():
        raise DataError(
            f"{folder}: tokenizer_class is {class_name[:80]!r}, which needs custom code that Bertie does not have. "
            "Save a tokenizer.json with the library of this class. Supported classes: "
            f"{', '.join(name for row in FORMATS for name in row.classes)}."
        )
    return BY_FAMILY[model_type] if model_type is not None and model_type in BY_FAMILY else None


def guess(vocabulary: Container[str]) -> Format:
    """Returns the format of a vocabulary from its special tokens, when there is no other information."""
    if "[CLS]" in vocabulary:
        return BERT_FORMAT if "<pad>" not in vocabulary else ALBERT_FORMAT
    if "<s>" in vocabulary and "<mask>" in vocabulary:
        return XLNET_FORMAT if "<cls>" in vocabulary else ROBERTA_FORMAT
    return GPT2_FORMAT if END in vocabulary else BERT_FORMAT


def find_special_tokens(settings: TokenizerSettings, row: Format, vocabulary: Container[str]) -> dict[str, str]:
    """Returns the special tokens: role -> token.

    They are those of tokenizer_config.json. For missing roles, the usual token is used if the vocabulary has it.
    Without any special tokens there, the family's are used.
    """
    said = {role: token for role in TOKEN_ROLES if (token := special_token(settings, role, None)) is not None}
    usual = {role: token for role, token in row.special.items() if not said or token in vocabulary}
    return {role: {**usual, **said}[role] for role in TOKEN_ROLES if role in usual or role in said}
