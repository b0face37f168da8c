"""The section of training curves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertie.report.charts import Chart, Line, tick
from bertie.report.page import Report
from bertie.report.values import number


@dataclass(frozen=True)
class Curve:
    """One chart of training curves: lines over steps, the axis, and the caption."""

    lines: Sequence[Line]
    y_label: str
    caption: str
    percent: bool = False


class TrainingReport(Report):
    """The page of a run that trained, with its curves."""

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
