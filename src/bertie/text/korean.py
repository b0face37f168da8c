"""Korean morphemes as an optional step before tokenization: 학교에서 is read as 학교 에서.

Kiwi finds the boundaries. Only spaces are inserted, so that offsets refer to the original text. A boundary inside one
syllable (했 = 하 + 었) is ignored. The choice is stored with the tokenizer. Other programs that open the folder omit
this step and return other ids.
"""

import numpy as np
from numpy.typing import NDArray

from bertie.text.sentences import load_kiwi


class Morphemes:
    """Inserts a space at every boundary of two morphemes. Raises UsageError when kiwipiepy is not installed."""

    def __init__(self) -> None:
        self._kiwi = load_kiwi()

    def __call__(self, text: str) -> tuple[str, NDArray[np.intp]]:
        """Returns the text with spaces, and for each of its characters where it stood in `text`: first and end, or of
        a space what it precedes. (C + 1, 2)"""
        parts, origins, last = [], [], 0
        for border in sorted({token.start for token in self._kiwi.tokenize(text)}):
            if 0 < border < len(text) and _hangul(text[border - 1]) and _hangul(text[border]):
                parts.append(text[last:border])
                origins += [*range(last, border), border]
                last = border
        parts.append(text[last:])
        origins += range(last, len(text) + 1)
        first = np.array(origins, np.intp)
        return " ".join(parts), np.stack([first, first + 1], -1)


def _hangul(character: str) -> bool:
    return "가" <= character <= "힣"
