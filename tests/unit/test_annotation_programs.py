"""Exports of annotation programs, as their makers document them: names, labels, several labels, pairs."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertie.errors import BertieError, DataError, UsageError
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.tasks import TASKS

EMOJI = "\U0001f600 Ada saw London."
NAMES = ("O", "B-PER", "O", "B-LOC", "O")
STUDIO = {"annotator": 1, "annotation_id": 7, "created_at": "2026-01-02", "updated_at": "2026-01-02", "lead_time": 3.5}


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def task(data: dict[str, str], *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task of Label Studio with one annotation."""
    told = {"id": 7, "completed_by": 1, "was_cancelled": False, "ground_truth": False, "lead_time": 3.5}
    return {"id": 1, "data": data, "annotations": [{**told, "result": [*results], **more}], "predictions": []}


def span(start: int, end: int, text: str, label: str) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": text, "labels": [label]}
    return {"value": value, "id": "a", "from_name": "names", "to_name": "text", "type": "labels", "origin": "manual"}


def choice(*choices: str, name: str = "topic") -> dict[str, Any]:
    return {"value": {"choices": [*choices]}, "id": "b", "from_name": name, "to_name": "text", "type": "choices"}


IN_UTF16 = [span(3, 6, "Ada", "PER"), span(11, 17, "London", "LOC")]
PLACES = [one["value"] for one in IN_UTF16]
CSV_SPANS = json.dumps(PLACES).replace('"', '""')
CSV_CHOICES = "annotation_id,annotator,id,text,topic\n"
BRAT = "T1\tPER 2 5\tAda\nT2\tLOC 10 16\tLondon\nR1\tsaw Arg1:T1 Arg2:T2\nA1\tSure T1\n#1\tAnnotatorNotes T1\tnote\n"
WEBANNO = """#FORMAT=WebAnno TSV 3.3
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS|PosValue
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


#Text=Ada Byron saw \\[x\\].
1-1\t0-3\tAda\tNNP\t*[1]\tPER[1]\t
1-2\t4-9\tByron\tNNP\t*[1]\tPER[1]\t
1-3\t10-13\tsaw\tVBD\t_\t_\t
1-4\t14-17\t\\[x\\]\tNN\t*\tLOC\t

#Text=It was.
2-1\t18-20\tIt\tPRP\t_\t_\t
2-2\t21-24\twas\tVBD\t_\t_\t
"""

