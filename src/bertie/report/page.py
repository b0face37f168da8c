"""A report: one self-contained HTML file of sections, numbers, charts and tables, light or dark as the reader likes.

    report = Report("Pre-training", "bert-tiny on 2.1 M words")
    report.tiles([("accuracy", "0.61", "5 seeds")])
    report.section("Loss", "Nats per masked token.").chart(line_chart(...), "Lower is better.")
    report.table(["stage", "seconds"], [["corpus", 12.1]])
    report.footer(made="2026-11-22", docs="training")
    report.save(Path("runs/x/report.html"))

Every method returns the report. Text is escaped; `html`, and a table's cells that are `Html`, take markup as it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

from bertie.files import Json, shown, write_bytes
from bertie.report.style import STYLE
from bertie.report.values import number, probability, setting_text

NUMERIC = re.compile(r"[-+]?\d[\d,.]*(e[-+]?\d+)?( ?(%|s|min|h|K|M|B))?( to [-+]?\d[\d,.]*)?|not defined|–")
BLANK, MASKED, RANDOM = "blank", "masked", "random"  # kinds of a stretch of masked text; plain text has none
_MAX_LOOKS = 6  # columns of the table of masked tokens, at most


class Html(str):
    """Markup, inserted unchanged. External text in it must be escaped already."""

    @classmethod
    def link(cls, text: str, target: str) -> Self:
        """Returns a link to another page in the same folder."""
        return cls(f'<a href="{escape(target, quote=True)}">{escape(text)}</a>')

    @classmethod
    def bars(cls, scores: Mapping[str, float], label: str = "") -> Self:
        """Returns a bar for each probability, the highest first. The name of the true `label` is bold."""
        rows = []
        for place, (name, score) in enumerate(sorted(scores.items(), key=lambda item: -item[1])):
            kind = f"prob{' top' if place == 0 else ''}{' true' if name == label else ''}"
            fill = f'<div class="track"><div class="fill" style="width:{score:.1%}"></div></div>'
            rows.append(f'<div class="{kind}"><span>{escape(name)}</span>{fill}<span>{probability(score)}</span></div>')
        return cls("".join(rows))

    @classmethod
    def interval(
        cls, value: float, low: float, high: float, *, span: tuple[float, float], reference: float | None = None
    ) -> Self:
        """Returns a drawing of a value with its interval between the ends of `span`, and a line at `reference`."""
        width = (span[1] - span[0]) or 1.0

        def at(x: float) -> str:
            return f"{(x - span[0]) / width:.1%}"

        marks = "".join(f'<s style="left:{place}%"></s>' for place in (0, 50, 100))
        line = "" if reference is None else f'<u style="left:{at(reference)}"></u>'
        bar = f'<i style="left:{at(low)};width:{(high - low) / width:.1%}"></i>'
        return cls(f'<div class="interval">{marks}{bar}{line}<b style="left:{at(value)}"></b></div>')

    @classmethod
    def scale(cls, name: str, span: tuple[float, float] = (0.0, 1.0)) -> Self:
        """Returns the header of a column of `interval`s: its name, and the numbers at its ends and in its middle."""
        ends = "".join(f"<span>{value:.3g}</span>" for value in (span[0], sum(span) / 2, span[1]))
        return cls(f'{escape(name)}<div class="ticks">{ends}</div>')


class Report:
    """Sections of charts, tables and text, in the order in which they were added."""

    def __init__(self, title: str, subtitle: str = "", *, lang: str = "en") -> None:
        self.title = title
        self.subtitle = subtitle
        self.lang = lang
        self._parts: list[str] = []
        self._open = False
        self._footer = ""

    def section(self, title: str, text: str = "") -> Self:
        """Starts a section, to which everything after it belongs."""
        self._close()
        self._parts.append(f"<section><h2>{escape(title)}</h2>")
        self._open = True
        return self.text(text) if text else self

    def text(self, text: str) -> Self:
        """Adds paragraphs of plain text, separated by empty lines."""
        return self.html("".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n")))

    def banner(self, *lines: str) -> Self:
        """Adds a prominent warning that the run failed, and what to do. Nothing for no lines."""
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        return self.html(f'<div class="banner" role="alert">{text}</div>') if lines else self

    def notes(self, lines: Iterable[str]) -> Self:
        """Adds notes as a list. Nothing for no notes."""
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return self.section("Notes").html(f"<ul>{items}</ul>") if items else self

    def tiles(self, tiles: Iterable[Sequence[str]]) -> Self:
        """Adds a row of summary numbers, each as its name, the number, and perhaps a short note."""
        cells = "".join(
            f'<div class="tile"><div class="label">{escape(label)}</div>'
            f'<div class="value">{escape(value)}</div><div class="note">{escape("".join(note))}</div></div>'
            for label, value, *note in tiles
        )
        return self.html(f'<div class="tiles">{cells}</div>')

    def chart(self, svg: str, caption: str = "") -> Self:
        """Adds one chart (an `<svg>` element, see charts.py) with a caption."""
        return self.charts([(svg, caption)])

    def charts(self, charts: Iterable[tuple[str, str]]) -> Self:
        """Adds several (svg, caption) side by side, where the page is wide enough."""
        figures = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in charts)
        return self.html(f'<div class="charts">{"".join(figures)}</div>')

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", *, stack: bool = False
    ) -> Self:
        """Adds a table. Columns of numbers are right-aligned. stack: on a phone, each row becomes a card."""
        body = [list(row) for row in rows]
        kinds = [all(map(_numeric, cells)) for cells in zip(*body, strict=True)] or [False] * len(columns)
        kinds[0] &= not any(isinstance(row[0], str) for row in body)  # names are left-aligned, also numbers
        head = "".join(
            f"<th{_class(kind)}>{column if isinstance(column, Html) else escape(column)}</th>"
            for column, kind in zip(columns, kinds, strict=True)
        )
        names = [column.partition("<")[0] if isinstance(column, Html) else column for column in columns]
        cells = (
            "".join(
                f"<td{_class(kind)}{_label(name, stack)}>{_cell(value)}</td>"
                for value, kind, name in zip(row, kinds, names, strict=True)
            )
            for row in body
        )
        lines = "".join(f"<tr>{row}</tr>" for row in cells)
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        kind = ' class="stack"' if stack else ""
        table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        return self.html(f'<figure class="table"><div class="scroll">{table}</div>{below}</figure>')

    def confusion_matrix(self, names: Sequence[str], matrix: Sequence[Sequence[int]], caption: str = "") -> Self:
        """Adds a matrix of counts, rows true and columns predicted. A cell is darker for a larger fraction of its
        row."""
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
            f'<table class="heat"><thead><tr><th>true label</th>{head}<th>total</th></tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table>"
        )
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return self.html(f'<figure class="table"><div class="scroll">{table}</div>{below}</figure>')

    def example(self, text: Html, aside: Html) -> Self:
        """Adds an example: its text on the left, and its prediction on the right."""
        return self.html(f'<div class="example"><div>{text}</div><div>{aside}</div></div>')

    def masked_tokens(self, looks: Sequence[Json], about: str) -> None:
        """Adds the section of masked-token predictions; nothing without predictions.

        looks: {"step", "examples"} each; an example: {"text": [[text, kind, note], ...] with one BLANK, "answer",
        "guesses": [[token, probability], ...]}. The texts are those of the last step.
        """
        if not looks:
            return
        looks = [looks[i] for i in sorted({round(j * (len(looks) - 1) / (_MAX_LOOKS - 1)) for j in range(_MAX_LOOKS)})]
        head = "".join(f"<th>step {look['step']:,}</th>" for look in looks)
        body = []
        for place, example in enumerate(looks[-1]["examples"]):
            cells = "".join(f"<td>{_guesses(look['examples'][place])}</td>" for look in looks)
            text = "".join(_stretch(*part) for part in example["text"])
            body.append(f"<tr><td>{text}<br><small>original: {escape(example['answer'])}</small></td>{cells}</tr>")
        table = f"<table><thead><tr><th>text</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        about = f"{about} Green: the original token. Other predictions may be as good."
        self.section("Masked-token predictions", about).html(f'<div class="scroll masked">{table}</div>')

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> Self:
        """Adds names and values, one per line: facts, versions, the machine."""
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{_cell(value)}</dd>" for name, value in pairs)
        return self.html(f"<dl>{rows}</dl>")

    def settings(self, settings: Json) -> Self:
        """Adds the settings of a run, as the user would type them."""
        return self.section("Settings").pairs((name, setting_text(value)) for name, value in settings.items())

    def footer(self, *, docs: str, origin: str = "", command: str = "") -> Self:
        """Adds the version, the date, the command that repeats the run, and the documentation page about the report."""
        try:
            about = f"Bertie {version('bertie')}"
        except PackageNotFoundError:  # a source tree that was never installed
            about = "Bertie"
        lines = [f"<p>{about}{f' · run of {escape(origin)}' if origin else ''}</p>"]
        lines += [f"<p>Repeat this run: <code>{escape(command)}</code></p>"] if command else []
        self._footer = "".join([*lines, f"<p>How to read this page: <code>bertie help {escape(docs)}</code></p>"])
        return self

    def html(self, markup: str) -> Self:
        """Adds markup unchanged. External text in it must be escaped already."""
        self._parts.append(markup)
        return self

    def render(self) -> str:
        """Returns the whole page."""
        self._close()
        return (
            f'<!doctype html>\n<html lang="{escape(self.lang)}">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self.subtitle)}</p></header>\n<main>\n"
            + "\n".join(self._parts)
            + "\n</main>\n"
            + (f"<footer>{self._footer}</footer>\n" if self._footer else "")
            + "</body>\n</html>\n"
        )

    def save(self, path: Path) -> None:
        """Writes the page atomically."""
        write_bytes(path, self.encode())

    def encode(self) -> bytes:
        """Returns the bytes of the page."""
        return shown(self.render()).encode()

    def _close(self) -> None:
        if self._open:
            self._parts.append("</section>")
            self._open = False


def _numeric(value: object) -> bool:
    if isinstance(value, Html):
        return False
    return value in (None, "") or isinstance(value, int | float) or bool(NUMERIC.fullmatch(str(value)))


def _class(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _label(name: str, labelled: bool) -> str:
    return f' data-label="{escape(name, quote=True)}"' if labelled else ""


def _cell(value: object) -> str:
    if isinstance(value, Html):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return "–" if value is None else escape(str(value))


def _stretch(text: str, kind: str = "", note: str = "") -> str:
    """Returns a part of masked text. Spaces are outside its mark."""
    word = text.strip()
    before, after = (text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]) if word else (text, "")
    if kind == BLANK:
        return f'{before}<span class="blank" role="img" aria-label="blank"></span>{after}'
    if kind == RANDOM:
        return f'{before}<mark class="random" title="{escape(note, quote=True)}">{escape(word)}</mark>{after}'
    return escape(text)


def _guesses(example: Json) -> str:
    return "<br>".join(
        f'<span class="guess{" hit" * (token == example["answer"])}">{escape(token)} '
        f"<small>{probability(p)}</small></span>"
        for token, p in example["guesses"]
    )
