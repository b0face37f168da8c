"""Pre-training, fine-tuning and filling masks read a text as its family does: <s> A </s></s> B </s>."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer

from bertie.errors import DataError
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models import families
from bertie.objectives.mlm import MaskedLM
from bertie.objectives.pair import NextSentence
from bertie.objectives.source import PretrainingSource, corrupted_texts
from bertie.runs.weights import load_model
from bertie.tasks.source import batch_of_examples, encode_examples
from bertie.text.tokenizer import Tokenizer

LINES = [f"the {animal} sat on the {place} and looked at the {thing} ." for animal in ("cat", "dog", "old hen")
         for place in ("mat", "wall", "chair") for thing in ("moon", "sea", "rain")]  # fmt: skip


def byte_tokenizer(folder: Path, family: str) -> Tokenizer:
    engine = ByteLevelBPETokenizer()
    special = {"roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "gpt2": ["<|endoftext|>"]}[family]
    engine.train_from_iterator(LINES, vocab_size=300, min_frequency=2, special_tokens=special)
    engine.save_model(str(folder))
    (folder / "config.json").write_text(f'{{"model_type": "{family}"}}')
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("roberta"), "roberta")


class Corpus:
    """Documents of three sentences as tokens."""

    folder = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        sentences = tokenizer.ids(LINES * 10)
        self.lengths = np.array([len(s) for s in sentences])
        self.tokens = np.concatenate([np.array(s, np.uint16) for s in sentences])
        self.fingerprint = str(len(self.tokens))

    def sentence_lengths(self):
        return self.lengths

    def document_bounds(self):
        return np.arange(0, len(self.lengths) + 1, 3)

    def span(self, start: int, stop: int):
        return self.tokens[start:stop]


@pytest.mark.parametrize("pairs", [False, True])
def test_pretraining_has_the_familys_special_tokens(tokenizer: Tokenizer, pairs: bool) -> None:
    objective = MaskedLM() + NextSentence() if pairs else MaskedLM()
    source = PretrainingSource(Corpus(tokenizer), tokenizer, objective, max_length=48, batch_size=8)
    (batch,) = source.batches(0)
    ids, targets = batch.input_ids.clone(), batch.labels["mlm_targets"]
    assert (ids == tokenizer.mask_id).sum() > 8
    ids[batch.labels["mlm_positions"]] = targets
    assert not (set(targets.tolist()) & (tokenizer.special_ids - {tokenizer.unk_id}))
    bounds = batch.layout.cu_seqlens.tolist()
    for start, end in pairwise(bounds):
        row = ids[start:end].tolist()
        assert len(row) <= 48
        assert row[0] == tokenizer.cls_id
        seps = [i for i, token in enumerate(row) if token == tokenizer.sep_id]
        assert seps[-1] == len(row) - 1
        assert len(seps) == (3 if pairs else 1)
        assert not pairs or seps[1] == seps[0] + 1
    assert not batch.token_type_ids.any()
    assert "</s>" in corrupted_texts(batch.sequences, objective, tokenizer)
    longest = int(batch.layout.lengths.max())
    assert longest > 40  # the space is used


@pytest.mark.parametrize("texts", [(LINES[0],), (LINES[0], LINES[1]), (LINES[0] * 5, LINES[1] * 7), (LINES[2] * 9,)])
def test_fine_tuning_reads_as_encode_does(tokenizer: Tokenizer, texts: tuple[str, ...]) -> None:
    encoded = encode_examples([Example(texts, None, 1)], tokenizer, max_length=40)
    expected = tokenizer.encode(*texts, max_length=40)
    batch = batch_of_examples(encoded, np.array([0]))
    assert batch.input_ids.tolist() == expected.ids
    assert batch.token_type_ids.tolist() == expected.type_ids
    windows = encode_examples([Example(texts, None, 1)], tokenizer, max_length=40, too_long="window")
    assert windows.lengths.max() <= 40


def test_a_mask_of_another_name_is_filled(tokenizer: Tokenizer) -> None:
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    shape = families.config("roberta-base", vocab_size=tokenizer.vocab_size, max_position_embeddings=66, **small)
    model = families.build(shape, heads=MaskedLM().heads, variant="roberta").eval()
    model.tokenizer = tokenizer
    with torch.no_grad():
        model.heads["mlm"].bias[tokenizer.token_to_id("Ġcat")] = 100.0
    (best, *_), = Predictor(model).fill_mask("the <mask> sat", top=2)  # fmt: skip
    assert (best.token, best.text) == ("Ġcat", "the cat sat")
    with torch.no_grad():
        model.heads["mlm"].bias[tokenizer.token_to_id("s")] = 200.0
    (best, *_), = Predictor(model).fill_mask("the cat <mask>at", top=2)  # fmt: skip
    assert best.text == "the cats" + "at"  # a token that continues the word before it
    with pytest.raises(DataError, match="<mask>"):
        Predictor(model).fill_mask("the [MASK] sat")


def test_a_tokenizer_without_a_mask_cannot_mask(tmp_path: Path) -> None:
    gpt2 = byte_tokenizer(tmp_path, "gpt2")
    source = PretrainingSource(Corpus(gpt2), gpt2, MaskedLM(), max_length=48, batch_size=8)
    with pytest.raises(DataError, match="no mask token"):
        source.batches(0)


def test_a_folder_as_published_opens_with_its_tokenizer(tmp_path: Path) -> None:
    """vocab.json and merges.txt next to the weights, no tokenizer.json."""
    from bertie.api.describe import info

    tokenizer = byte_tokenizer(tmp_path, "roberta")
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    shape = families.config("roberta-base", vocab_size=tokenizer.vocab_size, **small)
    families.build(shape, heads=MaskedLM().heads, variant="roberta").save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert model.tokenizer is not None
    assert model.tokenizer.fingerprint == tokenizer.fingerprint
    facts = info(tmp_path, length=64).to_dict()
    assert facts["tokenizer"]["special"]["<mask>"] == tokenizer.mask_id
    assert facts["parameters"]["total"] == sum(parameter.numel() for parameter in model.parameters())
