"""Heads, tokenizers, states and layers of a model are asked for by type, with a clear error where there is none."""

import numpy as np
import pytest
import torch

from batches import padded
from bertie.errors import UsageError
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.encoder import Encoder
from bertie.models.heads import HEADS
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.model import TorchModel
from bertie.nn.layer import Layer
from bertie.text.sequences import STANDS, UNSEEN, VECTORS, Sequences

NANO = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SEQUENCES = Sequences.of([[2, 7, 8, 3], [2, 9, 3]])


def nano() -> TorchModel:
    return families.build(
        families.config("bert-tiny", **NANO), heads=lambda config: {"mlm": HEADS["mlm"](config)}
    ).eval()


def test_a_head_is_of_its_kind() -> None:
    model = nano()
    assert model.head("mlm", VocabularyHead) is model.heads["mlm"]
    with pytest.raises(UsageError, match="no VocabularyHead named 'lm'; it has mlm"):
        model.head("lm", VocabularyHead)
    with pytest.raises(UsageError, match="it has none"):
        model.companion("generator", torch.nn.Module)


def test_a_model_that_reads_texts_needs_a_tokenizer() -> None:
    with pytest.raises(UsageError, match="has no tokenizer, so it cannot read text"):
        _ = nano().text_tokenizer


def test_the_states_of_all_layers_are_there_when_asked_for() -> None:
    model, batch = nano(), Batch.of(SEQUENCES)
    assert len(model.encode(batch, output_hidden_states=True).all_states) == 3
    with pytest.raises(ValueError, match="output_hidden_states=True"):
        _ = model.encode(batch).all_states


def test_layers_are_those_of_bert() -> None:
    assert [type(layer) for layer in nano().encoder.plain_layers()] == [Layer, Layer]
    with pytest.raises(UsageError, match="one as BERT's is needed"):
        list(Encoder(families.config("mobilebert-uncased", num_hidden_layers=1)).plain_layers())


def test_a_batch_is_made_of_sequences_once() -> None:
    batch = Batch.of(SEQUENCES.with_labels(label=np.array([1, 0])))
    assert batch.sequences is not None
    assert batch.packed.cu_seqlens.tolist() == [0, 4, 7]
    assert batch.labels["label"].tolist() == [1, 0]
    assert batch.sample_ids.tolist() == [0, 1]
    with pytest.raises(TypeError, match="padded"):
        _ = padded(batch).packed


def test_vectors_that_are_not_seen_are_part_of_the_features() -> None:
    stands, unseen = (np.array(rows, np.bool_) for rows in ([0, 1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0]))
    vectors = np.arange(14, dtype=np.float32).reshape(7, 2)
    extra = {VECTORS: vectors, STANDS: stands, UNSEEN: unseen}
    clean = Sequences(SEQUENCES.input_ids, SEQUENCES.token_type_ids, SEQUENCES.lengths, extra=extra)
    features = Batch.of(clean).features
    assert features is not None
    assert features.hidden is not None
    assert features.rows.tolist() == [1, 2, 5]
    assert features.hidden.tolist() == [False, True, False]
    assert features.vectors.tolist() == vectors[[1, 2, 5]].tolist()
    rows, tokens = clean.without_vectors()
    assert rows.tolist() == [0, 3, 4, 6]
    assert tokens.lengths.tolist() == [2, 2]
