"""Charts as inline SVG, drawn by matplotlib in the colors of the page, light or dark.

matplotlib draws with placeholder colors. Each is replaced by a CSS variable, and the font by that of the page. A chart
is thus part of the page: no image files, sharp at any size, and in the reader's color scheme. Every chart is WIDTH
inches wide, so that its text has the same size in all charts and is readable on a phone.
"""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

_CHART_WIDTH = 4.6  # inches of 72 units: on a phone of 390 px a unit is about a pixel
TEXT, SMALL = 10.5, 10.0  # font sizes, in these units
INK, SOFT, GRID = "#010101", "#010102", "#010103"
SERIES = ("#020201", "#020202", "#020203", "#020204", "#020205", "#020206")
VARIABLES = {INK: "--ink", SOFT: "--soft", GRID: "--grid", **{c: f"--series-{i}" for i, c in enumerate(SERIES, 1)}}


@dataclass(frozen=True)
class Line:
    """One line of a chart. `low` and `high` are the bounds of a band around it (an interval, a spread)."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    colour: int | None = None  # 1 to 6; None: its place among the lines
    dashed: bool = False  # a line to compare with, without its points

    @classmethod
    def trend(cls, name: str, x: Sequence[float], values: Sequence[float]) -> Self:
        """Returns the line of the running mean over a small share of the values."""
        width = max(1, round(0.02 * len(values)))
        windows = (values[max(0, i - width + 1) : i + 1] for i in range(len(values)))
        return cls(name, x, [sum(window) / len(window) for window in windows])


class Chart(str):
    """A chart as an `<svg>` element, in the colors of the page."""

    @classmethod
    def lines(
        cls, lines: Sequence[Line], *, x_label: str, y_label: str, percent: bool = False, title: str = ""
    ) -> Self:
        """Draws lines over a shared axis that starts at 0, named in a legend."""
        with _axes(2.8) as (axes, svg):
            for place, line in enumerate(lines):
                colour = SERIES[(line.colour or place + 1) - 1]
                if line.low is not None and line.high is not None:
                    axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
                marker = "o" if len(line.x) < 25 and not line.dashed else None
                style: Any = {"linewidth": 1.2, "linestyle": (0, (4, 3))} if line.dashed else {"linewidth": 1.8}
                axes.plot(line.x, line.y, color=colour, marker=marker, markersize=3.5, label=line.name, **style)
            if len(lines) > 1:
                axes.legend(frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=1.4)
            axes.set_xlabel(x_label)
            axes.set_ylabel(y_label)
            axes.set_xlim(left=0)
            _ticks(axes.xaxis, whole=all(float(x).is_integer() for line in lines for x in line.x))
            _ticks(axes.yaxis)
            if percent:
                _percent(axes.yaxis)
            axes.grid(axis="y", color=GRID, linewidth=0.8)
        return cls(svg(title or f"{y_label} over {x_label}"))

    @classmethod
    def intervals(
        cls,
        groups: Mapping[str, tuple[Sequence[float], float | None, float | None]],
        *,
        x_label: str,
        title: str = "",
        colours: Sequence[int] = (),
        reference: tuple[str, float] | None = None,
    ) -> Self:
        """Draws one row per group: its values as dots, their mean, and an interval (values, low, high) -> an `<svg>`
        element.

        Without low and high, no interval is drawn.
        """
        with _axes(0.7 + 0.6 * len(groups)) as (axes, svg):
            for row, (values, low, high) in enumerate(groups.values()):
                colour, y = SERIES[(colours[row] if colours else row + 1) - 1], len(groups) - 1 - row
                mean = sum(values) / len(values)
                if low is not None and high is not None:
                    axes.plot([low, high], [y, y], color=colour, linewidth=7, alpha=0.25, solid_capstyle="round")
                axes.plot(values, [y] * len(values), "o", color=colour, markersize=4, alpha=0.7, markeredgewidth=0)
                axes.plot([mean, mean], [y - 0.22, y + 0.22], color=colour, linewidth=2.4)
                axes.annotate(f"{mean:z.3f}", (mean, y + 0.26), ha="center", va="bottom", fontsize=SMALL, color=INK)
            if reference is not None:
                axes.axvline(reference[1], color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
                axes.annotate(
                    reference[0],
                    (reference[1], -0.6),
                    xytext=(4, 0),
                    textcoords="offset points",
                    fontsize=SMALL,
                    color=SOFT,
                )
            axes.set_yticks(range(len(groups)), list(groups)[::-1])
            axes.set_ylim(-0.7, len(groups) - 0.3)
            axes.set_xlabel(x_label)
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            _ticks(axes.xaxis)
            axes.spines["left"].set_visible(False)
            axes.grid(axis="x", color=GRID, linewidth=0.8)
        return cls(svg(title or x_label))

    @classmethod
    def bars(cls, values: Mapping[str, float], *, x_label: str, title: str = "", form: str = "{:,.0f}") -> Self:
        """Draws horizontal bars, each with its number."""
        with _axes(0.7 + 0.36 * len(values)) as (axes, svg):
            places = range(len(values) - 1, -1, -1)
            axes.barh(list(places), list(values.values()), height=0.62, color=SERIES[0])
            for y, value in zip(places, values.values(), strict=True):
                axes.annotate(
                    form.format(value),
                    (value, y),
                    xytext=(5, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=SMALL,
                )
            axes.set_yticks(list(places), list(values))
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.margins(x=0.16)
            axes.set_xlim(left=0)
            axes.set_xlabel(x_label)
            axes.spines["left"].set_visible(False)
            _ticks(axes.xaxis)
            axes.grid(axis="x", color=GRID, linewidth=0.8)
        return cls(svg(title or x_label))

    @classmethod
    def scatter(cls, points: Sequence[tuple[float, float]], *, x_label: str, y_label: str) -> Self:
        """Draws a dot for each (x, y), both on the same scale, and the diagonal."""
        with _axes(3.2) as (axes, svg):
            values = [value for point in points for value in point] or [0.0]
            low, high = min(values), max(values)
            margin = 0.04 * (high - low) or 0.5
            ends = low - margin, high + margin
            axes.plot(ends, ends, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                "o",
                color=SERIES[0],
                markersize=4,
                alpha=0.35,
                markeredgewidth=0,
            )
            axes.set_xlabel(x_label)
            axes.set_ylabel(y_label)
            axes.set(xlim=ends, ylim=ends)
            axes.grid(color=GRID, linewidth=0.8)
        return cls(svg(f"{y_label} over {x_label}"))

    @classmethod
    def front(
        cls,
        points: Mapping[str, tuple[float, float]],
        front: Sequence[str],
        *,
        x_label: str,
        y_label: str,
        limit: float | None = None,
    ) -> Self:
        """Draws numbered dots, a line through those on the front, and a dashed line at `limit`. Returns an `<svg>`."""
        with _axes(3.2) as (axes, svg):
            best = sorted(points[name] for name in front)
            axes.plot([x for x, _ in best], [y for _, y in best], color=SERIES[0], linewidth=1.2, alpha=0.6)
            for number, (name, (x, y)) in enumerate(points.items()):
                axes.plot([x], [y], "o", color=SERIES[0] if name in front else SOFT, markersize=5, markeredgewidth=0)
                axes.annotate(str(number), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=SMALL, color=INK)
            if limit is not None:
                axes.axhline(limit, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
            axes.set_xlabel(x_label)
            axes.set_ylabel(y_label)
            axes.margins(0.12)
            _ticks(axes.xaxis)
            _ticks(axes.yaxis)
            axes.grid(color=GRID, linewidth=0.8)
        return cls(svg(f"{y_label} over {x_label}"))

    @classmethod
    def map(
        cls, points: Mapping[str, tuple[float, float]], others: Sequence[tuple[float, float, str]], *, title: str
    ) -> Self:
        """Draws named dots among others (x, y, name), which are paler, without scales."""
        with _axes(3.4) as (axes, svg):
            for x, y, name in others:
                axes.plot([x], [y], "o", color=SOFT, markersize=2.5, markeredgewidth=0)
                axes.annotate(name, (x, y), xytext=(3, 2), textcoords="offset points", fontsize=SMALL - 2, color=SOFT)
            for name, (x, y) in points.items():
                axes.plot([x], [y], "o", color=SERIES[0], markersize=7, markeredgewidth=0)
                axes.annotate(name, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=TEXT, color=INK)
            axes.set(xticks=[], yticks=[])
            axes.margins(0.12)
        return cls(svg(title))


class _Svg:
    """Stores a drawing by its title."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, title: str) -> str:
        from html import escape

        return f'<svg role="img" aria-label="{escape(title, quote=True)}"{self.text.partition("<svg")[2]}'


