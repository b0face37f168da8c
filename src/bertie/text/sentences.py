"""Sentence splitters: a fast rule-based one for any language, and those of sentencex and Kiwi.

The rules are one regular expression that starts at every full stop, question mark, exclamation mark, East Asian stop or
line break, and looks at the text on both sides. docs/tokenization.md has its agreement with people and with the others.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.errors import NoPackage
from bertie.registry import Registry, package_of
from bertie.text.japanese import tagger
from bertie.text.scripts import script

Splitter = Callable[[str], list[str]]


def rules(text: str) -> list[str]:
    """Returns the sentences of `text`, stripped, none empty. A line break ends a sentence unless the lines were
    wrapped."""
    if "\n" in text:
        text = unwrap(text)
    pieces = [text[start:end].strip() for start, end in pairwise([0, *boundaries(text), len(text)])]
    return [piece for piece in pieces if piece]


def boundaries(text: str) -> list[int]:
    """Returns the end of each sentence of `text`, in characters. A line break ends a sentence."""
    return [match.end() for match in _BOUNDARY.finditer(text)]


def _words(names: str) -> str:
    """Returns lookbehinds that fail after any of these words and a full stop; one per length, as `re` requires."""
    by_length: dict[int, list[str]] = {}
    for name in names.split():
        by_length.setdefault(len(name), []).append(re.escape(name))
    return "".join(rf"(?<!\b(?:{'|'.join(group)})\.)" for _, group in sorted(by_length.items()))


# Never the end of a sentence: titles, and words that announce what follows.
_NEVER = _words(
    "Mr Mrs Ms Dr Drs Prof Rev Fr St Mt Ft Gen Col Lt Sgt Capt Cpl Maj Adm Cmdr Gov Sen Rep Hon Pres Messrs Mme Mlle "
    "Msgr vs cf viz e.g i.e eg ie ca approx Fig Figs fig figs Vol vol pp Eq eq Sec Ch Nr Nos Bd Hr bzw z.B d.h Sra Srta"
)
# The end only before a word that usually starts a sentence: they occur inside names and at the end.
_PERHAPS = _words(
    "Jr Sr Inc Ltd Corp Co Bros No etc al Ave Blvd Rd Dept Univ Assn Est ed eds trans Jan Feb Mar Apr Jun Jul Aug Sep "
    "Sept Oct Nov Dec pop Ph.D a.m p.m usw Str"
)
_INITIAL = r"(?<!\b[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]\.)(?<!\b[a-z]\.)"  # J. Smith, U.S. Army, c. 1900
_STARTER = (
    r"(?=\s+[\"'“‘(]?(?:A|After|All|Although|Among|An|And|Another|As|At|Because|Before|Both|But|By|Despite|During|Each|"
    r"For|From|Having|He|Her|His|How|However|I|If|In|It|Its|Later|Many|Meanwhile|Most|My|No|On|One|Our|Several|She|"
    r"Since|So|Some|Such|That|The|Their|Then|There|These|They|This|Those|Though|Thus|To|Under|Until|Upon|We|What|When|"
    r"Where|While|Who|Why|With|You|Your)\b(?!\.))"
)
_DATE = (  # 2020. 8. 15. and 3. Oktober
    r"(?<!\d\.\s\d\.)(?<!\d\.\s\d\d\.)"
    r"(?!(?<=\d\.)\s+(?:\d{1,2}\.|Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember))"
)
_ITEM = r"(?<!\A\d\.)(?<!\A\d\d\.)(?<!\n\d\.)(?<!\n\d\d\.)"  # "1. First" at the start of a line
_CLOSERS = r"(?:[\"'”’»›)\]}」』）】〉》]|\[\d+\])*+"
# What cannot start a sentence: a comma, a Korean particle that takes up a quotation ("왔다." 라고), and, except after
# Korean (이다. iOS는), a small letter.
_ON_KOREAN = r"(?=\s)(?!\s+(?:[,;:)\]]|이?라[고는며]|라면서|[고며]\s|하[고며]\s))"
_ON = rf"{_ON_KOREAN}(?!\s+[a-zß-öø-ÿα-ωа-я])"

_TAKEN_UP = r"이?라[고는며]|(?<=[」』”’\"')）])[とっての]"  # a quotation, by a particle: 「来た。」と

# A run of stops is read once, from its first: (?<![...]{2}) keeps a line of dots from taking quadratic time.
_BOUNDARY = re.compile(
    rf"""[.!?…。！？｡\n](?:
        (?<=\n)
      | (?<=[。！？｡])(?<![。！？｡]{{2}}) [。！？｡]*+ {_CLOSERS} (?![、，,]|{_TAKEN_UP})
      | (?<=[다요죠까]\.) (?=[가-힣])                 # 왔다.그는
      | (?<=[!?…])(?<![.!?…]{{2}}) [.!?…]*+ {_CLOSERS} {_ON}
      | (?<=\.) (?:
            (?<![.!?…]{{2}}) [.!?…]++ {_CLOSERS} {_ON}
          | (?=["'”’»›)\]}}」』）】〉》\[\s]) (?:
                (?<=[가-힣]\.) {_CLOSERS} {_ON_KOREAN}
              | {_NEVER} {_ITEM} {_DATE} (?: {_PERHAPS} {_INITIAL} | {_STARTER}) {_CLOSERS} {_ON}
            )
        )
    )""",
    re.VERBOSE,
)

_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*\n\s*")
WRAPPED_WIDTH = (50, 120)  # characters of a hard-wrapped line


def unwrap(text: str) -> str:
    """Joins the lines of paragraphs that were wrapped to a width. Other line breaks do not change.

    A paragraph was wrapped when no line had space for the first word of the next one.
    """
    return "\n\n".join(map(_unwrap, _PARAGRAPH_BREAK.split(text)))


def _unwrap(paragraph: str) -> str:
    if "\n" not in paragraph:
        return paragraph
    lines = [line.strip() for line in paragraph.strip().split("\n")]
    width = max(map(len, lines))
    if not WRAPPED_WIDTH[0] <= width <= WRAPPED_WIDTH[1]:
        return paragraph
    for line, following in pairwise(lines):
        if len(line) + 1 + len(following.partition(" ")[0]) <= width:
            return paragraph
    return " ".join(lines)


def split_lines(text: str) -> list[str]:
    """Returns one sentence per line."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def sentencex(text: str) -> list[str]:
    """Returns sentences by the English rules and abbreviations of Wikimedia's sentencex."""
    from sentencex import segment

    return [piece for piece in map(str.strip, segment("en", text)) if piece]


def kiwi(text: str) -> list[str]:
    """Returns Korean sentences by Kiwi's morphological analysis, also without punctuation, at about 0.1 MB/s.

    Raises UsageError when kiwipiepy is not installed.
    """
    return [piece for sentence in load_kiwi().split_into_sents(text) if (piece := sentence.text.strip())]


@cache
def load_kiwi() -> Any:
    """Returns Kiwi, loaded once. Raises UsageError with the pip command when kiwipiepy is not installed."""
    try:
        from kiwipiepy import Kiwi
    except ImportError:
        raise NoPackage(
            'Kiwi needs the package kiwipiepy, which is not installed. Run: pip install "bertie[ko]" '
            '(the "rules" splitter needs nothing).'
        ) from None
    return Kiwi(num_workers=1)


@dataclass(frozen=True)
class PlainText:
    """A text as people read it: its sentences, its script, and its words in Korean."""

    text: str

    @property
    def sentence_ends(self) -> list[int]:
        """The end of each sentence, in characters. A line break ends a sentence."""
        return boundaries(self.text)

    @property
    def wrapped(self) -> bool:
        """Whether its lines were wrapped to a width, so that a line break ends no sentence."""
        return unwrap(self.text) != self.text

    @property
    def script(self) -> str:
        """The script of its first letter: Latin, Hangul, Han ...; otherwise "number" or "symbol"."""
        return script(self.text)

    def words(self, splitter: str) -> list[str]:
        """Returns the words of a word splitter. Raises UsageError for an unknown one."""
        return SpacedWords(splitter)(self.text)[0].split()

    def morphemes(self) -> Any:
        """Returns Kiwi's analysis of a Korean text. Raises UsageError when kiwipiepy is not installed."""
        return load_kiwi().tokenize(self.text)


SPLITTERS: Registry[Splitter] = Registry(
    "sentence splitter",
    [("rules", rules), ("sentencex", sentencex), ("kiwi", kiwi), ("lines", split_lines)],
    group="bertie.splitters",
)


def splitter(name: str) -> Splitter:
    """Returns the splitter of that name. Raises UsageError with the choices, or the missing package."""
    if name == "kiwi":
        load_kiwi()  # say now, not after an hour, that it is missing
    return SPLITTERS[name]


def kiwi_words(text: str) -> list[int]:
    """Returns where Korean morphemes begin. A boundary inside a syllable (했 = 하 + 었) is ignored."""
    starts = [token.start for token in load_kiwi().tokenize(text)]
    return [i for i in starts if 0 < i < len(text) and _hangul(text[i - 1]) and _hangul(text[i])]


def _hangul(character: str) -> bool:
    return "가" <= character <= "힣"


def jieba_words(text: str) -> list[int]:
    """Returns where Chinese words begin, by jieba. Raises UsageError when rjieba is not installed."""
    try:
        import rjieba
    except ImportError:
        raise NoPackage("Chinese words need the package rjieba: pip install 'bertie[zh]'") from None
    return _ideographic(text, [start for _, start, _ in rjieba.tokenize(text)])


def mecab_words(text: str) -> list[int]:
    """Returns where Japanese words begin, by MeCab and UniDic Lite. Raises UsageError when one is not installed."""
    starts, at = list[int](), 0
    for word in tagger("unidic_lite")(text):
        starts.append(text.index(word.surface, at))
        at = starts[-1] + len(word.surface)
    return _ideographic(text, starts)


def _ideographic(text: str, starts: list[int]) -> list[int]:
    """Returns the starts beside a character of a script without spaces: other words end where they always do."""
    return [i for i in starts if 0 < i < len(text) and max(text[i - 1], text[i]) >= "\u2e80"]


WordSplitter = Callable[[str], Iterable[int]]
"""Protocol of a word splitter: text -> where words begin, in characters. White space always ends a word."""
WORD_SPLITTERS: Registry[WordSplitter] = Registry(
    "word splitter",
    [("kiwi", kiwi_words), ("jieba", jieba_words), ("mecab", mecab_words)],
    group="bertie.word_splitters",
)


class SpacedWords:
    """Inserts a space where a word begins, before tokenization. Other programs omit this step.

    package: the installed package that had the splitter when it was chosen. Raises UsageError for an unknown splitter,
    and for one whose package is not installed.
    """

    def __init__(self, name: str, package: str = "") -> None:
        if package and name not in WORD_SPLITTERS:
            raise NoPackage(f"The word splitter {name!r} is of a package that is not installed: pip install {package}")
        self._split = WORD_SPLITTERS[name]
        self._split("")  # says now that its package is missing

    @property
    def package(self) -> str:
        """The package that the splitter is of, as pip calls it; "" for those of Bertie."""
        module = self._split.__module__
        return "" if module.startswith("bertie.") else package_of(module)

    def __call__(self, text: str) -> tuple[str, NDArray[np.intp]]:
        """Returns the text with spaces, and for each of its characters where it stood in `text`: first and end, or of
        a space what it precedes. (C + 1, 2)"""
        parts, origins, last = [], [], 0
        for start in sorted({*self._split(text)}):
            if 0 < start < len(text) and not text[start - 1].isspace() and not text[start].isspace():
                parts.append(text[last:start])
                origins += [*range(last, start), start]
                last = start
        parts.append(text[last:])
        origins += range(last, len(text) + 1)
        first = np.array(origins, np.intp)
        return " ".join(parts), np.stack([first, first + 1], -1)
