"""Decontamination, compared with a search for the words themselves."""

import gzip
import json
import random
import re

import pytest

from bertie.data import card, corpus, decontaminate
from bertie.data.decontaminate import Evaluation
from bertie.data.prepare import CorpusConfig
from bertie.errors import DataError, UsageError
from bertie.io import sources
from bertie.runs.corpora import CorpusRecipe
from bertie.settings import load_config
from bertie.tasks.datasets import DATASETS

LEXICON = [f"{a}{b}" for a in "ba ke lo mi nu".split() for b in "rin sol tam vek".split()]
QUESTION = "Which of the seven rivers that rise near the old mill flows past both of the northern towns?"
KOREAN = "오래된 방앗간 옆에서 시작되는 일곱 강 가운데 어느 것이 북쪽 마을을 지나 바다로 흐릅니까?"


def plain(text):
    return re.findall(r"\w+", text.lower())


def shared(text, example):
    """Whether they share a run of 13 words, or the example is of 8 to 12 and occurs in the text."""
    words, wanted = plain(text), plain(example)
    length = min(13, len(wanted))
    runs = {tuple(wanted[i : i + length]) for i in range(len(wanted) - length + 1)} if length >= 8 else set()
    return any(tuple(words[i : i + length]) in runs for i in range(len(words) - length + 1))


def test_it_finds_what_a_search_for_the_words_finds():
    rng = random.Random(7)

    def some(length):
        return [rng.choice(LEXICON) for _ in range(length)]

    examples = {name: [" ".join(some(rng.randint(4, 30))) for _ in range(30)] for name in ("a", "b")}
    found = Evaluation.of(examples)
    hits = 0
    for _ in range(300):
        words = plain(rng.choice(examples["a"] + examples["b"]))
        start = rng.randrange(max(1, len(words) - 12))
        text = " ".join([*some(20), *words[start : start + rng.randint(6, 16)], *some(20)]).title() + "."
        wanted = [name for name, texts in examples.items() if any(shared(text, example) for example in texts)]
        assert found.sets_in(text) == wanted
        hits += bool(wanted)
    assert 30 < hits < 270


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        (f"He asked: {QUESTION.upper()} Nobody knew.", True),
        ("rivers that rise near the old mill flows past both of the northern", True),  # 13 of its words
        ("rivers that rise near the old mill flows past both of the", False),
        ("rivers that rise near the old mill flows past both of the southern towns", False),
        (f"질문은 이렇다. {KOREAN}", True),
        ("옆에서 시작되는 일곱 강 가운데, 어느 것이 북쪽 마을은", True),  # 8 of its eojeols
        ("옆에서 시작되는 일곱 강 가운데, 어느 것은", False),
        ("", False),
        ("?!", False),
    ],
)
def test_thirteen_words_or_eight_eojeols_are_a_match(text, hit):
    sets = Evaluation.of({"questions": [QUESTION, KOREAN, "too short"]})
    assert sets.sets_in(text) == ["questions"] * hit
    assert sets.facts["questions"]["texts"] == 3
    assert sets.facts["questions"]["too_short"] == 1


def test_a_set_without_a_long_enough_text_is_refused():
    with pytest.raises(DataError, match="of 2 texts, none has 8 words"):
        Evaluation.of({"labels": ["positive", "negative"]})


def test_a_saved_set_is_the_same(tmp_path):
    sets = Evaluation.of({"one": [QUESTION], "two": [KOREAN, QUESTION]})
    sets.save(tmp_path / "sets")
    again = Evaluation.load(tmp_path / "sets")
    assert again.fingerprint == sets.fingerprint
    assert again.sets_in(QUESTION) == ["one", "two"]
    assert Evaluation.of({"one": [KOREAN]}).fingerprint != Evaluation.of({"one": [QUESTION]}).fingerprint


