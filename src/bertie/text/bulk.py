"""Fast tokenization of whole corpora: the same ids as the `tokenizers` library, by one of three methods.

`nanotoken`, when it is installed, supports the tokenizer's rules and agrees on a sample text. Otherwise, for BERT's
rules, a cache of whitespace-separated chunks, each tokenized once (words repeat, and BERT never joins across white
space). Otherwise the library itself, which also reads all texts that may contain an added token.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from bertie.text.engine import reading, without_added_tokens

CACHED_CHUNKS = 1 << 20  # some 300 MB when full; then it starts again
# White space to Python's str.split, but to BERT control characters, which it deletes without a gap.
_ODD_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
SURROGATES = re.compile("[\ud800-\udfff]")
# Texts on which a foreign path must agree before it is trusted.
_PROBE = (
    "The quick brown fox can't jump 3.14 metres, e.g. over Dr. O'Neil's naïve café. RÉSUMÉ İstanbul ﬁne Straße",
    "한국어 문장입니다. 띄어쓰기를안하면?! ㅋㅋㅋ ㅠㅠ ﾡﾤ 한글 각 가\u0301",
    "日本語のテキスト。中文文本，没有空格 𠀀 ｆｕｌｌ　ｗｉｄｔｈ",
    "👨‍👩‍👧 🇰🇷 e\u0301 a\u0300\u0316 \u200bzero\u200bwidth\ufeff nb\u00a0sp soft\u00adhyphen שלום مَرحبا नमस्ते ไทย",
    "[CLS] [MASK] [UNK] ##ing http://x.org/a_b?c=d&e=#f $5 <tag/> tab\tline\nend\r\n \x00\x07\x0b\x85\u2028 "
    + "x" * 120,
)


class BulkEncoder:
    """Returns the ids of many texts without special tokens."""

    def __init__(self, engine: tokenizers.Tokenizer) -> None:
        self._engine = engine
        tree = json.loads(engine.to_str())
        added = tree["added_tokens"]
        # Added tokens are searched in the original text, or, if "normalized", in the normalized text.
        normalize = engine.normalizer.normalize_str if engine.normalizer else str
        self._marks = {token["content"][:4] for token in added}  # a text without these has no added token in it
        found_elsewhere = bool(engine.normalizer) and any(token["normalized"] for token in added)
        spaced = any(map(str.isspace, "".join(t["content"] + normalize(t["content"]) for t in added)))
        splits = (tree["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
        self._by_chunk = splits and tree["model"]["type"] == "WordPiece" and not spaced
        self._cache: dict[str, list[int]] = {}
        self._fast = None if found_elsewhere else self._nanotoken()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns one list of ids per text."""
        return _whole(self._ids, texts)

    def flat(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Returns the ids of all texts, concatenated (total,), and the bounds of the texts (len(texts) + 1,)."""
        if self._fast is not None and not self._marked(texts):
            try:
                encoding = self._fast.encode_batch(texts, add_special_tokens=False)
                return encoding.ids, encoding.offsets
            except UnicodeEncodeError:
                pass
        rows = self.ids(texts)
        starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return np.fromiter(chain.from_iterable(rows), np.uint32, count=int(starts[-1])), starts

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if self._fast is not None:
            rows: list[list[int]] = self._fast.encode_batch_list(texts, add_special_tokens=False)
            marked = self._marked(texts)
            for number, ids in zip(marked, _exact(self._engine, [texts[number] for number in marked]), strict=True):
                rows[number] = ids
            return rows
        return self._cached(texts) if self._by_chunk else _exact(self._engine, texts)

    def _marked(self, texts: Sequence[str]) -> list[int]:
        """Returns the numbers of the texts that may contain an added token."""
        whole = "\n".join(texts)
        marks = [mark for mark in self._marks if mark in whole]
        return [i for i, text in enumerate(texts) if any(mark in text for mark in marks)] if marks else []

    def _cached(self, texts: Sequence[str]) -> list[list[int]]:
        cache = self._cache
        if len(cache) > CACHED_CHUNKS:
            cache.clear()
        rows = [[text] if _ODD_SPACE.search(text) else text.split() for text in texts]
        new = list({chunk for row in rows for chunk in row if chunk not in cache})
        cache.update(zip(new, _exact(self._engine, new), strict=True))
        return [[i for chunk in row for i in cache[chunk]] for row in rows]

    def _nanotoken(self) -> Any:
        """Returns nanotoken's tokenizer, or None when it is missing, does not support these rules, or returns other
        ids."""
        try:
            from nanotoken import Tokenizer, UnsupportedTokenizerError
        except ImportError:
            return None
        plain = without_added_tokens(self._engine)
        try:
            fast = Tokenizer.from_json(plain.to_str())
        except (UnsupportedTokenizerError, ValueError):
            return None
        expected = [encoding.ids for encoding in plain.encode_batch(_PROBE, add_special_tokens=False)]
        agrees = fast.encode_batch_list(_PROBE, add_special_tokens=False) == expected
        return fast if agrees else None


def exact(engine: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Returns one list of ids per text, by the `tokenizers` library: best for few texts, as nothing is prepared."""
    return _whole(partial(_exact, engine), texts)


def _exact(engine: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in engine.encode_batch_fast(list(texts), add_special_tokens=False)]


def _whole(encode: Callable[[Sequence[str]], list[list[int]]], texts: Sequence[str]) -> list[list[int]]:
    with reading():
        try:
            return encode(texts)
        except (UnicodeEncodeError, TypeError):  # half a surrogate pair is no text; anything else fails again
            return encode([SURROGATES.sub("\ufffd", text) for text in texts])
