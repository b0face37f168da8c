"""Weights of rows and labels in loss and metrics: plain formulas in float64, torch, scikit-learn, transformers."""

from collections import Counter

import numpy as np
import pytest
import torch
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_pt_utils import LabelSmoother

from bertie.io.tables import Example
from bertie.metrics.confusion import Confusion
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.model import TorchModel
from bertie.nn.init import initialize
from bertie.order import balanced
from bertie.tasks.losses import LossOptions, class_weights_of
from bertie.tasks.multilabel import MultiLabelTask
from bertie.tasks.regression import RegressionTask
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import TaskSource, encode_examples
from bertie.text.tokenizer import Tokenizer
from bertie.train.distributed import World
from bertie.train.step import backward, share

CPU = torch.device("cpu")
LABELS = ("a", "b", "c")
RNG = np.random.default_rng(0)
LOGITS = torch.from_numpy(RNG.normal(size=(40, 3)))
TRUTH = torch.from_numpy(RNG.integers(0, 3, 40))
WEIGHTS = torch.from_numpy(RNG.uniform(0, 3, 40))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("v")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]))
    return Tokenizer.load(folder)


def examples(labels: tuple[object, ...], count: int = 64) -> list[Example]:
    texts = [" ".join("abcdefgh"[(i * k) % 8] for k in range(1, 2 + i % 5)) for i in range(count)]
    return [
        Example((text,), labels[i * i % 7 % len(labels)], weight=float(WEIGHTS[i % 40])) for i, text in enumerate(texts)
    ]


def gradients(task, tokenizer, micro, world=1):
    """The gradients of one step over 64 weighted rows, in micro-batches, on ranks that take turns."""
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    model = TorchModel(Encoder(config), task.heads(config))
    torch.manual_seed(0)
    initialize(model, std=0.2)
    rows = examples(task.labels if isinstance(task, SequenceTask) else ((), ("a", "b"), ("c",)))
    if isinstance(task, RegressionTask):
        rows = [Example(row.texts, i / 10, weight=row.weight) for i, row in enumerate(rows)]
    encoded = encode_examples(rows, tokenizer, max_length=16)
    source = TaskSource(encoded, task.targets(rows, encoded), batch_size=64, micro_batch_size=micro, seed=0)
    shares = [share(source, task, 0, World(rank, world, CPU)) for rank in range(world)]
    counts = {name: sum(part.counts[name] for part in shares) for name in shares[0].counts}
    for part in shares:
        backward(model, task, part.batches, counts, seed=(0,), device=CPU)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, counts


def own(logits, labels, weights):
    """A loss of the user: hinge, its count the sum of squared weights."""
    margin = (1 - logits.sum(-1)).clamp_min(0) if logits.dim() > 1 else logits
    return (weights * margin).sum(), (weights**2).sum()


TASKS = {
    "weights": SequenceTask(LABELS),
    "classes": SequenceTask(LABELS).with_loss(LossOptions(class_weights={"a": 5.0, "c": 0.2})),
    "focal": SequenceTask(LABELS).with_loss(LossOptions("focal", smoothing=0.1)),
    "function": SequenceTask(LABELS).with_loss(LossOptions("function", function=own)),
    "numbers": RegressionTask(),
    "several": MultiLabelTask(LABELS).with_loss(LossOptions("focal")),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("micro", "world"), [(16, 1), (7, 1), (None, 2), (8, 3)])
def test_one_batch_of_64_equals_its_parts(name, micro, world, tokenizer):
    (expected, counts), (parts, same) = (
        gradients(TASKS[name], tokenizer, None),
        gradients(TASKS[name], tokenizer, micro, world),
    )
    assert same == pytest.approx(counts, rel=1e-6 if name == "function" else 1e-12)  # whose sum is in float32
    for key, gradient in expected.items():
        torch.testing.assert_close(parts[key], gradient, rtol=1e-4, atol=1e-6)


def test_class_weights_are_those_of_torch_and_scikit_learn():
    counts = {"a": 20, "b": 5, "c": 15}
    train = [label for label, count in counts.items() for _ in range(count)]
    weights = class_weights_of("balanced", LABELS, train)
    theirs = compute_class_weight("balanced", classes=np.array(LABELS), y=np.array(train))
    assert [weights[label] for label in LABELS] == pytest.approx(theirs)
    weight_L = torch.tensor([weights[label] for label in LABELS], dtype=torch.float64)
    expected = F.cross_entropy(LOGITS, TRUTH, weight=weight_L)
    options = LossOptions(class_weights=weights)
    total = options.total(options.of_labels, LOGITS, TRUTH, weight_L[TRUTH])
    assert float(total / options.count(TRUTH, weight_L[TRUTH], 3)) == pytest.approx(float(expected), rel=1e-12)


