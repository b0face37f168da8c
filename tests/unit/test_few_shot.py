"""Few-shot training: its loss and its classifier against their formulas, the folder, and bad input."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import bertie
from bertie.io.tables import Example
from bertie.models import families
from bertie.runs.examples import draw_examples
from bertie.tasks.few_shot import FewShotTask
from bertie.tasks.source import TaskSource, batch_of_examples, encode_examples
from bertie.text.tokenizer import Tokenizer
from toys import FAST, CommandLine, toy_model

LABELS = ("x", "y", "z")
SHORT = ("epochs=6", "max_length=32")
WORDS = {"x": "abc", "y": "def", "z": "ghi"}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("start"), "abcdefghi")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def rows(labels: tuple[str, ...] = LABELS, each: int = 6) -> list[Example]:
    texts = {label: itertools.product(WORDS[label], repeat=3) for label in labels}
    return [Example((" ".join(next(texts[label])),), label, n) for n, label in enumerate(labels * each)]


def table(path: Path, examples: list[Example]) -> Path:
    path.write_text("text,label\n" + "".join(f"{e.texts[0]},{e.label}\n" for e in examples))
    return path


def prepared(start: Path, labels: tuple[str, ...] = LABELS, pooling: str = "mean"):
    task, tokenizer = FewShotTask(labels), Tokenizer.load(start)
    examples = rows(labels)
    model, _ = families.load(start, heads=task.heads, seed=0, overrides={"label_pooling": pooling})
    encoded = task.encode(examples, tokenizer, max_length=16, too_long="truncate")
    targets = task.targets(examples, encoded)
    return task, model.eval(), encoded, targets, TaskSource(encoded, targets, batch_size=8, micro_batch_size=8, seed=0)


def test_the_loss_is_that_of_all_pairs(start: Path) -> None:
    task, model, encoded, _, source = prepared(start)
    (batch,) = source.batches(1)
    output = model.encode(batch)
    found, counts = task.loss(model, output, batch), task.counts(batch)
    hidden = output.last_hidden_state.split(encoded.lengths[batch.sample_ids.numpy()].tolist())
    vectors = [torch.nn.functional.normalize(part.mean(0), dim=0) for part in hidden]
    wanted: dict[str, list[torch.Tensor]] = {"same": [], "different": []}
    for i, j in itertools.combinations(range(8), 2):
        same = batch.labels["label"][i] == batch.labels["label"][j]
        wanted["same" if same else "different"].append((vectors[i] @ vectors[j] - float(same)) ** 2)
    assert counts == {name: len(terms) for name, terms in wanted.items()}
    for name, terms in wanted.items():
        assert found[name].count == len(terms)
        torch.testing.assert_close(found[name].total, torch.stack(terms).sum())


@pytest.mark.parametrize("labels", [LABELS, LABELS[:2]])
@pytest.mark.parametrize("pooling", ["mean", "first", "cls"])
def test_the_classifier_is_a_logistic_regression(start: Path, labels: tuple[str, ...], pooling: str) -> None:
    """Its probabilities are scikit-learn's, on vectors with a mean squared length of 1."""
    task, model, encoded, targets, _ = prepared(start, labels, pooling)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    task.settle(model, encoded, targets)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    weight, bias = "heads.sequence.classifier.weight", "heads.sequence.classifier.bias"
    assert {weight} <= changed <= {weight, bias}  # two labels with as many examples may need no bias
    with torch.no_grad():
        output = model.encode(batch_of_examples(encoded, np.arange(len(encoded))))
        vectors = model.heads["sequence"].vector(output).double().numpy()
        found = model.logits("sequence", output).softmax(-1).numpy()
    vectors /= np.sqrt((vectors**2).sum(-1).mean())
    peer = LogisticRegression(max_iter=1000).fit(vectors, targets.sequence["label"])
    np.testing.assert_allclose(found, peer.predict_proba(vectors), atol=1e-4)


def test_one_command_and_every_reader(start: Path, tmp_path: Path, cli: CommandLine) -> None:
    train, dev = table(tmp_path / "train.csv", rows()), table(tmp_path / "dev.csv", rows(each=20))
    run = tmp_path / "run"
    cli.good("finetune", start, "--few-shot", "--train", train, "--dev", dev, "-o", run, *FAST, *SHORT)
    results = json.loads((run / "results.json").read_text())
    assert results["dev"]["accuracy"] > 0.9
    saved = json.loads(cli.good("evaluate", run, dev, "--json"))
    assert saved["accuracy"] == results["dev"]["accuracy"]
    (answer,) = bertie.predict(run, ["a b c"])
    assert answer.label == "x"
    pooled = bertie.embed(run, ["a b c", "d e f"])
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(bertie.embed(run, ["a b c"], pooling="mean", normalize=True)[0], pooled[0], atol=1e-6)
    assert "x, y, z" in cli.good("info", run / "model").replace("'", "")
    cli.good("verify", run)
    first = (run / "model/model.safetensors").read_bytes()
    cli.good("finetune", start, "--few-shot", "--train", train, "--dev", dev, "-o", run, *FAST, *SHORT)
    assert (run / "model/model.safetensors").read_bytes() == first


