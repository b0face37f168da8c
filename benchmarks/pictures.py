"""How often a model finds a masked word of a caption with the caption's own picture, with another, and with none.

    python -m benchmarks.pictures RUN/model pictures.jsonl --features image --rows 500 --words red,blue patch_size=8

Each of the words is masked alone, wherever it occurs. The rows must be others than those of the training.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from bertie.console import console
from bertie.errors import UsageError
from bertie.metrics.base import wilson
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.model import TorchModel
from bertie.objectives import ImageTextMatching
from bertie.objectives.captions import CaptionSource
from bertie.runs.models import model_folder
from bertie.runs.run_data import read_captions
from bertie.settings import load_config
from bertie.text.sequences import Int
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import FeatureConfig

BATCH = 64  # rows of a forward pass


def found(model: TorchModel, source: CaptionSource, words: Int, rows: Int, pictures: Int | None) -> tuple[int, int]:
    """Returns how many masked words are predicted, and how many there are. pictures: whose each row gets."""
    head, mask, right, total = model.heads["mlm"], source.tokenizer.mask_id, 0, 0
    assert isinstance(head, VocabularyHead)
    for start in range(0, len(rows), BATCH):
        part = slice(start, start + BATCH)
        ids = source.ids(rows[part], None if pictures is None else pictures[part])
        at = np.flatnonzero(np.isin(ids.input_ids, words))
        sequence = np.searchsorted(ids.starts, at, "right") - 1
        asked = ids.take(sequence)  # each sequence once for each of its words
        places = asked.starts[:-1] + at - ids.starts[sequence]
        targets = asked.input_ids[places]
        asked.input_ids[places] = mask
        with torch.inference_mode():
            hidden = model.encode(Batch.of(asked)).last_hidden_state[torch.from_numpy(places)]
            best = head.logits(hidden, model.word_embeddings).argmax(-1).numpy()
        right, total = right + int((best == targets).sum()), total + len(targets)
    return right, total


def token(word: str, tokenizer: Tokenizer) -> int:
    """Returns the id of a word. Raises UsageError for one that is not a single token."""
    (ids,) = tokenizer.ids([word])
    if len(ids) != 1 or ids[0] == tokenizer.special_id("unk"):
        raise UsageError(f"{word!r} is not one token of the vocabulary, so it cannot be masked alone. Omit it.")
    return ids[0]


def main() -> None:
    """Prints a line of JSON for each kind of picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--features", required=True, help="column of the pictures")
    parser.add_argument("--rows", type=int, default=500, help="rows that are read, from the first")
    parser.add_argument("--words", required=True, help="words to mask, by commas")
    parser.add_argument("settings", nargs="*", help="of features, as in training: patch_size=8")
    args = parser.parse_intermixed_args()
    folder = model_folder(args.model)
    model, tokenizer = families.load(folder)[0], Tokenizer.load(folder)
    features = load_config(FeatureConfig, None, args.settings, column=args.features)
    captions = read_captions(args.table, features, tokenizer)
    for note in captions.notes:
        console.warn(note)
    source = CaptionSource(captions, tokenizer, ImageTextMatching(), batch_size=1)
    rows = np.arange(min(args.rows, len(captions)))
    words = np.array([token(word, tokenizer) for word in args.words.split(",")])
    for name, pictures in (("own", rows), ("another", np.roll(rows, 1)), ("none", None)):
        right, total = found(model, source, words, rows, pictures)
        if not total:
            raise UsageError(f"{args.table} has none of the words {args.words} in its first {len(rows):,} rows.")
        low, high = wilson(right, total)
        print(json.dumps({"picture": name, "words": total, "found": round(right / total, 4), "interval": [low, high]}))


if __name__ == "__main__":
    main()