def test_weights_of_rows_are_the_plain_formula():
    options = LossOptions()
    total = options.total(options.of_labels, LOGITS, TRUTH, WEIGHTS)
    p_NL = np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum(1, keepdims=True)
    losses = -np.log(p_NL[np.arange(40), TRUTH.numpy()])
    assert float(total) == pytest.approx((WEIGHTS.numpy() * losses).sum(), rel=1e-12)
    assert options.count(TRUTH, WEIGHTS, 3) == pytest.approx(WEIGHTS.numpy().sum(), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_is_that_of_the_paper(gamma):
    p = F.softmax(LOGITS, -1)[torch.arange(40), TRUTH]
    torch.testing.assert_close(LossOptions("focal", gamma).of_labels(LOGITS, TRUTH), -((1 - p) ** gamma) * p.log())
    has = (RNG.integers(0, 2, (40, 3)) == 1) * 1.0
    p = torch.where(torch.from_numpy(has) == 1, LOGITS.sigmoid(), 1 - LOGITS.sigmoid())
    torch.testing.assert_close(
        LossOptions("focal", gamma).of_decisions(LOGITS, torch.from_numpy(has)), -((1 - p) ** gamma) * p.log()
    )


def test_focal_loss_has_finite_gradients_for_certain_answers():
    logits = torch.tensor([[100.0, 0.0], [-100.0, 0.0]], requires_grad=True)
    LossOptions("focal", 0.5).of_labels(logits, torch.tensor([0, 0])).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_label_smoothing_is_that_of_transformers():
    expected = LabelSmoother(0.1)(SequenceClassifierOutput(logits=LOGITS), TRUTH)
    assert float(LossOptions(smoothing=0.1).of_labels(LOGITS, TRUTH).mean()) == pytest.approx(float(expected), rel=1e-6)


def test_weighted_metrics_are_those_of_scikit_learn():
    truth = [LABELS[i] for i in TRUTH.tolist()]
    predicted = [LABELS[i] for i in LOGITS.argmax(1).tolist()]
    scores, weights = Confusion(LABELS, positive="b"), WEIGHTS.tolist()
    scores.add(truth, predicted, weights)
    report = scores.report()
    assert report["accuracy"] == pytest.approx(metrics.accuracy_score(truth, predicted, sample_weight=weights))
    assert report["mcc"] == pytest.approx(metrics.matthews_corrcoef(truth, predicted, sample_weight=weights))
    options = {"sample_weight": weights, "average": "macro"}
    assert report["macro_f1"] == pytest.approx(metrics.f1_score(truth, predicted, **options))
    assert report["f1"] == pytest.approx(
        metrics.f1_score(truth, predicted, sample_weight=weights, average=None, labels=["b"])[0]
    )
    assert report["per_label"]["a"]["examples"] == truth.count("a"), "examples are counted, not weighed"
    assert sum(map(sum, report["confusion"])) == 40
    assert report["weighted"]
    draws = [RNG.integers(0, 40, 40) for _ in range(2000)]
    plain = [np.average(np.array(truth)[i] == np.array(predicted)[i], weights=np.array(weights)[i]) for i in draws]
    assert report["interval_95"]["accuracy"] == pytest.approx(np.percentile(plain, [2.5, 97.5]), abs=0.03)


def test_an_epoch_of_balanced_sampling_has_equally_many_of_each_label():
    labels = [(["rare"] * 6 + ["common"] * 94)[i] for i in RNG.permutation(100)]
    order = balanced(labels, 3)
    epochs = [np.concatenate([order.sample_ids(step, 20) for step in range(5 * e, 5 * e + 5)]) for e in range(4)]
    for ids in epochs:
        assert Counter(labels[i] for i in ids) == {"rare": 50, "common": 50}
        times = Counter(ids.tolist())
        assert {times[i] for i in range(100) if labels[i] == "rare"} == {8, 9}
        assert max(times[i] for i in range(100) if labels[i] == "common") <= 2
    assert {*epochs[0].tolist(), *epochs[1].tolist()} == {*range(100)}, "in two epochs each common one is there"
    halves = [order.sample_ids(3, 20, rank=rank, world=2) for rank in range(2)]
    assert np.array_equal(np.concatenate(halves), order.sample_ids(3, 20))
