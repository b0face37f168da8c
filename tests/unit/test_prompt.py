"""Prompts of a causal model: the probability of each label's word after the text, with and without examples."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bertie as library
from bertie.errors import DataError, UsageError
from toys import CommandLine, toy_model, toy_writer

TEXTS = ["a cat", "the dog sat"]
PATTERN, WORDS = "{} is [MASK]", {"yes": "ok", "no": "bad"}
ROWS = [("a bird", "yes"), ("a mat", "no"), ("an owl", "yes"), ("a hat", "no")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_writer(tmp_path_factory.mktemp("gpt") / "gpt", "gpt2")


def by_hand(module: Any, prompt: str) -> dict[str, float]:
    """Returns the mean log p of the tokens of each label's word after a prompt."""
    tokenizer = module.tokenizer
    scores = {}
    for label, word in WORDS.items():
        before, after = tokenizer.ids([prompt])[0], tokenizer.ids([" " + word])[0]
        ids = torch.tensor([[tokenizer.cls_id, *before, *after]])
        with torch.no_grad():
            log_p = module(ids)["lm"][0].log_softmax(-1)
        places = range(1 + len(before), ids.shape[1])
        scores[label] = sum(float(log_p[place - 1, ids[0, place]]) for place in places) / len(after)
    return scores


def shares(scores: dict[str, float]) -> dict[str, float]:
    values = torch.tensor([*scores.values()]).softmax(0).tolist()
    return dict(zip(scores, values, strict=True))


def test_a_label_is_as_probable_as_its_word(folder: Path) -> None:
    model = library.load(folder, device="cpu")
    module = model.module.eval()
    assert len({len(ids) for ids in module.tokenizer.ids([" ok", " bad"])}) == 2, "words of different lengths"
    answers = model.predict(TEXTS, pattern=PATTERN, words=WORDS)
    for text, answer in zip(TEXTS, answers, strict=True):
        assert answer.scores == pytest.approx(shares(by_hand(module, f"{text} is")), abs=1e-5)
    (shown,) = model.predict(TEXTS[:1], pattern=PATTERN, words=WORDS, demonstrations=ROWS[:2])
    prompt = "a bird is ok\na mat is bad\na cat is"
    assert shown.scores == pytest.approx(shares(by_hand(module, prompt)), abs=1e-5)
    (calibrated,) = model.predict(
        TEXTS[:1], pattern=PATTERN, words=WORDS, demonstrations=ROWS[:2], calibrate_prompt=True
    )
    own, empty = by_hand(module, prompt), by_hand(module, prompt.replace("a cat", ""))
    assert calibrated.scores == pytest.approx(shares({label: own[label] - empty[label] for label in own}), abs=1e-5)


def test_demonstrations_are_read_as_the_examples_are(folder: Path) -> None:
    named = [{"text": text, "truth": label, "other": label} for text, label in ROWS]
    coded = [{"text": text, "truth": "01"[label == "yes"], "other": label} for text, label in ROWS]
    model, both = library.load(folder, device="cpu"), {"pattern": PATTERN, "words": WORDS, "label": "truth"}
    expected = model.evaluate(ROWS, pattern=PATTERN, words=WORDS, demonstrations=ROWS, shots=1)
    assert model.evaluate(named, **both, demonstrations=named, shots=1) == expected
    names = {"0": "no", "1": "yes"}
    assert model.evaluate(coded, **both, label_names=names, demonstrations=coded, shots=1) == expected


def test_a_prompt_that_is_too_long_keeps_its_end(folder: Path) -> None:
    model = library.load(folder, device="cpu")
    (long,) = model.predict(["c a" * 30], pattern=PATTERN, words=WORDS, max_length=16)
    end = "c a" * 30 + " is"
    tokens = model.tokenizer.ids([end])[0][-(16 - 1 - 3) :]  # without [CLS], and room for the longest word
    scores = {}
    for label, word in WORDS.items():
        after = model.tokenizer.ids([" " + word])[0]
        ids = torch.tensor([[model.tokenizer.cls_id, *tokens, *after]])
        with torch.no_grad():
            log_p = model.module.eval()(ids)["lm"][0].log_softmax(-1)
        first = ids.shape[1] - len(after)
        scores[label] = sum(float(log_p[place - 1, ids[0, place]]) for place in range(first, ids.shape[1])) / len(after)
    assert long.scores == pytest.approx(shares(scores), abs=1e-5)


def test_the_command_draws_as_many_of_each_label(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"{a},{b}\n" for a, b in ROWS), encoding="utf-8")
    options = ("--pattern", PATTERN, "--words", "yes=ok,no=bad", "--demonstrations", tmp_path / "train.csv")
    out = bertie.good("predict", folder, tmp_path / "texts.txt", *options, "--shots", 2, "--device", "cpu")
    found = [json.loads(line)["scores"] for line in out.splitlines()]
    model = library.load(folder, device="cpu")
    expected = model.predict(TEXTS, pattern=PATTERN, words=WORDS, demonstrations=ROWS, shots=2)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other.scores, abs=1e-5)
    none = model.predict(TEXTS, pattern=PATTERN, words=WORDS, demonstrations=ROWS, shots=0)
    assert [one.scores for one in none] == [one.scores for one in model.predict(TEXTS, pattern=PATTERN, words=WORDS)]
    scores = model.evaluate(ROWS, pattern=PATTERN, words=WORDS, demonstrations=ROWS, shots=1)
    assert 0 <= scores["accuracy"] <= 1
    stream = model.evaluate(ROWS, pattern=PATTERN, words=WORDS, demonstrations=iter(ROWS), against=model)
    assert stream.report["against"]["accuracy"]["difference"] == 0, "both models are shown the same rows"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"pattern": "[MASK] is {}"}, UsageError, "must be its end"),
        ({"demonstrations": [("a bird", "maybe")]}, DataError, "'maybe'.*no word"),
        ({"demonstrations": ROWS, "shots": 9}, DataError, "0 to 2"),
        ({"demonstrations": [("a bird", None)]}, DataError, "no labeled example"),
        ({"shots": 2}, UsageError, "Pass both"),
        ({"words": {"yes": "ok", "no": "\u4e00"}}, UsageError, "not in the vocabulary"),
        ({"max_length": 4}, UsageError, "max_length"),
    ],
)
def test_bad_prompts_are_one_error(folder: Path, options: dict[str, Any], error: type, said: str) -> None:
    model = library.load(folder, device="cpu")
    with pytest.raises(error, match=said):
        model.predict(TEXTS, **{"pattern": PATTERN, "words": WORDS, **options})


def test_other_models_say_what_they_lack(folder: Path, tmp_path: Path) -> None:
    model = library.load(folder, device="cpu")
    with pytest.raises(UsageError, match="need `pattern`"):
        model.predict(TEXTS, demonstrations=ROWS)
    encoder = library.load(toy_model(tmp_path / "encoder", ["a", "b"]), device="cpu")
    with pytest.raises(UsageError, match="a causal head"):
        encoder.predict(["a"], pattern="b [MASK]", words={"x": "a", "y": "b"})
    t5 = library.load(toy_writer(tmp_path / "t5"), device="cpu")
    with pytest.raises(UsageError, match="a causal head"):
        t5.predict(TEXTS, pattern=PATTERN, words=WORDS)
