"""The text benchmarks: every runner makes the same ids, and a runner that does not is caught."""

import json
from collections import Counter

import pytest

from benchmarks import corpus, harness, instances, tokenizer
from benchmarks.commands import text
from bertie.errors import BertieError, UsageError


@pytest.fixture
def documents():
    made = list(corpus.made_up(0.06)) + list(corpus.made_up(0.03, hangul=True))
    return [*made, made[0], "  ", "It was a cafÃ© once.\nA second line, Dr. Who said. Yes!"]


def test_made_up_text_is_the_same_each_time_with_duplicates_and_as_much_as_asked():
    first, again = list(corpus.made_up(1.0)), list(corpus.made_up(1.0))
    assert first == again
    assert 1.0 <= sum(len(text.encode()) for text in first) / 1e6 < 1.1
    assert 0 < len(first) - len(set(first)) < 0.1 * len(first)
    assert len({word for text in first for word in text.lower().split()}) > 5000


def test_one_round_has_no_spread():
    assert harness.Cell("a", [2.0]).spread is None
    assert harness.around(harness.Cell("a", [1.0, 3.0]).spread) == "± 50%"
    assert harness.around(None) == ""


def test_documents_are_read_from_files_as_far_as_asked(tmp_path):
    texts = [f"Document {n} has a sentence." for n in range(100)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    assert list(corpus.documents_of(str(tmp_path), 1.0)) == texts
    assert list(corpus.documents_of(str(tmp_path), 0.0001)) == texts[:4]
    (tmp_path / "a.txt").write_text(" ")
    with pytest.raises(UsageError, match="no documents"):
        list(corpus.documents_of(str(tmp_path / "a.txt"), 1.0))


def test_both_make_the_same_ids_on_disk(tmp_path, documents, monkeypatch):
    pytest.importorskip("datasets")
    path, folder = corpus.write(tmp_path, documents)
    digests = {}
    for name, run in corpus.RUNNERS.items():
        digests[name] = run(path, folder, 1, tmp_path / name)()
    assert len(set(digests.values())) == 1
    assert digests["bertie"] != corpus._digest([])
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]), encoding="utf-8")
    assert corpus.with_bertie(path, folder, 1, tmp_path / "fewer")() != digests["bertie"]


def test_tokenizer_lines_and_a_runner_that_makes_other_ids(documents, monkeypatch):
    pytest.importorskip("transformers")
    lines = tokenizer.measure(documents, "some", threads=1, rounds=2)
    assert [line["runner"] for line in lines] == list(tokenizer.RUNNERS)
    assert all(line["tokens"] == lines[0]["tokens"] > 1000 and len(line["rates"]) == 2 for line in lines)
    assert set(lines[0]["times_quicker_than"]) == {"tokenizers", "transformers"}
    text._tell("tokenizer", lines, None)

    opened, lists = tokenizer.RUNNERS["transformers"]
    monkeypatch.setitem(tokenizer.RUNNERS, "transformers", (opened, lambda found: [row[:-1] for row in lists(found)]))
    with pytest.raises(BertieError, match="transformers and tokenizers produced different token ids"):
        tokenizer.measure(documents, "some", threads=1, rounds=2)


def test_instances_agree_with_the_data_scripts_and_others_are_caught(tmp_path, monkeypatch):
    made = list(corpus.made_up(0.3))
    lines = instances.measure(made, "some", length=32, rounds=1)
    assert [line["runner"] for line in lines] == ["bertie", "create_pretraining_data"]
    assert all(line["instances"] > 1000 and line["instances_per_s"] > 0 for line in lines)
    for line in lines:
        assert line["shares"]["masked"] == pytest.approx(0.8, abs=0.02)
        assert line["shares"]["kept"] == pytest.approx(0.1, abs=0.02)
        assert 0.5 < line["shares"]["random next"] < 0.8  # of single sentences all are
    text._tell("instances", lines, None)

    counted = instances.BertieInstances.facts
    fewer = lambda self: counted(self) - Counter(masked=counted(self)["masked"] // 10)  # noqa: E731
    monkeypatch.setattr(instances.BertieInstances, "facts", fewer)
    with pytest.raises(BertieError, match="The fraction masked is"):
        instances.measure(made, "some", length=32, rounds=1)


def test_an_instance_is_what_the_script_makes_of_two_texts(tmp_path):
    _, folder = corpus.write(tmp_path, corpus.made_up(0.05))
    opened = tokenizer.Tokenizer.load(folder)
    made = instances.release([[[9, 8, 7], [6]], [[11, 12], [13, 14]]], opened, 16, seed=0)
    for one in made:
        real = sum(one.input_mask)
        assert len(one.input_ids) == len(one.segment_ids) == len(one.input_mask) == 16
        restored = list(one.input_ids)
        for place, target in zip(one.positions, one.targets, strict=True):
            restored[place] = target if place else restored[place]
        assert restored[0] == opened.cls_id
        assert restored[real - 1] == opened.sep_id
        assert restored.count(opened.sep_id) == 2
        assert one.segment_ids[:real] == sorted(one.segment_ids[:real])
        assert set(restored[real:]) <= {opened.pad_id}
    assert {one.random_next for one in made} <= {True, False}
    assert len(made) >= 2


@pytest.mark.slow
def test_corpus_lines(documents):
    pytest.importorskip("datasets")
    lines = corpus.measure(documents, "some", workers=(1, 2), rounds=1)
    assert [(line["runner"], line["workers"]) for line in lines] == [
        ("bertie, 1 process", 1),
        ("datasets.map, 1 process", 1),
        ("bertie, 2 processes", 2),
        ("datasets.map, 2 processes", 2),
    ]
    assert len({line["ids"] for line in lines}) == 1
    assert set(lines[2]["times_quicker_than"]) == {"datasets.map, 2 processes"}
    assert all(line["mb_per_s"] > 0 and line["peak_memory_bytes"] > 1e6 for line in lines)
    text._tell("corpus", lines, None)
