"""A prediction rendered for reports: the texts with marked spans, the true label and the predicted label."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

PLAIN, TRUE, GIVEN, ASKED = "", "true", "given", "asked"
AROUND, MOST = 160, 600  # characters kept around each marked span; of a text without any
TOP = 5  # answers whose probability is shown
_MIN_PROBABILITY = 1e-9  # a probability taken for this is wrong without bound


@dataclass(frozen=True)
class TextSpan:
    """A span of a text. kind: PLAIN, TRUE (the correct answer), GIVEN (the prediction) or both, separated by a space,
    or ASKED (the subject of the question).

    note: a short note shown next to it.
    """

    text: str
    kind: str = PLAIN
    note: str = ""


@dataclass(frozen=True)
class RenderedExample:
    """A rendered prediction. texts: as spans; scores: the most probable answers; note: the size of the error."""

    texts: tuple[tuple[TextSpan, ...], ...]
    truth: str
    answer: str
    probability: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def short_texts(self) -> tuple[tuple[TextSpan, ...], ...]:
        """The texts, long ones shortened to the context of their marks."""
        return tuple(map(clipped, self.texts))

    def as_json(self) -> dict[str, object]:
        """Returns the fields as JSON values. Long texts are shortened to the context of their marks."""
        return {**asdict(self), "texts": [[asdict(part) for part in text] for text in self.short_texts]}


def numbers(texts: tuple[str, ...], truth: float, predicted: float, off: float) -> RenderedExample:
    """Renders a predicted number. off: the absolute error."""
    return RenderedExample(
        tuple(map(render_plain_text, texts)), f"{truth:.4g}", f"{predicted:.4g}", note=f"off by {off:.3g}"
    )


def render_plain_text(text: str) -> tuple[TextSpan, ...]:
    """Returns a text without marks."""
    return (TextSpan(text),)


def mark_text(text: str, spans: Iterable[tuple[int, int, str]]) -> tuple[TextSpan, ...]:
    """Returns a text with marks from (start, end, kind), which may overlap."""
    parts = [(max(0, start), min(end, len(text)), kind) for start, end, kind in spans]
    parts = [span for span in parts if span[0] < span[1]]
    cuts = sorted({0, len(text), *(place for span in parts for place in span[:2])})
    kinds = [
        " ".join(dict.fromkeys(kind for start, end, kind in parts if start <= a and b <= end))
        for a, b in itertools.pairwise(cuts)
    ]
    return tuple(TextSpan(text[a:b], kind) for (a, b), kind in zip(itertools.pairwise(cuts), kinds, strict=True))


def noted(text: str, spans: Iterable[tuple[int, int, str, str]]) -> tuple[TextSpan, ...]:
    """Returns a text with marks from (start, end, kind, note), sorted and without overlap."""
    stretches, at = [], 0
    for start, end, kind, note in spans:
        stretches += [TextSpan(text[at:start]), TextSpan(text[start:end], kind, note)]
        at = end
    return (*stretches, TextSpan(text[at:]))


def clipped(text: tuple[TextSpan, ...]) -> tuple[TextSpan, ...]:
    """Shortens a long text to the context of its marks, or to its beginning without marks."""
    if not any(part.kind for part in text):
        whole = "".join(part.text for part in text)
        return render_plain_text(whole if len(whole) <= MOST else whole[:MOST] + " …")
    parts = []
    for number, part in enumerate(text):
        before, after = AROUND * (number > 0), AROUND * (number < len(text) - 1)
        if not part.kind and len(part.text) > before + after:
            part = TextSpan(f"{part.text[:before]} … {part.text[len(part.text) - after :]}")
        elif len(part.text) > MOST:
            part = TextSpan(f"{part.text[:MOST]} …", part.kind, part.note)
        parts.append(part)
    return tuple(parts)


def top(scores: Mapping[str, float], label: object = None) -> dict[str, float]:
    """Returns the most probable answers, including the correct one."""
    ranked = sorted(scores, key=lambda name: -scores[name])
    chosen = ranked[:TOP]
    if isinstance(label, str) and label in scores and label not in chosen:
        chosen = [*ranked[: TOP - 1], label]
    return {name: scores[name] for name in chosen}


def nats(probability: float) -> float:
    """Returns the loss in nats of an answer with this probability."""
    return -math.log(max(probability, _MIN_PROBABILITY))
