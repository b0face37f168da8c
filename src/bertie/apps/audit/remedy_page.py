"""What a remedy changed: the rows of its table, its page, and its section in the model's card."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from bertie.apps.audit.figures import Control
from bertie.apps.audit.page import format_figure, value_in_words
from bertie.apps.audit.remedy import Removed
from bertie.platform import ModelCard, Report, quantity

REMEDY_COLUMNS = ("figure", "before", "after", "difference (95% interval)")
_HOW_TO_READ = (
    "A lower figure of an audit does not show that the model is fair. Remedies often lower a figure because the model "
    "becomes worse at language, so compare the price too (Meade et al. 2022). Differences are paired by item; those of "
    "fine-tuned sets by seed. The encoder is unchanged, and fine-tuning can bring the concept back."
)
SAME = 1e-9  # an interval without a width
_NO_PERPLEXITY = "The model has no language-model head, so it has no perplexity."


def removal_sentence(one: Removed) -> str:
    """Returns what was removed in one sentence."""
    return (
        f"{one.place}: {quantity(one.rank, 'direction')} removed. A linear classifier found the concept in "
        f"{one.accuracy_before:.1%} of held-out texts before, and in {one.accuracy_after:.1%} after "
        f"(majority {one.majority:.1%})."
    )


def price_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Returns the price of a remedy as rows of COLUMNS."""
    rows, language = list[list[str]](), results["pseudo_perplexity"]
    if language["before"] is not None:
        rows.append(
            [
                "pseudo-perplexity per word",
                *(_perplexity(language[name]) for name in ("before", "after")),
                _change(language),
            ]
        )
    for one in results["fine_tuned"]:
        name = f"{one['set']}, {one['metric']}, {quantity(one['seeds'], 'seed')}"
        rows.append([name, f"{one['before']:z.3f}", f"{one['after']:z.3f}", _apart(one["difference"])])
    return rows


def audit_rows(results: Mapping[str, Any], *, detail: bool = False) -> list[tuple[str, list[list[str]]]]:
    """Returns the title of each set, and its figures as rows of COLUMNS. detail: those of parts instead."""
    chosen = [one for one in results["figures"] if one["detail"] == detail]
    return [(title, [_audit_row(one) for one in group]) for title, group in groupby(chosen, lambda one: one["set"])]


def render_remedy_page(results: Mapping[str, Any]) -> Report:
    """Returns the page of a remedy."""
    report = Report("Removal of a concept", f"{results['model']}, {results['how']}")
    report.section("How to read this page", _HOW_TO_READ)
    report.section("What was removed", "\n\n".join(removal_sentence(Removed(**one)) for one in results["removed"]))
    report.section("Price", "" if price_rows(results) else _NO_PERPLEXITY)
    if rows := price_rows(results):
        report.table(REMEDY_COLUMNS, rows, stack=True)
    details = dict(audit_rows(results, detail=True))
    for title, rows in audit_rows(results):
        report.section(title).table(REMEDY_COLUMNS, rows, stack=True)
        if more := details.get(title):
            report.html(f"<details><summary>{len(more)} more figures</summary>")
            report.table(REMEDY_COLUMNS, more, stack=True).html("</details>")
    return report.footer(docs="audit")


def add_remedy_to_card(folder: Path, results: Mapping[str, Any]) -> None:
    """Writes the section of the model's card."""
    parts: list[object] = [f"Made by `bertie debias --how {results['how']}`. {_HOW_TO_READ}"]
    parts += ["\n".join(f"- {removal_sentence(Removed(**one))}" for one in results["removed"])]
    for title, rows in [("Price", price_rows(results)), *audit_rows(results)]:
        parts += [f"**{title}**", (REMEDY_COLUMNS, rows) if rows else _NO_PERPLEXITY]
    ModelCard(folder).put("Removed concept", *parts)


def _audit_row(one: Mapping[str, Any]) -> list[str]:
    values = [format_figure(one[name]["value"], one["unit"]) for name in ("before", "after")]
    apart = Control(**one["difference"])
    single = apart.high - apart.low < SAME  # nothing to resample, as for one profession
    return [
        one["name"],
        *values,
        format_figure(apart.value, one["unit"]) if single else value_in_words(apart, one["unit"]),
    ]


def _perplexity(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _change(pair: Mapping[str, float]) -> str:
    return f"{pair['after'] / pair['before'] - 1:+.1%}"


def _apart(difference: Mapping[str, float | None]) -> str:
    value, low, high = (difference[name] for name in ("value", "low", "high"))
    return f"{value:+z.3f}" + (f" ({low:+z.3f} to {high:+z.3f})" if low is not None and high is not None else "")
