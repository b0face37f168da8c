"""The published data sets Bertie reads as they come: a row each. No data ships with Bertie.

`bertie finetune MODEL --data sst2 --data-dir DIR` looks for a set's files in DIR and in DIR/<folder>. Most are
tab-separated with quoting off; what differs is in the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertie.data.tables import TableFormat
from bertie.errors import DataError, nearest
from bertie.registry import Registry


@dataclass(frozen=True)
class Split:
    """One file of a set. columns: their names where the file has no header line.

    file: its name, or a pattern (*-ud-dev*.conllu) that one file has; also: other names it goes by.
    """

    file: str
    columns: tuple[str, ...] = ()
    labelled: bool = True
    also: tuple[str, ...] = ()

    def find(self, *folders: Path) -> Path | None:
        """Its path in the first folder that has it. Raises DataError where several files could be meant."""
        for folder in folders:
            found = sorted({path for name in (self.file, *self.also) for path in folder.glob(name) if path.is_file()})
            if len(found) > 1:
                raise DataError(f"{folder} has several files that could be meant: {', '.join(p.name for p in found)}.")
            if found:
                return found[0]
        return None


@dataclass(frozen=True)
class Dataset:
    """A published set. labels: in the order the model is to have. metrics: what is reported, the main one first.

    task: by name, with `options`, which the user's lie over. kind: of its files (data/tables.py, data/tagged.py).
    """

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
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "tsv"

    def table(self, split: str, data_dir: Path) -> tuple[Path, TableFormat]:
        """The file of one split, and how it is read. Raises DataError: no such split, file not there."""
        if split not in self.splits:
            raise DataError(f"{self.title} has no split {split!r}. {nearest(split, self.splits)}")
        row = self.splits[split]
        places = [data_dir / row.file, data_dir / self.folder / row.file]
        path = row.find(data_dir, data_dir / self.folder)
        if path is None:
            raise DataError(f"{self.title}: neither {places[0]} nor {places[1]} exists. Its home is {self.source}.")
        label = self.label if row.labelled else ""
        return path, TableFormat(self.text, label, row.columns, kind=self.kind, labelled=row.labelled)


TRAIN, DEV, TEST = Split("train.tsv"), Split("dev.tsv"), Split("test.tsv", labelled=False)
SPLITS = {"train": TRAIN, "dev": DEV, "test": TEST}  # GLUE keeps the labels of its test sets to itself
COLA = ("source", "label", "mark", "sentence")
PAIR = ("sentence1", "sentence2")
YES_NO = ("entailment", "not_entailment")
GLUE = "https://gluebenchmark.com/tasks"
KLUE_NER = (*(f"{prefix}-{type}" for type in ("PS", "LC", "OG", "DT", "TI", "QT") for prefix in "BI"), "O")

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
        (
            "squad",
            Dataset(
                "SQuAD 1.1: where does the text answer the question?",
                "squad",
                {"train": Split("train-v1.1*.json"), "dev": Split("dev-v1.1*.json")},
                text=("question", "context"),
                label="answers",
                labels=(),
                metrics=("f1", "exact_match"),
                licence="CC BY-SA 4.0 (Rajpurkar et al. 2016)",
                source="https://rajpurkar.github.io/SQuAD-explorer",
                task="span",
                options={"script": "squad1.1"},
                kind="json",
            ),
        ),
        (
            "squad2",
            Dataset(
                "SQuAD 2.0: where does the text answer the question, if it does?",
                "squad",
                {"train": Split("train-v2.0*.json"), "dev": Split("dev-v2.0*.json")},
                text=("question", "context"),
                label="answers",
                labels=(),
                metrics=("f1", "exact_match"),
                licence="CC BY-SA 4.0 (Rajpurkar et al. 2018)",
                source="https://rajpurkar.github.io/SQuAD-explorer",
                task="span",
                options={"script": "squad2.0"},
                kind="json",
            ),
        ),
        (
            "korquad",
            Dataset(
                "KorQuAD 1.0: where does the Korean text answer the question?",
                "korquad",
                {"train": Split("KorQuAD_v1.0_train.json"), "dev": Split("KorQuAD_v1.0_dev.json")},
                text=("question", "context"),
                label="answers",
                labels=(),
                metrics=("f1", "exact_match"),
                licence="CC BY-ND 2.0 KR (Lim et al. 2019)",
                source="https://korquad.github.io/KorQuad%201.0",
                task="span",
                options={"script": "korquad1.0"},
                kind="json",
            ),
        ),
        (
            "klue-mrc",
            Dataset(
                "KLUE-MRC: where does the Korean text answer the question, if it does?",
                "klue",
                {"train": Split("klue-mrc-v1*_train.json"), "dev": Split("klue-mrc-v1*_dev.json")},
                text=("question", "context"),
                label="answers",
                labels=(),
                metrics=("rouge_w", "exact_match"),
                licence="CC BY-SA 4.0 (Park et al. 2021)",
                source="https://klue-benchmark.com",
                task="span",
                options={"script": "klue-mrc"},
                kind="json",
            ),
        ),
        (
            "conll2003",
            Dataset(
                "CoNLL-2003: persons, places, organizations and others in English news",
                "conll2003",
                {
                    "train": Split("train.txt", also=("eng.train",)),
                    "dev": Split("valid.txt", also=("eng.testa",)),
                    "test": Split("test.txt", also=("eng.testb",)),
                },
                text=("text",),
                label="",
                labels=(),
                metrics=("f1", "precision", "recall"),
                licence="research use (Reuters corpus; Tjong Kim Sang and De Meulder 2003)",
                source="https://www.clips.uantwerpen.be/conll2003/ner",
                task="tagging",
                kind="conll",
            ),
        ),
        (
            "conll2000",
            Dataset(
                "CoNLL-2000: noun, verb and other phrases in English news",
                "conll2000",
                {"train": Split("train.txt"), "test": Split("test.txt")},
                text=("text",),
                label="",
                labels=(),
                metrics=("f1", "precision", "recall"),
                licence="research use (Wall Street Journal; Tjong Kim Sang and Buchholz 2000)",
                source="https://www.clips.uantwerpen.be/conll2000/chunking",
                task="tagging",
                kind="conll",
            ),
        ),
        (
            "wnut17",
            Dataset(
                "WNUT-17: new and rare names in posts and comments",
                "wnut17",
                {
                    "train": Split("wnut17train.conll"),
                    "dev": Split("emerging.dev.conll"),
                    "test": Split("emerging.test.annotated"),
                },
                text=("text",),
                label="",
                labels=(),
                metrics=("f1", "precision", "recall"),
                licence="CC BY 4.0 (Derczynski et al. 2017)",
                source="https://github.com/leondz/emerging_entities_17",
                task="tagging",
                kind="conll",
            ),
        ),
        (
            "ud",
            Dataset(
                "Universal Dependencies: the part of speech of every word; the folder of any treebank",
                "ud",
                {
                    "train": Split("*-ud-train*.conllu"),
                    "dev": Split("*-ud-dev*.conllu"),
                    "test": Split("*-ud-test*.conllu"),
                },
                text=("text",),
                label="upos",
                labels=(),
                metrics=("accuracy",),
                licence="each treebank's own; many CC BY-SA 4.0",
                source="https://universaldependencies.org",
                task="tagging",
                kind="conllu",
            ),
        ),
        (
            "klue-ner",
            Dataset(
                "KLUE-NER: persons, places, organizations, dates, times and quantities in Korean, by character",
                "klue",
                {"train": Split("klue-ner-v1*_train.tsv"), "dev": Split("klue-ner-v1*_dev.tsv")},
                text=("text",),
                label="",
                labels=KLUE_NER,
                metrics=("macro_f1", "tag_macro_f1"),
                licence="CC BY-SA 4.0 (Park et al. 2021)",
                source="https://klue-benchmark.com",
                task="tagging",
                options={"strict": True, "unit": "character"},
                kind="klue",
            ),
        ),
    ],
)
