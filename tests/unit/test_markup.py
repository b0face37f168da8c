"""HTML and Markdown are removed from the texts of training and use alike."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertie
from bertie.io.markup import without_markup
from toys import CommandLine, toy_model


@pytest.mark.parametrize(
    ("markup", "text", "plain"),
    [
        ("html", "Great<br /><br />film &amp; <b>cast</b>!", "Great film & cast!"),
        ("html", "<p>One</p><p>two</p>", "One two"),
        ("html", "<script>x = '<b>'</script>seen<style>b {}</style>", "seen"),
        ("html", "1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("html", "&lt;b&gt;fat&lt;/b&gt;", "fat"),
        ("html", "an <a href='x'>unclosed <b>link", "an unclosed link"),
        ("html", "<td>a</td><td>b</td>", "a b"),
        ("html", "no  markup\n", "no  markup\n"),
        ("markdown", "# Title\n\nSome *words* and `code` [here](http://x.y).", "Title Some words and code here."),
        ("markdown", "- one\n- two\n\n> said\n\n```\nx = 1\n```", "one two said x = 1"),
        ("markdown", "![a cat](cat.png) <b>bold</b>", "a cat bold"),
        ("markdown", "| a | b |\n|---|---|\n| 1 | 2 |", "a b 1 2"),
        ("", "<b>kept</b>", "<b>kept</b>"),
    ],
)
def test_what_is_left(markup: str, text: str, plain: str) -> None:
    assert without_markup(text, markup) == plain  # type: ignore[arg-type]


@given(st.text(alphabet="<>/&;abp *_`#[]()!-|\n\"'=", max_size=60), st.sampled_from(["html", "markdown"]))
def test_twice_is_once(text: str, markup: str) -> None:
    once = without_markup(text, markup)  # type: ignore[arg-type]
    assert without_markup(once, markup) == once  # type: ignore[arg-type]


def test_a_model_removes_what_its_training_removed(tmp_path: Path, bertie: CommandLine) -> None:
    start, table = toy_model(tmp_path / "start", "abcdefgh"), tmp_path / "t.csv"
    rows = [f"<p>{'ab'[i % 2]} {'cdefgh'[i % 6]}<br>c</p>,{'xy'[i % 2]}" for i in range(60)]
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    fast = ("--epochs", 1, "--max-length", 16, "--batch-size", 8, "--markup", "html")
    bertie.good("finetune", start, "--train", table, "-o", tmp_path / "run", *fast)
    marked, plain = (bertie.good("predict", tmp_path / "run", stdin=text) for text in ("<i>a</i> d<br>c\n", "a d c\n"))
    assert marked.partition('"label"')[2] == plain.partition('"label"')[2] != ""
    for command in ("explain", "attention"):
        marked, plain = (bertie.good(command, tmp_path / "run", text) for text in ("<i>a</i> d<br>c", "a d c"))
        assert marked == plain
    wrong = bertie("finetune", start, "--train", table, "-o", tmp_path / "x", "--task", "tagging", *fast)[2]
    assert "markup has no effect under task=tagging" in wrong
    assert "html" in bertie("finetune", start, "--train", table, "-o", tmp_path / "x", "--markup", "rtf")[2]


def test_from_python(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", "abcdefgh")
    rows = [(f"<b>{'ab'[i % 2]}</b> {'cdefgh'[i % 6]}", "xy"[i % 2]) for i in range(40)]
    run = bertie.finetune(start, rows, markup="html", epochs=1, max_length=16, batch_size=8)
    answers = run.model.predict(["<b>a</b> c", "a c"])
    assert answers[0].scores == answers[1].scores