@contextmanager
def _axes(height: float) -> "Iterator[tuple[Axes, _Svg]]":
    """Context with axes, `height` inches high. At its end, the `_Svg` has the drawing."""
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "bertie",  # the same drawing is the same bytes
        "text.parse_math": False,  # a $ is a $
        "font.size": TEXT,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "text.color": INK,
        "axes.edgecolor": GRID,
        "axes.labelcolor": SOFT,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # Hangul is the page's font's to draw; here it is only measured
        figure = Figure(figsize=(_CHART_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        svg = _Svg()
        yield axes, svg
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg.text = _restyle(buffer.getvalue())


def _restyle(svg: str) -> str:
    """Returns the `<svg>` element of a matplotlib file, in the page's colors and font, as wide as the page allows."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", svg)  # matplotlib up to 3.10
    svg = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", svg)  # from 3.11
    for stand_in, variable in VARIABLES.items():
        svg = svg.replace(stand_in, f"var({variable})")
    return svg.strip()


def _percent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _ticks(axis: Any, *, whole: bool = False) -> None:
    """Formats a few round numbers: 20,000 and 0.25; below a thousandth 2.5e-5, never with a common offset."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def tick(value: float) -> str:
    """Formats a number on an axis."""
    if abs(value) < 1e-12:
        return "0"
    return f"{value:.3g}".replace("e-0", "e-") if abs(value) < 1e-3 else f"{value:,.6g}"
