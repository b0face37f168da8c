"""Extends a tokenizer by the words of a domain, or trims it to the tokens of some texts.

Each result has for every new id the old ids whose mean initializes its row of a weight matrix (models/surgery.py).
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers

from bertie.console import counted
from bertie.errors import UsageError
from bertie.files import Json, JsonObject
from bertie.text.engine import reading, state
from bertie.text.tokenizer import Tokenizer

BONUS = 0.1  # nats by which a new Unigram token beats the tokens that it replaces
_CHUNK_TEXTS = 4096  # texts read at once


@dataclass(frozen=True)
class Resized:
    """A new tokenizer; rows: the old ids of each new id; left_out: words that were not added, with the reason."""

    tokenizer: Tokenizer
    rows: tuple[tuple[int, ...], ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def add_tokens(tokenizer: Tokenizer, words: Iterable[str]) -> Resized:
    """Returns a tokenizer with each of the words as one token, at the end of the vocabulary. Old ids do not change.

    A word that is one token already, or several words for this tokenizer, is skipped with the reason. In BPE, the
    intermediate merges become tokens too (chemo, chemother, chemotherapy), so other words with the same beginning may
    have other tokens.
    """
    tree = json.loads(tokenizer.engine.to_str())
    model = tree["model"]
    size = len(model["vocab"])
    if model["type"] == "Unigram" and tokenizer.vocab_size > size:
        raise UsageError(
            f"This vocabulary has {counted(tokenizer.vocab_size - size, 'added token')} after its {size:,} tokens, so "
            "it cannot be extended. Add your words as added tokens too, or start from the files without them."
        )
    rows = [(i,) for i in range(tokenizer.vocab_size)]
    known = set(tokenizer.engine.get_vocab())
    left_out: dict[str, str] = {}
    merges: dict[tuple[str, str], None] = {}
    for word in dict.fromkeys(words):
        parts = _parts(tokenizer, word)
        if len(parts) != 1:
            left_out[word] = f"is split into {len(parts)} words"
            continue
        old = [token.id for token in tokenizer.engine.model.tokenize(parts[0])]
        pieces = [tokenizer.id_to_token(i) for i in old]
        if model["type"] == "WordPiece" and len(parts[0]) > model["max_input_chars_per_word"]:
            left_out[word] = f"is longer than {model['max_input_chars_per_word']} characters"
        elif model["type"] == "BPE" and tokenizer.special_id("unk") in old and "unk" in tokenizer.special_tokens:
            left_out[word] = "has characters that are not in the vocabulary"
        elif parts[0] in known or (len(old) == 1 and old[0] != tokenizer.special_id("unk")):
            left_out[word] = "is a token already"
        elif model["type"] == "BPE":
            for end in range(2, len(pieces) + 1):
                before, after = "".join(pieces[: end - 1]), pieces[end - 1]
                merges.setdefault((before, after))
                if before + after not in known:
                    known.add(before + after)
                    model["vocab"][before + after] = len(rows)
                    rows.append(tuple(old[:end]))
        else:
            known.add(parts[0])
            if model["type"] == "WordPiece":
                model["vocab"][parts[0]] = len(rows)
            else:
                model["vocab"].append([parts[0], sum(model["vocab"][i][1] for i in old) + BONUS])
            rows.append(tuple(old))
    if merges:
        model["merges"] += [list(pair) for pair in merges if list(pair) not in model["merges"]]
    return Resized(_remade(tokenizer, tree), tuple(rows), left_out)


def trim_tokenizer(tokenizer: Tokenizer, texts: Iterable[str]) -> Resized:
    """Returns a tokenizer with the tokens of these texts, and the special tokens, in their old order.

    The tokens of these texts do not change, if the vocabulary knew all their words. Byte tokens are kept, so no text
    becomes unreadable.
    """
    tree = json.loads(tokenizer.engine.to_str())
    ids = {*tokenizer.special_ids, *(token["id"] for token in tree["added_tokens"])} | _bytes(tokenizer)
    left = iter(texts)
    while chunk := list(itertools.islice(left, _CHUNK_TEXTS)):
        ids.update(np.unique(tokenizer.flat_ids(chunk)[0]).tolist())
    if tree["model"]["type"] == "BPE":
        ids |= _steps(tree["model"], ids)
    order = sorted(ids)
    new = {old: i for i, old in enumerate(order)}
    _renumber(tree, new)
    return Resized(_remade(tokenizer, tree), tuple((old,) for old in order))


def _parts(tokenizer: Tokenizer, word: str) -> list[str]:
    """Returns the words that a text is split into before tokens."""
    engine = tokenizer.engine
    with reading():
        text = engine.normalizer.normalize_str(word) if engine.normalizer else word
        if isinstance(engine.pre_tokenizer, pre_tokenizers.ByteLevel) or "ByteLevel" in str(engine.pre_tokenizer):
            text = f" {text.strip()}"
        parts = engine.pre_tokenizer.pre_tokenize_str(text) if engine.pre_tokenizer else [(text, (0, 0))]
    return [part for part, _ in parts]


def _bytes(tokenizer: Tokenizer) -> set[int]:
    """Returns the tokens of one byte."""
    vocabulary = tokenizer.engine.get_vocab()
    model = state(tokenizer.engine.model)
    ids = {vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)} if model.get("byte_fallback") else set()
    if "ByteLevel" in str(tokenizer.engine.pre_tokenizer):
        ids |= {vocabulary.get(character) for character in pre_tokenizers.ByteLevel.alphabet()}
    return {i for i in ids if i is not None}


def _steps(model: Json, ids: set[int]) -> set[int]:
    """Returns the intermediate tokens that BPE needs for the kept ones."""
    ways: dict[str, list[tuple[str, str]]] = {}
    for left, right in model["merges"]:
        ways.setdefault(left + right, []).append((left, right))
    pieces = {i: piece for piece, i in model["vocab"].items()}
    parts: set[str] = set()
    left = [pieces[i] for i in ids if i in pieces]
    while left:
        piece = left.pop()
        if piece not in parts:
            parts.add(piece)
            left += [half for way in ways.get(piece, ()) for half in way]
    return {model["vocab"][piece] for piece in parts}


def _renumber(tree: JsonObject, new: Mapping[int, int]) -> None:
    """Removes all ids of a tokenizer.json that are not in `new`, and renumbers the others."""
    model = tree["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [row for i, row in enumerate(model["vocab"]) if i in new]
        model["unk_id"] = None if model["unk_id"] is None else new[model["unk_id"]]
    else:
        model["vocab"] = {piece: new[i] for piece, i in model["vocab"].items() if i in new}
    if model["type"] == "BPE":
        there = model["vocab"]
        model["merges"] = [[a, b] for a, b in model["merges"] if a in there and b in there and a + b in there]
    for token in tree["added_tokens"]:
        token["id"] = new[token["id"]]
    post = tree["post_processor"] or {}
    for part in post.get("processors", [post]):
        for token in part.get("special_tokens", {}).values():
            token["ids"] = [new[i] for i in token["ids"]]
        for role in ("sep", "cls"):
            if role in part:
                part[role][1] = new[part[role][1]]


def _remade(tokenizer: Tokenizer, tree: Mapping[str, object]) -> Tokenizer:
    """Returns the tokenizer with another tokenizer.json, without settings that contain old ids."""
    settings = {key: value for key, value in tokenizer.settings.items() if key != "added_tokens_decoder"}
    engine = tokenizers.Tokenizer.from_str(json.dumps(tree))
    return Tokenizer(engine, settings=settings, format=tokenizer.format)
