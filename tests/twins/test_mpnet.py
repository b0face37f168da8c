"""MPNet against `transformers`."""

from pathlib import Path
from typing import Any

import parity
import pytest
import transformers

from bertie.families.mpnet import MPNET
from bertie.text.tokenizer import Tokenizer


def tiny(**changes: Any) -> transformers.MPNetConfig:
    return transformers.MPNetConfig(**{**parity.TINY, "max_position_embeddings": 40, **changes})


@pytest.mark.parametrize("architecture", MPNET.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path)


def test_far_distances_and_fewer_buckets(tmp_path: Path) -> None:
    """Long enough for buckets that several distances share. Theirs counts 32 whatever their config says."""
    parity.check("MPNetForMaskedLM", tiny(max_position_embeddings=300), tmp_path, lengths=(290, 3))


def test_the_published_size() -> None:
    assert round(parity.parameters("mpnet-base") / 1e6, 1) == 108.9


def test_tokens_of_a_vocabulary_alone(tmp_path: Path) -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "the", "tide", "##s", ",", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.MPNetTokenizer.from_pretrained(tmp_path)
    texts = ["The tides, the", "a <mask> tide", ""]
    assert [one.ids for one in ours.encode_batch(texts)] == theirs(texts)["input_ids"]
    pairs = [(text, "tide") for text in texts]
    assert [one.ids for one in ours.encode_batch(pairs)] == theirs(texts, ["tide"] * 3)["input_ids"]
    ours.save(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again(texts)["input_ids"] == theirs(texts)["input_ids"]
