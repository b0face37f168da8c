"""Rows of both languages are read as their files have them, and each way to learn has its own."""

from dataclasses import replace
from pathlib import Path

from benchmarks.cross_lingual import FEW, MANY, TASKS, learned, parts_of_speech, polarity, texts


def test_rows_without_a_text_or_a_label_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text('id\tdocument\tlabel\n1\t"좋다\t1\n2\t\t0\n3\t별로\t0\n4\t음\t\n', encoding="utf-8")
    assert texts(["document"], "label", polarity, file) == [
        {"text0": '"좋다', "label": "positive"},
        {"text0": "별로", "label": "negative"},
    ]


def test_words_of_several_tokens_and_empty_ones_have_no_part_of_speech(tmp_path: Path) -> None:
    cells = [["1-2", "don't", "_", "_"], ["1", "do", "do", "AUX"], ["2", "n't", "not", "PART"], ["2.1", "x", "x", "X"]]
    file = tmp_path / "one.conllu"
    file.write_text(
        "# text = don't\n" + "\n".join("\t".join([*row, *"______"]) for row in cells) + "\n\n", encoding="utf-8"
    )
    assert parts_of_speech(file) == [{"tokens": ["do", "n't"], "tags": ["AUX", "PART"]}]


def test_each_way_has_its_examples(tmp_path: Path) -> None:
    english = [{"text0": f"e{i}", "label": "positive"} for i in range(MANY + 10)]
    korean = [{"text0": f"k{i}", "label": "positive"} for i in range(MANY + 10)]
    task = replace(TASKS["sentiment"], english=lambda _: english, korean=lambda _: korean)
    ways = learned(task, tmp_path, 0)
    assert {way: len(rows) for way, rows in ways.items()} == {
        "English": MANY,
        "few Korean": FEW,
        "English and few": MANY + FEW,
        "Korean": MANY,
    }
    assert {row["text0"][0] for row in ways["English"]} == {"e"}
    assert [row for row in ways["English and few"] if row["text0"][0] == "k"] != ways["few Korean"], "shuffled"
    assert {row["text0"] for row in ways["few Korean"]} < {row["text0"] for row in ways["English and few"]}
    assert ways == learned(task, tmp_path, 0)
    assert ways != learned(task, tmp_path, 1)
