"""Files of answers by id, scored by the official scripts' definitions, and what `bertie evaluate` says of the same."""

import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

from toys import FAST, CommandLine, toy_model

Score = Callable[[str, list[str]], tuple[float, float]]


def questions(count: int, *, seed: int, name: str = "id", always: bool = False) -> dict[str, Any]:
    """Where is the z, and what follows it? SQuAD's frame; in one of three there is none, unless always."""
    rng, paragraphs = random.Random(seed), []
    for i in range(count):
        letters = [rng.choice("abcdef") for _ in range(rng.randint(4, 12))]
        answers = []
        if always or i % 3:
            place = rng.randrange(len(letters) - 1)
            letters[place] = "z"
            text = " ".join(letters[place : place + 2])
            answers = [{"text": text, "answer_start": 2 * place}, {"text": "z", "answer_start": 2 * place}]
        qa = {name: f"질문-{i}", "question": "q", "answers": answers, "question_type": 1}
        paragraphs.append({"context": " ".join(letters), "qas": [qa]})
    return {"version": "made up", "data": [{"title": "letters", "paragraphs": paragraphs}]}


def form(text: str, *, articles: bool = True) -> str:
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join((re.sub(r"\b(a|an|the)\b", " ", text) if articles else text).split())


def overlap(given: Any, true: Any) -> float:
    same = sum((Counter(given) & Counter(true)).values())
    return 2 * same / (len(given) + len(true)) if same else 0.0


def squad2(given: str, true: list[str]) -> tuple[float, float]:
    """evaluate-v2.0.py: get_raw_scores."""
    true = [text for text in true if form(text)] or [""]
    pairs = [(form(given).split(), form(text).split()) for text in true]
    f1 = max(overlap(g, t) if g and t else float(g == t) for g, t in pairs)
    return float(form(given) in map(form, true)), f1


def squad1(given: str, true: list[str]) -> tuple[float, float]:
    """evaluate-v1.1.py."""
    return float(form(given) in map(form, true)), max(overlap(form(given).split(), form(t).split()) for t in true)


def korquad(given: str, true: list[str]) -> tuple[float, float]:
    """evaluate-v1.0.py: characters; no articles."""
    forms = [form(text, articles=False) for text in true]
    given = form(given, articles=False)
    return float(given in forms), max(overlap(given.replace(" ", ""), text.replace(" ", "")) for text in forms)


def klue(given: str, true: list[str]) -> tuple[float, float]:
    """KLUE-baseline, metrics/utils.py: the longest common run of characters."""
    given, forms = form(given, articles=False), [form(text, articles=False) for text in true] or [""]

    def rouge(text: str) -> float:
        if not text:
            return float(given == text)
        run = SequenceMatcher(None, given, text).find_longest_match(0, len(given), 0, len(text)).size
        return 2 * run / (len(given) + len(text)) if given and run else 0.0

    return float(given in forms), max(map(rouge, forms))


ROWS = {  # data set -> files, how questions are named, the script, the second metric's name, whether all have answers
    "squad": ("{}-v1.1.json", "id", squad1, "f1", True),
    "squad2": ("{}-v2.0.json", "id", squad2, "f1", False),
    "korquad": ("KorQuAD_v1.0_{}.json", "id", korquad, "f1", True),
    "klue-mrc": ("klue-mrc-v1.1_{}.json", "guid", klue, "rouge_w", False),
}


@pytest.mark.parametrize("data", ROWS)
def test_answers_by_id_score_as_evaluate_says(data: str, tmp_path: Path, bertie: CommandLine) -> None:
    pattern, name, script, second, always = ROWS[data]
    for split, count in (("train", 120), ("dev", 60)):
        frame = questions(count, seed=count, name=name, always=always)
        (tmp_path / pattern.format(split)).write_text(json.dumps(frame, ensure_ascii=False), encoding="utf-8")
    model = toy_model(tmp_path / "toy", [*string.ascii_lowercase])
    where = ("--data", data, "--data-dir", tmp_path)
    bertie.good("finetune", model, *where, "-o", tmp_path / "run", "--seeds", 1, "epochs=4", "max_length=32", *FAST)
    saved, dev = tmp_path / "run/model", tmp_path / pattern.format("dev")
    report = json.loads(bertie.good("evaluate", saved, *where, "--json"))
    assert 0.1 < report["exact_match"] < 1  # something to tell apart
    bertie.good("predict", saved, dev, "-o", tmp_path / "predictions.json")
    given = json.loads((tmp_path / "predictions.json").read_text(encoding="utf-8"))
    asked = [qa for p in json.loads(dev.read_text(encoding="utf-8"))["data"][0]["paragraphs"] for qa in p["qas"]]
    assert list(given) == [qa[name] for qa in asked]
    scores = [script(given[qa[name]], [answer["text"] for answer in qa["answers"]]) for qa in asked]
    assert report["exact_match"] == pytest.approx(sum(exact for exact, _ in scores) / len(scores), abs=1e-12)
    assert report[second] == pytest.approx(sum(score for _, score in scores) / len(scores), abs=1e-12)
    odds = tmp_path / "predictions-na-prob.json"
    assert odds.exists() != always
    if odds.exists():  # the scripts keep an answer where this is at most 1
        silent = json.loads(odds.read_text(encoding="utf-8"))
        assert list(silent) == list(given)
        assert all(0 <= p <= 1 for p in silent.values())
        quiet = [silent[name] for name, text in given.items() if not text]
        said = [silent[name] for name, text in given.items() if text]
        assert not quiet or not said or min(quiet) > max(said)  # one threshold parts them
    frame = json.loads(dev.read_text(encoding="utf-8"))
    frame["data"] *= 2
    dev.write_text(json.dumps(frame), encoding="utf-8")
    _, _, err = bertie("predict", saved, dev, "-o", tmp_path / "twice.json")
    assert " ".join(err.split()).count("with the id of an earlier row") == 1  # also where there are two files


