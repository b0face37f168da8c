"""Words and their morphemes: letters, edits of syllables, what models read and how their answers are counted."""

from pathlib import Path

import pytest

from benchmarks import morphemes
from benchmarks.morphemes import Reading, Word, applied, edits, joined, lookup, shares, spelled, words_of
from bertie.errors import DataError

PAIRS = [
    ("서울입니다", "서울+이+ㅂ니다"),
    ("가까운", "가깝+ㄴ"),
    ("걸려서", "걸리+어서"),
    ("갔다", "가+ㅆ+다"),
    ("먹을", "먹+ㄹ"),
]
SENTENCE = """# sent_id = M2TA_069-s1
1\t가까운\t가깝+ㄴ\tADJ\tpaa+etm\t_\t2\tamod\t_\t_
2\t산에\t산+에\tADV\tncn+jca\t_\t3\tobl\t_\t_
3\t가고\t가+고\tVERB\tpvg+ecx\t_\t0\troot\t_\t_
4\t있다\t있\tAUX\tpx+ef\t_\t3\taux\t_\t_
5\t.\t.\tPUNCT\tsf\t_\t3\tpunct\t_\t_
"""


@pytest.mark.parametrize(("form", "result"), PAIRS)
def test_edits_of_syllables_give_the_morphemes_back(form: str, result: str) -> None:
    assert joined(spelled(result)) == result
    labels = edits(form, result)
    assert len(labels) == len(form)
    assert applied(form, labels) == result


def test_one_edit_fits_other_syllables() -> None:
    assert edits("가까운", "가깝+ㄴ") == ("①②", "①②", "ㅂ+③")
    assert applied("새로운", edits("가까운", "가깝+ㄴ")) == "새롭+ㄴ"
    assert applied("하", ("①②③",)) == "하"  # which has no last letter


def test_a_treebank_gives_words_with_whole_analyses(tmp_path: Path) -> None:
    file = tmp_path / "dev.conllu"
    file.write_text(SENTENCE, encoding="utf-8")
    words = list(words_of(file))
    assert [word.form for word in words] == ["가까운", "산에", "가고"]
    assert words[0] == Word("가까운", "가깝+ㄴ", before="", after="산에")
    assert words[2].after == "있다"
    assert not list(words_of(file, lambda name: name != "M2TA_069"))
    with pytest.raises(DataError, match="--treebank"):
        list(words_of(tmp_path / "none"))


def test_both_models_read_and_learn_the_same_word() -> None:
    word = Word("산에", "산+에", "저", "가고")
    assert Reading(False, False).pair(word) == {"source": "산에", "target": "산+에"}
    assert Reading(True, True).pair(word) == {"source": "ㅈㅓ | ㅅㅏㄴㅇㅔ | ㄱㅏㄱㅗ", "target": "ㅅㅏㄴ+ㅇㅔ"}
    row = Reading(False, True).tagged(word)
    assert row == {"tokens": [*"저|산에|가고"], "tags": ["O", "O", "①②③", "+①②", "O", "O", "O"]}
    assert Reading(False, True).syllables(word) == (row["tokens"], 2)


def test_answers_are_counted_by_kind_of_word() -> None:
    words = [
        Word("산에", "산+에", "", ""),
        Word("큰", "크+ㄴ", "", ""),
        Word("큰", "큰", "", ""),
        Word("큰", "크+ㄴ", "", ""),
    ]
    known = lookup(words[1:])
    assert known == {"큰": "크+ㄴ"}
    answers = [known.get(word.form, word.form) for word in words]
    assert shares(words, answers, known) == {"all": 0.5, "unseen": 0.0, "changed": 1.0}


def test_models_are_made_trained_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the way on a few words, for both kinds; a second call trains nothing."""
    held_out = SENTENCE.replace("M2TA_069", morphemes.HELD_OUT[0])
    for split, text in (("dev", f"{SENTENCE}\n{held_out}\n"), ("test", SENTENCE.replace("산", "강") + "\n")):
        (tmp_path / f"ko_kaist-ud-{split}.conllu").write_text(text * 8, encoding="utf-8")
    results = tmp_path / "results.jsonl"
    monkeypatch.setattr(morphemes, "RESULTS", results)
    fits = [morphemes.Fit(kind, morphemes.SYLLABLES, 2e-3, 1) for kind in morphemes.KINDS]
    monkeypatch.setattr(morphemes, "CHOICES", fits)
    arguments = ["--treebank", str(tmp_path), "--work", str(tmp_path / "work"), "--seeds", "1"]
    monkeypatch.setattr("sys.argv", ["morphemes", *arguments])
    morphemes.main()
    lines = list(morphemes.read_lines(results))
    named = [line["method"] for line in lines]
    assert named[:3] == ["copy", "lookup", "T5"]
    assert {"lookup, else T5", "tagger", "T5, 4 beams, length penalty 0.6"} <= {*named}
    assert lines[1]["all"] == 0.6667
    assert all(0 <= line[kind] <= 1 for line in lines for kind in ("all", "changed"))
    morphemes.main()
    assert len(list(morphemes.read_lines(results))) == len(lines)
