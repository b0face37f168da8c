"""Japanese words, which MeCab finds, as a step before tokenization: 東京に住む is read as 東京 に 住む.

The rules are those of `BertJapaneseTokenizer` in transformers with `word_tokenizer_type: mecab`: Unicode normalization
(NFKC), MeCab with a dictionary, and small letters if asked for; then WordPiece, or single characters, within the words.
Dictionaries decide where words end, so a folder names its own (`mecab_kwargs`).

C characters of what is read
"""

import importlib
import re
import unicodedata
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, NoPackage, UsageError, nearest

DICTIONARIES = ("ipadic", "unidic_lite", "unidic")
SUBWORDS = ("wordpiece", "character")
_UNKNOWN = "\ufffe"  # no character: in place of a space that is a token by itself, which no vocabulary has
# These join what is before them: half-width voiced marks, and the vowels and final consonants of Korean syllables.
_JOINS = re.compile("[\uff9e\uff9f\u1160-\u11ff\uffa0\uffc2-\uffdc]")


class JapaneseWords:
    """Inserts a space between two words, and normalizes the characters.

    settings: the content of tokenizer_config.json. added: tokens that are read as such wherever they stand.

    Raises:
        DataError: The settings name other rules than MeCab's.
        UsageError: fugashi, or the dictionary, is not installed.
    """

    def __init__(self, settings: Mapping[str, Any], added: Collection[str]) -> None:
        kind, cut = settings.get("word_tokenizer_type", "basic"), settings.get("subword_tokenizer_type", "wordpiece")
        off = [name for name in ("do_word_tokenize", "do_subword_tokenize") if settings.get(name) is False]
        if kind != "mecab" or cut not in SUBWORDS or off:
            options = ", ".join(f"{name}: false" for name in off) or f"{str(kind)[:40]} and {str(cut)[:40]}"
            raise DataError(
                f"BertJapaneseTokenizer with {options} is not supported. Supported: word_tokenizer_type mecab, with "
                f"subword_tokenizer_type {' or '.join(SUBWORDS)}."
            )
        own = settings.get("mecab_kwargs") or {}
        if not isinstance(own, Mapping) or own.get("mecab_option"):
            raise DataError("mecab_kwargs has options of MeCab (mecab_option), which are not supported.")
        self._tagger = tagger(str(own.get("mecab_dic", "unidic_lite")))
        self._normalize = own.get("normalize_text", True) is not False
        small = own.get("do_lower_case", settings.get("do_lower_case", False))
        self._small, self._characters = bool(small), cut == "character"
        self._added = re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True))) or "(?!)")
        self.rules = [str(own.get("mecab_dic", "unidic_lite")), self._normalize, self._small, self._characters]

    def __call__(self, text: str) -> tuple[str, NDArray[np.intp]]:
        """Returns the words, separated by spaces, and where each of its characters stood: first and end. (C + 1, 2)"""
        parts: list[str] = []
        origins: list[tuple[int, int]] = []
        last = 0
        for match in [*self._added.finditer(text), None]:
            self._read(text, last, match.start() if match else len(text), parts, origins)
            if match:
                parts.append(match[0])
                origins += [*((i, i + 1) for i in range(*match.span())), (match.end(), match.end())]
                last = match.end()
        return " ".join(parts), np.array([*origins, (len(text), len(text))], np.intp).reshape(-1, 2)

    def _read(self, text: str, start: int, stop: int, parts: list[str], origins: list[tuple[int, int]]) -> None:
        """Adds the words between two added tokens. After each one, there is an origin for the space."""
        part = text[start:stop]
        read, places = normalized(part) if self._normalize else (part, [(i, i + 1) for i in range(len(part))])
        at = 0
        for word in self._tagger(read):
            at = read.index(word.surface, at)
            spots = range(at, at + len(word.surface))
            at += len(word.surface)
            here = [(start + places[i][0], start + places[i][1]) for i in spots]
            for piece, piece_origins in self._pieces(word.surface, here):
                parts.append(piece)
                origins += [*piece_origins, (piece_origins[-1][1],) * 2]

    def _pieces(self, word: str, here: list[tuple[int, int]]) -> list[tuple[str, list[tuple[int, int]]]]:
        """Returns a word, or its characters, in the letters that are looked up, with their origins."""
        if self._small:
            lower = word.lower()
            here = here if len(lower) == len(word) else [o for o, c in zip(here, word, strict=True) for _ in c.lower()]
            word = lower
        if self._characters:  # normalized whatever the words are, as there
            read, places = normalized(word)
            origins = [(here[first][0], here[end - 1][1]) for first, end in places]
            return [(_UNKNOWN if c.isspace() else c, [origin]) for c, origin in zip(read, origins, strict=True)]
        return [(match[0], here[slice(*match.span())]) for match in re.finditer(r"\S+", word)]


def normalized(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text in NFKC, and for each of its characters the first and the end of those it was made of."""
    normal = unicodedata.normalize("NFKC", text)
    if normal == text:
        return text, [(i, i + 1) for i in range(len(text))]
    starts = [i for i, c in enumerate(text) if not i or not (unicodedata.combining(c) or _JOINS.match(c))]
    bounds = list(zip(starts, [*starts[1:], len(text)], strict=True))
    parts = [unicodedata.normalize("NFKC", text[start:end]) for start, end in bounds]
    if "".join(parts) != normal:  # characters that join in another way: the origin of all is the entire text
        return normal, [(0, len(text))] * len(normal)
    return normal, [bound for bound, part in zip(bounds, parts, strict=True) for _ in part]


@cache
def tagger(dictionary: str) -> Any:
    """Returns MeCab with a dictionary, loaded once. Raises UsageError with the pip command for what is not
    installed."""
    if dictionary not in DICTIONARIES:
        raise DataError(f"mecab_dic is {dictionary[:80]!r}. {nearest(dictionary, DICTIONARIES)}")
    try:
        import fugashi

        folder = Path(importlib.import_module(dictionary).DICDIR)
    except ImportError as error:
        raise NoPackage(
            f"This Japanese tokenizer needs the package {error.name}, which is not installed. Run: pip install "
            f'"bertie[ja]"{"" if dictionary == "unidic_lite" else " " + dictionary.replace("_", "-")}'
        ) from None
    if not folder.is_dir():
        raise UsageError(f"The dictionary {dictionary} is not there yet. Run: python -m {dictionary} download")
    return fugashi.GenericTagger(f'-d "{folder}" -r "{folder / "mecabrc"}" ')
