"""Normalization of text before tokenization, and cleaning of raw text for a corpus.

BERT removes accents by decomposition (NFD) and removal of nonspacing marks (Mn), which splits every Hangul syllable
into two or three jamo. Composition (NFC) afterwards restores the syllables without the accents. It also makes 한 the
same text when it is written as one character or as three. Compatibility and half-width jamo (ㅋㅋ, ﾡ) have no canonical
decomposition and do not change.
"""

import re
import unicodedata
from dataclasses import dataclass

from tokenizers import normalizers


@dataclass(frozen=True)
class Normalizer:
    """The normalization of a tokenizer: BERT's rules (clean, space out CJK, lower, strip accents), then NFC.

    `nfc=False` is exactly BERT's, which breaks Hangul when accents are stripped.
    """

    lowercase: bool = False
    strip_accents: bool | None = None  # None: as `lowercase`, BERT's rule
    chinese_chars: bool = True  # spaces around every CJK ideograph
    nfc: bool = True

    def engine(self) -> normalizers.Normalizer:
        """Returns the same as a normalizer of the `tokenizers` library, which tracks character offsets."""
        bert = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.chinese_chars,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )
        return normalizers.Sequence([bert, normalizers.NFC()]) if self.nfc else bert

    def __call__(self, text: str) -> str:
        """Returns the normalized text."""
        return str(self.engine().normalize_str(text))


# Line ends of other systems and of Unicode, and what they become.
_LINE_ENDS = {"\u2029": "\n\n", "\r\n": "\n", **dict.fromkeys("\r\x0b\x0c\x85\u2028", "\n")}
# Characters that carry no text: controls, soft hyphen, zero-width space, word joiner, byte order mark, lone surrogates,
# non-characters, the replacement character. The joiners U+200C and U+200D stay: emoji and Persian need them.
_NOISE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffd-\uffff\ud800-\udfff]"
)
_BLANK_LINES = re.compile(r"\n{3,}")


def clean(text: str) -> str:
    """Cleans text for a corpus: NFC, no control characters, single spaces, "\\n" line ends, at most one blank line in a
    row.

    Case and accents do not change. `clean(clean(text)) == clean(text)`.
    """
    for end, replacement in _LINE_ENDS.items():
        text = text.replace(end, replacement)
    # Noise and odd white space are not printable, but for U+FFFD; this check is ten times faster than any pattern.
    text = "\n".join(
        [
            line.strip() if line.isprintable() and "\ufffd" not in line else " ".join(_NOISE.sub("", line).split())
            for line in text.split("\n")
        ]
    )
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    while "  " in text:
        text = text.replace("  ", " ")
    return (_BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip()
