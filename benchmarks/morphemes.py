"""Words of Korean to morphemes: an encoder-decoder writes them, beside a tagger that edits syllables, and a lookup.

    python -m benchmarks.morphemes --treebank UD_Korean-Kaist --work WORK     measures what the file of results lacks

A word between spaces (eojeol) becomes its morphemes in their basic forms: 서울입니다 is 서울+이+ㅂ니다. They are the
lemmas of the treebank. Punctuation is left out, and so are auxiliary verbs, whose lemmas there lack the endings. The
dev file is divided by documents into training and held-out words. Learning rates and what the models read are chosen on
the held-out words (--part "held out"), and the test file is read for the rows of the table alone.

    copy     the word as it is
    lookup   the most frequent analysis of the word in training; a copy of other words
    tagger   an encoder of 4 x 128, random weights, with a label for each syllable: what it becomes (`edits`)
    T5       2 + 2 layers of 128, random weights, writes the morphemes letter by letter

Both models read a word in syllables or in letters (jamo: ㅅㅓㅇㅜㄹ), alone or between its neighbors. A line of
results/morphemes.jsonl is a method, a seed and the part that it answers.
"""

import argparse
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import bertie
from benchmarks import harness
from benchmarks.cells import NEVER, measured
from benchmarks.result_lines import add_line, read_lines
from bertie.errors import DataError

RESULTS = Path(__file__).parent / "results" / "morphemes.jsonl"
HELD_OUT = ("MH2_0149", "M2TA_079", "MH2_0109")  # documents of the dev file
FIRST = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
LAST = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
SYLLABLE = re.compile(f"([{FIRST}])([{VOWELS}])(?:([{LAST}])(?![{VOWELS}]))?")
LETTERS = "①②③"  # in an edit: the letters of the syllable
NOTHING = "∅"  # the edit of a syllable that becomes nothing
BETWEEN = "|"


@dataclass(frozen=True)
class Word:
    """A word with its morphemes joined by +, and its neighbors in the sentence; "" at its ends."""

    form: str
    morphemes: str
    before: str
    after: str


def words_of(file: Path, documents: Callable[[str], bool] = lambda name: True) -> Iterator[Word]:
    """Yields the words of a treebank that have an analysis. documents: which ones, by their names.

    Raises DataError for a file that is not there.
    """
    if not file.exists():
        raise DataError(f"{file} is not there. Pass the folder of UD_Korean-Kaist as --treebank.")
    for sentence in file.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = sentence.split("\n")
        name = next(line for line in lines if line.startswith("# sent_id")).split("= ")[1].rsplit("-", 1)[0]
        rows = [line.split("\t") for line in lines if line[0] != "#"]
        forms = ["", *(row[1] for row in rows), ""]
        if documents(name):
            for place, row in enumerate(rows):
                if row[3] not in ("PUNCT", "SYM") and row[2].count("+") == row[4].count("+"):
                    yield Word(row[1], row[2], forms[place], forms[place + 2])


def spelled(text: str) -> str:
    """Returns a text with syllables as letters: 서울 is ㅅㅓㅇㅜㄹ."""
    return "".join(map(_letters, text))


