"""Tokenizers of the `tokenizers` library: built from a published vocabulary, read from a file, checked, described.

Such a tokenizer has the normalizer, the pre-tokenizer, the model and the decoder. Files may be damaged or hostile, so
every failure of the library, including its panics, becomes a DataError with the name of the file.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, overload

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertie.errors import BadFile, DataError
from bertie.files import parse_json, read_small
from bertie.text.normalize import Normalizer
from bertie.text.sentencepiece import check_charsmap

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FILE_CLASS = "PreTrainedTokenizerFast"  # of `transformers`: reads tokenizer.json as it is
MAX_FILE_BYTES = 128 << 20  # the largest published tokenizer.json is some 60 MB
MAX_GROWTH = 10_000  # bytes for one character; published rules write a few, and each reads what the one before wrote
MAX_PIECES = 2_000_000  # the largest published vocabulary has 901,629: XLM-V


def read_vocabulary(path: Path) -> dict[str, int]:
    """Reads vocab.txt: one token per line, its id the line number from 0. Raises DataError for non-UTF-8 or large
    files."""
    try:
        text = read_small(path, most=MAX_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} is not UTF-8 text ({error}).") from None
    if (pieces := text.count("\n")) > MAX_PIECES:
        raise DataError(
            f"{path} has {pieces:,} lines, more than the maximum of {MAX_PIECES:,} for a "
            "vocabulary. Check that it is the right file."
        )
    if not text.strip():
        raise DataError(
            f"{path} is empty. Copy it again from its source, or delete it if the folder has a tokenizer.json."
        )
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return {line: number for number, line in enumerate(lines)}


def bert_engine(vocabulary: dict[str, int], settings: Mapping[str, Any], source: Path | str) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a published BERT vocabulary: exactly BERT's normalization, and greedy WordPiece.

    Without a setting `do_lower_case`, a vocabulary with a capital letter is cased.
    """
    flags = {name: settings.get(name) for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars")}
    for name, value in flags.items():
        if value not in (True, False, None):
            raise DataError(f"{name} is {value!r} in the tokenizer_config.json of {source}; it must be true or false.")
    lowercase = flags["do_lower_case"]
    if lowercase is None:
        lowercase = not any(piece != piece.lower() for piece in vocabulary if not piece.startswith("["))
    chinese_chars = flags["tokenize_chinese_chars"] is not False
    normalizer = Normalizer(lowercase, flags["strip_accents"], chinese_chars, nfc=False)
    special = [special_token(settings, name) for name in SPECIAL_TOKENS]
    return wordpiece_engine(vocabulary, normalizer, special)


def wordpiece_engine(
    vocabulary: dict[str, int], normalizer: Normalizer, special: Sequence[str]
) -> tokenizers.Tokenizer:
    """Returns a WordPiece tokenizer as `transformers` builds it; `special` are the pad, unk, cls, sep and mask
    tokens."""
    _, unk, cls, sep, _ = special
    engine = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unk, max_input_chars_per_word=100))
    engine.normalizer = normalizer.engine()
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    return with_special_tokens(engine, [token for token in special if token in vocabulary], cls, sep)


def with_special_tokens(
    engine: tokenizers.Tokenizer, special: Sequence[str], cls: str, sep: str
) -> tokenizers.Tokenizer:
    """Marks the special tokens, and writes BERT's layout of one and two texts for other programs."""
    engine.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in special])
    if cls in special and sep in special:
        template = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(cls, engine.token_to_id(cls)), (sep, engine.token_to_id(sep))],
        )
        inner = engine.post_processor
        engine.post_processor = processors.Sequence([inner, template]) if inner else template
    return engine


