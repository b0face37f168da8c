"""Every published set, by small files of its published format: checked, trained on, evaluated, with a toy model."""

import csv
import io
import json
import string
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import bertie as package
from bertie.tasks.datasets import DATASETS
from toys import FAST, CommandLine, toy_model

N = 12
SWAG = ("", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source")
STSB = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score")
MNLI = (
    "index",
    "promptID",
    "pairID",
    "genre",
    *(f"sentence{i}{k}" for k in ("_binary_parse", "_parse", "") for i in (1, 2)),
)
AX = (
    "Lexical Semantics",
    "Predicate-Argument Structure",
    "Logic",
    "Knowledge",
    "Domain",
    "Premise",
    "Hypothesis",
    "Label",
)
Content = Callable[[str], str]


def a_text(i: int) -> str:
    return " ".join(string.ascii_lowercase[(i * 3 + j) % 26] for j in range(3 + i % 3))


def cell(name: str, i: int, labels: Sequence[str]) -> str:
    if name in ("label", "Label", "label1", "gold_label", "Quality", "is_duplicate"):
        return labels[i % len(labels)]
    if name == "score":
        return str(float(i % 5))
    said = name.lower()
    return (
        a_text(i)
        if any(
            word in said for word in ("sent", "string", "question", "premise", "hypo", "document", "ending", "title")
        )
        else str(i)
    )


def tsv(*names: str, labels: Sequence[str] = ("0", "1"), header: bool = True, test: Sequence[str] = ()) -> Content:
    """A table between tabs; `test`: the columns of the splits without labels."""

    def content(split: str) -> str:
        columns = test if test and split.startswith("test") else names
        head = [columns] if header or columns is test else []
        return "".join(
            "\t".join(row) + "\n" for row in [*head, *([cell(n, i, labels) for n in columns] for i in range(N))]
        )

    return content


def swag(split: str) -> str:
    names = [*SWAG, *(f"ending{i}" for i in range(4)), *([] if split == "test" else ["label"])]
    out = io.StringIO()
    csv.writer(out).writerows([names, *([cell(name, i, "0123") for name in names] for i in range(N))])
    return out.getvalue()


def squad(question: dict[str, object], impossible: bool = False) -> Content:
    def content(split: str) -> str:
        articles = []
        for i in range(N):
            answers = [] if impossible and i % 3 == 0 else [{"text": a_text(i).split()[0], "answer_start": 0}]
            more = {"is_impossible": not answers} if impossible else {}
            qa = {"id": f"q{i}", "question": a_text(i + 1), "answers": answers, **question, **more}
            articles.append({"title": "t", "paragraphs": [{"context": a_text(i), "qas": [qa]}]})
        return json.dumps({"version": "1", "data": articles}, ensure_ascii=False)

    return content


def trivia(split: str) -> str:
    asked = [
        {
            "Question": a_text(i),
            "QuestionId": f"t{i}",
            "Answer": {"Value": "d", "Aliases": ["d"]},
            "EntityPages": [{"Filename": "page.txt"}],
        }
        for i in range(N)
    ]
    return json.dumps({"Data": asked})


def words(form: str, end: str = "\n", head: str = "") -> Content:
    def content(split: str) -> str:
        sentences = []
        for i in range(N):
            tags = ["B-PER", "I-PER", "O"]
            rows = zip(a_text(i).split(), tags, strict=False)
            sentences.append("".join(form.format(word=word, tag=tag) + "\n" for word, tag in rows))
        return head + end.join(sentences) + end

    return content


def conllu(split: str) -> str:
    tags = ("NOUN", "VERB", "PUNCT")
    rows = (
        "".join(
            f"{n + 1}\t{w}\t{w}\t{tags[n % 3]}\tX\t_\t{0 if n == 0 else 1}\tdep\t_\t_\n"
            for n, w in enumerate(a_text(i).split())
        )
        for i in range(N)
    )
    return "\n".join(f"# sent_id = {i}\n{block}" for i, block in enumerate(rows)) + "\n"


def klue_ner(split: str) -> str:
    said = "서울은 크다"
    lines = "".join(f"{c}\t{tag}\n" for c, tag in zip(said, ("B-LC", "I-LC", "O", "O", "O", "O"), strict=True))
    return "".join(f"## klue-ner-v1_{split}_{i:05}-wikitree\t<서울:LC>은 크다\n{lines}\n" for i in range(N))


def klue_dp(split: str) -> str:
    head = "## tokens: \\t\n## columns: INDEX\tWORD_FORM\tLEMMA\tPOS\tHEAD\tDEPREL\n"
    block = "## klue-dp-v1_{0}_{1:05}\t나는 간다\n1\t나는\t나 는\tNP+JX\t2\tNP_SBJ\n2\t간다\t가 ㄴ다\tVV+EF\t0\tVP\n\n"
    return head + "".join(block.format(split, i) for i in range(N))


def klue(make: Callable[[int], dict[str, object]]) -> Content:
    return lambda split: json.dumps(
        [{"guid": f"klue_{split}_{i:05}", "source": "wikipedia"} | make(i) for i in range(N)],
        ensure_ascii=False,
        indent=2,
    )


def klue_re(i: int) -> dict[str, object]:
    first, second = (
        {"word": w, "start_idx": s, "end_idx": s, "type": t} for w, s, t in (("가", 0, "PER"), ("나", 2, "ORG"))
    )
    return {
        "sentence": "가 나 다",
        "subject_entity": first,
        "object_entity": second,
        "label": ("no_relation", "per:title")[i % 2],
    }


NLI = ("entailment", "neutral", "contradiction")
YES_NO = ("entailment", "not_entailment")
CONTENT: dict[str, Content] = {
    "cola": tsv("source", "label", "mark", "sentence", header=False, test=("index", "sentence")),
    "sst2": tsv("sentence", "label", test=("index", "sentence")),
    "mrpc": tsv(
        "Quality",
        "#1 ID",
        "#2 ID",
        "#1 String",
        "#2 String",
        test=("index", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    ),
    "stsb": tsv(*STSB, test=STSB[:-1]),
    "qqp": tsv("id", "qid1", "qid2", "question1", "question2", "is_duplicate", test=("id", "question1", "question2")),
    "mnli": tsv(*MNLI, "label1", "gold_label", labels=NLI, test=MNLI),
    "qnli": tsv("index", "question", "sentence", "label", labels=YES_NO, test=("index", "question", "sentence")),
    "rte": tsv("index", "sentence1", "sentence2", "label", labels=YES_NO, test=("index", "sentence1", "sentence2")),
    "wnli": tsv("index", "sentence1", "sentence2", "label", test=("index", "sentence1", "sentence2")),
    "ax": tsv(*AX, labels=NLI, test=("index", "sentence1", "sentence2")),
    "squad": squad({}),
    "squad2": squad({}, impossible=True),
    "triviaqa": trivia,
    "conll2003": words("{word} NNP B-NP {tag}", head="-DOCSTART- -X- -X- O\n\n"),
    "conll2000": words("{word} NN {tag}"),
    "wnut17": words("{word}\t{tag}"),
    "ud": conllu,
    "swag": swag,
    "nsmc": tsv("id", "document", "label"),
    "kornli": tsv("sentence1", "sentence2", "gold_label", labels=NLI),
    "korsts": tsv("genre", "filename", "year", "id", "score", "sentence1", "sentence2"),
    "klue-tc": klue(
        lambda i: {"title": a_text(i), "label": ("경제", "정치")[i % 2], "annotations": {"annotators": ["1"]}}
    ),
    "klue-sts": klue(
        lambda i: {
            "sentence1": a_text(i),
            "sentence2": a_text(i + 1),
            "labels": {"label": i % 5, "real-label": i / 3, "binary-label": i % 2},
        }
    ),
    "klue-nli": klue(
        lambda i: {
            "premise": a_text(i),
            "hypothesis": a_text(i + 1),
            "gold_label": NLI[i % 3],
            "author": "a",
            "label2": NLI[0],
        }
    ),
    "korquad": squad({}),
    "klue-mrc": squad({"question_type": 1, "guid": "g"}, impossible=True),
    "klue-re": klue(klue_re),
    "klue-dp": klue_dp,
    "klue-ner": klue_ner,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy"), [*string.ascii_lowercase, *"서울은크다나는간가"])


def write_set(name: str, home: Path) -> None:
    for split, row in DATASETS[name].splits.items():
        for file in (row.file, *row.more):
            path = home / DATASETS[name].folder / file.replace("*", ".1")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(CONTENT[name](split), encoding="utf-8-sig" if name == "mrpc" else "utf-8")  # as it is
    if name == "triviaqa":
        page = home / DATASETS[name].folder / "evidence" / "wikipedia" / "page.txt"
        page.parent.mkdir(parents=True)
        page.write_text("a b c d e f", encoding="utf-8")


@pytest.mark.parametrize("name", DATASETS)
def test_a_published_set_is_checked_trained_on_and_evaluated(
    name: str, model: Path, tmp_path: Path, bertie: CommandLine
) -> None:
    write_set(name, tmp_path)
    for split in DATASETS[name].check(tmp_path):
        files = 1 + len(DATASETS[name].splits[split.split].more)
        assert (split.examples, split.left_out, split.problem) == (files * N, {}, ""), split
    code, _, err = bertie("data", name, "--data-dir", tmp_path)
    counted = any(split.examples for split in DATASETS[name].splits.values())
    assert (code, "differ from the published ones" in err) == ((3, True) if counted else (0, False)), err
    published = ("--data", name, "--data-dir", tmp_path)
    if "train" not in DATASETS[name].splits:
        code, _, err = bertie("finetune", model, *published, "-o", tmp_path / "run")
        assert (code, "has no training examples" in err) == (3, True), err
        return
    quick = ("epochs=1", "max_length=32", "label_check=none", "baselines=false", *FAST)
    bertie.good("finetune", model, *published, "--seeds", 1, "-o", tmp_path / "run", *quick)
    for split in [one for one in ("dev", "dev_mismatched") if one in DATASETS[name].splits] or ["test"]:
        assert bertie.good("evaluate", tmp_path / "run", *published, "--split", split)
        assert package.evaluate(tmp_path / "run", data=name, data_dir=tmp_path, split=split)["examples"]