def test_a_public_folder_where_the_pooler_is_read(start: Path, tmp_path: Path, cli: CommandLine) -> None:
    """Its probabilities are those of transformers."""
    from transformers import BertForSequenceClassification

    train = table(tmp_path / "train.csv", rows())
    more = ("pooling=cls", "epochs=2", "max_length=32")
    cli.good("finetune", start, "--few-shot", "--train", train, "--dev", train, "-o", tmp_path / "run", *FAST, *more)
    peer = BertForSequenceClassification.from_pretrained(tmp_path / "run/model").eval()
    ids = Tokenizer.load(start).encode("a b c").ids
    with torch.no_grad():
        wanted = peer(torch.tensor([ids])).logits.softmax(-1)[0]
    (answer,) = bertie.predict(tmp_path / "run", ["a b c"])
    np.testing.assert_allclose(list(answer.scores.values()), wanted.numpy(), atol=1e-5)


def test_vectors_that_an_lstm_follows_are_not_a_sentence_model(start: Path, tmp_path: Path, cli: CommandLine) -> None:
    train = table(tmp_path / "train.csv", rows())
    options = ("--train", train, "--dev", train, "-o", tmp_path / "run", *FAST, "epochs=1", "max_length=32", "lstm=1")
    cli.good("finetune", start, "--few-shot", *options)
    assert not (tmp_path / "run/model/modules.json").exists()


@pytest.mark.parametrize(
    ("examples", "more", "told"),
    [
        ([*rows(LABELS[:2]), *rows()[2:3]], (), "two examples of each label at least: 'z' has 1"),
        (rows(LABELS[:1]), (), "at least two labels"),
        (rows(), ("freeze=1", "max_length=32"), "freeze=1 leaves nothing to train"),
        (rows(), ("-c", "finetune-glue"), "exclude each other"),
        (rows(), ("--task", "sequence"), "--few-shot and --task sequence exclude each other"),
        (rows(), ("task=tagging",), "--few-shot and --task tagging exclude each other"),
        (rows(), ("train.batch_size=3",), "at least 4"),
        (rows(), ("train.micro_batch_size=2",), "at least 4"),
        (rows(), ("--data", "sst2", "--data-dir", "."), "SST-2/train.tsv"),
        (rows(), ("--data", "stsb", "--data-dir", "."), "task=few-shot does not read the examples of stsb"),
    ],
)
def test_bad_input(start: Path, tmp_path: Path, cli: CommandLine, examples: list[Example], more, told: str) -> None:
    train = table(tmp_path / "train.csv", examples)
    files = () if "--data" in more else ("--train", train, "--dev", train)
    code, _, err = cli("finetune", start, "--few-shot", *files, "-o", tmp_path / "run", *FAST, *more)
    assert code in (2, 3)
    assert told in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("each", "more", "told"),
    [
        (1, (), "'z' has 1. Add examples of these labels."),  # a dev file would not help, with or without one
        (1, ("--dev",), "'z' has 1. Add examples of these labels."),
        (2, (), "Add examples of these labels, or pass a dev file (--dev FILE)"),  # one of two is held out
        (4, ("--dev", "per_label=1"), "Add examples of these labels, or raise per_label."),
    ],
)
def test_too_few_of_a_label(
    start: Path, tmp_path: Path, cli: CommandLine, each: int, more: tuple[str, ...], told: str
) -> None:
    train = table(tmp_path / "train.csv", rows(each=each))
    dev = [part for word in more for part in ((word, train) if word == "--dev" else (word,))]
    code, _, err = cli("finetune", start, "--few-shot", "--train", train, *dev, "-o", tmp_path / "run", *FAST, *SHORT)
    assert (code, told in " ".join(err.split())) == (3, True), err
    assert not (tmp_path / "run").exists()


def test_a_task_without_labels_has_no_number_per_label(start: Path, tmp_path: Path, cli: CommandLine) -> None:
    train = tmp_path / "train.csv"
    train.write_text("text,label\n" + "".join(f"a b {n},{n}\n" for n in range(20)))
    options = ("--task", "regression", "--train", train, "-o", tmp_path / "run", "per_label=5")
    code, _, err = cli("finetune", start, *options, *FAST)
    assert (code, "per_label draws examples of each label" in " ".join(err.split())) == (2, True), err


def test_draws_of_a_number_per_label() -> None:
    examples = rows(each=9)
    first, second = (draw_examples(examples, 4, seed=seed) for seed in (0, 1))
    for found in (first, second):
        assert [e.label for e in found].count("x") == [e.label for e in found].count("z") == 4
        assert [e.line for e in found] == sorted(e.line for e in found)
    assert first != second
    assert draw_examples(examples, 4, seed=0) == first
    assert draw_examples(examples, 99, seed=0) == examples


def test_long_texts_in_windows(start: Path) -> None:
    """Windows of one text are no pair; in the regression they weigh as one text."""
    task, tokenizer = FewShotTask(LABELS[:2]), Tokenizer.load(start)
    examples = [Example((" ".join("abc" * 8),), "x"), Example(("d e f",), "y"), Example(("a b",), "x")]
    encoded = encode_examples(examples, tokenizer, max_length=12, too_long="window")
    assert len(encoded.lengths) > 3
    batch = batch_of_examples(encoded, np.arange(len(encoded.lengths)), task.targets(examples, encoded))
    windows = len(encoded.lengths) - 2
    assert task.counts(batch) == {"same": windows, "different": windows + 1}
