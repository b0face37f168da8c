"""A report: one self-contained HTML file of sections, numbers, charts and tables, light or dark as the reader likes.

    report = Report("Pre-training", "bert-tiny on 2.1 M words")
    report.tiles([Tile("accuracy", "0.61", "5 seeds")])
    report.section("Loss", "Nats per masked word.").chart(line_chart(...), "Lower is better.")
    report.table(["stage", "seconds"], [["corpus", 12.1]])
    report.save(Path("runs/x/report.html"))

Every method returns the report. Text is escaped; `html`, and a table's cells that are `Html`, take markup as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Self

from bertie import console
from bertie.errors import DataError
from bertie.files import write_bytes
from bertie.report.style import STYLE


@dataclass(frozen=True)
class Tile:
    """A number that sums something up: what it is, the number, and a few words on how to take it."""

    label: str
    value: str
    note: str = ""


def draw(path: Path, make: Callable[[], "Report"]) -> None:
    """Write the page of a run; what goes wrong there never ends the run. Nothing is written on a DataError."""
    try:
        make().save(path)
    except DataError:  # there is nothing to show yet
        return
    except Exception as error:  # a chart is not worth a week of training
        console.warn(f"{path} could not be written: {error}")


class Html(str):
    """Markup, to be shown as it is: whoever makes it has escaped what came from outside."""


def link(text: str, target: str) -> Html:
    """A link to a page beside this one."""
    return Html(f'<a href="{escape(target, quote=True)}">{escape(text)}</a>')


def bars(scores: Mapping[str, float], label: str = "") -> Html:
    """A bar for each probability, the highest first; the name of the true `label` is bold."""
    rows = []
    for place, (name, score) in enumerate(sorted(scores.items(), key=lambda item: -item[1])):
        kind = f"prob{' top' if place == 0 else ''}{' true' if name == label else ''}"
        fill = f'<div class="track"><div class="fill" style="width:{score:.1%}"></div></div>'
        rows.append(f'<div class="{kind}"><span>{escape(name)}</span>{fill}<span>{score:.0%}</span></div>')
    return Html("".join(rows))


def interval(
    value: float, low: float, high: float, *, span: tuple[float, float], reference: float | None = None
) -> Html:
    """A value in its interval as a small drawing between the ends of `span`, with a line where `reference` is."""
    width = (span[1] - span[0]) or 1.0

    def at(x: float) -> str:
        return f"{(x - span[0]) / width:.1%}"

    line = "" if reference is None else f'<u style="left:{at(reference)}"></u>'
    bar = f'<i style="left:{at(low)};width:{(high - low) / width:.1%}"></i>'
    return Html(f'<div class="interval">{bar}{line}<b style="left:{at(value)}"></b></div>')


class Report:
    """Sections of charts, tables and text, in the order they were added."""

    def __init__(self, title: str, subtitle: str = "", *, lang: str = "en") -> None:
        self.title = title
        self.subtitle = subtitle
        self.lang = lang
        self._parts: list[str] = []
        self._open = False

    def section(self, title: str, text: str = "") -> Self:
        """Begin a section; what is added next belongs to it."""
        self._close()
        self._parts.append(f"<section><h2>{escape(title)}</h2>")
        self._open = True
        return self.text(text) if text else self

    def text(self, text: str) -> Self:
        """Add paragraphs of plain text; an empty line parts two."""
        return self.html("".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n")))

    def tiles(self, tiles: Iterable[Tile]) -> Self:
        """Add a row of numbers that sum up."""
        cells = "".join(
            f'<div class="tile"><div class="label">{escape(tile.label)}</div>'
            f'<div class="value">{escape(tile.value)}</div><div class="note">{escape(tile.note)}</div></div>'
            for tile in tiles
        )
        return self.html(f'<div class="tiles">{cells}</div>')

    def chart(self, svg: str, caption: str = "") -> Self:
        """Add one chart (an `<svg>` element, see charts.py) with a caption below."""
        return self.charts([(svg, caption)])

    def charts(self, charts: Iterable[tuple[str, str]]) -> Self:
        """Add several (svg, caption) side by side where the page is wide enough."""
        figures = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in charts)
        return self.html(f'<div class="charts">{"".join(figures)}</div>')

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Self:
        """Add a table. Numbers stand to the right: floats with 3 digits after the point, integers with commas."""
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return self.html(f'<figure class="table"><div class="scroll">{table}</div>{below}</figure>')

    def heat(self, names: Sequence[str], matrix: Sequence[Sequence[int]], caption: str = "") -> Self:
        """Add a matrix of counts, rows true and columns given, each cell as dark as its share of the row."""
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = []
        for i, (name, row) in enumerate(zip(names, matrix, strict=True)):
            total = max(1, sum(row))
            cells = (
                f'<td class="{"hit" if i == j else "miss"}" style="--share:{50 * count / total:.0f}%">{count:,}</td>'
                if count
                else '<td class="none">·</td>'
                for j, count in enumerate(row)
            )
            body.append(f'<tr><th>{escape(name)}</th>{"".join(cells)}<td class="sum">{sum(row):,}</td></tr>')
        table = (
            f'<table class="heat"><thead><tr><th>true ↓ given →</th>{head}<th>all</th></tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table>"
        )
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return self.html(f'<figure class="table"><div class="scroll">{table}</div>{below}</figure>')

    def example(self, text: Html, aside: Html) -> Self:
        """Add an example: its text to the left, what was made of it to the right."""
        return self.html(f'<div class="example"><div>{text}</div><div>{aside}</div></div>')

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> Self:
        """Add names and their values, one a line: settings, versions, the machine."""
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(_shown(value))}</dd>" for name, value in pairs)
        return self.html(f"<dl>{rows}</dl>")

    def html(self, markup: str) -> Self:
        """Add markup as it is. The caller has escaped what came from outside."""
        self._parts.append(markup)
        return self

    def render(self) -> str:
        """The whole page."""
        self._close()
        return (
            f'<!doctype html>\n<html lang="{escape(self.lang)}">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self.subtitle)}</p></header>\n<main>\n"
            + "\n".join(self._parts)
            + "\n</main>\n</body>\n</html>\n"
        )

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        write_bytes(path, self.render().encode())

    def _close(self) -> None:
        if self._open:
            self._parts.append("</section>")
            self._open = False


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, Html):
        return f"<td>{value}</td>"
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{kind}>{escape(_shown(value))}</td>"
