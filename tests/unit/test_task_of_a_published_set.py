"""A published data set is for its own task, and for the tasks that read the same examples; no choice is ignored."""

import pytest

from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import kind_of, read_examples
from bertie.tasks import TASKS

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
    assert kind_of(FinetuneConfig(model="x", data=data, task=task)) is TASKS[kind]


@pytest.mark.parametrize(("data", "task"), [("sst2", "tagging"), ("sst2", "embed"), ("conll2003", "span")])
def test_a_task_that_cannot_read_the_set_is_refused(data: str, task: str) -> None:
    with pytest.raises(UsageError, match=f"task={task} does not read the examples of {data}"):
        kind_of(FinetuneConfig(model="x", data=data, task=task))


def test_vectors_learn_from_a_published_set(tmp_path) -> None:
    folder = tmp_path / "STS-B"
    folder.mkdir()
    for split in ("train", "dev"):
        rows = [f"{ROW}\tthe tide came in\tthe tide {word}\t{score}" for word, score in (("rose", 4.5), ("fell", 1.0))]
        (folder / f"{split}.tsv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    found = read_examples(FinetuneConfig(model="x", data="stsb", data_dir=str(tmp_path), task="embed"))
    assert (type(found.task), found.task.highest, len(found.train)) == (TASKS["embed"], 4.5, 2)
