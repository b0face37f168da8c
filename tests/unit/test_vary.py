"""`bertie vary`: changed copies of texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertie.apps.vary.vary import vary_texts

TEXTS = [(" ".join(f"w{i * 10 + j}" for j in range(10)),) for i in range(50)]
WORDS = {word for (text,) in TEXTS for word in text.split()}


def test_copies_are_made_of_the_words_of_the_texts() -> None:
    copies = list(vary_texts(TEXTS, copies=3))
    assert len(copies) == 150
    assert {word for (text,) in copies for word in text.split()} <= WORDS
    pairs = list(zip(TEXTS * 3, copies, strict=True))
    assert sum(one != copy for one, copy in pairs) > 140
    kept = [len(set(one[0].split()) & set(copy[0].split())) / 10 for one, copy in pairs]
    assert 0.4 < sum(kept) / len(kept) < 0.9
    assert sum(copy[0].split()[0] == one[0].split()[0] for one, copy in pairs) > 100
    assert copies == list(vary_texts(TEXTS, copies=3))
    assert copies != list(vary_texts(TEXTS, copies=3, seed=1))


def test_one_text_or_more_of_a_pair_changes() -> None:
    pairs = [(f"a{i} b{i} c{i} d{i} e{i} f{i} g{i}", f"k{i} l{i} m{i} n{i} o{i} p{i} q{i}") for i in range(100)]
    copies = list(vary_texts(pairs, copies=1))
    changed = [tuple(x != y for x, y in zip(one, copy, strict=True)) for one, copy in zip(pairs, copies, strict=True)]
    assert {(True, False), (False, True), (True, True)} <= set(changed)
    assert all(text.strip() for copy in copies for text in copy)


def test_short_texts_and_writing_without_spaces() -> None:
    texts = [("가나다라마바사아자차",), ("x",), ("카타파하거너더러머버",), ("y z",)]
    copies = [text for (text,) in vary_texts(texts, copies=20)]
    assert all(text.strip() for text in copies)
    assert any(text not in {one for (one,) in texts} and " " not in text and len(text) > 5 for text in copies)
    whole = [text for (text,) in vary_texts([("가나다라마바사아자차",), ("카타파하거너더러머버",)], copies=20)]
    assert all(" " not in text for text in whole)
    mixed = [text for (text,) in vary_texts([("Great",), ("a film that I like",)], copies=50)]
    assert not any(text.startswith("G r") for text in mixed), "a word alone is cut by characters, and joined to words"


def test_on_the_command_line(bertie: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("id,review,label\n" + "".join(f"{n},{text},x\n" for n, (text,) in enumerate(TEXTS)))
    bertie.good("vary", "t.csv", "--text", "review", "-o", "more.jsonl", "--copies", "1")
    rows = [json.loads(line) for line in Path("more.jsonl").read_text().splitlines()]
    assert len(rows) == 100
    assert [row["review"] for row in rows[:50]] == [text for (text,) in TEXTS]
    assert all(set(row) == {"review"} for row in rows)
    code, _, err = bertie("vary", "t.csv", "--text", "review", "-o", "more.jsonl")
    assert (code, "--overwrite" in err) == (2, True)
    code, _, err = bertie("vary", "t.csv", "--text", "revue", "-o", "other.jsonl")
    assert (code, "review" in err, Path("other.jsonl").exists()) == (3, True, False)
    code, _, err = bertie("vary", "missing.csv", "-o", "other.jsonl")
    assert (code, "missing.csv" in err) == (3, True)
