"""Korean morphemes as an optional step before tokenization: 학교에서 is read as 학교 에서.

Borders come from Kiwi; nothing is rewritten, only spaces are put in, so every piece still points into the original
text. A border inside one syllable (했 = 하 + 었) is passed over. The choice is stored with the tokenizer; other
software that opens the folder does not take this step and gets other ids.
"""

import numpy as np
from numpy.typing import NDArray

from bertie.text.sentences import load_kiwi


class Morphemes:
    """Puts a space at every border of two morphemes. Raises UsageError when kiwipiepy is not installed."""

    def __init__(self) -> None:
        self._kiwi = load_kiwi()

    def __call__(self, text: str) -> tuple[str, NDArray[np.intp]]:
        """The text with spaces put in, and for each of its characters the place it had, or now precedes, in `text`."""
        parts, origins, last = [], [], 0
        for border in sorted({token.start for token in self._kiwi.tokenize(text)}):
            if 0 < border < len(text) and _hangul(text[border - 1]) and _hangul(text[border]):
                parts.append(text[last:border])
                origins += [*range(last, border), border]
                last = border
        parts.append(text[last:])
        origins += range(last, len(text) + 1)
        return " ".join(parts), np.array(origins, np.intp)


def _hangul(character: str) -> bool:
    return "가" <= character <= "힣"
