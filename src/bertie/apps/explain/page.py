"""The page of an explanation: the text with colored words, a table of their values, and how far to trust them."""

from collections.abc import Sequence
from html import escape

from bertie.apps.explain.attribution import Attribution, Faithfulness, by_word
from bertie.apps.explain.targets import Explained
from bertie.platform import Html, Report

FOR, AGAINST = "31, 95, 191", "201, 92, 16"  # blue and orange, as in the charts
_MAX_WORDS = 128  # as colored text
MOST_ROWS = 20  # of a table
FALLS = "Means over 1, 5, 10, 20 and 50% of the tokens."
_HOW_TO_READ = (
    "An attribution shows what the model used for this prediction. It does not show that the model is right, and other "
    "words might have the same effect."
)


def heat(words: Sequence[tuple[str, float]]) -> Html:
    """Returns words with a background: blue for the answer, orange against it; the number is the tooltip."""
    most = max((abs(value) for _, value in words), default=0.0) or 1.0
    spans = [
        f'<span style="background: rgba({FOR if value > 0 else AGAINST}, {0.75 * abs(value) / most:.2f}); '
        f'border-radius: 3px; padding: 0 2px" title="{value:+z.4f}">{escape(word)}</span>'
        for word, value in words[:_MAX_WORDS]
    ]
    return Html(" ".join(spans) + (" ..." if len(words) > _MAX_WORDS else ""))


def render_explanation_page(
    explained: Explained, results: Sequence[tuple[Attribution, Faithfulness]], model: str
) -> Report:
    """Returns the page of one prediction with the attributions of several methods."""
    first = results[0][0]
    report = Report("Explanation", f"{model}: {explained.about}")
    report.tiles(
        [
            ("logit", f"{first.value:z.3f}", explained.about),
            ("without the words", f"{first.baseline:z.3f}", "every word replaced"),
        ]
    )
    for attribution, faithful in results:
        words = by_word(explained.question.encoding, attribution.values, explained.texts)
        report.section(attribution.method.capitalize(), completeness(attribution))
        report.html(heat(words))
        rows = [(name, _shown(own), _shown(mean), _shown(middle)) for name, own, mean, middle in faithful.rows()]
        report.table(falls(faithful), rows, FALLS, stack=True)
        ordered = sorted(words, key=lambda row: -abs(row[1]))[:MOST_ROWS]
        report.table(["word", "value"], [[word, f"{value:+z.4f}"] for word, value in ordered if value])
    report.section(
        "How to read this",
        f"Blue words raise the logit, orange words lower it. {_HOW_TO_READ}",
    )
    return report.footer(docs="explain")


def completeness(attribution: Attribution) -> str:
    """Returns the completeness error in words; nothing for a method that promises no sum."""
    if attribution.error is None:
        return ""
    state = "" if attribution.converged else " (not converged)"
    return f"Completeness error {attribution.error:.1%} with {attribution.nodes} nodes{state}."


def falls(faithful: Faithfulness) -> list[str]:
    """Returns the columns of `Faithfulness.rows`."""
    return ["words", f"fall of the {faithful.of}", "random order", "middle 95% of random orders"]


def _shown(value: float | tuple[float, float]) -> str:
    return f"{value[0]:z.3f} to {value[1]:z.3f}" if isinstance(value, tuple) else f"{value:z.3f}"


def trust(faithful: Faithfulness) -> str:
    """Returns the faithfulness in words."""
    falls = [
        f"{name} {_shown(own)} (words in random order: {_shown(mean)}, {_shown(middle)})"
        for name, own, mean, middle in faithful.rows()
    ]
    return f"Fall of the {faithful.of}: {'; '.join(falls)}. {FALLS}"


def render_explanation_section(
    explained: Explained, results: Sequence[tuple[Attribution, Faithfulness]]
) -> list[object]:
    """Returns the section of the model's card."""
    parts: list[object] = [f"> {' / '.join(explained.texts)}", f"{explained.about}: logit {results[0][0].value:z.3f}"]
    for attribution, faithful in results:
        words = by_word(explained.question.encoding, attribution.values, explained.texts)
        ordered = sorted(words, key=lambda row: -abs(row[1]))[:MOST_ROWS]
        parts += [f"**{attribution.method.capitalize()}**", completeness(attribution)]
        parts += [(["word", "value"], [(word, f"{value:+z.4f}") for word, value in ordered if value])]
        parts += [trust(faithful)]
    return [*parts, _HOW_TO_READ]
