"""A report: one self-contained HTML file of sections, numbers, charts and tables, light or dark as the reader likes.

    report = Report("Pre-training", "bert-tiny on 2.1 M words")
    report.tiles([Tile("accuracy", "0.61", "5 seeds")])
    report.section("Loss", "Nats per masked word.").chart(line_chart(...), "Lower is better.")
    report.table(["stage", "seconds"], [["corpus", 12.1]])
    report.save(Path("runs/x/report.html"))

Every method returns the report. Text is escaped; `html` alone takes markup as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Self

from bertie.files import write_bytes


@dataclass(frozen=True)
class Tile:
    """A number that sums something up: what it is, the number, and a few words on how to take it."""

    label: str
    value: str
    note: str = ""


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
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{kind}>{escape(_shown(value))}</td>"


# Colours: text on both grounds passes WCAG AA; the series keep apart for the colour-blind (after Okabe and Ito 2008).
STYLE = """
:root {
  color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans KR", "Apple SD Gothic Neo", sans-serif;
  --ground: #f6f7f9; --card: #ffffff; --ink: #18202c; --soft: #566072; --grid: #e1e5eb; --good: #0a7a55;
  --series-1: #1f5fd6; --series-2: #d2691e; --series-3: #0a8f6a; --series-4: #a0449b; --series-5: #6b7688;
  --series-6: #b8900b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #11151b; --card: #191f28; --ink: #e8ecf2; --soft: #9aa6b8; --grid: #2c3542; --good: #4cc79a;
    --series-1: #74a5ff; --series-2: #f2a154; --series-3: #45c79c; --series-4: #d98ad4; --series-5: #9aa6b8;
    --series-6: #e0bd4b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.55 var(--font); }
header, main { max-width: 1080px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 44px; padding-bottom: 8px; }
h1 { font-size: 2.1rem; line-height: 1.15; margin: 0 0 6px; letter-spacing: -0.02em; }
header p { color: var(--soft); margin: 0 0 18px; font-size: 1.05rem; max-width: 62em; }
h2 { font-size: 1.3rem; margin: 0 0 6px; letter-spacing: -0.01em; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 14px;
  padding: 22px 24px; margin: 20px 0; }
section > p { max-width: 68em; margin: 0 0 14px; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin: 14px 0; }
.tile { background: var(--card); border: 1px solid var(--grid); border-radius: 14px; padding: 14px 16px; }
.tile .label, .tile .note { color: var(--soft); font-size: 0.86rem; }
.tile .value { font-size: 1.75rem; font-weight: 650; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 18px; }
figure { margin: 10px 0; min-width: 0; }
figure > svg { width: 100%; max-width: 700px; height: auto; display: block; }
figcaption { color: var(--soft); font-size: 0.88rem; margin-top: 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem; }
th { text-align: left; color: var(--soft); font-weight: 550; }
th, td { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; text-align: left; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 8px 0; font-size: 0.93rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.example { border-top: 1px solid var(--grid); padding: 14px 0 6px; display: grid; gap: 4px 26px;
  grid-template-columns: minmax(0, 3fr) minmax(240px, 2fr); }
@media (max-width: 700px) { .example { grid-template-columns: 1fr; } dl { grid-template-columns: 1fr; } }
.example p { margin: 0; } .example .meta { color: var(--soft); font-size: 0.86rem; }
.prob { display: grid; grid-template-columns: 7em 1fr 3em; gap: 8px; align-items: center; font-size: 0.86rem; }
.prob .track { background: var(--grid); border-radius: 4px; height: 9px; overflow: hidden; }
.prob .fill { background: var(--series-5); height: 100%; } .prob.top .fill { background: var(--series-1); }
.prob.true { font-weight: 650; } .right { color: var(--good); font-weight: 600; } .wrong { color: var(--series-2); }
.blank { border-bottom: 2px solid var(--series-1); display: inline-block; width: 2.6em; }
.guess { display: inline-block; white-space: nowrap; border-radius: 6px; padding: 1px 7px; margin: 1px 0;
  background: color-mix(in srgb, var(--series-5) 14%, transparent); }
.guess.hit { background: color-mix(in srgb, var(--series-3) 24%, transparent); font-weight: 600; }
.guess small { color: var(--soft); font-weight: 400; }
"""
