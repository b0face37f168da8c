import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from bertie.apps.search.readers import Reading, read_documents
from bertie.errors import DataError, UsageError
from bertie.io.lines import BadRecord
from bertie.io.questions import MISPLACED, place_answers, questions
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tagged import sentences
from bertie.tasks.datasets import DATASETS
from bertie.tasks.span import SpanTask
from bertie.tasks.tagging import TaggingTask

CONLL2003 = """-DOCSTART- -X- -X- O

Ada NNP B-NP B-PER
sails VBZ B-VP O
. . O O

Lake NNP B-NP I-LOC
Garda NNP I-NP I-LOC
"""
CONLLU = """# sent_id = 1
# text = "I can't go," she said.
1\t"\t"\tPUNCT\t``\t_\t4\tpunct\t_\tSpaceAfter=No
2\tI\tI\tPRON\tPRP\t_\t4\tnsubj\t_\t_
3-4\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
3\tca\tcan\tAUX\tMD\t_\t5\taux\t_\t_
4\tn't\tnot\tPART\tRB\t_\t5\tadvmod\t_\t_
5\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
5.1\tgone\tgo\tVERB\tVB\t_\t_\t_\t_\t_
6\t,\t,\tPUNCT\t,\t_\t8\tpunct\t_\tSpaceAfter=No
7\t"\t"\tPUNCT\t''\t_\t8\tpunct\t_\t_
8\tshe\tshe\tPRON\tPRP\t_\t9\tnsubj\t_\t_
9\tsaid\tsay\tVERB\tVBD\t_\t5\tparataxis\t_\tSpaceAfter=No
10\t.\t.\tPUNCT\t.\t_\t5\tpunct\t_\t_
"""
KLUE = "## klue-ner-v1_dev_00000-made\t<한나:PS>가 왔다#\n한\tB-PS\n나\tI-PS\n가\tO\n \tO\n왔\tO\n다\tO\n#\tO\n"


def write(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def words(example):
    return [example.texts[0][start:end] for start, end in example.spans]


@pytest.mark.promise("oddities-of-published-files")
def test_conll_2003_as_published(tmp_path):
    first, second = sentences(write(tmp_path, "eng.train", CONLL2003), TableFormat())
    assert first.texts == ("Ada sails .",)
    assert first.label == ("B-PER", "O", "O")
    assert words(first)[2] == "."
    assert second.label == ("I-LOC", "I-LOC")
    assert second.line == 7
    chunks = next(sentences(tmp_path / "eng.train", TableFormat.of(label="3")))
    assert chunks.label == ("B-NP", "B-VP", "O")


def test_the_tags_are_found_beside_other_columns(tmp_path):
    rows = sentences(write(tmp_path, "a.txt", "Ada B-PER 0\nsails O 0\n\n\t\nShe\tO\n"), TableFormat())
    assert [row.label for row in rows] == [("B-PER", "O"), ("O",)]


def test_universal_dependencies_keep_the_text(tmp_path):
    (example,) = sentences(write(tmp_path, "a.conllu", CONLLU), TableFormat())
    assert example.texts == ('"I can\'t go," she said.',)
    assert words(example) == ['"', "I", "ca", "n't", "go", ",", '"', "she", "said", "."]
    assert example.label[:5] == ("PUNCT", "PRON", "AUX", "PART", "VERB")
    (example,) = sentences(tmp_path / "a.conllu", TableFormat.of(label="xpos"))
    assert example.label[2] == "MD"


def test_klue_ner_is_read_by_characters(tmp_path):
    (example,) = sentences(write(tmp_path, "a.tsv", KLUE), TableFormat.of(kind="klue"))
    assert example.texts == ("한나가 왔다#",)
    assert words(example) == list("한나가왔다#")
    assert example.label == ("B-PS", "I-PS", "O", "O", "O", "O")


def test_tokens_in_jsonl(tmp_path):
    rows = [{"tokens": ["Ada", "sails"], "tags": ["B-PER", "O"]}, {"tokens": ["hm"]}, {"tokens": []}, {"tags": []}]
    rows += [{"tokens": ["a", "b"], "tags": ["O"]}, {"tokens": ["a", 1], "tags": ["O", "O"]}]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)) + "\nno json\n")
    good, untagged, *bad = sentences(path, TableFormat())
    assert good.label == ("B-PER", "O")
    assert untagged.label is None
    assert all(isinstance(row, BadRecord) for row in bad)
    assert len(bad) == 5
    again = write(tmp_path, "a.ndjson", path.read_text())
    assert next(sentences(again, TableFormat())) == good


