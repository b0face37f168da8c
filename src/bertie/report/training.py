"""The sections of pages about training: training curves, and masked-token predictions during training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from bertie.report.charts import Chart, Line, tick
from bertie.report.page import Report
from bertie.report.values import number, probability

BLANK, MASKED, RANDOM = "blank", "masked", "random"  # kinds of a stretch of masked text; plain text has none
LOOKS = 6  # columns of the table of masked tokens, at most


@dataclass(frozen=True)
class Curve:
    """One chart of training curves: lines over steps, the axis, and the caption."""

    lines: Sequence[Line]
    y_label: str
    caption: str
    percent: bool = False


class TrainingReport(Report):
    """The page of a run that trained: with curves, and with predictions of masked tokens."""

    def curves(self, charts: Iterable[Curve], about: str = "") -> None:
        """Adds the section of training curves. For a single point, the value is printed instead of a curve."""
        drawn, values = [], []
        for chart in charts:
            if any(len(line.x) > 1 for line in chart.lines):
                svg = Chart.lines(
                    chart.lines, x_label="step", y_label=chart.y_label, percent=chart.percent, title=chart.caption
                )
                drawn.append((svg, chart.caption))
                continue
            for line in chart.lines:
                name = chart.y_label if len(chart.lines) == 1 else f"{chart.y_label}, {line.name}"
                shown = (tick if 0 < line.y[0] < 1e-3 else number)(line.y[0])
                values.append((f"{name}, step {line.x[0]:,.0f}", f"{line.y[0]:.1%}" if chart.percent else shown))
        if not drawn and not values:
            return
        self.section("Training curves", about)
        if drawn:
            self.charts(drawn)
        if values:
            self.pairs(values)

    def masked_tokens(self, looks: Sequence[Mapping[str, Any]], about: str) -> None:
        """Adds the section of masked-token predictions; nothing without predictions.

        looks: {"step", "examples"} each; an example: {"text": [[text, kind, note], ...] with one BLANK, "answer",
        "guesses": [[token, probability], ...]}. The texts are those of the last step.
        """
        if not looks:
            return
        looks = [looks[i] for i in sorted({round(j * (len(looks) - 1) / (LOOKS - 1)) for j in range(LOOKS)})]
        head = "".join(f"<th>step {look['step']:,}</th>" for look in looks)
        body = []
        for place, example in enumerate(looks[-1]["examples"]):
            cells = "".join(f"<td>{_guesses(look['examples'][place])}</td>" for look in looks)
            text = "".join(_stretch(*part) for part in example["text"])
            body.append(f"<tr><td>{text}<br><small>original: {escape(example['answer'])}</small></td>{cells}</tr>")
        table = f"<table><thead><tr><th>text</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        about = f"{about} Green: the original token. Other predictions may be as good."
        self.section("Masked-token predictions", about).html(f'<div class="scroll masked">{table}</div>')


def _stretch(text: str, kind: str = "", note: str = "") -> str:
    """Returns a part of masked text. Spaces are outside its mark."""
    word = text.strip()
    before, after = (text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]) if word else (text, "")
    if kind == BLANK:
        return f'{before}<span class="blank" role="img" aria-label="blank"></span>{after}'
    if kind == RANDOM:
        return f'{before}<mark class="random" title="{escape(note, quote=True)}">{escape(word)}</mark>{after}'
    return escape(text)


def _guesses(example: Mapping[str, Any]) -> str:
    return "<br>".join(
        f'<span class="guess{" hit" * (token == example["answer"])}">{escape(token)} '
        f"<small>{probability(p)}</small></span>"
        for token, p in example["guesses"]
    )