def test_documents_or_paragraphs_go_with_counts_whatever_the_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "UNIT", 60)
    fine = "A first text stands here.\nIt has a second paragraph."
    texts = [fine, f"Before it.\n{QUESTION} So they asked.", QUESTION, "A last text."]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    inputs, sets = [tmp_path / f"{n}.txt" for n in range(4)], {"quiz": [QUESTION], "other": [KOREAN]}

    def build(name, dedup, workers):
        shards = corpus.build_shards(
            inputs, tmp_path / name, CorpusConfig(dedup=dedup), evaluation=sets, workers=workers
        )
        account = shards.manifest["records"]
        assert account["in"] == account["kept"] + sum(account["dropped"].values())
        return shards

    documents = build("documents", "documents", 1)
    assert documents.manifest["records"]["dropped"] == {"text of an evaluation set": 2}
    assert documents.manifest["evaluation"]["quiz"]["removed"] == 2
    assert documents.manifest["evaluation"]["other"]["removed"] == 0
    assert "| quiz" in card.render(card.load_card(tmp_path / "documents"))
    paragraphs = build("paragraphs", "paragraphs", 1)
    assert paragraphs.manifest["records"]["dropped"] == {"text of an evaluation set": 1}
    assert paragraphs.manifest["counts"] == {"paragraphs removed (text of an evaluation set)": 2}
    assert [d[0] for d in corpus.documents(tmp_path / "paragraphs")] == [
        "A first text stands here.",
        "Before it.",
        "A last text.",
    ]
    assert build("again", "paragraphs", 2).fingerprint == paragraphs.fingerprint
    sets["quiz"] = ["Another question of eight words and some more."]
    with pytest.raises(UsageError, match="another corpus"):
        build("documents", "documents", 1)


def test_examples_are_read_from_any_file(tmp_path):
    frame = {"data": [{"paragraphs": [{"context": QUESTION, "qas": [{"id": "1", "question": KOREAN}]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(frame, indent=1), encoding="utf-8")
    (tmp_path / "a.tsv").write_text(f"id\tq\n1\t{QUESTION}\n2\t{KOREAN}\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(json.dumps({"x": {"y": [QUESTION, KOREAN]}}) + "\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text(f"{QUESTION}\n{KOREAN}\n", encoding="utf-8")
    (tmp_path / "a.conll").write_text(
        "\n".join(f"{w} O" for w in QUESTION.split()) + "\n\n" + "옛 O\n", encoding="utf-8"
    )
    rows = "".join(json.dumps({"q": text}) + "\n" for text in (QUESTION, KOREAN))
    (tmp_path / "b.json").write_text(rows, encoding="utf-8")  # a row in each line
    for name in ("a.json", "b.json", "a.tsv"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    for name in ("a.json", "b.json", "a.tsv", "a.jsonl", "a.txt", "a.json.gz", "b.json.gz", "a.tsv.gz"):
        assert {QUESTION, KOREAN} <= set(decontaminate.evaluation_texts(tmp_path / name)), name
    assert plain(next(decontaminate.evaluation_texts(tmp_path / "a.conll"))) == plain(QUESTION)


def test_published_sets_are_found_by_name_without_their_training_split(tmp_path):
    (tmp_path / "sets" / "SST-2").mkdir(parents=True)
    for split, text in (("train", KOREAN), ("dev", QUESTION)):
        (tmp_path / "sets" / "SST-2" / f"{split}.tsv").write_text(f"sentence\tlabel\n{text}\t1\n", encoding="utf-8")
    recipe = CorpusRecipe(decontaminate=("sst2",), data_dirs=("nowhere", str(tmp_path / "sets")))
    assert {name: list(texts) for name, texts in recipe.evaluation().items()} == {"sst2": [QUESTION]}


@pytest.mark.parametrize("name", ["corpus-english", "corpus-korean"])
def test_recipes_name_sets_that_are_known(name):
    recipe = load_config(CorpusRecipe, name, data_dirs=["nowhere"])
    assert recipe.dedup == "paragraphs"
    assert recipe.decontaminate
    assert set(recipe.decontaminate) <= set(DATASETS)
    with pytest.raises(DataError, match="--data-dir"):
        recipe.evaluation()
