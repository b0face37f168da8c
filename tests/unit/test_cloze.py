"""`bertie cloze`: questions about raw text."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertie import Corpus
from bertie.apps.cloze.cloze import SentenceCount, make_questions
from bertie.data.shards import Shards, ShardWriter
from bertie.errors import UsageError
from bertie.io.questions import questions

CITIES = ("Oslo", "Rome", "Cairo", "Lima", "Quito", "Delhi", "Hanoi", "Bern")
ENGLISH = [
    [f"The ship {n} left old {city} and crossed the cold sea for the north in {1500 + n}." for n in range(10, 16)]
    for city in CITIES
]
KOREAN = [[f"그 배는 {n}년에 낡은 항구를 떠나서 차가운 바다를 천천히 건너갔다." for n in range(1500, 1506)]]


def corpus(folder: Path, documents: list[list[str]]) -> Corpus:
    with ShardWriter(folder, "uint8") as writer:
        for document in documents:
            writer.add([sentence.encode() for sentence in document])
        shards = writer.finish()
    return Corpus(folder, shards.num_documents, shards.num_sentences, 0, {})


@pytest.mark.parametrize("documents", [ENGLISH, KOREAN], ids=["english", "korean"])
def test_answers_stand_where_they_say_and_not_in_the_question(documents: list[list[str]], tmp_path: Path) -> None:
    rows = list(make_questions(corpus(tmp_path, documents), rows=1000, words=60))
    assert len(rows) > len(documents)
    assert len({row["id"] for row in rows}) == len(rows), "a sentence is asked about once"
    sentences = [sentence for document in documents for sentence in document]
    for row in rows:
        (answer,) = row["answers"]
        start, text = answer["answer_start"], answer["text"]
        assert row["context"][start : start + len(text)] == text
        assert row["context"].count(text) == 1
        assert text not in row["question"].split()
        assert sentences[int(row["id"])] in row["context"]
        assert len(row["context"].split()) <= 60
        assert row["question"].endswith("?")
    kinds = {row["question"].rstrip("?").split()[0] for row in rows}
    assert kinds & (
        {"언제", "몇", "누구", "무엇", "어디", "어느"} if documents is KOREAN else {"when", "in", "how", "who", "what"}
    )


def test_kinds_of_answers(tmp_path: Path) -> None:
    """Names of several words, numbers, Korean nouns without their particle; no first word, no part of a word."""
    texts = {
        "Later the Red Cross Society came to the town with 1,200 tents.": {"Red Cross Society", "1,200"},
        "Old houses of the 1600s stand there near a very small church.": set(),
        "이 마을에서는 해마다 겨울에 축제를 크게 열고 있는 것이다.": {"마을", "겨울", "축제"},
        "nothing here has a capital or any number at all, my friend.": set(),
    }
    for number, (text, answers) in enumerate(texts.items()):
        opened = corpus(tmp_path / str(number), [[text]])
        found = {row["answers"][0]["text"] for seed in range(60) for row in make_questions(opened, rows=1, seed=seed)}
        assert found == answers


def test_neighbors_stay_inside_the_document(tmp_path: Path) -> None:
    opened, count = corpus(tmp_path, ENGLISH), SentenceCount()
    rows = list(make_questions(opened, rows=10, words=100, count=count))
    assert len(rows) == 10
    assert count.read == 10 + count.unsuitable
    for row in rows:
        assert sum(city in row["context"] for city in CITIES) == 1
    assert rows == list(make_questions(opened, rows=10, words=100))
    assert rows != list(make_questions(opened, rows=10, words=100, seed=1))


def test_a_corpus_without_sentences(tmp_path: Path) -> None:
    assert list(make_questions(corpus(tmp_path, []), rows=5)) == []


def test_from_text_to_training(bertie: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n\n".join("\n".join(document) for document in ENGLISH))
    bertie.good("corpus", "texts.txt", "-o", "corpus", "--splitter", "lines")
    out = bertie.good("cloze", "corpus", "-o", "questions.jsonl", "--rows", "20", "--context-words", "60", "--json")
    assert json.loads(out)["questions"] == 20
    assert len(list(questions("questions.jsonl"))) == 20
    bertie.good("cloze", "corpus", "-o", "pairs.txt", "--rows", "20", "--context-words", "60")
    documents = Path("pairs.txt").read_text().strip().split("\n\n")
    rows = [json.loads(line) for line in Path("questions.jsonl").read_text().splitlines()]
    assert documents == [f"{row['question']} {row['answers'][0]['text']}\n{row['context']}" for row in rows]
    bertie.good("corpus", "pairs.txt", "-o", "pairs", "--splitter", "lines")
    assert Shards.open("pairs").num_documents == 20
    code, _, err = bertie("cloze", "corpus", "-o", "questions.jsonl")
    assert (code, "--overwrite" in err) == (2, True)
    code, _, err = bertie("cloze", "corpus", "-o", "more.jsonl", "--rows", "999")
    assert code == 0
    assert "has only" in err
    code, _, err = bertie("cloze", "corpus", "-o", "none.jsonl", "--context-words", "3")
    assert (code, "choose from 50 to 1,000" in err, Path("none.jsonl").exists()) == (2, True, False)
    Path("plain.txt").write_text("nothing with any name or number is in here at all, my friend.\n")
    bertie.good("corpus", "plain.txt", "-o", "plain")
    code, _, err = bertie("cloze", "plain", "-o", "none.jsonl")
    assert (code, "no sentence of 6 words" in err, Path("none.jsonl").exists()) == (3, True, False)


def test_a_length_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose from 50"):
        list(make_questions(corpus(tmp_path, ENGLISH), rows=1, words=7))
