"""Classification by a pattern with a mask: equal to filling the mask, never cut, learned from a few labels."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertie
from benchmarks import few_labels
from benchmarks.__main__ import bench
from bertie.errors import DataError, UsageError, WrongModel
from bertie.infer.torch_engine import TorchEngine
from bertie.io.tables import Example
from bertie.models import families
from bertie.objectives import MaskedLM
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import plan_finetuning, run_finetune
from bertie.runs.weights import load_model
from bertie.tasks.pattern import PatternTask
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from nano import one_thread
from toys import CommandLine, toy_model

PIECES = ["it", "was", "great", "bad", "film", "dull", "fine", "very", ".", "terri", "##ble", "a"]
WORDS = {"good": "great", "poor": "bad"}
PATTERN = "it was [MASK] ."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toy_model(tmp_path_factory.mktemp("start"), PIECES)
    tokenizer = Tokenizer.load(folder)
    families.save(families.build(folder, heads=MaskedLM().heads, seed=2), folder, tokenizer=tokenizer)
    return folder


def test_what_the_model_says_to_an_empty_text_is_subtracted(model: Path) -> None:
    """Also with a threshold, for which the task is made anew."""
    opened = bertie.load(model, device="cpu")
    plain, calibrated, strict = (
        opened.predict(["a dull film"], pattern=PATTERN, words=WORDS, **options)[0]
        for options in ({}, {"calibrate_prompt": True}, {"calibrate_prompt": True, "threshold": 0.5})
    )
    (filled,) = opened.fill_mask(PATTERN, top=17)
    empty = {one.token: one.probability for one in filled}
    odds = plain.scores["good"] / plain.scores["poor"] * empty["bad"] / empty["great"]
    assert calibrated.scores["good"] / calibrated.scores["poor"] == pytest.approx(odds, rel=1e-3)
    assert strict.scores == calibrated.scores


def test_probabilities_are_those_of_the_words_at_the_mask(model: Path) -> None:
    """`fill_mask` on the whole text, among the two words."""
    texts = ["film", "a very very dull film", "fine"]
    for text, found in zip(texts, bertie.predict(model, texts, pattern=PATTERN, words=WORDS), strict=True):
        (masks,) = bertie.fill_mask(model, f"{text} {PATTERN}", top=17)
        by_word = {one.token: one.probability for one in masks}
        expected = by_word["great"] / (by_word["great"] + by_word["bad"])
        assert found.scores["good"] == pytest.approx(expected, abs=1e-5)
        assert found.label == ("good" if expected >= 0.5 else "poor")


def test_a_long_text_is_cut_and_the_pattern_is_not(model: Path) -> None:
    tokenizer = Tokenizer.load(model)
    task = PatternTask(pattern="it {} [MASK] {} .", words=WORDS).with_tokenizer(tokenizer)
    pair = Example(("film " * 30, "a [MASK] dull"))
    encoded = task.encode([pair, Example(("a", "a"))], tokenizer, max_length=16, too_long="truncate")
    assert encoded.lengths.tolist() == [16, 7]
    assert encoded.too_long.tolist() == [0]
    shown = [tokenizer.id_to_token(i) for i in encoded.input_ids[:16]]
    assert shown == ["[CLS]", "it", *["film"] * 8, "[MASK]", "a", "[MASK]", "dull", ".", "[SEP]"]
    assert encoded.positions.tolist() == [10, 16 + 3]  # not the mask of the user's text
    with pytest.raises(UsageError, match="pattern alone"):
        task.encode([pair], tokenizer, max_length=4, too_long="truncate")


def test_the_loss_is_that_of_a_classifier_on_the_words(model: Path) -> None:
    found, tokenizer = load_model(model), Tokenizer.load(model)
    task = PatternTask(pattern=PATTERN, words=WORDS).with_tokenizer(tokenizer)
    examples = [Example(("film",), "good"), Example(("a very dull film",), "poor"), Example(("fine",), "other")]
    encoded = task.encode(examples, tokenizer, max_length=20, too_long="truncate")
    targets = task.targets(examples, encoded)
    batch = batch_of_examples(encoded, np.arange(3), targets)
    learned = task.loss(found, task.forward(found, batch), batch)["label"]
    engine = torch.from_numpy(TorchEngine(found).run(encoded, ("mlm",))["mlm"])
    measured = task.dev_losses(found, encoded, targets, engine)["label"]
    assert learned.count == measured.count == 2
    torch.testing.assert_close(learned.total.detach(), measured.total, rtol=1e-5, atol=1e-5)


def test_a_step_is_that_of_a_plain_masked_language_model(model: Path, tmp_path: Path) -> None:
    """Loss and gradients of all weights against `transformers`, one text at a time, without our batch or encoding."""
    found, theirs = load_model(model), transformers.BertForMaskedLM.from_pretrained(model)
    tokenizer = Tokenizer.load(model)
    task = PatternTask(pattern="it {} was [MASK] .", words=WORDS).with_tokenizer(tokenizer)
    examples = [Example(("film",), "good"), Example(("a very very dull film",), "poor"), Example(("fine",), "poor")]
    encoded = task.encode(examples, tokenizer, max_length=20, too_long="truncate")
    batch = batch_of_examples(encoded, np.arange(3), task.targets(examples, encoded))
    term = task.loss(found, task.forward(found, batch), batch)["label"]
    ours = term.total / term.count
    losses, plain = [], transformers.AutoTokenizer.from_pretrained(model)
    words = plain.convert_tokens_to_ids(list(WORDS.values()))
    for example in examples:
        ids = plain(f"it {example.texts[0]} was {plain.mask_token} .", return_tensors="pt").input_ids
        logits_V = theirs.eval()(ids).logits[0, int((ids[0] == plain.mask_token_id).nonzero())]
        label = torch.tensor(list(WORDS).index(example.label))
        losses.append(torch.nn.functional.cross_entropy(logits_V[words], label))
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    for one, loss in ((found, ours), (theirs, expected)):
        one.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in one.parameters():
                if parameter.grad is not None:
                    parameter -= 0.5 * parameter.grad
    families.save(found, tmp_path / "stepped", tokenizer=tokenizer)
    stepped = transformers.BertForMaskedLM.from_pretrained(tmp_path / "stepped").state_dict()
    before = transformers.BertForMaskedLM.from_pretrained(model).state_dict()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(stepped[name], weight, rtol=1e-4, atol=1e-6, msg=name)
    moved = {name for name, weight in stepped.items() if not torch.equal(weight, before[name])}
    assert any("embeddings.word" in name for name in moved)
    assert any("layer.0.attention" in name for name in moved)


def test_a_few_labels_train_the_head_of_pretraining(model: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """The saved model is a masked language model that answers by its pattern."""
    rows = [{"text": f"{a} film", "label": label} for a, label in (("fine", "good"), ("dull", "poor"))] * 40
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "model": str(model),
        "task": "pattern",
        "task_options": {"pattern": PATTERN, "words": WORDS},
        "train_file": str(tmp_path / "t.jsonl"),
        "dev_file": str(tmp_path / "t.jsonl"),
        "epochs": 15,
        "label_check": "none",
        "max_length": 16,
        "optim": {"lr": 3e-3},
        "train": {"batch_size": 8, "precision": "fp32", "eval_every": 1000},
    }
    with one_thread():
        results = run_finetune(FinetuneConfig.model_validate(settings), tmp_path / "run")
    assert results["dev"]["accuracy"] == 1
    assert results["fresh"] == []
    saved = load_model(tmp_path / "run/model")
    assert list(saved.heads) == ["mlm"]
    cli = CommandLine(monkeypatch, capsys)
    assert json.loads(cli.good("predict", tmp_path / "run/model", stdin="dull film\n"))["label"] == "poor"
    told = cli.good(
        "evaluate", model, tmp_path / "t.jsonl", "--json", "--pattern", PATTERN, "--words", "good=great,poor=bad"
    )
    assert 0 <= json.loads(told)["accuracy"] <= 1
    settings["task_options"] = {"pattern": PATTERN, "words": {"good": "great", "other": "bad"}}
    with pytest.raises(DataError, match="without a word: 'poor'"):
        run_finetune(FinetuneConfig.model_validate(settings), tmp_path / "other")


def test_the_curve_of_a_masked_language_model_has_a_pattern(model: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """`python -m benchmarks reproduce few-labels`: instead of the sentence vectors that the model does not have."""
    (tmp_path / "glue/SST-2").mkdir(parents=True)
    rows = [f"{a} film\t{label}" for a, label in (("fine", 1), ("dull", 0))] * 4
    for split in ("train", "dev"):
        (tmp_path / f"glue/SST-2/{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    monkeypatch.setattr(few_labels, "SIZES", (2,))
    monkeypatch.setattr(few_labels, "PLAIN_EPOCHS", {2: 1})
    ask = {"pattern": PATTERN, "words": {"1": "great", "0": "bad"}}
    monkeypatch.setattr(few_labels, "PATTERNS", {"sst2": ask})
    cli, run = CommandLine(monkeypatch, capsys, bench), tmp_path / "run"
    command = ("reproduce", "few-labels", "--model", model, "--data-dir", tmp_path, "--draws", 1, "-o", run)
    code, _, told = cli(*command, "--only", "topics")
    assert (code, "no pattern for a masked language model" in told) == (2, True)
    assert not run.exists()
    monkeypatch.setattr(few_labels, "_plain", partial(few_labels._plain, max_length=16))
    measured = [json.loads(line) for line in cli.good(*command, "--json").splitlines()]
    assert [row["way"] for row in measured] == ["pattern", "fine-tuning", "words"]
    assert all(0 <= row["accuracy"][0] <= 1 for row in measured)


def test_what_cannot_be_asked_is_refused(model: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    ask = {"pattern": PATTERN, "words": WORDS}
    for wrong, why in [
        ({"pattern": "it was"}, r"'it was'; it must have one \[MASK\].*--pattern, .* task_options.pattern"),
        ({"words": {"good": "great"}}, "two or more labels. .*--words .*task_options.words"),
        ({"words": {"good": 1, "poor": "bad"}}, "words.good"),
        ({"words": {"good": "bad", "poor": "bad"}}, "same word"),
        ({"words": {"good": "great", "poor": "Great"}}, "'great' and 'Great' are the same token"),
        ({"words": {"good": "terrible", "poor": "bad"}}, "'terrible' is 2 tokens of the vocabulary"),
        ({"words": {"good": "unknown", "poor": "bad"}}, "'unknown' is not in the vocabulary"),
        ({"candidates": ["good", "poor"]}, "`pattern` does not work with `candidates`"),
    ]:
        with pytest.raises(UsageError, match=why):
            bertie.predict(model, ["film"], **{**ask, **wrong})
    with pytest.raises(WrongModel):
        bertie.predict(toy_model(tmp_path, PIECES), ["film"], **ask)
    with pytest.raises(UsageError, match="`head` does not work with `pattern`"):
        bertie.predict(model, ["film"], head="x", **ask)
    code, _, err = CommandLine(monkeypatch, capsys)(
        "predict", model, "--pattern", PATTERN, "--words", "good=great,poor=bad", "--head", "x", stdin="film\n"
    )
    assert (code, "--head does not work with --pattern" in " ".join(err.split())) == (2, True)
    for words, told in [
        ("good,poor", "--words 'good,poor' must consist of pairs, separated by commas: good=great,bad=terrible"),
        ("good=great,good=bad", "--words has 'good' twice"),
    ]:
        code, _, err = CommandLine(monkeypatch, capsys)("predict", model, "--pattern", PATTERN, "--words", words)
        assert (code, told in " ".join(err.split())) == (2, True), err


def test_a_pattern_is_trained_from_the_head_of_pretraining_or_from_scratch(model: Path, tmp_path: Path) -> None:
    """A start model without the head would have a random one, and would be compared with models that have it."""
    table = tmp_path / "t.csv"
    table.write_text("text,label\n" + "a film,good\ndull film,poor\n" * 4)
    settings = {
        "task": "pattern",
        "task_options": {"pattern": PATTERN, "words": WORDS},
        "train_file": str(table),
        "max_length": 16,
    }
    headless = str(toy_model(tmp_path / "headless", PIECES))
    with pytest.raises(UsageError, match="A pattern needs a masked-LM or a causal head"):
        plan_finetuning(FinetuneConfig.model_validate({**settings, "model": headless}), trial=0)
    for allowed in ({"model": str(model)}, {"model": headless, "from_scratch": True}):
        assert plan_finetuning(FinetuneConfig.model_validate(settings | allowed), trial=0)["labels"] == ["good", "poor"]
