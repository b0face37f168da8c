"""`Tokenizer`: text to tokens with their character offsets in the original text, stored as a folder of files.

The `tokenizers` library does the work. Bertie adds the layout of one or two texts with [CLS] and
[SEP], truncation that is counted, and offsets of composed characters (encoding.py). It also adds fast encoding of
corpora (bulk.py), and a folder in Hugging Face format.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import xxhash
from numpy.typing import ArrayLike, NDArray

from bertie.console import console
from bertie.errors import BadFile, DataError, UsageError, WrongValue, arguments, nearest
from bertie.files import read_json, read_small, write_bytes, write_json
from bertie.text.assemble import TOKEN_FLAGS, assemble_tokenizer, byte_files
from bertie.text.bulk import SURROGATES, BulkEncoder, exact
from bertie.text.encoding import Encoding, Frame, Truncation, find_frames, fit_sizes, framed, whole_characters
from bertie.text.engine import (
    FILE_CLASS,
    MAX_FILE_BYTES,
    check_same,
    make_lowercase,
    public_settings,
    read_engine,
    read_vocabulary,
    reading,
    spelled_out,
    state,
)
from bertie.text.formats import (
    BYTE_VOCABULARY,
    VOCABULARY,
    Format,
    find_format,
    find_special_tokens,
    guess,
    length_file,
)
from bertie.text.japanese import JapaneseWords
from bertie.text.sentences import SpacedWords

_UNUSED = re.compile(r"\[unused\d+\]")
_FEW_CHARACTERS = 50_000  # characters that the library reads as fast as the fast encoder is made, about


class Tokenizer:
    """A vocabulary and the rules that split text into tokens.

    Special tokens in a text are read as such, as in `transformers`. With settings["split_special_tokens"], they are
    read as ordinary characters by all methods.

    Attributes:
        settings: The content of tokenizer_config.json. The key "bertie" records how the vocabulary was made.
        format: The tokenizer format of a family (formats.py). Default: inferred from the special tokens.
        files: The family's files, which are written back unchanged.
        frames: The positions of special tokens around one text and around two.

    Raises:
        DataError: A special token is not in the vocabulary.

    Example:
        >>> tokenizer = bertie.load_tokenizer("starter-en")
        >>> tokenizer.encode("Unbelievable!").tokens
        ['[CLS]', 'un', '##be', '##li', '##eva', '##ble', '!', '[SEP]']
        >>> tokenizer.decode(tokenizer.encode("Hello there").ids)
        'hello there'
    """

    def __init__(
        self,
        engine: tokenizers.Tokenizer,
        *,
        settings: Mapping[str, object] | None = None,
        format: Format | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        engine.no_truncation()
        engine.no_padding()
        self.engine = engine
        self.settings: dict[str, Any] = dict(settings or {})
        self._vocabulary: dict[str, int] = engine.get_vocab()
        self.files = dict(files or {})
        added = engine.get_added_tokens_decoder()
        marked = {token.content for token in added.values() if token.special} or self._vocabulary.keys()
        for row in (format, guess(self._vocabulary)):
            if row is not None:
                self.format, self.special_tokens = row, find_special_tokens(self.settings, row, marked)
                if self._vocabulary.keys() >= {*self.special_tokens.values()}:
                    break
        self._special = {role: engine.token_to_id(token) for role, token in self.special_tokens.items()}
        if missing := [self.special_tokens[role] for role, i in self._special.items() if i is None]:
            raise DataError(
                f"The vocabulary of {engine.get_vocab_size():,} tokens has no {', '.join(missing)}. A "
                f"{self.format.model_types[0]} needs "
                f"{', '.join(dict.fromkeys(self.special_tokens.values()))}. Name other special tokens in "
                "tokenizer_config.json (cls_token, ...)."
            )
        self.vocab_size: int = 1 + max(self._vocabulary.values())
        if self.vocab_size > 2 * len(self._vocabulary) + 1024:
            raise BadFile(
                f"The vocabulary has {len(self._vocabulary):,} tokens, but its largest id is "
                f"{self.vocab_size - 1:,}: the file is damaged, or is not the vocabulary of a model."
            )
        self.frames: tuple[Frame, Frame] = find_frames(engine, self._special.get("cls"), self._special.get("sep"))
        special = {i for i, token in added.items() if token.special}
        self.special_ids: frozenset[int] = frozenset(special.union(i for i in self._special.values() if i is not None))
        self.unused_ids: frozenset[int] = frozenset(i for t, i in self._vocabulary.items() if _UNUSED.fullmatch(t))
        self._characters = 0  # read so far
        self._words: SpacedWords | JapaneseWords | None = None  # a step before all others
        if (splitter := self._facts.get("word_splitter")) is not None:
            self._words = SpacedWords(str(splitter), str(self._facts.get("package", "")))
        elif self.format.japanese:
            spelled = self.settings.get("split_special_tokens") is True
            self._words = JapaneseWords(self.settings, () if spelled else [token.content for token in added.values()])
        self._composes = bool(engine.normalizer) and '"NFC"' in json.dumps(state(engine.normalizer))

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[object, ...]]:
        """Pickles and copies what the tokenizer is made from. The fast encoder and its cache are made again."""
        return _remade, (self.engine, self.settings, self.format, self.files)

    def special_id(self, role: str) -> int | None:
        """Returns the id of the "pad", "unk", "cls", "sep", "mask", "bos" or "eos" token, or None."""
        return self._special.get(role)

    def _needed(self, role: str) -> int:
        token = self._special.get(role)
        if token is None:
            raise UsageError(
                f"This tokenizer ({self.format.model_types[0]}) has no {role} token; it has "
                f"{', '.join(f'{role} {token}' for role, token in self.special_tokens.items())}."
            )
        return token

    def __repr__(self) -> str:
        return f"Tokenizer({type(self.engine.model).__name__}, {self.vocab_size:,} tokens)"

    @property
    def pad_id(self) -> int:
        """The id of the padding token. This and the next properties raise UsageError where there is no such token."""
        return self._needed("pad")

    @property
    def unk_id(self) -> int:
        """The id of the unknown token."""
        return self._needed("unk")

    @property
    def cls_id(self) -> int:
        """The id of the token that represents the whole sequence."""
        return self._needed("cls")

    @property
    def sep_id(self) -> int:
        """The id of the token between and after texts."""
        return self._needed("sep")

    @property
    def mask_id(self) -> int:
        """The id of the mask token."""
        return self._needed("mask")

    @property
    def max_length(self) -> int:
        """The number of tokens at which `transformers` truncates; 512, as of BERT, where the folder names none."""
        length = self.settings.get("model_max_length")
        return length if isinstance(length, int) and 3 < length < 1 << 20 else 512

    @property
    def _facts(self) -> dict[str, object]:
        facts = self.settings.get("bertie", {})
        return facts if isinstance(facts, dict) else {}

    @classmethod
    @arguments()
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Opens a folder with tokenizer.json, or with the files that its family is published in (formats.py).

        The settings of tokenizer_config.json apply. For a model that has a name, use bertie.load_tokenizer(NAME).

        Raises:
            DataError: There is no such file, a file is damaged, or two files contradict each other.
        """
        folder = Path(folder)
        config, older = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
        settings = {**_settings(older), **_settings(config)}
        format, file = find_format(folder, settings), folder / "tokenizer.json"
        if file.exists():
            engine = read_engine(file)
            if (folder / VOCABULARY).exists():
                check_same(read_vocabulary(folder / VOCABULARY), engine, folder)
            copied = [name for name in (format.files if format else ()) if name.endswith(".model")]
        else:
            engine, format, copied = assemble_tokenizer(folder, settings, format)
        if _settings(length_file(folder)).get("do_lower_case") is True and make_lowercase(engine):
            settings["tokenizer_class"] = FILE_CLASS  # its own class would build a normalizer that is not lowercase
        if settings.get("truncation_side") == "left":
            console.warn(
                f"{config}: truncation_side is left, but Bertie keeps the beginning of a text that is too long."
            )
        files = {name: read_small(folder / name, most=MAX_FILE_BYTES) for name in copied if (folder / name).is_file()}
        try:
            return cls(engine, settings=settings, format=format, files=files)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from None

    def save(self, folder: str | Path, *, segments: int | None = None, max_length: int | None = None) -> None:
        """Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json, and the files of its family.

        The files of the family are vocab.txt, vocab.json with merges.txt, or the SentencePiece model.

        Args:
            folder: The folder to write.
            segments: Number of segment embeddings of the model. With fewer than two, `transformers` passes no segment
                ids.
            max_length: Maximum number of tokens, at which `transformers` truncates.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self._family_files().items():
            write_bytes(folder / name, data)
        write_bytes(folder / "tokenizer.json", (self.engine.to_str(pretty=True) + "\n").encode())
        called = {f"{role}_token": self._named(token) for role, token in self.special_tokens.items()}
        family = self.format.classes[0]
        usual = public_settings(self.engine) if family == "BertTokenizer" else {"tokenizer_class": family}
        settings = {**usual, "model_max_length": 512, **self.settings, **called}
        if usual["tokenizer_class"] == FILE_CLASS:
            settings["tokenizer_class"] = FILE_CLASS  # the folder's class would build another normalizer
        if max_length is not None:
            settings["model_max_length"] = max_length
        settings.pop("auto_map", None)  # would name code to run
        if segments is not None and segments < 2:
            settings["model_input_names"] = ["input_ids", "attention_mask"]
        write_json(folder / "tokenizer_config.json", settings)
        write_json(folder / "special_tokens_map.json", called)

    def _family_files(self) -> dict[str, bytes]:
        model = state(self.engine.model)
        pieces = {i: token for token, i in self._vocabulary.items()}
        if model["type"] == "WordPiece" and len(pieces) == self.vocab_size:
            return {VOCABULARY: "".join(f"{pieces[i]}\n" for i in range(self.vocab_size)).encode()}
        return (
            byte_files(self.engine) if model["type"] == "BPE" and BYTE_VOCABULARY in self.format.files else self.files
        )

    def _named(self, token: str) -> str | dict[str, object]:
        """Returns a special token as in tokenizer_config.json: its name, or an object with its flags."""
        added = self.engine.get_added_tokens_decoder().get(self._vocabulary[token])
        if added is None or not (added.lstrip or added.rstrip or added.single_word):
            return token
        flags = {name: getattr(added, name) for name in TOKEN_FLAGS}
        return {"__type": "AddedToken", "content": token, **flags, "special": True}

    def encode(
        self, a: str, b: str | None = None, *, max_length: int | None = None, truncation: Truncation = "longest_first"
    ) -> Encoding:
        """Encodes [CLS] a [SEP], or [CLS] a [SEP] b [SEP], in the layout of the family.

        Args:
            a: The first text.
            b: The second text, or None.
            max_length: Maximum number of tokens, including special tokens. None: no limit.
            truncation: Which text is truncated: longest_first, only_first, only_second, or error.

        Raises:
            DataError: The text is too long and truncation is "error".
        """
        return self.encode_batch([a if b is None else (a, b)], max_length=max_length, truncation=truncation)[0]

    def encode_batch(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        max_length: int | None = None,
        truncation: Truncation = "longest_first",
    ) -> list[Encoding]:
        """Encodes many texts or pairs at once, on all cores. Arguments as for `encode`.

        Raises:
            UsageError: There is something else than a text or a pair of texts.
        """
        if isinstance(texts, str):
            raise UsageError('texts must be a list of texts or pairs: ["..."].')
        texts = list(texts)
        for number, text in enumerate(texts, 1):
            parts = text if isinstance(text, tuple | list) and len(text) == 2 else (text,)
            if not all(isinstance(part, str) for part in parts):
                raise WrongValue(f"Text {number} is {text!r:.60}; it must be a string or a pair of strings.")
        pieces = iter(self.tokenize([part for text in texts for part in ([text] if isinstance(text, str) else text)]))
        result = []
        for text in texts:
            a, b = next(pieces), None if isinstance(text, str) else next(pieces)
            size_a, size_b = len(a.ids), len(b.ids) if b else 0
            special = self.frames[b is not None].size
            keep_a, keep_b = fit_sizes(size_a, size_b, special, max_length, truncation)
            if cut := size_a - keep_a + size_b - keep_b:
                a, b = a[:keep_a], b and b[:keep_b]
            result.append(self._framed(a, b, cut))
        return result

    def windows(self, a: str, b: str | None = None, *, max_length: int, stride: int = 128) -> list[Encoding]:
        """Encodes a long text as overlapping windows: of `b` with the whole of `a` before it, or of `a`.

        Args:
            a: The first text, or the only one.
            b: The second text, or None.
            max_length: Tokens per window, including special tokens.
            stride: Tokens between the starts of two windows (doc_stride of google-research/bert, run_squad.py).

        Returns:
            The windows. The last one ends with the text. `overflow` counts the tokens outside a window.
        """
        head, body = self.tokenize([a, b]) if b is not None else (None, self.tokenize([a])[0])
        room = max_length - (self.frames[0].size if head is None else self.frames[1].size + len(head.ids))
        if room < 1 or stride < 1:
            raise DataError(
                f"max_length ({max_length}) is too small: the special tokens and the first text take "
                f"{max_length - room} tokens."
            )
        starts = [0]
        while starts[-1] + room < len(body.ids):
            starts.append(starts[-1] + min(stride, room))
        result = []
        for start in starts:
            part = body[start : start + room]
            outside = len(body.ids) - len(part.ids)
            result.append(self._framed(part, None, outside) if head is None else self._framed(head, part, outside))
        return result

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each text without special tokens.

        The fast encoder is made when it pays: after FEW characters, or by `flat_ids`.
        """
        read = self._segmented(texts)
        if "_bulk" not in self.__dict__:
            self._characters += sum(map(len, read))
            if self._characters < _FEW_CHARACTERS:
                return exact(self._reader, read)
        return self._bulk.ids(read)

    def flat_ids(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Returns `ids` as two arrays: all ids concatenated (total,), and the bounds of the texts (N + 1,)."""
        return self._bulk.flat(self._segmented(texts))

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Returns the text of token ids. The spaces around punctuation are approximate."""
        with reading():
            return str(self.engine.decode([int(i) for i in ids], skip_special_tokens=skip_special_tokens)).strip()

    def normalize(self, text: str) -> str:
        """Returns a text as it is before it is divided: in lower case for a model that reads no other ..."""
        normalizer = self.engine.normalizer
        with reading():
            return str(normalizer.normalize_str(text)) if normalizer else text

    def id_to_token(self, i: int) -> str:
        """Returns the token of an id. Raises UsageError for an id outside the vocabulary."""
        token = self.engine.id_to_token(int(i)) if 0 <= i < self.vocab_size else None
        if token is None:
            raise UsageError(f"There is no token {i}: the vocabulary has ids 0 to {self.vocab_size - 1:,}.")
        return str(token)

    def written(self, i: int) -> str:
        """Returns a token as it is written in a text: without "##", "▁" or byte codes."""
        token = self.id_to_token(i)
        with reading():
            return token if i in self.special_ids else str(self.engine.decode([i])).removeprefix("##").strip()

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token. Raises UsageError when it is not in the vocabulary."""
        if token not in self._vocabulary:
            close = nearest(token, [p for p in self._vocabulary if p[:2] == token[:2]][:50])
            raise UsageError(f"{token!r} is not in the vocabulary. {close}")
        return self._vocabulary[token]

    def continues_word(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Returns whether each id continues a word, for whole-word masking. (...) integers -> (...) bool"""
        flags: NDArray[np.bool_] = self._continues[np.asarray(ids)]
        return flags

    def continuation(self, word: str) -> list[int] | None:
        """Returns the ids of a normalized word as the rest of a longer word: 이다 -> ##이다, the longest tokens first.

        None where the vocabulary does not mark what continues a word ("##"), or lacks a part of the word.
        """
        prefix, ids = state(self.engine.model).get("continuing_subword_prefix"), list[int]()
        while prefix and word:
            sizes = range(len(word), 0, -1)
            size = next((size for size in sizes if prefix + word[:size] in self._vocabulary), None)
            if size is None:
                return None
            ids.append(self._vocabulary[prefix + word[:size]])
            word = word[size:]
        return ids or None

    @cached_property
    def ends_word(self) -> NDArray[np.bool_] | None:
        """Whether each token ends a word (V,), for vocabularies that mark ends ("ing</w>") and not continuations."""
        if not self.format.word_end:
            return None
        ends = np.zeros(self.vocab_size, np.bool_)
        for token, i in self._vocabulary.items():
            ends[i] = token.endswith(self.format.word_end)
        return ends

    @cached_property
    def sentinel_ids(self) -> tuple[int, ...]:
        """The sentinel tokens of span corruption: T5's <extra_id_0> ..., or unused tokens where there are none."""
        names = takewhile(self._vocabulary.__contains__, (f"<extra_id_{i}>" for i in count()))
        return tuple(self._vocabulary[name] for name in names) or tuple(sorted(self.unused_ids))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that determines the ids of a text, 32 hex digits."""
        words = self._words.rules if isinstance(self._words, JapaneseWords) else bool(self._words)
        decides: list[object] = [self._rules(), self.special_tokens, words]
        if self._reader is not self.engine:
            decides.append("split_special_tokens")
        return xxhash.xxh3_128(json.dumps(decides).encode()).hexdigest()

    def _rules(self) -> str:
        """Returns tokenizer.json. Unigram scores have nine digits: the library misreads the last of seventeen."""
        rules = str(self.engine.to_str())
        if not isinstance(self.engine.model, tokenizers.models.Unigram):
            return rules
        tree = json.loads(rules)
        tree["model"]["vocab"] = [[piece, float(f"{score:.9g}")] for piece, score in tree["model"]["vocab"]]
        return json.dumps(tree)

    @cached_property
    def _continues(self) -> NDArray[np.bool_]:
        model = state(self.engine.model)
        prefix = model.get("continuing_subword_prefix")
        starts = "Ġ" if self.engine.pre_tokenizer and "ByteLevel" in str(self.engine.pre_tokenizer) else "▁"
        table = np.zeros(self.vocab_size, np.bool_)
        for token, i in self._vocabulary.items():
            table[i] = token.startswith(prefix) if prefix else not token.startswith(starts)
        table[[*self.special_ids, *self.unused_ids]] = False
        if isinstance(self.engine.model, tokenizers.models.Unigram) and "unk" in self._special:
            table[self._special["unk"]] = True  # unknown characters alone: the mark of a space before them is known
        if self.format.word_end:
            table[:] = False  # such a vocabulary marks where a word ends, not where it continues
        return table

    @cached_property
    def _bulk(self) -> BulkEncoder:
        return BulkEncoder(self._reader)

    @cached_property
    def _reader(self) -> tokenizers.Tokenizer:
        """The tokenizer of the `tokenizers` library."""
        return spelled_out(self.engine) if self.settings.get("split_special_tokens") is True else self.engine

    def _segmented(self, texts: Sequence[str]) -> Sequence[str]:
        return [self._words(SURROGATES.sub("\ufffd", text))[0] for text in texts] if self._words else texts

    def tokenize(self, texts: Sequence[str]) -> list[Encoding]:
        """Returns the tokens of each text without special tokens, on all cores."""
        origins: list[NDArray[np.intp] | None] = [None] * len(texts)
        read = [SURROGATES.sub("\ufffd", text) for text in texts]
        if self._words:
            read, origins = map(list, zip(*map(self._words, read), strict=True)) if read else ([], [])
        with reading():
            encodings = self._reader.encode_batch(read, add_special_tokens=False)
        result = []
        for text, origin, encoding in zip(read, origins, encodings, strict=True):
            offsets = encoding.offsets
            if self._composes and not unicodedata.is_normalized("NFC", text):
                offsets = whole_characters(text, offsets)
            if origin is not None:
                offsets = [
                    (int(origin[start, 0]), int(origin[end - 1, 1] if end > start else origin[start, 0]))
                    for start, end in offsets
                ]
            result.append(Encoding.of_text(encoding.ids, encoding.tokens, offsets, encoding.word_ids))
        return result

    def _framed(self, a: Encoding, b: Encoding | None, overflow: int) -> Encoding:
        parts = [a] if b is None else [a, b]
        return framed(parts, self.frames[len(parts) - 1], self.id_to_token, overflow)


def _remade(engine: tokenizers.Tokenizer, settings: Any, format: Format, files: Any) -> Tokenizer:
    return Tokenizer(engine, settings=settings, format=format, files=files)


def _settings(path: Path) -> dict[str, Any]:
    settings = read_json(path) if path.exists() else {}
    if not isinstance(settings, dict):
        raise DataError(f"{path} contains a {type(settings).__name__}; an object of settings was expected.")
    return settings
