"""A report is one file that needs nothing else, whatever text goes into it."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bertie.report.charts import Chart, Line
from bertie.report.page import Report

CHARTS = {
    "line": lambda name: Chart.lines(
        [Line(name, [1, 2000], [0.5, 0.25], [0.4, 0.2], [0.6, 0.3]), Line("b", [1, 2000], [1, 2])],
        x_label=name,
        y_label="loss",
    ),
    "interval": lambda name: Chart.intervals(
        {name: ([0.5, 0.75], 0.4, 0.9), "b": ([0.25], 0.25, 0.25)}, x_label="accuracy", reference=("chance", 0.2)
    ),
    "bar": lambda name: Chart.bars({name: 12.0, "b": 300.0}, x_label="seconds"),
}


class Nesting(HTMLParser):
    """Fails on an element closed out of turn."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_svg_in_the_colours_of_the_page(kind: str):
    svg = CHARTS[kind]("벌 <&> bees")
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert root.get("width") is None, "the page decides how wide"
    assert "벌 <&> bees" in "".join(root.itertext())
    assert "var(--ink)" in svg or "var(--soft)" in svg
    assert "var(--series-1)" in svg
    assert not re.search(r"#0[12]0[12]0\d", svg), "a stand-in colour was left"
    assert svg == CHARTS[kind]("벌 <&> bees"), "the same drawing is the same text"


def test_a_report_is_one_file_of_well_nested_escaped_html(tmp_path: Path):
    report = Report("A <title>", "& more").tiles([("accuracy", "0.61 > 0.5", "5 seeds")])
    report.section("Loss <1>", "First.\n\nSecond & last.").chart(CHARTS["line"]("x"), "lower < better")
    report.table(["a", "b"], [["<td>", 1234567], ["x", 0.12345]], "caption")
    report.section("Rest").pairs([("torch", "2.13"), ("tokens", 1234567)])
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []
    assert {"svg", "table", "dl", "h1", "h2"} <= nesting.seen
    assert not nesting.seen & {"script", "link", "img", "iframe"}
    assert not re.search(r'(?:src|href)="(?!#)|url\((?!#)|@import', page), "nothing may be fetched"
    for text in ("A &lt;title&gt;", "Loss &lt;1&gt;", "&lt;td&gt;", "1,234,567", "0.123", "Second &amp; last."):
        assert text in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("<section>") == page.count("</section>") == 2
