"""Vocabularies: counts the words of a stream in bounded memory, then trains a vocabulary with the `tokenizers` library.

The WordPiece trainer of the library merges the most frequent pair, which is BPE. Only the use of the vocabulary
(greedy, longest token first) is WordPiece. Published BERT vocabularies were probably trained by likelihood with a
program that was not released; text/likelihood.py does that from its description. The tokenizer records the algorithm
that was used (settings["bertie"]).
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from bertie.console import console, counted
from bertie.errors import NoRows, UnknownName, UsageError, nearest
from bertie.folders import FolderKind
from bertie.text import likelihood
from bertie.text.assemble import set_template
from bertie.text.engine import without_added_tokens
from bertie.text.formats import BERT_FORMAT, MERGES, TOKEN_ROLES, TOKENIZER_FILES, Algorithm, Format
from bertie.text.normalize import Normalizer
from bertie.text.sentences import SpacedWords
from bertie.text.tokenizer import Tokenizer

TRAINED_BY = {
    "wordpiece": "BPE merges by pair count (WordPieceTrainer); text is split greedily into the longest tokens",
    "wordpiece-likelihood": "WordPiece merges by likelihood; text is split greedily into the longest tokens",
    "bpe": "byte-level BPE merges by pair count; text is merged by rank",
    "character-bpe": "BPE merges of characters by pair count, with marked word ends; text is merged by rank",
    "unigram": "unigram language model by EM and pruning; text is split in the most probable way",
}
TOKENIZER_FOLDER = FolderKind(
    "tokenizer",
    begins=("tokenizer.json",),
    files=(*TOKENIZER_FILES, MERGES, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    use="bertie pretrain --tokenizer {} --corpus CORPUS -o RUN",
)
MAX_WORD = 100  # characters; longer words become [UNK] when read, as in BERT's release
MAX_FED = 200_000_000  # words the engine is fed; larger counts are scaled down. Some 50 s
END_OF_WORD = "</w>"
_LEFT_OUT_SHOWN = 20  # characters left out that are shown
COVERAGE = 0.9998  # share of character occurrences that get a piece of their own; sentencepiece: 0.9995


@dataclass
class WordCounts:
    """The frequency of each whitespace-separated word. `forgotten` counts dropped occurrences of rare words."""

    counts: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    words: int = 0
    forgotten: int = 0


def count_words(lines: Iterable[str], *, max_words: int = 3_000_000, word_splitter: str | None = None) -> WordCounts:
    """Counts the words of a stream of lines.

    Rare words are dropped when there are too many different words. Their counts can then be too low, and never too high
    (lossy counting, Manku and Motwani 2002).

    Args:
        lines: The lines.
        max_words: Maximum number of different words in memory (3 million need about 300 MB).
        word_splitter: Name of the splitter of words (WORD_SPLITTERS). None: at white space.
    """
    result = WordCounts()
    counts = result.counts
    split = SpacedWords(word_splitter) if word_splitter else None
    rare = 1
    for line in lines:
        words = (split(line)[0] if split else line).split()
        counts.update(words)
        result.lines += 1
        result.words += len(words)
        while len(counts) > max_words:
            dropped = [word for word, count in counts.items() if count <= rare]
            result.forgotten += sum(counts.pop(word) for word in dropped)
            rare += len(counts) > max_words * 3 // 4  # forgetting more at a time keeps this rare itself
    return result


def train_vocabulary(
    words: WordCounts,
    *,
    size: int = 30522,
    algorithm: Algorithm | None = None,
    family: Format = BERT_FORMAT,
    normalizer: Normalizer | None = None,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    unused: int = 0,
    word_splitter: str | None = None,
    up_to: bool = False,
) -> Tokenizer:
    """Trains a tokenizer.

    For BERT, the order of the vocabulary is [PAD], `unused` tokens, [UNK] [CLS] [SEP] [MASK], and the trained tokens.

    Args:
        words: The counts of `count_words`.
        size: Vocabulary size, including special tokens. A warning reports a corpus with too few words for it.
        algorithm: wordpiece, wordpiece-likelihood, bpe, character-bpe or unigram. None: that of the family.
        family: The tokenizer format of a family (text/formats.py).
        normalizer: Normalization of texts. None: that of the family.
        min_frequency: Minimum frequency of a token.
        limit_alphabet: Maximum number of single characters in the vocabulary. None: those of `alphabet_of`, at most a
            quarter of `size`; for unigram, as in sentencepiece, at least those of `covering`, whatever the size.
            Characters of the corpus that are left out are told.
        unused: Number of unused tokens.
        word_splitter: Splitter of `words`, with which the tokenizer then splits texts first.
        up_to: Whether a vocabulary below `size` is as expected, and needs no warning.

    Raises:
        DataError: There are no words.
        UsageError: `size` is too small for the alphabet.
    """
    algorithm = algorithm or family.algorithm
    check_algorithm(algorithm)
    as_published = algorithm == "bpe" == family.algorithm and normalizer is None
    normalizer = replace(normalizer or Normalizer(), chinese_chars=word_splitter is None)  # else, it finds their words
    engine, options = _engine(algorithm, None if as_published else normalizer, family)
    corpus = _pre_tokenize(words.counts, engine)
    if not corpus:
        raise NoRows("The corpus has no words to train a tokenizer on.")
    special = _special_tokens(family, unused)
    room = size - len(family.last)  # these follow when the pieces are learned
    alphabet = _alphabet(corpus, algorithm, limit_alphabet, (room - len(special)) // 4)
    spelled: dict[str, int] = {}
    if algorithm == "unigram" or (algorithm != "bpe" and limit_alphabet is None):
        # A word of each, doubled so that it is seen both at the start and inside, though the corpus may have none.
        spelled = _pre_tokenize(Counter(2 * character for character in alphabet), engine)
    readable = {word: count for word, count in corpus.items() if alphabet.issuperset(word)}
    known = {**spelled, **readable}
    letters = _letters(algorithm, alphabet, known)
    needed = len(special) + len(letters) + (algorithm == "unigram")  # whose trainer, without a piece more, never stops
    if needed > room:
        raise UsageError(
            f"A vocabulary of {size:,} tokens is too small for "
            f"{len(special) + len(family.last)} special tokens and {len(letters):,} tokens for "
            f"{len(alphabet):,} characters. Choose a --size of {needed + len(family.last):,} or more, "
            "or fewer characters with --limit-alphabet."
        )
    marks = "▁" if algorithm == "unigram" else ""  # instead of a space: of the text, but no character of it
    left_out = [] if algorithm == "bpe" else _left_out(corpus, alphabet, marks)
    scale = min(1.0, MAX_FED / max(1, sum(known.values())))
    if algorithm == "wordpiece-likelihood":
        count = room - len(special) - len(letters)
        pieces = likelihood.learn(known, pieces=letters, count=count, least=min_frequency)
        ids = {piece: i for i, piece in enumerate([*special, *letters, *pieces])}
        engine.model = models.WordPiece(ids, unk_token=family.special["unk"], max_input_chars_per_word=MAX_WORD)
    else:
        # Listed, letters have the same ids every time; else the engine numbers them in the order of a hash table, and
        # equally frequent pairs would merge in that order.
        listed = letters if algorithm in ("wordpiece", "character-bpe") else []
        options |= {"vocab_size": room, "special_tokens": special + listed, "show_progress": False}
        if algorithm == "unigram":
            known = {word: count for word, count in known.items() if count >= min_frequency or word in spelled}
        else:
            options["min_frequency"] = max(1, round(min_frequency * scale))
        engine = _learn(engine, options, algorithm, known, scale)
    engine = _finished(engine, family, normalizer, prefixed=algorithm == "bpe")
    facts = {
        "family": family.model_types[0],
        "algorithm": algorithm,
        "trained_by": f"{TRAINED_BY[algorithm]} (tokenizers {tokenizers.__version__})",
        "lines": words.lines,
        "words": words.words,
        "words_forgotten": words.forgotten,
        "distinct_words": len(corpus),
        "words_with_rare_characters": sum(corpus.values()) - sum(readable.values()),
        "characters": len(alphabet),
        "characters_left_out": len(left_out),
        "min_frequency": min_frequency,
        "counts_scaled_by": scale,
        "size_asked": size,
        **({"word_splitter": word_splitter, "package": SpacedWords(word_splitter).package} if word_splitter else {}),
    }
    tokenizer = Tokenizer(engine, settings={**_settings(family, as_published), "bertie": facts}, format=family)
    if tokenizer.vocab_size < size and not up_to:
        without = " without the characters left out" if left_out else ""
        console.warn(
            f"The vocabulary has {tokenizer.vocab_size:,} tokens instead of {size:,}: the corpus has only "
            f"{counted(len(readable), 'different word')}{without}, and a token must occur at least "
            f"{counted(min_frequency, 'time')}."
        )
    return tokenizer


def _special_tokens(family: Format, unused: int) -> list[str]:
    """Returns the tokens at the start of a vocabulary: special ones, and unused ones where the family has them."""
    before = len(family.start) if family.free_after is None else family.free_after
    return [*family.start[:before], *(f"[unused{n}]" for n in range(1, unused + 1)), *family.start[before:]]


def _alphabet(words: dict[str, int], algorithm: Algorithm, limit: int | None, most: int) -> set[str]:
    """Returns the single characters for the vocabulary. limit: as `limit_alphabet` of `train`; most: without it."""
    if algorithm == "bpe":
        return set(pre_tokenizers.ByteLevel.alphabet())
    if limit is not None:
        return set(_ranked(words)[0][:limit])
    return set(alphabet_of(words)[:most]) | (set(covering_characters(words)) if algorithm == "unigram" else set())


def _letters(algorithm: Algorithm, alphabet: set[str], words: Iterable[str]) -> list[str]:
    """Returns the tokens of single characters: also those inside a word, or at its end, as the algorithm marks them."""
    if algorithm.startswith("wordpiece"):
        return sorted(alphabet) + sorted({f"##{character}" for word in words for character in word[1:]})
    if algorithm == "character-bpe":
        return sorted(alphabet) + sorted({f"{word[-1]}{END_OF_WORD}" for word in words})
    return sorted(alphabet)


def _settings(family: Format, as_published: bool) -> dict[str, object]:
    """Returns tokenizer_config.json: the special tokens, and the class that reads the tokenizer in transformers."""
    settings: dict[str, object] = {
        f"{role}_token": family.special[role] for role in TOKEN_ROLES if role in family.special
    }
    if as_published:
        settings |= {"tokenizer_class": family.classes[0], "add_prefix_space": True}
    elif (
        family is not BERT_FORMAT
    ):  # their classes would make the family's published rules of it; this one reads our file
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    return settings


def check_algorithm(name: str) -> None:
    """Raises UsageError for an unknown algorithm."""
    if name not in TRAINED_BY:
        raise UnknownName(f"Unknown algorithm {name!r}. {nearest(name, TRAINED_BY)}")


def _left_out(words: dict[str, int], alphabet: set[str], marks: str) -> list[str]:
    """Returns the characters of the corpus without a token, the most frequent first, and says how many and which."""
    ranked, counts = _ranked(words)
    lacking = [character for character in ranked if character not in alphabet]
    if lacking:
        share = sum(counts[character] for character in lacking) / counts.total()
        advice = (
            f"The vocabulary leaves out {counted(len(lacking), 'character')} of {len(set(ranked) - {*marks}):,}, "
            "unknown "
            f"when read ({100 * share:.2g}% of the text): {' '.join(lacking[:_LEFT_OUT_SHOWN])}"
            f"{' ...' * (len(lacking) > _LEFT_OUT_SHOWN)}"
        )
        if share > 1 - COVERAGE:  # more than what is rare
            console.warn(f"A larger --size or --limit-alphabet keeps more characters. {advice}")
        else:
            console.say(advice)
    return lacking


def covering_characters(words: dict[str, int]) -> list[str]:
    """Returns the fewest characters that cover COVERAGE of all occurrences, the most frequent first."""
    ranked, counts = _ranked(words)
    target, covered, count = COVERAGE * counts.total(), 0, 0
    while count < len(ranked) and covered < target:
        covered += counts[ranked[count]]
        count += 1
    return ranked[:count]


def alphabet_of(words: dict[str, int]) -> list[str]:
    """Returns the characters for the vocabulary, the most important first.

    These are the characters of `covering`, then printable ASCII. In Korean text, the jamo
    (ㅋㅋ) and the 2,350 syllables of KS X 1001 follow, which may be missing in an encyclopedia. Chinese characters in
    Korean text are last: they are many, and occur in parentheses.
    """
    counts = _ranked(words)[1]
    first = covering_characters(words)
    basic = [chr(code) for code in range(0x21, 0x7F)]
    last: list[str] = []
    if any(_is_hangul(c) for c in first):
        basic += [chr(code) for code in range(0x3131, 0x3164)]
        basic += [chr(code) for code in range(0xAC00, 0xD7A4) if _in_ks_x_1001(chr(code))]
        chinese = [c for c in first if "一" <= c <= "鿿"]
        if sum(counts[c] for c in first if _is_hangul(c)) > sum(counts[c] for c in chinese):
            first, last = [c for c in first if c not in set(chinese)], chinese
    known = {*first, *last}
    return first + sorted((c for c in basic if c not in known), key=lambda c: (-counts[c], c)) + last


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"


def _in_ks_x_1001(syllable: str) -> bool:
    return len(syllable.encode("euc_kr")) == 2  # the others are spelled out in 8 bytes


def _ranked(words: dict[str, int]) -> tuple[list[str], Counter[str]]:
    """Returns characters by decreasing frequency, ties by code point, whatever the order of the words."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return sorted(counts, key=lambda c: (-counts[c], c)), counts