def test_rows_that_cannot_be_answered_are_counted_and_not_in_the_file(tmp_path: Path, bertie: CommandLine) -> None:
    frame = questions(12, seed=1, always=True)
    (tmp_path / "train-v1.1.json").write_text(json.dumps(frame))
    frame["data"][0]["paragraphs"][0]["context"] = " "
    (tmp_path / "dev-v1.1.json").write_text(json.dumps(frame))
    model = toy_model(tmp_path / "toy", [*string.ascii_lowercase])
    where = ("--data", "squad", "--data-dir", tmp_path)
    bertie.good("finetune", model, *where, "-o", tmp_path / "run", "--seeds", 1, "epochs=1", "max_length=32", *FAST)
    saved, dev, out = tmp_path / "run/model", tmp_path / "dev-v1.1.json", tmp_path / "predictions.json"
    code, _, err = bertie("predict", saved, dev, "-o", out)
    assert code == 0
    assert "empty context (1: line 1)" in err
    assert list(json.loads(out.read_text())) == [f"질문-{i}" for i in range(1, 12)]
    code, _, err = bertie("predict", saved, dev, "-o", out)
    assert code == 2
    assert "--overwrite" in err


def test_other_tasks_give_their_label_by_line(tmp_path: Path, bertie: CommandLine) -> None:
    rows = "".join(f"{'good' if i % 2 else 'bad'}\t{'y' if i % 2 else 'n'} {'abc'[i % 3]}\n" for i in range(40))
    (tmp_path / "train.tsv").write_text("label\ttext\n" + rows)
    model = toy_model(tmp_path / "toy", [*string.ascii_lowercase])
    train = ("--train", tmp_path / "train.tsv", "-o", tmp_path / "run")
    bertie.good("finetune", model, *train, "epochs=6", "max_length=16", *FAST)
    (tmp_path / "new.txt").write_text("y a\n\nn b\n")
    bertie.good("predict", tmp_path / "run/model", tmp_path / "new.txt", "-o", tmp_path / "answers.json")
    assert json.loads((tmp_path / "answers.json").read_text()) == {"1": "good", "3": "bad"}
    (tmp_path / "other.csv").write_text("label,text\n1.0,y a\n")
    _, _, err = bertie("evaluate", tmp_path / "run/model", tmp_path / "other.csv")
    assert "--label-names 1.0=NAME" in err
    (tmp_path / "named.csv").write_text("id,text\nq1,y a\nq2,n b\n")
    bertie.good("predict", tmp_path / "run/model", tmp_path / "named.csv", "-o", tmp_path / "named.json")
    assert json.loads((tmp_path / "named.json").read_text()) == {"q1": "good", "q2": "bad"}
    (tmp_path / "numbered.jsonl").write_text('{"id": 0, "text": "y a"}\n{"id": 1, "text": "n b"}\n')
    bertie.good("predict", tmp_path / "run/model", tmp_path / "numbered.jsonl", "-o", tmp_path / "numbered.json")
    assert json.loads((tmp_path / "numbered.json").read_text()) == {"0": "good", "1": "bad"}
    (tmp_path / "twice.jsonl").write_text('{"id": 1, "text": "y a"}\n{"id": 1, "text": "n b"}\n')
    code, _, err = bertie("predict", tmp_path / "run/model", tmp_path / "twice.jsonl", "-o", tmp_path / "twice.json")
    assert (code, "1 row with the id of an earlier row" in " ".join(err.split())) == (0, True)
