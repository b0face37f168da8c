"""The published data sets Bertie reads as they come: a row each. No data ships with Bertie.

`bertie finetune MODEL --data sst2 --data-dir DIR` looks for a set's files in DIR and in DIR/<folder>. They are all
tab-separated with quoting off; what differs is in the row.
"""

from dataclasses import dataclass
from pathlib import Path

from bertie.data.tables import TableFormat
from bertie.errors import DataError, nearest
from bertie.registry import Registry


@dataclass(frozen=True)
class Split:
    """One file of a set. columns: their names where the file has no header line."""

    file: str
    columns: tuple[str, ...] = ()
    labelled: bool = True


@dataclass(frozen=True)
class Dataset:
    """A published set. labels: in the order the model is to have. metrics: what is reported, the main one first."""

    title: str
    folder: str
    splits: dict[str, Split]
    text: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    licence: str
    source: str
    task: str = "sequence"

    def table(self, split: str, data_dir: Path) -> tuple[Path, TableFormat]:
        """The file of one split, and how it is read. Raises DataError: no such split, file not there."""
        if split not in self.splits:
            raise DataError(f"{self.title} has no split {split!r}. {nearest(split, self.splits)}")
        row = self.splits[split]
        places = [data_dir / row.file, data_dir / self.folder / row.file]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise DataError(f"{self.title}: neither {places[0]} nor {places[1]} exists. Its home is {self.source}.")
        label = self.label if row.labelled else ""
        return path, TableFormat(self.text, label, row.columns, kind="tsv", labelled=row.labelled)


TRAIN, DEV, TEST = Split("train.tsv"), Split("dev.tsv"), Split("test.tsv", labelled=False)
SPLITS = {"train": TRAIN, "dev": DEV, "test": TEST}  # GLUE keeps the labels of its test sets to itself
COLA = ("source", "label", "mark", "sentence")
PAIR = ("sentence1", "sentence2")
YES_NO = ("entailment", "not_entailment")
GLUE = "https://gluebenchmark.com/tasks"

DATASETS: Registry[Dataset] = Registry(
    "data set",
    [
        (
            "cola",
            Dataset(
                "CoLA: is the sentence acceptable English?",
                "CoLA",
                {"train": Split("train.tsv", COLA), "dev": Split("dev.tsv", COLA), "test": TEST},
                text=("sentence",),
                label="label",
                labels=("0", "1"),
                metrics=("mcc",),
                licence="research use; sentences from published linguistics (Warstadt et al. 2019)",
                source=GLUE,
            ),
        ),
        (
            "sst2",
            Dataset(
                "SST-2: is the film review phrase positive?",
                "SST-2",
                SPLITS,
                text=("sentence",),
                label="label",
                labels=("0", "1"),
                metrics=("accuracy",),
                licence="not stated (Socher et al. 2013)",
                source=GLUE,
            ),
        ),
        (
            "mrpc",
            Dataset(
                "MRPC: do the two sentences say the same?",
                "MRPC",
                SPLITS,
                text=("#1 String", "#2 String"),
                label="Quality",
                labels=("0", "1"),
                metrics=("f1", "accuracy"),
                licence="Microsoft Research, research use (Dolan and Brockett 2005)",
                source=GLUE,
            ),
        ),
        (
            "qqp",
            Dataset(
                "QQP: do the two questions ask the same?",
                "QQP",
                SPLITS,
                text=("question1", "question2"),
                label="is_duplicate",
                labels=("0", "1"),
                metrics=("f1", "accuracy"),
                licence="Quora's terms, non-commercial use",
                source=GLUE,
            ),
        ),
        (
            "mnli",
            Dataset(
                "MNLI: does the hypothesis follow from the premise?",
                "MNLI",
                {
                    "train": TRAIN,
                    "dev": Split("dev_matched.tsv"),
                    "dev_mismatched": Split("dev_mismatched.tsv"),
                    "test": Split("test_matched.tsv", labelled=False),
                    "test_mismatched": Split("test_mismatched.tsv", labelled=False),
                },
                text=PAIR,
                label="gold_label",
                labels=("entailment", "neutral", "contradiction"),
                metrics=("accuracy",),
                licence="OANC and others, free to use (Williams et al. 2018)",
                source=GLUE,
            ),
        ),
        (
            "qnli",
            Dataset(
                "QNLI: does the sentence answer the question?",
                "QNLI",
                SPLITS,
                text=("question", "sentence"),
                label="label",
                labels=YES_NO,
                metrics=("accuracy",),
                licence="CC BY-SA 4.0 (from SQuAD, Rajpurkar et al. 2016)",
                source=GLUE,
            ),
        ),
        (
            "rte",
            Dataset(
                "RTE: does the second sentence follow from the first?",
                "RTE",
                SPLITS,
                text=PAIR,
                label="label",
                labels=YES_NO,
                metrics=("accuracy",),
                licence="research use (Dagan et al. 2005 and later)",
                source=GLUE,
            ),
        ),
        (
            "wnli",
            Dataset(
                "WNLI: does the sentence with the pronoun resolved follow?",
                "WNLI",
                SPLITS,
                text=PAIR,
                label="label",
                labels=("0", "1"),
                metrics=("accuracy",),
                licence="CC BY 4.0 (Levesque et al. 2012)",
                source=GLUE,
            ),
        ),
        (
            "nsmc",
            Dataset(
                "NSMC: is the Korean film review positive?",
                "nsmc",
                {"train": Split("ratings_train.txt"), "test": Split("ratings_test.txt")},
                text=("document",),
                label="label",
                labels=("0", "1"),
                metrics=("accuracy",),
                licence="CC0 1.0",
                source="https://github.com/e9t/nsmc",
            ),
        ),
    ],
)
