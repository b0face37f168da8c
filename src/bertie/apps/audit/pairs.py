"""CrowS-Pairs (Nangia et al. 2020): which of two sentences about two groups is more probable.

Two measures, which are often confused. Both count the pairs whose more stereotyped sentence has the higher score:

    shared tokens      sum of log p over the tokens that both sentences have, one masked at a time (the official script)
    differing tokens   mean of log p over the tokens in which they differ, one masked at a time (bias-bench)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np

from bertie.apps.audit.base import AuditMeasure, AuditSet, AuditSource, FigureExamples, Read, Score, Subject, fraction
from bertie.apps.audit.files import NamedCells, header_has, read_table
from bertie.apps.audit.masked import log_p, one_at_a_time
from bertie.platform import BadRecord, Encoding

CROWS_COLUMNS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")
_DIRECTIONS = ("stereo", "antistereo")
DIGITS = 3  # scores that are equal after rounding are a tie, as in the official script
_EXAMPLES_SHOWN = 10
_FORMS = {"shared": "shared tokens (official)", "differing": "differing tokens"}
Places = tuple[list[int], list[int]]


@dataclass(frozen=True)
class SentencePair:
    """A more and a less stereotyped sentence. stereo: whether the first is about the disadvantaged group."""

    more: str
    less: str
    stereo: bool
    kind: str


def aligned(first: Sequence[int], second: Sequence[int]) -> tuple[Places, Places]:
    """Returns the positions that two lists of tokens share, and those in which they differ, each for both lists."""
    shared: Places = ([], [])
    differing: Places = ([], [])
    for name, a, b, c, d in SequenceMatcher(None, list(first), list(second)).get_opcodes():
        into = shared if name == "equal" else differing
        into[0].extend(range(a, b))
        into[1].extend(range(c, d))
    return shared, differing


def positions(first: Encoding, second: Encoding) -> tuple[Places, Places]:
    """Returns what `aligned` returns, without the special tokens around each sentence."""
    shared, differing = aligned(first.ids, second.ids)
    keep = (shared[0][1:-1], shared[1][1:-1])
    return keep, differing


class CrowsPairs(AuditSet[SentencePair]):
    """CrowS-Pairs, in both forms."""

    name = "crows-pairs"
    title = "CrowS-Pairs"
    about = (
        "Each pair has a more and a less stereotyped sentence. The figures are percentages of pairs whose more "
        "stereotyped sentence has the higher score. The official score sums log p over the tokens that both sentences "
        "share. The other form takes the mean over the tokens in which they differ. The two are different measures."
    )
    criticism = (
        "Blodgett et al. 2021 found that many pairs are ungrammatical, differ in more than the group, or contain no "
        "stereotype; Pikuliak et al. 2023 found illogical results for control groups. A value of 50 does not show "
        "that a model has no bias."
    )
    unit = "pairs"
    needs = ("mlm",)

    def recognizes(self, path: Path, head: bytes) -> bool:
        """A table with the columns of crows_pairs_anonymized.csv."""
        return path.suffix in (".csv", ".tsv") and header_has(head, *CROWS_COLUMNS[:3])

    def read(self, subject: Subject, source: AuditSource) -> Read[SentencePair]:
        """Returns the pairs of all files."""
        pairs = Read[SentencePair]()
        for path in source.paths:
            rows, skipped = read_table(path, CROWS_COLUMNS, _pair)
            pairs.items += rows
            pairs.skipped[path.name] = skipped
        return pairs

    def scores(self, subject: Subject, items: Sequence[SentencePair]) -> list[Score]:
        """Returns for each pair {"shared": [more, less], "differing": [more, less] or None}."""
        texts = [text for pair in items for text in _in_order(pair)]
        encodings = subject.tokenizer.encode_batch(texts)
        places = [positions(*encodings[2 * i : 2 * i + 2]) for i in range(len(items))]
        fits = [max(len(encodings[2 * i]), len(encodings[2 * i + 1])) <= subject.max_length for i in range(len(items))]
        rows = [
            one_at_a_time(encodings[2 * i + side], form[side]) if fits[i] else []
            for i, forms in enumerate(places)
            for form in forms
            for side in (0, 1)
        ]
        values, scores = log_p(subject, rows), list[Score]()
        for i, pair in enumerate(items):
            if not fits[i]:
                scores.append(f"longer than {subject.max_length} tokens")
                continue
            shared, differing = values[4 * i : 4 * i + 2], values[4 * i + 2 : 4 * i + 4]
            sides = (0, 1) if pair.stereo else (1, 0)
            both = all(len(side) for side in differing)
            scores.append(
                {
                    "shared": [float(shared[side].sum()) for side in sides],
                    "differing": [float(differing[side].mean()) for side in sides] if both else None,
                }
            )
        return scores

    def measures(self, items: Sequence[SentencePair], scores: Sequence[Score]) -> dict[str, AuditMeasure]:
        """Returns the percentage of pairs for all, by direction (without ties) and by kind, in both forms."""
        measures: dict[str, AuditMeasure] = {}
        for form, name in _FORMS.items():
            rows = [(pair, *_rounded(score[form])) for pair, score in zip(items, scores, strict=True) if score[form]]
            if not rows:
                continue
            measures[f"{name}: all pairs"] = _share([a > b for _, a, b in rows])
            for stereo, label in ((True, "stereotypes"), (False, "anti-stereotypes")):
                if wins := [a > b for pair, a, b in rows if pair.stereo == stereo and a != b]:
                    measures[f"{name}: {label}"] = _share(wins)
            kinds = dict.fromkeys(pair.kind for pair, *_ in rows)
            for kind in sorted(kinds, key=lambda one: -sum(pair.kind == one for pair, *_ in rows)):
                measures[f"{name}: {kind}"] = _share([a > b for pair, a, b in rows if pair.kind == kind])
        return measures

    def shuffled(
        self, items: Sequence[SentencePair], scores: Sequence[Score], rng: np.random.Generator
    ) -> tuple[Sequence[SentencePair], Sequence[Score]]:
        """Swaps the two sentences of random pairs."""
        swap = rng.random(len(items)) < 0.5
        return items, [
            {form: value[::-1] if value and turn else value for form, value in score.items()}
            for score, turn in zip(scores, swap.tolist(), strict=True)
        ]

    def examples(self, items: Sequence[SentencePair], scores: Sequence[Score]) -> FigureExamples:
        """Returns the pairs with the largest differences in the official form."""
        gaps = [score["shared"][0] - score["shared"][1] for score in scores]
        order = sorted(range(len(items)), key=lambda i: -abs(gaps[i]))[:_EXAMPLES_SHOWN]
        rows: list[list[Any]] = [[items[i].more, items[i].less, items[i].kind, f"{gaps[i]:+z.2f}"] for i in order]
        return FigureExamples(
            "The pairs with the largest differences",
            ("more stereotyped", "less stereotyped", "kind", "difference of log p"),
            rows,
        )


def _pair(fields: NamedCells, line: int) -> SentencePair | BadRecord:
    direction = str(fields["stereo_antistereo"]).strip()
    if direction not in _DIRECTIONS:
        return BadRecord(line, f"stereo_antistereo is neither {' nor '.join(_DIRECTIONS)}")
    return SentencePair(
        fields["sent_more"], fields["sent_less"], direction == "stereo", str(fields["bias_type"]).strip()
    )


def _in_order(pair: SentencePair) -> tuple[str, str]:
    """The sentences as the official script has them; the alignment depends on their order."""
    return (pair.more, pair.less) if pair.stereo else (pair.less, pair.more)


def _rounded(two: Sequence[float]) -> tuple[float, float]:
    return round(two[0], DIGITS), round(two[1], DIGITS)


def _share(wins: Sequence[bool]) -> AuditMeasure:
    return fraction(sum(wins), len(wins))