def _letters(syllable: str) -> str:
    number = ord(syllable) - ord("가")
    if not 0 <= number < len(FIRST) * len(VOWELS) * 28:
        return syllable
    last = number % 28
    return FIRST[number // 588] + VOWELS[number % 588 // 28] + (LAST[last - 1] if last else "")


def joined(letters: str) -> str:
    """Returns a text with letters as syllables. A consonant before a vowel begins a syllable, so it ends none."""

    def syllable(match: re.Match[str]) -> str:
        first, vowel, last = match.groups()
        number = FIRST.index(first) * 588 + VOWELS.index(vowel) * 28 + (LAST.index(last) + 1 if last else 0)
        return chr(ord("가") + number)

    return SYLLABLE.sub(syllable, letters)


def edits(form: str, morphemes: str) -> tuple[str, ...]:
    """Returns what each syllable becomes, from an alignment of letters with the fewest changes.

    Letters that stay are numbers, so that one edit fits many syllables: 가까운 is 가깝+ㄴ, and 운 becomes ㅂ+③.
    """
    source = [(place, number) for place, one in enumerate(form) for number in range(len(_letters(one)))]
    before, after = spelled(form), spelled(morphemes)
    parts, place = [""] * len(form), len(source)
    for old, new in reversed(_aligned(before, after)):
        place -= bool(old)
        at, number = source[min(place, len(source) - 1)]
        parts[at] = (LETTERS[number] if old == new else new) + parts[at]
    return tuple(part or NOTHING for part in parts)


def _aligned(before: str, after: str) -> list[tuple[str, str]]:
    """Returns pairs of letters with the fewest changes; "" for a letter that is inserted or left out."""
    cost = [[*range(len(after) + 1)]]
    for i, old in enumerate(before, 1):
        row = [i]
        for j, new in enumerate(after, 1):
            row.append(min(cost[-1][j - 1] + (old != new), cost[-1][j] + 1, row[-1] + 1))
        cost.append(row)
    pairs, i, j = list[tuple[str, str]](), len(before), len(after)
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (before[i - 1] != after[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((before[i], after[j]))
        elif j and cost[i][j] == cost[i][j - 1] + 1:
            j -= 1
            pairs.append(("", after[j]))
        else:
            i -= 1
            pairs.append((before[i], ""))
    return pairs[::-1]


def applied(form: str, labels: Sequence[str]) -> str:
    """Returns the morphemes of a word whose syllables have these edits."""
    letters = ""
    for syllable, label in zip(form, labels, strict=True):
        own = _letters(syllable)
        for one in label.replace(NOTHING, ""):
            number = LETTERS.find(one)
            letters += one if number < 0 else own[number : number + 1]
    return joined(letters)


@dataclass(frozen=True)
class Reading:
    """How a model reads a word: spelled in letters or in syllables, between its neighbors or alone."""

    letters: bool
    neighbors: bool

    @property
    def name(self) -> str:
        """What the table calls it."""
        return ("letters" if self.letters else "syllables") + (", with neighbors" if self.neighbors else "")

    def text(self, text: str) -> str:
        """Returns a text as the model reads or writes it."""
        return spelled(text) if self.letters else text

    def source(self, word: Word) -> str:
        """Returns the text that T5 reads."""
        parts = (word.before, BETWEEN, word.form, BETWEEN, word.after) if self.neighbors else (word.form,)
        return self.text(" ".join(filter(None, parts)))

    def pair(self, word: Word) -> dict[str, Any]:
        """Returns the row that T5 learns from."""
        return {"source": self.source(word), "target": self.text(word.morphemes)}

    def syllables(self, word: Word) -> tuple[list[str], int]:
        """Returns the syllables that the tagger reads, and the number of the word's first one."""
        before = [*map(self.text, word.before), BETWEEN] if self.neighbors else []
        after = [BETWEEN, *map(self.text, word.after)] if self.neighbors else []
        return [*before, *map(self.text, word.form), *after], len(before)

    def tagged(self, word: Word) -> dict[str, Any]:
        """Returns the row that the tagger learns from. Neighbors are outside."""
        tokens, start = self.syllables(word)
        tags = ["O"] * len(tokens)
        tags[start : start + len(word.form)] = edits(word.form, word.morphemes)
        return {"tokens": tokens, "tags": tags}


@dataclass(frozen=True)
class Kind:
    """A kind of model: its preset and sizes, its vocabulary, and how it learns.

    tokens: of the vocabulary, by whether words are spelled in letters.
    """

    preset: str
    sizes: Mapping[str, float]
    objective: str
    vocabulary: Mapping[str, Any]
    tokens: Mapping[bool, int]
    task: str
    options: Mapping[str, Any]

    def rows(self, reading: Reading, words: Sequence[Word]) -> list[dict[str, Any]]:
        """Returns the rows that the model learns from."""
        return [reading.pair(word) if self is T5 else reading.tagged(word) for word in words]

    def texts(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Returns the texts of the vocabulary."""
        return [text for row in rows for text in (row.values() if self is T5 else [" ".join(row["tokens"])])]


DROPOUT = 0.1
SIZES: Mapping[str, float] = {
    "hidden_size": 128,
    "num_attention_heads": 2,
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
}
T5 = Kind(
    "t5-small",
    {**SIZES, "intermediate_size": 512, "num_hidden_layers": 2, "num_decoder_layers": 2},
    "span",
    {"family": "t5"},
    {True: 400, False: 1_500},  # hardly more than single letters, and single syllables
    "text2text",
    {"task_options.max_target_length": 64},
)
TAGGER = Kind(
    "ModernBERT-base",
    {**SIZES, "intermediate_size": 341, "num_hidden_layers": 4},
    "mlm",
    {"min_frequency": 10**9},  # no token of several letters
    dict.fromkeys((True, False), 6_000),
    "tagging",
    {},
)
KINDS = {"T5": T5, "tagger": TAGGER}
BATCH = 128


@dataclass(frozen=True)
class Study:
    """The words, and the folder of what is trained."""

    treebank: Path
    work: Path

    @cached_property
    def parts(self) -> dict[str, list[Word]]:
        """The words of each part."""
        dev, test = (self.treebank / f"ko_kaist-ud-{split}.conllu" for split in ("dev", "test"))
        return {
            "train": list(words_of(dev, lambda name: name not in HELD_OUT)),
            "held out": list(words_of(dev, lambda name: name in HELD_OUT)),
            "test": list(words_of(test)),
        }

    def start(self, name: str, reading: Reading) -> Path:
        """Returns the folder of a model whose shape and vocabulary a run takes, which is made first."""
        kind, folder = KINDS[name], self.work / f"start-{name}-{reading.name.replace(', ', '-').replace(' ', '-')}"
        if not folder.exists():
            texts = kind.texts(kind.rows(reading, self.parts["train"]))
            tokenizer = bertie.train_tokenizer(iter(texts), size=kind.tokens[reading.letters], **kind.vocabulary)
            corpus = bertie.build_corpus(iter(texts), folder / "corpus")
            settings = {f"model_overrides.{size}": value for size, value in kind.sizes.items()}
            bertie.pretrain(
                corpus, tokenizer, model=kind.preset, objectives=[kind.objective], steps=1, batch_size=1,
                max_length=128, settings=settings, output=folder / "run",
            )  # fmt: skip
        return folder / "run" / "model"

    def trained(self, name: str, reading: Reading, rate: float, seed: int, epochs: float) -> tuple[Path, float]:
        """Returns the folder of a model, which is trained first, and the processor seconds of its training."""
        kind, start = KINDS[name], self.start(name, reading)
        folder = self.work / f"{start.parents[1].name.replace('start-', '')}-{rate:g}-{epochs:g}-{seed}"

        def train() -> dict[str, float]:
            began = time.process_time()
            run = bertie.finetune(
                start,
                kind.rows(reading, self.parts["train"]),
                kind.rows(reading, self.parts["held out"][:50]),  # what it says of them is not used
                task=kind.task, epochs=epochs, lr=rate, batch_size=BATCH, max_length=128, seed=seed,
                settings={**OPTIONS, **kind.options}, output=folder,
            )  # fmt: skip
            del run
            return {"seconds": round(time.process_time() - began)}

        return folder, measured(self.work / f"{folder.name}.json", train)["seconds"]


OPTIONS = {
    "from_scratch": True,
    "label_check": "none",
    "baselines": False,
    "train.eval_every": NEVER,
    "train.save_every": NEVER,
}


def answers_of(name: str, model: bertie.Model, reading: Reading, words: Sequence[Word], **beams: Any) -> list[str]:
    """Returns the morphemes that a model gives to words. beams: options of `bertie.write`."""
    if name == "T5":
        sources = [reading.source(word) for word in words]
        texts = model.write(sources, **beams) if beams else model.predict(sources).labels
        return [joined(str(text).replace(" ", "")) for text in texts]
    rows, places = list[dict[str, Any]](), list[int]()
    for word in words:
        tokens, place = reading.syllables(word)
        rows.append({"tokens": tokens})
        places.append(place)
    tags: list[Any] = model.predict(rows).labels
    parts = [some[place : place + len(word.form)] for some, place, word in zip(tags, places, words, strict=True)]
    return [applied(word.form, part) for word, part in zip(words, parts, strict=True)]


def shares(words: Sequence[Word], answers: Sequence[str], known: Container[str]) -> dict[str, float]:
    """Returns how many answers are right: of all words, of those that training lacks, of those whose letters change."""
    right = [word.morphemes == answer for word, answer in zip(words, answers, strict=True)]
    kinds = {
        "all": [True] * len(words),
        "unseen": [word.form not in known for word in words],
        "changed": [word.morphemes.replace("+", "") != word.form for word in words],
    }
    return {
        name: round(sum(one and is_of for one, is_of in zip(right, of, strict=True)) / sum(of), 4)
        for name, of in kinds.items()
    }


SYLLABLES, LETTERS_READ = Reading(letters=False, neighbors=False), Reading(letters=True, neighbors=False)
BETWEEN_NEIGHBORS = Reading(letters=False, neighbors=True)
RATES = (5e-4, 1e-3, 2e-3)
TRIAL_EPOCHS = 6
PENALTIES = (0.6, 1.0, 1.4)
BEAMS = 4


@dataclass(frozen=True)
class Fit:
    """A model that is trained: its kind, what it reads, its learning rate, and for how long."""

    kind: str
    reading: Reading
    rate: float
    epochs: float


TRIALS = [
    *(Fit(kind, SYLLABLES, rate, TRIAL_EPOCHS) for rate in RATES for kind in KINDS),
    *(Fit(kind, reading, 2e-3, TRIAL_EPOCHS) for reading in (LETTERS_READ, BETWEEN_NEIGHBORS) for kind in KINDS),
]
"""What is compared on the held-out words."""
CHOICES = [Fit("T5", SYLLABLES, 1e-3, 18), Fit("tagger", SYLLABLES, 2e-3, 22)]  # about as much time for both


def lookup(words: Sequence[Word]) -> dict[str, str]:
    """Returns the most frequent morphemes of each word."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word in words:
        counts[word.form][word.morphemes] += 1
    return {form: some.most_common(1)[0][0] for form, some in counts.items()}


def measured_lines(study: Study, fit: Fit, seed: int, part: str, known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yields the lines of a model: greedy, of T5 on the test words also with beams; and a lookup before either."""
    folder, seconds = study.trained(fit.kind, fit.reading, fit.rate, seed, fit.epochs)
    model, words = bertie.load(folder, device="cpu"), study.parts[part]
    searches: list[dict[str, Any]] = [{}]
    if fit.kind == "T5" and part == "test" and not seed:
        searches += [{"beams": BEAMS, "length_penalty": penalty} for penalty in PENALTIES]
    shared = {"reading": fit.reading.name, "rate": fit.rate, "epochs": fit.epochs, "train_s": seconds}
    for search in searches:
        began = time.process_time()
        answers = answers_of(fit.kind, model, fit.reading, words, **search)
        rate = round(len(words) / (time.process_time() - began))
        name = fit.kind + (f", {BEAMS} beams, length penalty {search['length_penalty']:g}" if search else "")
        yield {"method": name, **shared, "words_per_s": rate, **shares(words, answers, known)}
        if not search and part == "test":
            both = [known.get(word.form, answer) for word, answer in zip(words, answers, strict=True)]
            yield {"method": f"lookup, else {name}", **shared, **shares(words, both, known)}


def main() -> None:
    """Measures the lines that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures words of Korean to morphemes.")
    parser.add_argument("--treebank", required=True, type=Path, help="folder of UD_Korean-Kaist")
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--part", choices=("held out", "test"), default="test")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    study, part = Study(options.treebank, options.work), options.part
    words, known = study.parts[part], lookup(study.parts["train"])
    names = ("method", "reading", "rate", "epochs", "seed")
    done = {tuple(line[name] for name in names) for line in read_lines(RESULTS) if line["part"] == part}

    def add(line: Mapping[str, Any], seed: int) -> None:
        facts = {"part": part, "seed": seed, "words": len(words), "taught": len(study.parts["train"])}
        add_line(RESULTS, {**line, **facts, **harness.conditions()})

    simple = {"copy": [word.form for word in words], "lookup": [known.get(word.form, word.form) for word in words]}
    for name, answers in simple.items():
        if (name, "", None, None, 0) not in done:
            add({"method": name, "reading": "", "rate": None, "epochs": None, **shares(words, answers, known)}, 0)
    for seed in range(options.seeds if part == "test" else 1):
        for fit in CHOICES if part == "test" else TRIALS:
            if (fit.kind, fit.reading.name, fit.rate, fit.epochs, seed) not in done:
                for line in measured_lines(study, fit, seed, part, known):
                    add(line, seed)


if __name__ == "__main__":
    main()
