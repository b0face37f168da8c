"""Korean sets: film reviews, KorNLI and KorSTS, KLUE, KorQuAD."""

from bertie.tasks.dataset import Dataset, Split

PAIR = ("sentence1", "sentence2")
NLI = ("entailment", "neutral", "contradiction")
KLUE = "https://klue-benchmark.com"
KLUE_NER = (*(f"{prefix}-{type}" for type in ("PS", "LC", "OG", "DT", "TI", "QT") for prefix in "BI"), "O")

KOREAN = [
    (
        "nsmc",
        Dataset(
            "NSMC: is the Korean film review positive?",
            "nsmc",
            {"train": Split("ratings_train.txt", rows=150_000), "test": Split("ratings_test.txt", rows=50_000)},
            text=("document",),
            label="label",
            labels=("0", "1"),
            metrics=("accuracy",),
            licence="CC0 1.0",
            source="https://github.com/e9t/nsmc",
        ),
    ),
    (
        "kornli",
        Dataset(
            "KorNLI: does the Korean hypothesis follow from the premise?",
            "kornli",
            {
                "train": Split("multinli.train.ko.tsv", rows=942_854, more=("snli_1.0_train.ko.tsv",)),
                "dev": Split("xnli.dev.ko.tsv", rows=2_490),
                "test": Split("xnli.test.ko.tsv", rows=5_010),
            },
            text=PAIR,
            label="gold_label",
            labels=NLI,
            metrics=("accuracy",),
            licence="CC BY-SA 4.0 (Ham et al. 2020)",
            source="https://github.com/kakaobrain/kor-nlu-datasets",
            undecided="-",  # some of SNLI's
        ),
    ),
    (
        "korsts",
        Dataset(
            "KorSTS: how alike in meaning are two Korean sentences, from 0 to 5?",
            "korsts",
            {
                "train": Split("sts-train.tsv", rows=5_749),
                "dev": Split("sts-dev.tsv", rows=1_500),
                "test": Split("sts-test.tsv", rows=1_379),
            },
            text=PAIR,
            label="score",
            labels=(),
            metrics=("spearman", "pearson"),
            licence="CC BY-SA 4.0 (Ham et al. 2020)",
            source="https://github.com/kakaobrain/kor-nlu-datasets",
            task="regression",
        ),
    ),
    (
        "klue-tc",
        Dataset(
            "KLUE-TC (YNAT): the topic of a Korean headline",
            "klue",
            {"train": Split("ynat-v1*_train.json", rows=45_678), "dev": Split("ynat-v1*_dev.json", rows=9_107)},
            text=("title",),
            label="label",
            labels=("IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치"),
            metrics=("macro_f1", "accuracy"),
            licence="CC BY-SA 4.0 (Park et al. 2021)",
            source=KLUE,
            kind="json",
        ),
    ),
    (
        "klue-sts",
        Dataset(
            "KLUE-STS: how alike in meaning are two Korean sentences, from 0 to 5?",
            "klue",
            {"train": Split("klue-sts-v1*_train.json", rows=11_668), "dev": Split("klue-sts-v1*_dev.json", rows=519)},
            text=PAIR,
            label="labels.real-label",
            labels=(),
            metrics=("pearson", "f1"),
            licence="CC BY-SA 4.0 (Park et al. 2021)",
            source=KLUE,
            task="regression",
            options={"threshold": 3.0},  # alike from there on, as the set's binary labels have it
            kind="json",
        ),
    ),
    (
        "klue-nli",
        Dataset(
            "KLUE-NLI: does the Korean hypothesis follow from the premise?",
            "klue",
            {"train": Split("klue-nli-v1*_train.json", rows=24_998), "dev": Split("klue-nli-v1*_dev.json", rows=3_000)},
            text=("premise", "hypothesis"),
            label="gold_label",
            labels=("entailment", "contradiction", "neutral"),
            metrics=("accuracy",),
            licence="CC BY-SA 4.0 (Park et al. 2021)",
            source=KLUE,
            kind="json",
        ),
    ),
    (
        "korquad",
        Dataset(
            "KorQuAD 1.0: where does the Korean text answer the question?",
            "korquad",
            {"train": Split("KorQuAD_v1.0_train.json", rows=60_407), "dev": Split("KorQuAD_v1.0_dev.json", rows=5_774)},
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
            {"train": Split("klue-mrc-v1*_train.json", rows=17_554), "dev": Split("klue-mrc-v1*_dev.json", rows=5_841)},
            text=("question", "context"),
            label="answers",
            labels=(),
            metrics=("rouge_w", "exact_match"),
            licence="CC BY-SA 4.0 (Park et al. 2021)",
            source=KLUE,
            task="span",
            options={"script": "klue-mrc"},
            kind="json",
        ),
    ),
    (
        "klue-ner",
        Dataset(
            "KLUE-NER: persons, places, organizations, dates, times and quantities in Korean, by character",
            "klue",
            {"train": Split("klue-ner-v1*_train.tsv", rows=21_008), "dev": Split("klue-ner-v1*_dev.tsv", rows=5_000)},
            text=("text",),
            label="",
            labels=KLUE_NER,
            metrics=("macro_f1", "tag_macro_f1"),
            licence="CC BY-SA 4.0 (Park et al. 2021)",
            source=KLUE,
            task="tagging",
            options={"strict": True, "unit": "character"},
            kind="klue",
        ),
    ),
]