def _engine(
    algorithm: Algorithm, normalizer: Normalizer | None, family: Format
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Returns an untrained tokenizer with the rules of an algorithm, and the arguments of its trainer."""
    unk = family.special.get("unk", "")
    options: dict[str, object] = {}
    if algorithm.startswith("wordpiece"):
        engine = tokenizers.Tokenizer(models.WordPiece(unk_token=unk, max_input_chars_per_word=MAX_WORD))
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(prefix="##")
    elif algorithm == "bpe":
        engine = tokenizers.Tokenizer(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        engine.post_processor = processors.ByteLevel(trim_offsets=True)
        engine.decoder = decoders.ByteLevel()
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    elif algorithm == "character-bpe":
        engine = tokenizers.Tokenizer(models.BPE(unk_token=unk, end_of_word_suffix=END_OF_WORD))
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
        options["end_of_word_suffix"] = END_OF_WORD
    else:
        engine = tokenizers.Tokenizer(models.Unigram())
        engine.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
        )
        engine.decoder = decoders.Metaspace(prepend_scheme="always")
        options["unk_token"] = unk
    if normalizer is not None:
        engine.normalizer = normalizer.engine()
    return engine, options


def _pre_tokenize(counts: Counter[str], engine: tokenizers.Tokenizer) -> dict[str, int]:
    """Returns the counts of normalized words, split at punctuation, without those longer than MAX_WORD."""
    normalize = engine.normalizer.normalize_str if engine.normalizer else str
    split = engine.pre_tokenizer.pre_tokenize_str
    whole_words = isinstance(engine.pre_tokenizer, pre_tokenizers.BertPreTokenizer)  # splits at no letter or digit
    result: Counter[str] = Counter()
    for chunk, count in counts.items():
        if len(chunk) > 20 * MAX_WORD:
            continue  # no word of any language: a row of dashes, base64
        text = normalize(chunk)
        if whole_words and text.isalnum():
            result[text] += count * (len(text) <= MAX_WORD)
            continue
        for word, _ in split(text):
            result[word] += count * (len(word) <= MAX_WORD)
    return dict(sorted((+result).items()))  # the order must not depend on the order of the corpus


def _learn(
    engine: tokenizers.Tokenizer, options: dict[str, object], algorithm: Algorithm, words: dict[str, int], scale: float
) -> tokenizers.Tokenizer:
    """Trains on words that are split already."""
    trainer_of = {
        "wordpiece": trainers.WordPieceTrainer,
        "bpe": trainers.BpeTrainer,
        "character-bpe": trainers.BpeTrainer,
        "unigram": trainers.UnigramTrainer,
    }
    normalizer, pre_tokenizer, post_processor = engine.normalizer, engine.pre_tokenizer, engine.post_processor
    # The words are normalized and split already; the engine only has to find the spaces between them.
    engine.normalizer, engine.pre_tokenizer = None, pre_tokenizers.WhitespaceSplit()
    engine.train_from_iterator(_repeated(words, scale), trainer_of[algorithm](**options))
    engine = without_added_tokens(engine)
    if algorithm == "unigram":
        engine = _settled(engine)
    engine.normalizer, engine.pre_tokenizer = normalizer, pre_tokenizer
    if post_processor:
        engine.post_processor = post_processor
    return engine


def _settled(engine: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Returns a Unigram tokenizer with scores of seven digits, as sentencepiece stores them, and ties in order of text.

    The trainer adds up in the order of a hash table: the last digits of its scores, and thereby ids, differ every time.
    """
    tree = json.loads(engine.to_str())
    pieces = [[piece, float(f"{score:.7g}")] for piece, score in tree["model"]["vocab"]]
    pieces.sort(key=lambda row: (-row[1], row[0] if row[1] else ""))  # special tokens, of score 0, stay first
    tree["model"]["vocab"] = pieces
    return tokenizers.Tokenizer.from_str(json.dumps(tree))


def _finished(
    engine: tokenizers.Tokenizer, family: Format, normalizer: Normalizer, *, prefixed: bool
) -> tokenizers.Tokenizer:
    """Adds the family's last tokens and its template. Unused tokens are ordinary tokens, as in google-research/bert."""
    tree = json.loads(engine.to_str())
    pieces = tree["model"]["vocab"]
    for token in family.last:
        if isinstance(pieces, list):
            pieces.append([token, 0.0])
        else:
            pieces[token] = len(pieces)
    engine = tokenizers.Tokenizer.from_str(json.dumps(tree))
    mask = family.special.get("mask") if family is not BERT_FORMAT and family.eager_mask else None
    engine.add_special_tokens(
        [AddedToken(t, lstrip=t == mask, normalized=False, special=True) for t in (*family.start, *family.last)]
    )
    set_template(engine, {"add_prefix_space": prefixed}, family)
    if isinstance(pieces, list):  # unigram, which learns from ideographs as words, writes texts without spaces there
        engine.normalizer = replace(normalizer, chinese_chars=False).engine()
    return engine


def _repeated(words: dict[str, int], scale: float, at_once: int = 4096) -> Iterator[str]:
    """Yields every word as often as it was counted, many in one string, since the trainers accept no counts."""
    for word, count in words.items():
        left = count if scale == 1 else round(count * scale)
        while left > 0:
            yield " ".join([word] * min(left, at_once))
            left -= at_once