def test_entities_by_characters_as_annotation_programs_write_them(tmp_path):
    """doccano, Label Studio, Prodigy and spaCy; their offsets count characters."""
    rows = [
        {"text": "Ada Lovelace saw 😀 London-Soho.", "entities": [[19, 25, "LOC"], [0, 12, "PER"]]},
        {"text": "Londoners!", "spans": [{"start": 0, "end": 6, "label": "LOC"}], "tokens": [{"text": "Londoners"}]},
        {"text": "Nobody", "label": []},
        {
            "text": "Ann, Bob ",
            "label": [{"start": 0, "end": 3, "labels": ["PER"]}, {"start_offset": 4, "end_offset": 9, "type": "PER"}],
        },
        {"text": "Ann", "mine": [[0, 3, "PER"]]},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, wide, none, two, other = TaggingTask.rows(path, TableFormat())
    words = [first.texts[0][start:end] for start, end in first.spans]
    assert words == ["Ada", "Lovelace", "saw", "😀", "London", "-", "Soho", "."]
    assert first.label == ("B-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O")
    assert (first.widened, wide.label, wide.widened, none.label) == (0, ("B-LOC", "O"), 1, ("O",))
    assert two.label == ("B-PER", "O", "B-PER")
    assert other == BadRecord(5, "no tags and no entities")
    assert [*TaggingTask.rows(path, TableFormat.of(label="mine"))][-1].label == ("B-PER",)
    assert [row.label for row in TaggingTask.rows(path, TableFormat.of(labelled=False))] == [None] * 5
    refused = [json.dumps({**rows[1], "answer": answer}) for answer in ("accept", "reject", "ignore")]
    kept, *skipped = sentences(write(tmp_path, "prodigy.jsonl", "\n".join(refused)), TableFormat())
    assert (kept.label, skipped) == (wide.label, [BadRecord(2, "answer is reject"), BadRecord(3, "answer is ignore")])
    task = TaggingTask(("O", "B-LOC"))
    assert task.notes([first, wide], [wide])[0].startswith("1 training entities begin or end within a word")


@pytest.mark.parametrize("suffix", ["parquet", "json", "jsonl"])
def test_words_and_tags_of_other_tables(tmp_path, suffix):
    """As `datasets` writes them to parquet: numbers of classes, whose names are in the file."""
    rows = [
        {"id": "0", "tokens": ["Ada", "rows"], "ner_tags": [1, 0], "text": "Ada rows", "entities": [[0, 8, "OLD"]]},
        {"id": "1", "tokens": ["Bo"], "ner_tags": [0], "text": "Bo", "entities": []},
    ]
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        table = pa.Table.from_pylist([{name: row[name] for name in ("id", "tokens", "ner_tags")} for row in rows])
        features = {"ner_tags": {"_type": "List", "feature": {"names": ["O", "B-PER"], "_type": "ClassLabel"}}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    names = {} if suffix == "parquet" else {"0": "O", "1": "B-PER"}
    ada, bo = TaggingTask.rows(path, TableFormat.of(label_names=names))
    assert (ada.texts, ada.label, bo.label) == (("Ada rows",), ("B-PER", "O"), ("O",))
    _, bo = TaggingTask.rows(path, TableFormat.of(labelled=False))
    assert (bo.texts, bo.spans) == (("Bo",), ((0, 2),))


def test_a_table_of_texts_is_read_as_before(tmp_path):
    for name in ("a.json", "a.parquet"):
        path = tmp_path / name
        rows = [{"sentence": "Ada rows", "n": 1}]
        path.write_text(json.dumps(rows)) if name == "a.json" else pyarrow.parquet.write_table(
            pa.Table.from_pylist(rows), path
        )
        assert [row.texts for row in TaggingTask.rows(path, TableFormat.of(labelled=False))] == [("Ada rows",)]


KAGGLE = [("1", "Ada", "NNP", "B-PER"), ("1", "Lovelace", "NNP", "I-PER"), ("2", '"', '"', "O"), ("2", "Go", "VB", "O")]


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("head", ["Sentence #,Word,POS,Tag", "sentence_id,token,pos,ner"])
def test_a_word_in_each_row_of_a_table(tmp_path, head, once):
    path = tmp_path / "ner.csv"
    with path.open("w", newline="") as file:
        file.write(head + "\n")
        for i, row in enumerate(KAGGLE):
            csv.writer(file).writerow(["" if once and i % 2 else row[0], *row[1:]])
    format = TableFormat.of(label="ner" if "ner" in head else "")
    found = [*TaggingTask.rows(path, format)]
    assert [one.texts for one in found] == [("Ada Lovelace",), ('" Go',)]
    assert [one.label for one in found] == [("B-PER", "I-PER"), ("O", "O")]
    assert [one.line for one in found] == [2, 4]
    assert [one.texts for one in TaggingTask.rows(path, TableFormat.of(labelled=False))] == [one.texts for one in found]


def test_sentences_of_a_table_end_at_empty_rows_and_damaged_ones_are_named(tmp_path):
    path = tmp_path / "ner.csv"
    path.write_text("w,t\nAda,B-PER\nsails,O\n\nShe,O\n,O\n,\nEnd,O,more\n\nGo,O\n")
    found = [*TaggingTask.rows(path, TableFormat.of(("w",), "t"))]
    assert [getattr(one, "label", None) or one.reason for one in found] == [
        ("B-PER", "O"), "tokens or tags are not texts", "3 columns instead of 2", ("O",)
    ]  # fmt: skip
    with pytest.raises(DataError, match="has no column 'Tag'"):
        [*TaggingTask.rows(path, TableFormat.of(("w",), "Tag"))]
    path.write_text("word,tag\n" + "a,O\n" * 1100)
    with pytest.raises(DataError, match="Add a column sentence_id"):
        [*TaggingTask.rows(path, TableFormat())]


def test_entities_of_korean_texts_are_read_by_characters(tmp_path):
    """The particle after a name is no part of it."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "서울에서 만나요, Ann", "entities": [[0, 2, "LOC"]]}) + "\n")
    (row,) = TaggingTask.rows(path, TableFormat())
    assert row.label[:4] == ("B-LOC", "I-LOC", "O", "O")
    assert (len(row.spans), row.widened) == (11, 0)


@pytest.mark.parametrize(
    ("entities", "reason"),
    [
        ([[0, 9, "PER"]], "an entity outside of the text"),
        ([[2, 2, "PER"]], "an entity outside of the text"),
        ([[0, 4, "PER"], [2, 8, "LOC"]], "entities that share a word"),
        ([[0, 4]], "an entity that is not a list of its start, end and label"),
        ([{"start": 0, "label": "PER"}], "an entity without an end"),
        ([{"end": 4, "label": []}], "an entity without a start and a label"),
        ([[0, 1.5, "PER"]], "an entity whose start or end is not a whole number"),
        ([[0, 4, 1]], "an entity whose label is not a text"),
        ([{"start": 0, "end": 4, "label": ["PER", "LOC"]}], "an entity with several labels"),
        ([[True, 4, "PER"]], "an entity whose start or end is not a whole number"),
    ],
)
def test_damaged_entities_cost_their_row(tmp_path, entities, reason):
    path = tmp_path / "a.jsonl"
    rows = [{"text": "Over lap", "entities": entities}, {"text": "fine", "entities": []}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bad, good = TaggingTask.rows(path, TableFormat())
    assert isinstance(bad, BadRecord)
    assert bad.reason.startswith(reason)
    assert good.label == ("O",)


@pytest.mark.parametrize("start", [0, 0.0, "0", "0.0"])
def test_offsets_are_read_as_programs_write_whole_numbers(tmp_path, start):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "Over lap", "entities": [{"start": start, "end": "4", "label": "PER"}]}) + "\n")
    (row,) = TaggingTask.rows(path, TableFormat())
    assert row.label == ("B-PER", "O")


@pytest.mark.parametrize(("text", "reason"), [(None, "no text"), (" ", "empty text"), (["a"], "text is not a text")])
def test_an_annotated_row_without_a_text_says_so(tmp_path, text, reason):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": text, "entities": [[0, 4, "PER"]]}) + "\n")
    assert [*TaggingTask.rows(path, TableFormat())] == [BadRecord(1, reason)]


def test_words_and_tags_may_have_other_names(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"worte": ["Ada", "sails"], "marken": ["B-PER", "O"], "id": 7}\n')
    (row,) = sentences(path, TableFormat.of(("worte",), "marken", keep=True))
    assert (row.texts, row.label) == (("Ada sails",), ("B-PER", "O"))
    assert row.source == {"worte": ["Ada", "sails"], "marken": ["B-PER", "O"], "id": 7}
    remembered = TableFormat(columns=Columns(usual_text=("worte",), usual_label="marken"))
    assert [one.label for one in sentences(path, remembered)] == [row.label]
    usual = write(tmp_path, "b.jsonl", '{"tokens": ["Bo"], "tags": ["O"]}\n')
    assert [one.texts for one in sentences(usual, remembered)] == [("Bo",)]


def test_the_text_of_a_row_without_tokens_may_have_another_name(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"body": "Ada sails"}\n{"tokens": ["Ada"], "tags": ["O"]}\n')
    untagged, tagged = sentences(path, TableFormat.of(text=("body",)))
    assert (untagged.texts, tagged.texts) == (("Ada sails",), ("Ada",))


def test_damaged_sentences_are_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"Ada B-PER\n\nalone\n\nx\xff O\n\n\tO\nb\tO\n\nshe O\n")
    rows = list(sentences(path, TableFormat()))
    assert [row.reason for row in rows if isinstance(row, BadRecord)] == [
        "a word without its tag",
        "not utf-8",
        "a tag without its word",
    ]
    assert [row.line for row in rows] == [1, 3, 5, 7, 10]
    (spaced,) = sentences(write(tmp_path, "b.txt", "10\u00a0000  B-NUM\n"), TableFormat())
    assert (spaced.texts, spaced.label) == (("10\u00a0000",), ("B-NUM",))


def test_what_is_no_file_of_tags_is_refused(tmp_path):
    with pytest.raises(DataError, match="--label 2"):
        list(sentences(write(tmp_path, "a.txt", "hello world\n"), TableFormat()))
    with pytest.raises(DataError, match="has commas instead of a word per line"):
        list(sentences(write(tmp_path, "a.csv", "Number,Form,Kind\n1,Ada,B-PER\n"), TableFormat()))
    with pytest.raises(DataError, match="has JSON instead of a word per line"):
        list(sentences(write(tmp_path, "b.txt", '[{"tokens": ["Ada"]}]\n'), TableFormat()))
    with pytest.raises(DataError, match="cannot be read"):
        list(sentences(tmp_path / "none", TableFormat()))
    with pytest.raises(UsageError, match="upos"):
        list(sentences(write(tmp_path, "a.conllu", CONLLU), TableFormat.of(label="pos")))
    with pytest.raises(UsageError, match="conllu"):
        list(sentences(tmp_path / "a.conllu", TableFormat.of(kind="conlu")))
    with pytest.raises(UsageError, match="Omit --text"):
        list(sentences(tmp_path / "a.conllu", TableFormat.of(text=("form",))))
    with pytest.raises(UsageError, match="Omit --columns"):
        list(sentences(tmp_path / "a.conllu", TableFormat.of(columns=("id", "form"))))


CONTEXT = "Ada sails on Lake Garda."
QAS = [
    {"id": "1", "question": "Who sails?", "answers": [{"text": "Ada", "answer_start": 0}]},
    {"guid": "g2", "question": "Who swims?", "answers": [], "is_impossible": True},
    {"id": "3", "question": "Where?", "answers": [{"text": "Lake Como", "answer_start": 13}]},
    {"id": "4", "question": " ", "answers": []},
    {"id": "5", "question": "When?", "answers": [{"answer_start": 1}]},
    {"id": "6", "question": "How?"},
    {"id": "7", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}], "is_impossible": True},
    {"id": "8", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}], "is_impossible": "false"},
]


def test_squads_frame(tmp_path):
    paragraphs = [{"context": CONTEXT, "qas": QAS}, {"context": "\n", "qas": QAS[:1]}]
    path = write(tmp_path, "a.json", "\ufeff" + json.dumps({"version": "x", "data": [{"paragraphs": paragraphs}]}))
    rows = list(questions(path))
    assert rows[0].texts == ("Who sails?", CONTEXT)
    assert rows[0].label == (("Ada", 0),)
    assert rows[0].id == "1"
    assert rows[1].label == ()
    assert rows[1].id == "g2"
    assert rows[2].label == (("Lake Como", MISPLACED),)
    assert rows[3] == BadRecord(4, "empty question")
    assert rows[4] == BadRecord(5, "answers are not text and answer_start")
    assert rows[5].label is None
    assert rows[6].label == ()
    assert rows[7].label == (("Ada", 0),)
    assert rows[8] == BadRecord(9, "empty context")


def test_other_encodings_and_compressed_files(tmp_path):
    asked = [{"id": "1", "question": "누가?", "answers": [{"text": "바다", "answer_start": 0}]}]
    frame = {"data": [{"paragraphs": [{"context": "바다로 간다", "qas": asked}]}]}
    data = json.dumps(frame, ensure_ascii=False, indent=1)
    path = tmp_path / "a.json"
    path.write_bytes(data.encode("cp949"))
    with pytest.raises(DataError, match="is not utf-8 text"):
        list(questions(path))
    (found,) = questions(path, TableFormat.of(encoding="cp949"))
    assert found.label == (("바다", 0),)
    lines = "".join(json.dumps({"context": "바다로 간다", **one}) + "\n" for one in asked)
    for name, text in (("b.json.gz", data), ("b.jsonl.gz", lines)):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
        assert [row.texts for row in questions(tmp_path / name)] == [found.texts]


def test_questions_have_no_columns_to_choose(tmp_path):
    """Training on other fields than the named ones would go unnoticed."""
    row = {"question": "Who?", "query": "Where?", "context": CONTEXT, "answers": []}
    path = write(tmp_path, "a.jsonl", json.dumps(row) + "\n")
    for format in (
        TableFormat.of(text=("query", "context")),
        TableFormat.of(label="gold"),
        TableFormat.of(label_names={"a": "b"}),
    ):
        with pytest.raises(UsageError, match="omit --"):
            list(SpanTask.rows(path, format))
    (found,) = SpanTask.rows(path, TableFormat.of(text=("question", "context"), label="answers"))
    assert found.texts == ("Who?", CONTEXT)


def test_tags_have_the_names_that_are_given(tmp_path):
    path = write(tmp_path, "a.conll", "Ada B-PERSON\nsails O\nLee B-PERSON\n")
    (found,) = TaggingTask.rows(path, TableFormat.of(label_names={"B-PERSON": "B-PER"}))
    assert found.label == ("B-PER", "O", "B-PER")


def test_the_columns_of_a_sentence_are_its_text_and_its_tags(tmp_path):
    path = write(tmp_path, "a.conll", "Ada B-PER\nsails O\n")
    (found,) = sentences(path, TableFormat.of(keep=True))
    assert found.source == {"text": "Ada sails", "tokens": ["Ada", "sails"], "tags": ["B-PER", "O"]}
    (found,) = sentences(path, TableFormat())
    assert found.source is None


@pytest.mark.parametrize(("name", "kind", "text"), [("a.conllu", "", CONLLU), ("a.tsv", "klue", KLUE)])
def test_the_output_of_predict_is_read_with_its_own_tags(tmp_path, name, kind, text):
    """Predictions are beside them, as `entities`."""
    (found,) = sentences(write(tmp_path, name, text), TableFormat.of(kind=kind, keep=True))
    written = {**found.source, "entities": [{"start": 0, "end": 1, "type": "ORG"}]}
    (again,) = sentences(write(tmp_path, "b.jsonl", json.dumps(written)), TableFormat())
    assert (again.texts, again.spans, again.label) == (found.texts, found.spans, found.label)
    (other,) = sentences(write(tmp_path, "c.jsonl", json.dumps({**written, "text": "other"})), TableFormat())
    assert other.texts == (" ".join(written["tokens"]),)


def test_one_question_a_line(tmp_path):
    row = {"question": "Who?", "context": CONTEXT, "answers": {"text": ["Ada"], "answer_start": [0]}}
    path = write(tmp_path, "a.jsonl", json.dumps(row) + "\n\n[]\n")
    good, empty, other = questions(path)
    assert good.label == (("Ada", 0),)
    assert empty.reason == "empty line"
    assert other.reason == "not a JSON object"


def test_one_question_in_a_row_of_a_parquet_file(tmp_path):
    """As the library `datasets` writes SQuAD."""
    rows = [{"id": "1", "question": "Who?", "context": "Ada rows.", "answers": {"text": ["Ada"], "answer_start": [0]}}]
    rows += [{"id": "2", "question": "When?", "context": "Ada rows.", "answers": {"text": [], "answer_start": []}}]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = [*SpanTask.rows(tmp_path / "a.parquet", TableFormat())]
    assert [(row.id, row.label) for row in found] == [("1", (("Ada", 0),)), ("2", ())]
    (tmp_path / "a.csv").write_text("question,context,answers\n")
    with pytest.raises(UsageError, match=r"must be in a \.json"):
        [*SpanTask.rows(tmp_path / "a.csv", TableFormat())]


@pytest.mark.promise("oddities-of-published-files")
def test_answers_are_found_where_they_stand_or_not_at_all():
    assert place_answers([{"text": "sails", "answer_start": 4}], CONTEXT) == (("sails", 4),)
    assert place_answers([{"text": "sails", "answer_start": 5}], CONTEXT) == (("sails", MISPLACED),)
    assert (
        place_answers([{"text": "sails"}], CONTEXT) == place_answers("sails", CONTEXT) == (("sails", 4),)
    )  # its only place
    assert place_answers({"text": ["a"], "answer_start": []}, CONTEXT) == (("a", MISPLACED),)  # it has several
    beyond = "\U0001f600 가 Ada"
    assert place_answers([{"text": "Ada", "answer_start": start} for start in (4, 5, 9)], beyond) == (("Ada", 4),) * 3


@pytest.mark.parametrize("text", ["{", '{"data": 1}', "[]", '{"data": [{"paragraphs": [{"qas": [{}]}]}]}'])
def test_other_json_is_refused(tmp_path, text):
    with pytest.raises(DataError):
        list(questions(write(tmp_path, "a.json", text)))


@pytest.mark.parametrize("name", [name for name, each in DATASETS.items() if each.kind in ("conll", "conllu")])
def test_every_published_set_of_tags_is_read(name, tmp_path):
    """From a file as published, with the set's own columns, to examples."""
    word = "{i}\t{w}\t_\tNOUN\tNN\t_\t0\troot\t_\t_\n" if DATASETS[name].kind == "conllu" else "{w} NN O B-LOC\n"
    text = "\n".join("".join(word.format(i=i + 1, w=w) for i, w in enumerate(s.split())) for s in ("Anna met Li", "Go"))
    for split in DATASETS[name].splits.values():
        (tmp_path / split.file).write_text(text + "\n")
    frame, format = DATASETS[name].table("train", tmp_path)
    read = list(TaggingTask.rows(frame, format))
    assert [row.texts for row in read] == [("Anna met Li",), ("Go",)]
    assert all(row.label for row in read)


def test_a_sentence_directly_after_the_line_of_a_document_is_read(tmp_path):
    path = write(tmp_path, "t.conll", "-DOCSTART- O\nAda B-PER\nran O\n\n-DOCSTART- O\n\nBo B-PER\n")
    found = list(sentences(path, TableFormat()))
    assert [(one.texts, one.label, one.line) for one in found] == [
        (("Ada ran",), ("B-PER", "O"), 2),
        (("Bo",), ("B-PER",), 7),
    ]


def test_an_id_of_zero_is_an_id(tmp_path):
    asked = [{"id": n, "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]} for n in range(3)]
    data = {"data": [{"paragraphs": [{"context": "Ada ran.", "qas": asked}]}]}
    path = write(tmp_path, "q.json", json.dumps(data))
    assert [one.id for one in questions(path, TableFormat())] == ["0", "1", "2"]


@pytest.mark.parametrize("answers", [[3], [{"text": 3}], 7, {"text": 5}, [{"answer_start": 0}]])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_answers_that_nothing_needs_may_be_damaged(tmp_path, name, answers):
    qa = {"id": "q", "question": "When?", "answers": answers}
    squad = {"data": [{"paragraphs": [{"context": "It was in 1999.", "qas": [qa]}]}]}
    rows = squad if name == "a.json" else {**qa, "context": "It was in 1999."}
    (tmp_path / name).write_text(json.dumps(rows))
    (found,) = questions(tmp_path / name, TableFormat.of(labelled=False))
    assert (found.texts, found.label) == (("When?", "It was in 1999."), None)
    (found,) = questions(tmp_path / name)
    assert found.reason == "answers are not text and answer_start"
    if name == "a.json":
        (found,) = read_documents(str(tmp_path / name), Reading())
        assert found.text == "It was in 1999."