TAGGED = {  # program and form -> files by name, options, the tags of each example, and reasons
    "Label Studio JSON": (
        {"a.json": json.dumps([task({"text": EMOJI}, *IN_UTF16), task({"text": "No one."})])},
        {},
        [NAMES, ("O", "O", "O")],
    ),
    "Label Studio JSON, skipped and several annotators": (
        {
            "a.json": json.dumps(
                [task({"text": "Ada."}, was_cancelled=True), {**task({"text": "Ada."}, span(0, 3, "Ada", "PER"))}]
            )
        },
        {},
        ["skipped by the annotator", ("B-PER", "O")],
    ),
    "Label Studio JSON, offsets of nothing": (
        {"a.json": json.dumps([task({"text": EMOJI}, span(1, 4, "Ada", "PER")), task({"text": EMOJI}, *IN_UTF16)])},
        {},
        ["an entity whose own text is not at its place", NAMES],
    ),
    "Label Studio JSON, a page of HTML": (
        {
            "a.json": json.dumps(
                [
                    task({"text": "Ada."}, span(0, 3, "Ada", "PER")),
                    task(
                        {"text": "<p>Ada</p>"},
                        {
                            "value": {"start": "/p[1]/text()[1]", "end": "/p[1]/text()[1]", "labels": ["PER"]},
                            "from_name": "names",
                            "type": "hypertextlabels",
                        },
                    ),
                ]
            )
        },
        {},
        [("B-PER", "O"), "an entity in a page of HTML, whose place is not in characters"],
    ),
    "Label Studio JSON-MIN": (
        {
            "a.json": json.dumps(
                [{"text": EMOJI, "id": 1, "names": PLACES, **STUDIO}, {"text": "No.", "id": 2, **STUDIO}]
            )
        },
        {},
        [NAMES, ("O", "O")],
    ),
    "Label Studio csv": (
        {
            "a.csv": '"annotation_id","annotator","id","names","text"\n'
            f'7,"1",1,"{CSV_SPANS}","{EMOJI}"\n8,"1",2,"","No."\n'
        },
        {},
        [NAMES, ("O", "O")],
    ),
    "Label Studio tsv": (
        {"a.tsv": f'"annotation_id"\t"id"\t"names"\t"text"\n7\t1\t"{CSV_SPANS}"\t"{EMOJI}"\n'},
        {},
        [NAMES],
    ),
    "Label Studio CoNLL": (
        {"a.conll": "-DOCSTART- -X- O\nAda -X- _ B-PER\nsaw -X- _ O\n\nNo -X- _ O\n\n"},
        {},
        [("B-PER", "O"), ("O",)],
    ),
    "doccano jsonl": (
        {
            "a.jsonl": lines(
                {"id": 1, "text": EMOJI, "label": [[2, 5, "PER"], [10, 16, "LOC"]], "Comments": []},
                {"id": 2, "text": "No.", "label": [], "Comments": []},
            )
        },
        {},
        [NAMES, ("O", "O")],
    ),
    "doccano jsonl with relations": (
        {
            "a.jsonl": lines(
                {
                    "id": 1,
                    "text": "Ada saw",
                    "entities": [{"id": 4, "label": "PER", "start_offset": 0, "end_offset": 3}],
                    "relations": [{"id": 1, "from_id": 4, "to_id": 4, "type": "x"}],
                    "Comments": [],
                }
            )
        },
        {},
        [("B-PER", "O")],
    ),
    "Prodigy ner and spans": (
        {
            "a.jsonl": lines(
                {
                    "text": "Ada saw",
                    "_input_hash": 1,
                    "_task_hash": 2,
                    "tokens": [
                        {"text": "Ada", "start": 0, "end": 3, "id": 0, "ws": True},
                        {"text": "saw", "start": 4, "end": 7, "id": 1, "ws": False},
                    ],
                    "spans": [{"start": 0, "end": 3, "token_start": 0, "token_end": 0, "label": "PER"}],
                    "_view_id": "ner_manual",
                    "answer": "accept",
                },
                {"text": "Ada", "spans": [{"start": 0, "end": 3, "label": "PER"}], "answer": "reject"},
                {"text": "Ada", "spans": [], "answer": "ignore"},
            )
        },
        {},
        [("B-PER", "O"), "answer is reject", "answer is ignore"],
    ),
    "brat, a folder": (
        {"data/a.txt": EMOJI + "\nNo one.\n", "data/a.ann": BRAT, "data/b.txt": "Hm.\n", "data/b.ann": ""},
        {"path": "data"},
        [NAMES, ("O", "O", "O"), ("O", "O")],
    ),
    "brat, a file": ({"a.txt": EMOJI, "a.ann": BRAT}, {"path": "a.ann"}, [NAMES]),
    "brat, pieces and an entity over two lines": (
        {"a.txt": "Ada or Bob\nKim\nLee", "a.ann": "T1\tPER 0 3;7 10\tAda Bob\nT2\tPER 11 14;15 18\tKim Lee\n"},
        {"path": "a.ann"},
        ["an entity in several pieces", "an entity of more than one line", ("O",)],
    ),
    "spaCy, a JSON list": (
        {"a.json": json.dumps([["Ada saw", {"entities": [[0, 3, "PER"]]}], ["No", {"entities": []}]])},
        {},
        [("B-PER", "O"), ("O",)],
    ),
    "spaCy, as the NER annotator writes it": (
        {"a.json": json.dumps({"classes": ["PER"], "annotations": [["Ada saw", {"entities": [[0, 3, "PER"]]}], None]})},
        {},
        [("B-PER", "O"), "not a JSON object"],
    ),
    "brat, an entity beyond the text": (
        {"a.txt": "Ada saw\n", "a.ann": "T1\tPER 90 93\tKim\n"},
        {"path": "a.ann"},
        [("O", "O"), "an entity whose own text is not at its place"],
    ),
    "brat, line ends of Windows": (
        {"a.txt": "Ada saw\r\nKim\r\n", "a.ann": "T1\tPER 9 12\tKim\n"},
        {"path": "a.ann"},
        [("O", "O"), ("B-PER",)],
    ),
    "spaCy, JSON lines": ({"a.jsonl": lines(["Ada saw", {"entities": [[0, 3, "PER"]]}])}, {}, [("B-PER", "O")]),
    "INCEpTION, WebAnno TSV 3": ({"a.tsv": WEBANNO}, {}, [("B-PER", "I-PER", "O", "B-LOC"), ("O", "O")]),
    "WebAnno TSV 3, relations before the layer, and a layer without features": (
        {
            "a.tsv": "#FORMAT=WebAnno TSV 3.2\n#T_SP=x.POS|coarse|PosValue\n#T_RL=x.Dependency|Type|flavor|BT_x.POS\n"
            "#T_SP=webanno.custom.Quote|\n\n\n#Text=Ada, ok\n1-1\t0-3\tAda\tN\tN\troot\t*\t1-1\t*[2]\t\n"
            "1-2\t3-4\t,\tP\tP\tp\t*\t1-1\t*[2]\t\n1-3\t5-7\tok\tA\tA\tx\t*\t1-1\t_\t\n"
        },
        {"label": "Quote"},
        [("B-Quote", "I-Quote", "O")],
    ),
    "WebAnno TSV 3, another layer": (
        {"a.tsv": WEBANNO},
        {"label": "PosValue"},
        [("B-NNP", "B-NNP", "B-VBD", "B-NN"), ("B-PRP", "B-VBD")],
    ),
    "BILOU": (
        {"a.conll": "Ada U-PER\nNew B-LOC\nYork I-LOC\nCity L-LOC\nok O\n"},
        {},
        [("S-PER", "B-LOC", "I-LOC", "E-LOC", "O")],
    ),
    "BMEWO, a word per row": (
        {"a.csv": "word,tag\nAda,W-PER\nNew,B-LOC\nYork,M-LOC\nCity,E-LOC\n"},
        {},
        [("S-PER", "B-LOC", "I-LOC", "E-LOC")],
    ),
    "KLUE-NER by its first line": (
        {"a.tsv": "## klue-ner-v1_train_00000-x\t<서울:LC>은\n서\tB-LC\n울\tI-LC\n은\tO\n"},
        {},
        [("B-LC", "I-LC", "O")],
    ),
}


