"""The page of an explanation: the text with colored words, a table of their values, and how far to trust them."""

from collections.abc import Sequence
from html import escape

from bertie.explain.attribution import Attribution, Faithfulness, by_word
from bertie.explain.targets import Explained
from bertie.report.page import Html, Report, StatCard

FOR, AGAINST = "31, 95, 191", "201, 92, 16"  # blue and orange, as in the charts
MOST_WORDS = 128  # as colored text


def heat(words: Sequence[tuple[str, float]]) -> Html:
    """Returns words with a background: blue for the answer, orange against it; the number is the tooltip."""
    most = max((abs(value) for _, value in words), default=0.0) or 1.0
    spans = [
        f'<span style="background: rgba({FOR if value > 0 else AGAINST}, {0.75 * abs(value) / most:.2f}); '
        f'border-radius: 3px; padding: 0 2px" title="{value:+.4f}">{escape(word)}</span>'
        for word, value in words[:MOST_WORDS]
    ]
    return Html(" ".join(spans) + (" ..." if len(words) > MOST_WORDS else ""))


def page(explained: Explained, found: Sequence[tuple[Attribution, Faithfulness]], model: str) -> Report:
    """Returns the page of one prediction with the attributions of several methods."""
    first = found[0][0]
    report = Report("Explanation", f"{model}: {explained.about}")
    report.tiles(
        [
            StatCard("logit", f"{first.value:.3f}", explained.about),
            StatCard("without the words", f"{first.baseline:.3f}", "every word replaced"),
        ]
    )
    for attribution, faithful in found:
        words = by_word(explained.question.encoding, attribution.values, explained.texts)
        report.section(attribution.method.capitalize(), trust(attribution, faithful))
        report.html(heat(words))
        ordered = sorted(words, key=lambda row: -abs(row[1]))[:20]
        report.table(["word", "value"], [[word, f"{value:+.4f}"] for word, value in ordered if value])
    report.section(
        "How to read this",
        "Blue words raise the logit, orange words lower it. An attribution shows what the model used for this "
        "prediction. It does not show that the model is right, and other words might have the same effect.",
    )
    return report.footer(docs="docs/explain.md")


def trust(attribution: Attribution, faithful: Faithfulness) -> str:
    """Returns the completeness error and the faithfulness in words."""
    parts = []
    if attribution.error is not None:
        state = "" if attribution.converged else " (not converged)"
        parts.append(f"Completeness error {attribution.error:.1%} with {attribution.nodes} nodes{state}.")
    gone, alone = faithful.comprehensiveness, faithful.sufficiency
    by_chance, alone_by_chance = faithful.random_comprehensiveness, faithful.random_sufficiency
    parts.append(
        f"Without the most important words, the logit falls by {gone:.3f} (words in random order: {by_chance:.3f}). "
        f"With these words alone, it falls by {alone:.3f} (random: {alone_by_chance:.3f}). Means over 1, 5, 10, 20 "
        "and 50% of the words."
    )
    return " ".join(parts)
