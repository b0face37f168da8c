"""GLUE's nine tasks and its diagnostic set (Wang et al. 2018), each in its own folder. The test labels are not
public."""

from bertie.tasks.dataset import Dataset, Split

COLA = ("source", "label", "mark", "sentence")
_PAIR = ("sentence1", "sentence2")
_NLI = ("entailment", "neutral", "contradiction")
YES_NO = ("entailment", "not_entailment")
GLUE_HOME = "https://gluebenchmark.com/tasks"


def splits(train: int, dev: int, test: int) -> dict[str, Split]:
    """Returns the three files of most tasks, with their numbers of rows."""
    return {
        "train": Split("train.tsv", rows=train),
        "dev": Split("dev.tsv", rows=dev),
        "test": Split("test.tsv", labelled=False, rows=test),
    }


GLUE = [
    (
        "cola",
        Dataset(
            "CoLA: is the sentence acceptable English?",
            "CoLA",
            {
                "train": Split("train.tsv", COLA, rows=8_551),
                "dev": Split("dev.tsv", COLA, rows=1_043),
                "test": Split("test.tsv", labelled=False, rows=1_063),
            },
            text=("sentence",),
            label="label",
            labels=("0", "1"),
            metrics=("mcc",),
            licence="research use; sentences from published linguistics (Warstadt et al. 2019)",
            source=GLUE_HOME,
        ),
    ),
    (
        "sst2",
        Dataset(
            "SST-2: is the film review phrase positive?",
            "SST-2",
            splits(67_349, 872, 1_821),
            text=("sentence",),
            label="label",
            labels=("0", "1"),
            metrics=("accuracy",),
            licence="not stated (Socher et al. 2013)",
            source=GLUE_HOME,
            meanings={"0": "negative", "1": "positive"},
        ),
    ),
    (
        "mrpc",
        Dataset(
            "MRPC: do the two sentences mean the same?",
            "MRPC",
            splits(3_668, 408, 1_725),
            text=("#1 String", "#2 String"),
            label="Quality",
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
            licence="Microsoft Research, research use (Dolan and Brockett 2005)",
            source=GLUE_HOME,
        ),
    ),
    (
        "stsb",
        Dataset(
            "STS-B: how similar in meaning are two sentences, from 0 to 5?",
            "STS-B",
            splits(5_749, 1_500, 1_379),
            text=_PAIR,
            label="score",
            labels=(),
            metrics=("spearman", "pearson"),  # the main one is BERT's (Devlin et al. 2018, table 1)
            licence="each source has its own; research use (Cer et al. 2017)",
            source=GLUE_HOME,
            task="regression",
        ),
    ),
    (
        "qqp",
        Dataset(
            "QQP: do the two questions ask the same?",
            "QQP",
            splits(363_849, 40_430, 390_965),
            text=("question1", "question2"),
            label="is_duplicate",
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
            licence="Quora's terms, non-commercial use",
            source=GLUE_HOME,
        ),
    ),
    (
        "mnli",
        Dataset(
            "MNLI: does the hypothesis follow from the premise?",
            "MNLI",
            {
                "train": Split("train.tsv", rows=392_702),
                "dev": Split("dev_matched.tsv", rows=9_815),
                "dev_mismatched": Split("dev_mismatched.tsv", rows=9_832),
                "test": Split("test_matched.tsv", labelled=False, rows=9_796),
                "test_mismatched": Split("test_mismatched.tsv", labelled=False, rows=9_847),
            },
            text=_PAIR,
            label="gold_label",
            labels=_NLI,
            metrics=("accuracy",),
            licence="OANC and others, free to use (Williams et al. 2018)",
            source=GLUE_HOME,
            undecided="-",
        ),
    ),
    (
        "qnli",
        Dataset(
            "QNLI: does the sentence answer the question?",
            "QNLI",
            splits(104_743, 5_463, 5_463),
            text=("question", "sentence"),
            label="label",
            labels=YES_NO,
            metrics=("accuracy",),
            licence="CC BY-SA 4.0 (from SQuAD, Rajpurkar et al. 2016)",
            source=GLUE_HOME,
        ),
    ),
    (
        "rte",
        Dataset(
            "RTE: does the second sentence follow from the first?",
            "RTE",
            splits(2_490, 277, 3_000),
            text=_PAIR,
            label="label",
            labels=YES_NO,
            metrics=("accuracy",),
            licence="research use (Dagan et al. 2005 and later)",
            source=GLUE_HOME,
        ),
    ),
    (
        "wnli",
        Dataset(
            "WNLI: does the sentence with the pronoun resolved follow?",
            "WNLI",
            splits(635, 71, 146),
            text=_PAIR,
            label="label",
            labels=("0", "1"),
            metrics=("accuracy",),
            licence="CC BY 4.0 (Levesque et al. 2012)",
            source=GLUE_HOME,
        ),
    ),
    (
        "ax",
        Dataset(
            "AX: sentence pairs that test what a model of MNLI understands",
            "AX",
            {
                "dev": Split("diagnostic-full.tsv", text=("Premise", "Hypothesis"), label="Label", rows=1_104),
                "test": Split("diagnostic.tsv", labelled=False, also=("AX.tsv", "test.tsv"), rows=1_104),
            },
            text=_PAIR,
            label="",
            labels=_NLI,
            metrics=("mcc",),
            licence="CC BY 4.0 (Wang et al. 2018)",
            source=GLUE_HOME,
        ),
    ),
]