def read_engine(path: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a tokenizer.json. Raises DataError when it is damaged, too large or not a tokenizer."""
    data = read_small(path, most=MAX_FILE_BYTES)
    tree = parse_json(data, path)  # refuses what is no JSON or nested too deep, before the engine sees it
    with guarded(path):
        for charsmap in _charsmaps(tree.get("normalizer")):
            check_charsmap(base64.b64decode(charsmap, validate=True))
        if (growth := prod(_growths(tree))) > MAX_GROWTH:
            raise ValueError(f"its rules can make a text {growth:,.0e} times as long")
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))


def _growths(part: object) -> Iterator[int]:
    """Yields how many bytes the replacements in a tokenizer.json write for one character, one after another."""
    if isinstance(part, dict):
        if part.get("type") == "Replace":
            yield max(1, len(str(part.get("content", "")).encode("utf-8", "replace")))
        for name in ("normalizer", "normalizers", "decoder", "decoders"):
            inner = part.get(name) or ()
            for one in inner if isinstance(inner, list) else [inner]:
                yield from _growths(one)


def make_lowercase(engine: tokenizers.Tokenizer) -> bool:
    """Makes letters lowercase before all else. Returns False for an engine that does so anyway, and leaves it."""
    inner = engine.normalizer
    kinds = json.dumps(state(inner)) if inner else ""
    if '"Lowercase"' in kinds or '"lowercase": true' in kinds:
        return False
    small = normalizers.Lowercase()
    engine.normalizer = normalizers.Sequence([small, inner]) if inner else small
    return True


def _charsmaps(normalizer: object) -> Iterator[str]:
    """Yields the compiled rules in a normalizer of tokenizer.json."""
    if isinstance(normalizer, dict):
        if normalizer.get("type") == "Precompiled":
            yield normalizer["precompiled_charsmap"]
        for inner in normalizer.get("normalizers") or ():
            yield from _charsmaps(inner)


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Context that turns errors of the library about a file into a DataError with its name."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        raise DataError(f"{path} is not a valid tokenizer file ({error}).") from None


@contextmanager
def reading() -> Iterator[None]:
    """Context that turns a panic of the library over a text into a DataError.

    A regular expression of a tokenizer.json may need more steps for some text than the library takes.
    """
    try:
        yield
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise BadFile(
            f"The tokenizer cannot read a text ({error}). A regular expression in its tokenizer.json is damaged or "
            "hostile. Use another model, or leave the text out."
        ) from None


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"  # of Rust, and no Exception


def check_same(vocabulary: dict[str, int], engine: tokenizers.Tokenizer, folder: Path) -> None:
    """Raises DataError unless vocab.txt agrees with tokenizer.json. Tokens added later may be only in
    tokenizer.json."""
    ids = engine.get_vocab()
    for piece, i in vocabulary.items():
        if ids.get(piece) != i:
            other = f"has id {ids[piece]}" if piece in ids else "is missing"
            raise DataError(
                f"The vocab.txt and tokenizer.json in {folder} disagree: {piece!r} is on line {i + 1} of "
                f"vocab.txt (id {i}) and {other} in tokenizer.json. They belong to two tokenizers. Remove the "
                "wrong file."
            )


@overload
def special_token(settings: Mapping[str, object], name: str) -> str: ...
@overload
def special_token(settings: Mapping[str, object], name: str, default: str) -> str: ...
@overload
def special_token(settings: Mapping[str, object], name: str, default: str | None) -> str | None: ...
def special_token(settings: Mapping[str, object], name: str, default: str | None = "") -> str | None:
    """Returns the pad, unk, cls ... token in tokenizer_config.json; otherwise `default` or BERT's name."""
    value = settings.get(f"{name}_token")
    if isinstance(value, dict):  # as transformers writes added tokens
        value = value.get("content")
    if isinstance(value, str):
        return value
    return SPECIAL_TOKENS[name] if default == "" else default


def public_settings(engine: tokenizers.Tokenizer) -> dict[str, object]:
    """Returns tokenizer_config.json for `transformers`.

    Its BertTokenizer always builds BERT's own normalization, so a tokenizer that composes (NFC) names the class that
    reads tokenizer.json. The settings also keep BertTokenizer from breaking Hangul.
    """
    parts = state(engine.normalizer) if engine.normalizer else {}
    bert: dict[str, object] = next(
        (p for p in parts.get("normalizers", [parts]) if p.get("type") == "BertNormalizer"), {}
    )
    plain = bert is parts and isinstance(engine.model, models.WordPiece)
    return {
        "tokenizer_class": "BertTokenizer" if plain else FILE_CLASS,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "do_lower_case": bert.get("lowercase", False),
        "strip_accents": bert.get("strip_accents") if plain else False,
        "tokenize_chinese_chars": bert.get("handle_chinese_chars", False),
    }


def state(part: Any) -> dict[str, Any]:
    """Returns the settings of a part of the tokenizer, as in tokenizer.json."""
    fields: dict[str, Any] = json.loads(part.__getstate__())
    return fields


def without_added_tokens(engine: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Returns a copy without special tokens, which only uses the tokens of the vocabulary."""
    tree = json.loads(engine.to_str())
    return tokenizers.Tokenizer.from_str(json.dumps({**tree, "added_tokens": [], "post_processor": None}))


def spelled_out(engine: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Returns a copy that splits special tokens in a text into ordinary tokens. Other added words do not change.

    Only a Unigram vocabulary could choose the special tokens anyway, so they get names that no text contains.
    """
    tree: dict[str, Any] = json.loads(engine.to_str())
    if tree["model"]["type"] == "Unigram":
        special = {token["content"] for token in tree["added_tokens"] if token["special"]}
        tokens = [token for i, token in enumerate(tree["model"]["vocab"]) if i != tree["model"]["unk_id"]]
        for piece in tokens:
            if piece[0] in special:
                piece[0] = f"\U0010fffe{piece[0]}"
        renamed = {piece[0] for piece in tokens}
        for token in tree["added_tokens"]:
            if f"\U0010fffe{token['content']}" in renamed:
                token["content"] = f"\U0010fffe{token['content']}"
    copy = tokenizers.Tokenizer.from_str(json.dumps({**tree, "post_processor": None}))
    copy.encode_special_tokens = True
    return copy