def read(home: Path, files: dict[str, str], name: str, path: str = "", **options: Any) -> list[Example | BadRecord]:
    for file, content in files.items():
        (home / file).parent.mkdir(exist_ok=True)
        (home / file).write_bytes(content.encode())
    return [*TASKS[name].rows(home / (path or next(iter(files))), TableFormat.of(**options))]


@pytest.mark.parametrize(("files", "options", "expected"), TAGGED.values(), ids=TAGGED)
def test_names(tmp_path: Path, files: dict[str, str], options: dict[str, Any], expected: list[Any]) -> None:
    rows = read(tmp_path, files, "tagging", **options)
    assert [row.reason if isinstance(row, BadRecord) else row.label for row in rows] == expected


TEXTS = {  # program and form -> task, files, options, (texts, label) of each example, and reasons
    "Label Studio JSON, a choice": (
        "sequence",
        {
            "a.json": json.dumps(
                [task({"text": "a"}), task({"text": "b"}, choice("good")), task({"text": "c"}, choice("x", "y"))]
            )
        },
        {},
        ["no topic", (("b",), "good"), "several labels in topic, which --task multilabel reads"],
    ),
    "Label Studio JSON, choices": (
        "multilabel",
        {
            "a.json": json.dumps(
                [
                    task({"text": "a"}, choice("price", "staff")),
                    task({"text": "b"}, choice("price")),
                    task({"text": "c"}),
                    {**task({"text": "d"}), "annotations": []},
                ]
            )
        },
        {},
        [(("a",), ("price", "staff")), (("b",), ("price",)), (("c",), ()), "no topic"],
    ),
    "Label Studio JSON, two texts": (
        "sequence",
        {"a.json": json.dumps([task({"text1": "a", "text2": "b"}, choice("same"))])},
        {},
        [(("a", "b"), "same")],
    ),
    "Label Studio JSON, a rating": (
        "regression",
        {"a.json": json.dumps([task({"text": "a"}, {"value": {"rating": 4}, "from_name": "stars", "type": "rating"})])},
        {},
        [(("a",), 4.0)],
    ),
    "Label Studio JSON-MIN": (
        "multilabel",
        {
            "a.json": json.dumps(
                [
                    {"text": "a", "id": 1, "topic": {"choices": ["price", "staff"]}, **STUDIO},
                    {"text": "b", "id": 2, "topic": "price", **STUDIO},
                ]
            )
        },
        {},
        [(("a",), ("price", "staff")), (("b",), ("price",))],
    ),
    "Label Studio csv": (
        "multilabel",
        {"a.csv": CSV_CHOICES + ('7,1,1,a,"{""choices"": [""price"", ""staff""]}"\n8,1,2,b,price\n')},
        {},
        [(("a",), ("price", "staff")), (("b",), ("price",))],
    ),
    "Label Studio csv, single labels": (
        "sequence",
        {"a.csv": CSV_CHOICES + ('8,1,2,b,price\n7,1,1,a,"{""choices"": [""price"", ""staff""]}"\n')},
        {},
        [(("b",), "price"), "several labels in topic, which --task multilabel reads"],
    ),
    "doccano jsonl, a label": (
        "sequence",
        {
            "a.jsonl": lines(
                {"id": 1, "text": "a", "label": ["good"], "Comments": []},
                {"id": 2, "text": "b", "label": [], "Comments": []},
            )
        },
        {},
        [(("a",), "good"), "no label"],
    ),
    "doccano jsonl, labels": (
        "multilabel",
        {"a.jsonl": lines({"id": 1, "text": "a", "label": ["x", "y"]}, {"id": 2, "text": "b", "label": []})},
        {},
        [(("a",), ("x", "y")), (("b",), ())],
    ),
    "doccano csv, a label": (
        "sequence",
        {"a.csv": "id,text,label,Comments\n1,a,x,\n2,b,,\n"},
        {},
        [(("a",), "x"), "no label"],
    ),
    "doccano fastText, a label": (
        "sequence",
        {"a.txt": "__label__x a b\n__label__x __label__y c\n"},
        {},
        [(("a b",), "x"), "several labels in label, which --task multilabel reads"],
    ),
    "doccano csv": (
        "multilabel",
        {"a.csv": "id,text,label,Comments\n1,a,x#y,\n2,b,y,\n"},
        {"label_separator": "#"},
        [(("a",), ("x", "y")), (("b",), ("y",))],
    ),
    "doccano fastText": (
        "multilabel",
        {"a.txt": "__label__x __label__y a b\n__label__y c\n"},
        {},
        [(("a b",), ("x", "y")), (("c",), ("y",))],
    ),
    "doccano intent detection": (
        "sequence",
        {"a.jsonl": lines({"id": 1, "text": "a", "cats": ["go"], "entities": []})},
        {},
        [(("a",), "go")],
    ),
    "Prodigy textcat": (
        "sequence",
        {
            "a.jsonl": lines(
                *(
                    {"text": text, "label": "SPORT", "answer": answer, "_task_hash": 1}
                    for text, answer in zip("abc", ("accept", "reject", "ignore"), strict=True)
                )
            )
        },
        {},
        [(("a",), "SPORT"), "answer is reject", "answer is ignore"],
    ),
    "Prodigy textcat, the answer as the label": (
        "sequence",
        {
            "a.jsonl": lines(
                *(
                    {"text": text, "label": "SPORT", "answer": answer}
                    for text, answer in zip("ab", ("accept", "reject"), strict=True)
                )
            )
        },
        {"label": "answer"},
        [(("a",), "accept"), (("b",), "reject")],
    ),
    "Prodigy choices": (
        "multilabel",
        {
            "a.jsonl": lines(
                *(
                    {"text": "a", "options": [{"id": "x", "text": "X"}], "accept": accept, "answer": answer}
                    for accept, answer in ((["x"], "accept"), ([], "accept"), (["x"], "ignore"))
                )
            )
        },
        {},
        [(("a",), ("x",)), (("a",), ()), "answer is ignore"],
    ),
    "Prodigy, one choice": (
        "sequence",
        {"a.jsonl": lines({"text": "a", "options": [{"id": "x"}], "accept": ["x"], "answer": "accept"})},
        {},
        [(("a",), "x")],
    ),
    "spaCy cats": (
        "multilabel",
        {"a.json": json.dumps([["a", {"cats": {"x": 1.0, "y": 0.0}}], ["b", {"cats": {"x": 1, "y": 1}}]])},
        {},
        [(("a",), ("x",)), (("b",), ("x", "y"))],
    ),
    "spaCy cats, one of them": (
        "sequence",
        {"a.jsonl": lines(["a", {"cats": {"x": 1.0, "y": 0.0}}])},
        {},
        [(("a",), "x")],
    ),
    "lists of 0 and 1": (
        "multilabel",
        {"a.jsonl": lines(*({"text": "a", "labels": one} for one in ([1, 0, 1], [0, 0, 0], [1, 1], ["x"])))},
        {"label_names": {"1": "price"}},
        None,
    ),
    "lists of 0 and 1 in cells": (
        "multilabel",
        {"a.csv": 'text,labels\na,"[1, 0, 1]"\nb,"[0, 1, 0]"\n'},
        {"label_names": {"1": "price"}},
        [(("a",), ("3", "price")), (("b",), ("2",))],
    ),
    "lists of 0 and 1, one of another length": (
        "multilabel",
        {"a.jsonl": lines(*({"text": "a", "labels": one} for one in ([1, 0, 1], [0, 0, 0], [1, 1])))},
        {},
        [(("a",), ("1", "3")), (("a",), ()), "labels that are not a list of 3 times 0 or 1"],
    ),
    "numbers of labels": (
        "multilabel",
        {"a.jsonl": lines(*({"text": "a", "labels": one} for one in ([0, 1], [2], [1])))},
        {},
        [(("a",), ("0", "1")), (("a",), ("2",)), (("a",), ("1",))],
    ),
}


