"""Does a masked language model know facts? Cloze sentences made from the first sentences of Wikipedia articles.

    python -m benchmarks.facts MODEL --articles 'wiki/*/wiki_*'

    capital      Rome is the capital of Italy ...           ->  The capital of Italy is [MASK].
    nationality  Ada Lovelace (1815 - 1852) was an English  ->  The nationality of Ada Lovelace is [MASK].
    country      Darmstadt is a city in ... Germany.        ->  Darmstadt is in [MASK].

As in LAMA (Petroni et al. 2019, arXiv:1909.01066), an answer is one token of the model's vocabulary. A prediction that
repeats a word of the question does not count. The baseline predicts the most frequent answers of a relation, so it
knows what kind of word is asked for. "among answers" therefore counts only predictions that are an answer of the
relation. A line of results/facts.jsonl is a model and a relation, with the precision at 1 and at 10.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import bertie
from benchmarks.result_lines import add_line, read_lines
from bertie.errors import DataError

RESULTS = Path(__file__).parent / "results" / "facts.jsonl"
FREQUENT = "the most frequent answers"
CANDIDATES = 400  # predictions that are read, of which those that repeat the question are left out
RAREST = 2  # times that an answer of nationality or country occurs: others are mostly no nationality or country
ARTICLE = re.compile(r'<doc [^>]*title="([^"]*)"[^>]*>\n(.*?)</doc>', re.DOTALL)
TITLE = re.compile(r"[A-Z][\w.' -]*")  # one without a comma or parentheses, which explain a name
GENERAL = {"Republic", "State", "Province", "Kingdom", "Commonwealth", "Principality", "United", "The", "Federal"}


@dataclass(frozen=True)
class Relation:
    """What an article says. pattern: of its first sentences, with the groups `object` and, if not its title, `subject`.

    reverse: the subject is the answer.
    """

    pattern: re.Pattern[str]
    cloze: str
    reverse: bool = False


RELATIONS = {
    "capital": Relation(
        re.compile(
            r"^(?P<subject>[A-Z]\w+)\b[^.]{0,80}? is the capital(?: city)?(?: and [\w ]{1,30})? of (?:the )?"
            r"(?P<object>[A-Z]\w+)(?=[., ])"
        ),
        "The capital of {} is {}.",
        reverse=True,
    ),
    "nationality": Relation(
        re.compile(r"^[^.]{0,120}?\) (?:was|is) an? (?P<object>[A-Z]\w+) [a-z]\w+"), "The nationality of {} is {}."
    ),
    "country": Relation(
        re.compile(
            r"^.{0,80}? is an? (?:\w+ ){0,2}(?:town|city|village|municipality|river|mountain|island|region|district)\b"
            r"[^.]{0,80}? (?:in|of) (?:the )?(?P<object>[A-Z]\w+)(?=[.,])"
        ),
        "{} is in {}.",
    ),
}


def facts(files: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Returns the subject and the answer of each relation, without repeats."""
    pairs: dict[str, dict[str, str]] = {name: {} for name in RELATIONS}
    for title, text in _articles(files):
        for name, relation in RELATIONS.items():
            match = relation.pattern.search(text)
            if match is None or match["object"] in GENERAL or not TITLE.fullmatch(title):
                continue
            subject, value = match.groupdict().get("subject") or title, match["object"]
            pairs[name].setdefault(*((value, subject) if relation.reverse else (subject, value)))
    counts = {name: Counter(some.values()) for name, some in pairs.items()}
    return {
        name: [pair for pair in some.items() if RELATIONS[name].reverse or counts[name][pair[1]] >= RAREST]
        for name, some in pairs.items()
    }


def _articles(files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the title and the first paragraph of each article of WikiExtractor's files."""
    for file in files:
        for title, body in ARTICLE.findall(Path(file).read_text(encoding="utf-8")):
            paragraphs = [line for line in body.splitlines() if line.strip()]
            if len(paragraphs) > 1:  # the first line is the title
                yield title, paragraphs[1]


def precision(model: bertie.Model, name: str, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Returns how often the answer is the first prediction, and among the first ten."""
    mask = model.tokenizer.special_tokens["mask"]
    places, among, answers = list[int](), list[int](), {value.lower() for _, value in pairs}
    for subject, value in pairs:
        text = RELATIONS[name].cloze.format(subject, mask)
        asked = set(re.findall(r"\w+", text.lower()))
        (predictions,) = model.fill_mask(text, top=CANDIDATES)
        words = [one.token.strip().lower() for one in predictions]
        words = [word for word in words if word.isalpha() and word not in asked]
        for kept, some in ((places, words), (among, [word for word in words if word in answers])):
            kept.append(some.index(value.lower()) if value.lower() in some else CANDIDATES)
    return {
        f"p@{most}{kind}": sum(place < most for place in some) / len(pairs)
        for kind, some in (("", places), (" among answers", among))
        for most in (1, 10)
    }


def frequent(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Returns the precision of the most frequent answers."""
    best = Counter(value for _, value in pairs).most_common(10)
    return {"p@1": best[0][1] / len(pairs), "p@10": sum(count for _, count in best) / len(pairs)}


def main() -> None:
    """Measures a model and the baseline on the facts whose answers are one token of the model."""
    parser = argparse.ArgumentParser(description="Measures what facts a masked language model predicts.")
    parser.add_argument("model")
    parser.add_argument("--articles", required=True, help="glob of WikiExtractor's files")
    options = parser.parse_args()
    files = sorted(glob(options.articles))
    if not files:
        raise DataError(f"No file matches {options.articles}.")
    model, label = bertie.load(options.model), Path(options.model).name
    known = {(one["model"], one["relation"]) for one in read_lines(RESULTS)}
    for name, pairs in facts(files).items():
        if (label, name) in known:
            continue
        single = [pair for pair in pairs if len(model.tokenizer.encode(pair[1]).ids) == 3]  # with [CLS] and [SEP]
        shared = {"relation": name, "facts": len(single)}
        for row, scores in ((label, precision(model, name, single)), (f"{FREQUENT}, {label}", frequent(single))):
            add_line(RESULTS, {"model": row, **shared, **{key: round(value, 4) for key, value in scores.items()}})


if __name__ == "__main__":
    main()
