"""What a page looks like: colours that can be read, text large enough for a phone, numbers as they were."""

import re
from xml.etree import ElementTree

import pytest
from test_report import CHARTS

from bertie.report import values
from bertie.report.charts import Line, tick
from bertie.report.page import Report
from bertie.report.style import STYLE
from bertie.report.values import quantity
from bertie.runs.page import Curve, TrainingReport

Colour = tuple[float, float, float]
AA = 4.5  # WCAG 2.1, 1.4.3: text of any size
PHONE = 336  # px of a chart on a screen of 390: less the margins of the page and of its section
SMALLEST = 10.0  # px


def schemes() -> dict[str, dict[str, Colour]]:
    """The colour variables of the light scheme and of the dark one."""
    light, dark = (
        {name: rgb(value) for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)}
        for block in re.findall(r":root \{(.*?)\n *\}", STYLE, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def rgb(value: str) -> Colour:
    red, green, blue = (int(value[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def contrast(a: Colour, b: Colour) -> float:
    """WCAG's ratio of the relative luminances of two colours."""

    def luminance(colour: Colour) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def rules() -> list[tuple[str, str]]:
    """(selector, declarations) of the sheet."""
    return re.findall(r"([^{}]+)\{([^{}]*)\}", STYLE)


def grounds_and_texts() -> tuple[set[str], set[str]]:
    """The variables text is written in, and those of the plain grounds it is written on."""
    texts, grounds = set(), set()
    for _, rule in rules():
        if "var(--alarm)" not in rule:
            texts |= set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", rule))
    for name in ("ground", "card"):
        assert f"background: var(--{name})" in STYLE
        grounds.add(name)
    return texts, grounds


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_every_ground(scheme: str):
    colours = schemes()[scheme]
    texts, grounds = grounds_and_texts()
    assert {"ink", "soft", "bad", "good", "link"} <= texts
    for text in texts:
        for ground in grounds:
            assert contrast(colours[text], colours[ground]) >= AA, f"{text} on {ground}"
    assert contrast(colours["on-alarm"], colours["alarm"]) >= AA


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_a_tint_is_ink_and_can_be_read(scheme: str):
    colours = schemes()[scheme]
    tints = [
        (s, r, *m) for s, r in rules() for m in re.findall(r"color-mix\(in srgb, var\(--([\w-]+)\) ([\w().-]+%?)", r)
    ]
    assert len(tints) >= 5
    for selector, rule, series, share in tints:
        if selector.strip() == ".interval i":  # a bar, without text
            continue
        assert "color: var(--ink)" in rule, f"{selector}: text of another colour on a tint"
        part = 0.5 if "--share" in share else float(share.rstrip("%")) / 100  # `heat` mixes in a half at most
        for ground in ("card", "ground"):
            mixed = tuple(part * a + (1 - part) * b for a, b in zip(colours[series], colours[ground], strict=True))
            assert contrast(colours["ink"], mixed) >= AA, selector


def test_a_full_cell_of_the_matrix_mixes_in_a_half():
    html = Report("t").confusion_matrix(["a", "b"], [[7, 0], [0, 9]]).render()
    assert {int(share) for share in re.findall(r"--share:(\d+)%", html)} == {50}


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_written_in_the_pages_font_large_enough_for_a_phone(kind: str):
    svg = CHARTS[kind]("bees")
    root = ElementTree.fromstring(svg)
    styles = [text.get("style", "") for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert styles
    scale = PHONE / float(root.get("viewBox").split()[2])
    for style in styles:
        assert "var(--font)" in style
        size = float(re.search(r"([\d.]+)px", style)[1])
        assert size * scale >= SMALLEST
    assert "DejaVu" not in svg


def test_a_learning_rate_on_an_axis_has_no_offset():
    assert [tick(value) for value in (0.0, 2.3e-5, 0.25, 20_000.0)] == ["0", "2.3e-5", "0.25", "20,000"]


def test_one_point_is_a_value_and_no_chart():
    report = TrainingReport("t")
    report.curves([Curve([Line("dev", [34], [0.6928])], "loss", "The loss."), Curve([], "nothing", "")])
    html = report.render()
    assert "<svg" not in html
    assert "loss, step 34" in html
    assert "0.693" in html


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1e-4, "0.0001"),
        (3e-05, "3e-05"),
        (1e-06, "1e-06"),
        (0.123456789, "0.123456789"),
        (3.0, "3"),
        (None, "(not set)"),
        ([], "(not set)"),
        ({}, "(not set)"),
        ("", "(not set)"),
        (0, "0"),
        (False, "false"),
        ([0.9, 0.98], "0.9, 0.98"),
    ],
)
def test_a_setting_is_shown_as_it_was_set(value: object, shown: str):
    assert values.setting_text(value) == shown
    html = Report("t").settings({"optim.lr": value}).render()
    assert f"<dd>{shown}</dd>" in html


def test_units_scale_with_what_they_count():
    assert [quantity(n) for n in (0, 870, 999, 12_345, 999_960, 4_100_000, 2e9, 5.44e12)] == [
        "0",
        "870",
        "999",
        "12.3 K",
        "1.0 M",
        "4.1 M",
        "2.0 B",
        "5.4 T",
    ]
    seconds = (0.04, 3.2, 59.4, 59.9, 65.4, 119.8, 720, 3599, 4800, 7200, 200_000)
    assert [quantity(s, "s") for s in seconds] == [
        "0.0 s",
        "3 s",
        "59 s",
        "1 min",
        "1 min 5 s",
        "2 min",
        "12 min",
        "1 h",
        "1 h 20 min",
        "2 h",
        "2 d 7 h",
    ]
    assert [values.number(x) for x in (-0.0, -0.00004, -0.5)] == ["0.000", "-4e-05", "-0.500"]
    assert [values.number(x) for x in (0.9131, 2.85, 412.53, 3.505e6, 12, 1e-5, 1234567)] == [
        "0.913",
        "2.850",
        "412.5",
        "3,505,000",
        "12",
        "1e-05",
        "1,234,567",
    ]
    assert [values.probability(p) for p in (0.502, 0.498, 0.89, 0.004)] == ["50.2%", "49.8%", "89%", "0.4%"]


def test_columns_of_numbers_stand_to_the_right_under_heads_that_do():
    html = Report("t").table(["label", "examples", "interval"], [["0", 68, "0.1 to 0.2"], ["1", 5, ""]]).render()
    assert "<th>label</th>" in html
    assert '<th class="number">examples</th>' in html
    assert '<td class="number">0.1 to 0.2</td>' in html


def test_a_page_ends_with_how_it_was_made():
    report = Report("t").footer(origin="2026-11-22 06:00 UTC", command="bertie x -c <a>", docs="training")
    footer = report.render().partition("<footer>")[2]
    for expected in ("Bertie", "2026-11-22", "bertie x -c &lt;a&gt;", "bertie help training"):
        assert expected in footer
