"""Vectors of the words of sentences by layer, computed once and kept in files.

    FOLDER/layer_0.npy, layer_1.npy ...  (W, H) float32, the words of all sentences in order

W words · S sentences · H hidden size
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bertie import Tokenizer
from bertie.apps.probe.pooling import NOT_A_WORD, pooled, words_of_tokens
from bertie.apps.probe.sentences import Sentence
from bertie.platform import Encoding, ModelInternals, TorchModel

_SENTENCES_PER_CALL = 1024  # sentences that are tokenized together


def readable_sentences(sentences: Sequence[Sentence], tokenizer: Tokenizer, max_length: int) -> list[bool]:
    """Returns which sentences fit into max_length tokens, with at least one token in each word."""
    readable: list[bool] = []
    for start in range(0, len(sentences), _SENTENCES_PER_CALL):
        some = sentences[start : start + _SENTENCES_PER_CALL]
        encodings = tokenizer.encode_batch([one.text for one in some], max_length=max_length)
        for sentence, encoding in zip(some, encodings, strict=True):
            words = {*words_of_tokens(encoding, sentence.spans).tolist()} - {NOT_A_WORD}
            readable.append(bool(words) and not encoding.overflow and len(words) == len(sentence.spans))
    return readable


def write_word_vectors(
    folder: Path,
    model: TorchModel,
    sentences: Sequence[Sentence],
    *,
    pooling: str = "mean",
    whole: bool = False,
) -> Path:
    """Writes the vectors of all words after every layer to a folder, unless it is there. sentences: `readable` ones.

    pooling: of the tokens of a word. whole: one vector per sentence instead, the mean of its words. The folder gets its
    name when it is complete.
    """
    if folder.exists():
        return folder
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    rows = len(sentences) if whole else sum(len(one.spans) for one in sentences)
    inside = ModelInternals(model)
    layers = inside.facts.layer_numbers()
    shape = (rows, model.config.hidden_size)
    files = {
        layer: open_memmap(temporary / f"layer_{layer}.npy", mode="w+", dtype=np.float32, shape=shape)
        for layer in layers
    }
    done = row = 0
    texts = (one.text for one in sentences)
    for chunk in inside.token_vectors(texts, layers):
        some = sentences[done : done + len(chunk.encodings)]
        done += len(some)
        words, counts = _words(chunk.encodings, some)
        for layer in layers:
            vectors = pooled(chunk.vectors[layer], words, pooling)
            if whole:
                vectors = pooled(vectors, np.repeat(np.arange(len(some)), counts))
            files[layer][row : row + len(vectors)] = vectors
        row += len(some) if whole else sum(counts)
    for file in files.values():
        file.flush()
    temporary.rename(folder)
    return folder


def _words(encodings: Sequence[Encoding | None], sentences: Sequence[Sentence]) -> tuple[NDArray[np.int64], list[int]]:
    """Returns the word of each token, counted over all sentences, and the number of words of each."""
    words, before = [], 0
    for encoding, sentence in zip(encodings, sentences, strict=True):
        assert encoding is not None, "every sentence is readable"
        numbers = words_of_tokens(encoding, sentence.spans)
        words.append(np.where(numbers == NOT_A_WORD, NOT_A_WORD, numbers + before))
        before += len(sentence.spans)
    return np.concatenate(words), [len(one.spans) for one in sentences]


def read_layer(folder: Path, layer: int) -> NDArray[np.float32]:
    """Returns the vectors of a layer. -> (W, H), or (S, H) for whole sentences"""
    vectors: NDArray[np.float32] = np.load(folder / f"layer_{layer}.npy")
    return vectors