@pytest.mark.parametrize(("name", "files", "options", "expected"), TEXTS.values(), ids=TEXTS)
def test_texts(tmp_path: Path, name: str, files: dict[str, str], options: dict[str, Any], expected: Any) -> None:
    rows = read(tmp_path, files, name, **options)
    if expected is not None:
        assert [row.reason if isinstance(row, BadRecord) else (row.texts, row.label) for row in rows] == expected


@pytest.mark.parametrize(
    ("file", "error", "said"),
    [
        ("a.spacy", UsageError, "DocBin of spaCy.*jsonl"),
        ("a.xmi", UsageError, "UIMA CAS, of INCEpTION.*WebAnno TSV 3"),
        ("empty/a.png", DataError, "without files of brat"),
    ],
)
@pytest.mark.parametrize("name", ["tagging", "sequence"])
def test_other_forms_are_refused_by_name(
    tmp_path: Path, name: str, file: str, error: type[BertieError], said: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x01\x02")
    path = path.parent if path.parent != tmp_path else path
    if path.is_dir() and name == "sequence":
        error, said = DataError, "is a folder; a file with a row"
    with pytest.raises(error, match=said):
        [*TASKS[name].rows(path, TableFormat())]


def test_the_page_lists_what_is_tested() -> None:
    """Each program in the table of docs/your-files.md has a file above, in each column that is not empty."""
    page = (Path(__file__).parents[2] / "docs" / "your-files.md").read_text(encoding="utf-8")
    lines_of = page.partition("|---|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines_of]
    tested = {"tagging": [*TAGGED], "sequence": [], "multilabel": []}
    for name, (task_name, *_) in TEXTS.items():
        tested.setdefault(task_name, []).append(name)
    programs = [cell.split(" (")[0].split(",")[0].split() for cell, *_ in rows]
    assert len(programs) == 12
    for program, (cell, *forms) in zip(programs, rows, strict=True):
        if program == ["spaCy", "DocBin"]:
            continue  # test_other_forms_are_refused_by_name
        for form, names in zip(forms, tested.values(), strict=False):
            first = program[0] if program[0] in ("brat", "spaCy", "INCEpTION", "Prodigy") else " ".join(program[:2])
            assert not form.strip() or any(name.startswith(first) for name in names), (cell, form)
