"""A published data set is for its own task, and for the tasks that read the same examples; no choice is ignored."""

import json
from dataclasses import replace

import pytest

import bertie as package
from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import choose_task_class, read_examples
from bertie.tasks import TASKS, Task
from bertie.tasks.datasets import DATASETS
from serving import make_models

ROW = "\t".join(["0", "main", "file", "2012", "1", "x", "x"])
HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"


@pytest.mark.parametrize(
    ("data", "task", "kind"),
    [
        ("stsb", "sequence", "regression"),  # the default
        ("stsb", "embed", "embed"),
        ("korsts", "regression", "regression"),
        ("sst2", "text2text", "text2text"),
        ("sst2", "sequence", "sequence"),
    ],
)
def test_the_task(data: str, task: str, kind: str) -> None:
    assert choose_task_class(FinetuneConfig(model="x", data=data, task=task)) is TASKS[kind]


@pytest.mark.parametrize(("data", "task"), [("sst2", "tagging"), ("sst2", "embed"), ("conll2003", "span")])
def test_a_task_that_cannot_read_the_set_is_refused(data: str, task: str) -> None:
    with pytest.raises(UsageError, match=f"task={task} does not read the examples of {data}"):
        choose_task_class(FinetuneConfig(model="x", data=data, task=task))


def test_a_task_of_other_metrics_reports_its_own(tmp_path) -> None:
    rows = [f"{i}\tthe tide {i}\tthe sea {i}\t{i % 2}" for i in range(4)]
    (tmp_path / "WNLI").mkdir()
    for split in ("train", "dev"):
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
        (tmp_path / "WNLI" / f"{split}.tsv").write_text(text, encoding="utf-8")
    for task, metrics in (("rank", ("mrr@10", "map")), ("sequence", ("accuracy",))):
        config = FinetuneConfig(model="x", data="wnli", data_dir=str(tmp_path), task=task)
        assert read_examples(config).metrics == metrics


def test_vectors_learn_from_a_published_set(tmp_path) -> None:
    folder = tmp_path / "STS-B"
    folder.mkdir()
    for split in ("train", "dev"):
        rows = [f"{ROW}\tthe tide came in\tthe tide {word}\t{score}" for word, score in (("rose", 4.5), ("fell", 1.0))]
        (folder / f"{split}.tsv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    found = read_examples(FinetuneConfig(model="x", data="stsb", data_dir=str(tmp_path), task="embed"))
    assert (type(found.task), found.task.highest, len(found.train)) == (TASKS["embed"], 4.5, 2)


@pytest.mark.parametrize(
    ("data", "task", "options", "metrics"),
    [
        ("korquad", TASKS["span"].make((), {"threshold": 0.5}), {"script": "korquad1.0"}, ("f1", "exact_match")),
        ("klue-mrc", TASKS["span"].make((), {}), {"script": "klue-mrc"}, ("rouge_w", "exact_match")),
        ("klue-sts", TASKS["regression"].make(("score",), {}), {"threshold": 3.0}, ("pearson", "f1")),
        ("klue-sts", TASKS["embed"].make((), {}), {}, ("pearson",)),
        ("klue-ner", TASKS["tagging"].make(("O", "B-PS"), {}), {"strict": True}, ("macro_f1", "tag_macro_f1")),
        ("mrpc", TASKS["sequence"].make(("0", "1", "2"), {}), {}, ("accuracy",)),
        ("sst2", TASKS["multilabel"].make(("0", "1"), {}), {}, ("micro_f1", "macro_f1")),
    ],
)
def test_a_model_is_scored_as_the_set_is(
    data: str, task: Task, options: dict[str, object], metrics: tuple[str]
) -> None:
    found, named = DATASETS[data].scored(task)
    assert found == replace(task, **options)
    assert named == metrics


def test_a_model_of_another_set_is_measured_on_a_published_one(tmp_path, bertie) -> None:
    model = make_models(tmp_path / "models", ("span",))["span"]
    context, question = "ada rows a boat", {"question": "who rows", "answers": [{"text": "ada", "answer_start": 0}]}
    paragraphs = [{"context": context, "qas": [question | {"guid": str(i), "id": str(i)} for i in range(3)]}]
    (tmp_path / "klue-mrc-v1.1_dev.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    out = bertie.good("evaluate", model, "--data", "klue-mrc", "--data-dir", tmp_path)
    assert out.startswith("rouge_w ")
    assert "rouge_w" in package.evaluate(model, data="klue-mrc", data_dir=tmp_path)
