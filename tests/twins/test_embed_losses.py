"""The losses of sentence embeddings are those of `sentence-transformers`, with their gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertie.io.tables import Example
from bertie.tasks.embed import EmbedTask
from bertie.tasks.source import Targets, batch_of_examples
from bertie.text.sequences import Sequences

WIDTH, ROWS = 16, 12
losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")


class Nothing(nn.Module):
    """A model that is not called."""


def rows(form: str) -> list[Example]:
    rng = np.random.default_rng(1)
    if form == "scored":
        return [Example((f"a{i}", f"b{i}"), float(rng.integers(0, 6)) / 5) for i in range(ROWS)]
    if form == "labeled":
        return [Example((f"a{i}",), "xyz"[i % 3]) for i in range(ROWS)]
    texts = [(f"a{i}", f"b{i}", f"c{i}", f"d{i}") for i in range(ROWS)]
    if form == "judged":
        return [Example(one, tuple(rng.normal(size=3).tolist())) for one in texts]
    return [Example(one[: 2 if form == "pairs" else 4], 1.0, group=one) for one in texts]


def ours(task: EmbedTask, examples: list[Example], vectors: Tensor) -> Tensor:
    """Returns the loss of a step, divided as `fit` divides."""
    sequences = Sequences.of([[1]] * len(vectors)).grouped([len(one.texts) for one in examples])
    targets: Targets = task.targets(examples, sequences)
    batch = batch_of_examples(sequences, np.arange(len(vectors)), targets)
    (term,) = task.losses(vectors, batch).values()
    assert term.count == sum(task.counts(batch).values())
    return term.total / term.count


def theirs(loss: Any, examples: list[Example], vectors: Tensor) -> Tensor:
    columns = [vectors[i :: len(examples[0].texts)] for i in range(len(examples[0].texts))]
    labels = [one.label for one in examples]
    if isinstance(labels[0], str):
        labels = ["xyz".index(label) for label in labels]
    found: Tensor = loss.compute_loss_from_embeddings(columns, torch.tensor(labels))
    return found


CASES: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
    ("scored", {"loss_kind": "cosine"}, lambda: losses.CosineSimilarityLoss(Nothing())),
    ("scored", {"loss_kind": "cosent", "scale": 7.0}, lambda: losses.CoSENTLoss(Nothing(), scale=7.0)),
    ("pairs", {"loss_kind": "in_batch_negatives"}, lambda: losses.MultipleNegativesRankingLoss(Nothing())),
    ("triples", {"loss_kind": "in_batch_negatives"}, lambda: losses.MultipleNegativesRankingLoss(Nothing())),
    (
        "triples",
        {"loss_kind": "in_batch_negatives", "symmetric": True},
        lambda: losses.MultipleNegativesRankingLoss(
            Nothing(), directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
        ),
    ),
    ("judged", {"loss_kind": "margin_mse"}, lambda: losses.MarginMSELoss(Nothing())),
    ("judged", {"loss_kind": "kl", "temperature": 2.0}, lambda: losses.DistillKLDivLoss(Nothing(), temperature=2.0)),
    ("labeled", {"loss_kind": "triplet"}, lambda: losses.BatchHardTripletLoss(Nothing())),
    ("labeled", {"loss_kind": "triplet", "margin": 0.3}, lambda: losses.BatchHardTripletLoss(Nothing(), margin=0.3)),
]


@pytest.mark.parametrize(("form", "options", "loss"), CASES, ids=[f"{form}-{o['loss_kind']}" for form, o, _ in CASES])
def test_losses_and_gradients(form: str, options: dict[str, Any], loss: Callable[[], Any]) -> None:
    examples = rows(form)
    torch.manual_seed(0)
    vectors = torch.randn(sum(len(one.texts) for one in examples), WIDTH, dtype=torch.float64)
    mine, other = vectors.clone().requires_grad_(), vectors.clone().requires_grad_()
    own, expected = ours(EmbedTask(**options), examples, mine), theirs(loss(), examples, other)
    torch.testing.assert_close(own, expected.to(own.dtype), rtol=1e-6, atol=1e-8)
    own.backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-8)


def test_triplets_and_contrastive_pairs() -> None:
    torch.manual_seed(0)
    triples = [Example(one.texts[:3], 1.0, group=one.texts) for one in rows("triples")]
    vectors = torch.randn(3 * ROWS, WIDTH, dtype=torch.float64)
    task = EmbedTask(loss_kind="triplet", margin=1.0)
    expected = theirs(losses.TripletLoss(Nothing(), triplet_margin=1.0), triples, vectors)
    torch.testing.assert_close(ours(task, triples, vectors), expected, rtol=1e-6, atol=1e-8)
    pairs = [Example(one.texts, float(one.label >= 0.5)) for one in rows("scored")]
    vectors = vectors[: 2 * ROWS]
    expected = theirs(losses.ContrastiveLoss(Nothing()), pairs, vectors)
    torch.testing.assert_close(ours(EmbedTask(loss_kind="contrastive"), pairs, vectors), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("form", ["scored", "triples"])
def test_the_first_numbers_are_learned_too(form: str) -> None:
    """Matryoshka: the sum of the losses of vectors that are cut."""
    torch.manual_seed(0)
    examples = rows(form)
    vectors = torch.randn(sum(len(one.texts) for one in examples), WIDTH)
    kind = "cosent" if form == "scored" else "in_batch_negatives"
    parts = [ours(EmbedTask(loss_kind=kind), examples, vectors[:, :width]) for width in (WIDTH, 8, 4)]
    whole = ours(EmbedTask(loss_kind=kind, matryoshka=(8, 4)), examples, vectors)
    torch.testing.assert_close(whole, torch.stack(parts).sum())


def test_texts_that_are_no_negatives_are_left_out() -> None:
    """The same text again, another positive of the same anchor, and what the guide takes for nearer."""
    examples = [
        Example(("a", "p"), 1.0, group=1),
        Example(("b", "p"), 1.0, group=2),  # has the same positive text
        Example(("a", "q"), 1.0, group=3),  # has the same anchor
        Example(("c", "r", "a"), 1.0, group=4),  # its negative is an anchor
    ]
    task, vectors = EmbedTask(loss_kind="in_batch_negatives", scale=1.0), torch.eye(9, WIDTH)
    vectors[1] = vectors[5] = vectors[3] = vectors[8] = vectors[0]  # all near the first anchor
    loss = ours(task, examples, vectors)
    unit = nn.functional.normalize(vectors, dim=-1)
    anchors, positives = unit[[0, 2, 4, 6]], unit[[1, 3, 5, 7]]
    scores = anchors @ torch.cat([positives, unit[8:]]).T
    for row, column in ((0, 1), (0, 2), (0, 4), (1, 0), (2, 0), (2, 4)):
        scores[row, column] = -torch.inf
    expected = nn.functional.cross_entropy(scores, torch.arange(4))
    torch.testing.assert_close(loss, expected)


def test_a_guide_excludes_what_it_takes_for_more_alike() -> None:
    torch.manual_seed(0)
    examples, vectors = rows("pairs"), torch.randn(2 * ROWS, WIDTH)
    task, guide = EmbedTask(loss_kind="in_batch_negatives"), torch.randn(2 * ROWS, 5)
    sequences = Sequences.of([[1]] * len(vectors)).grouped([2] * ROWS)
    targets = task.targets(examples, sequences)
    known = {**targets.sequence, "guide": guide.numpy()}
    batch = batch_of_examples(sequences, np.arange(2 * ROWS), Targets(sequence=known))
    unit, judge = nn.functional.normalize(vectors, dim=-1), nn.functional.normalize(guide, dim=-1)
    scores, alike = 20 * unit[::2] @ unit[1::2].T, judge[::2] @ judge[1::2].T
    scores[alike > alike.diagonal()[:, None]] = -torch.inf
    expected = nn.functional.cross_entropy(scores, torch.arange(ROWS), reduction="sum")
    term = task.losses(vectors, batch)["in_batch_negatives"]
    torch.testing.assert_close(term.total, expected)


def test_a_pair_that_is_not_alike_is_only_a_negative() -> None:
    torch.manual_seed(0)
    examples, vectors = (
        [Example((f"a{i}", f"b{i}"), score) for i, score in enumerate((1.0, 0.2, 0.9))],
        torch.randn(6, 8),
    )
    unit = nn.functional.normalize(vectors, dim=-1)
    each = nn.functional.cross_entropy(3 * unit[::2] @ unit[1::2].T, torch.arange(3), reduction="none")
    loss = ours(EmbedTask(loss_kind="in_batch_negatives", scale=3.0), examples, vectors)
    torch.testing.assert_close(loss, each[[0, 2]].mean())
