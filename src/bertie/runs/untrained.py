"""The start of a run from random weights: a preset, a vocabulary, and word vectors from a file.

Only presets of families that nobody pre-trains can be fine-tuned so (`Variant.random_rate`). The vocabulary is that of
a tokenizer, or is learned from the training texts; words that have a vector are added to it.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertie.console import console, counted
from bertie.errors import MissingFile, UsageError, model_hint
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.saving import save_model
from bertie.models.weights import WORD_EMBEDDINGS
from bertie.registry import Later
from bertie.runs.config import FinetuneConfig
from bertie.runs.layout import CONFIG
from bertie.runs.models import model_folder
from bertie.runs.pretraining import read_with
from bertie.text.normalize import Normalizer
from bertie.text.resize import add_tokens
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

Vectors = tuple[Sequence[str], NDArray[np.float32]]
READER = Later[Callable[[Path], Vectors]]("bertie.apps.packaged.word_vectors", "read_word_vectors")
VOCABULARY = 8_000
COMMON_WORDS = 50_000
"""Words at the start of a file of vectors that are in the vocabulary although the training texts lack them."""


def start_folder(config: FinetuneConfig, examples: Iterable[Example]) -> Path:
    """Returns the folder of the model that a run starts from; for such a preset, one that is made from the settings.

    Raises UsageError for settings of a preset with another model, or of LoRA with a preset.
    """
    random_ones = {name for _, one in families.VARIANTS.items() if one.random_rate for name in one.presets}
    folder = model_folder(config.model)
    if not folder.is_dir() and config.model not in random_ones and "/" not in config.model:
        raise MissingFile(f"{config.model} is not a folder.{model_hint(config.model, random_ones)}")
    if config.model not in random_ones or (folder / CONFIG).is_file():
        if config.tokenizer or config.vectors:
            raise UsageError(
                f"tokenizer and vectors are settings of lstm, gru, cnn and bag. {config.model} has its own."
            )
        return folder
    if config.lora.rank is not None or config.from_scratch:
        raise UsageError(f"lora and from_scratch are of pre-trained models. {config.model} starts from random weights.")
    place = Path(tempfile.mkdtemp(prefix="bertie-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    texts = [text for example in examples for text in example.texts]
    vectors = READER.found()(Path(config.vectors)) if config.vectors else None
    tokenizer = Tokenizer.load(model_folder(config.tokenizer)) if config.tokenizer else _vocabulary(texts, vectors)
    write_untrained(config.model, place / "model", tokenizer, vectors, seed=config.train.seed)
    return place / "model"


def write_untrained(
    preset: str,
    folder: Path,
    tokenizer: Tokenizer,
    vectors: Vectors | None,
    *,
    seed: int = 0,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Writes a model with random weights, but for the vectors of the words that have one. changes: of its config."""
    shape = families.config(preset)
    fields: dict[str, Any] = read_with(shape, tokenizer, said=families.family(preset).keys)
    if vectors is not None:
        width = vectors[1].shape[1]
        fields |= {"embedding_size": width} if shape.num_hidden_layers else {"hidden_size": width}
    model = families.build(preset, heads={}, seed=seed, **{**fields, **changes})
    if vectors is not None:
        count = _copy(vectors, tokenizer, model.get_parameter(WORD_EMBEDDINGS))
        console.say(f"{count:,} of {counted(tokenizer.vocab_size, 'token')} start from vectors of the file")
    save_model(model, folder, tokenizer=tokenizer)


def _copy(vectors: Vectors, tokenizer: Tokenizer, table: torch.Tensor) -> int:
    """Copies the vectors of tokens into their rows, and returns their number. The others get the same deviation."""
    places = {word: i for i, word in enumerate(vectors[0])}
    rows = [(i, places[token]) for i in range(tokenizer.vocab_size) if (token := tokenizer.id_to_token(i)) in places]
    with torch.no_grad():
        table *= float(vectors[1].std()) / float(table.std())
        table[[i for i, _ in rows]] = torch.from_numpy(vectors[1][[place for _, place in rows]])
    return len(rows)


def _vocabulary(texts: Sequence[str], vectors: Vectors | None) -> Tokenizer:
    """Returns a vocabulary of pieces of the texts, and of words that have a vector."""
    words = count_words(texts)
    lowercase = vectors is not None and all(word == word.lower() for word in vectors[0])
    tokenizer = train_vocabulary(words, size=VOCABULARY, normalizer=Normalizer(lowercase=lowercase), up_to=True)
    if vectors is None:
        return tokenizer
    forms = {word.lower() if lowercase else word for word in words.counts}
    return add_tokens(
        tokenizer, (word for i, word in enumerate(vectors[0]) if i < COMMON_WORDS or word in forms)
    ).tokenizer
