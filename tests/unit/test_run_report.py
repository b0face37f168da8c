"""RUN/report.html: written by the run, drawn again on demand, self-contained."""

import json
import re
import shutil

import pytest
from test_pretrain import home, settings, thread
from typer.testing import CliRunner

from bertie.apps.cli.table import app
from bertie.errors import DataError
from bertie.runs.guesses import read_guesses, show_masked_text
from bertie.runs.page import render_pretrain_page
from bertie.runs.pretrain import run_pretrain
from bertie.text.tokenizer import Tokenizer
from bertie.train import log

assert home
assert thread  # fixtures


@pytest.fixture(scope="module")
def run(home, tmp_path_factory):
    run = tmp_path_factory.mktemp("report") / "run"
    phases = "phases=[{steps: 2, max_length: 16}, {}]"
    run_pretrain(settings(home, phases, "train.log_every=1", "train.eval_every=2"), run)
    return run


def test_a_run_draws_itself(run):
    html = (run / "report.html").read_text()
    for heading in ("Training curves", "Masked-token predictions", "Plan", "Corpus: corpus", "Settings"):
        assert f"<h2>{heading}</h2>" in html
    assert html.count("<svg") == 5  # two losses, the learning rate, the gradient norm, the speed
    last = [line for line in log.read_log(run) if line["kind"] == "valid"][-1]
    assert f"{last['loss']:.3f}" in html
    assert "finished" in html
    assert not re.search(r"""(src|href)=["']?(?!#)""", html.replace('xlink:href="#', "")), "it needs something else"


def test_masked_tokens_are_those_of_the_held_out_text(run):
    lines = read_guesses(run)
    assert [line["step"] for line in lines] == [2, 4, 6]
    for line in lines:
        assert 0 < len(line["examples"]) <= 6
        for example in line["examples"]:
            assert len(example["guesses"]) == 2
            assert 1 >= example["guesses"][0][1] >= example["guesses"][1][1] >= 0
    assert [e["answer"] for e in lines[1]["examples"]] == [e["answer"] for e in lines[2]["examples"]]


def test_masked_text_keeps_its_spaces_and_marks_what_is_random(tmp_path):
    words = "the bees hum ##med all day , ."
    tokens = f"[PAD] [UNK] [CLS] [SEP] [MASK] {words}".split()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode("the bees hummed all day, the bees.").ids
    hum, day = (ids.index(tokenizer.token_to_id(token)) for token in ("hum", "day"))
    corrupted, bees = list(ids), tokenizer.token_to_id("bees")
    corrupted[hum], corrupted[day] = tokenizer.mask_id, bees
    targets = {hum: ids[hum], day: ids[day]}
    assert show_masked_text(corrupted, targets, range(len(ids)), hum, tokenizer) == [
        ["the bees", "", ""],
        [" ", "blank", ""],
        ["med all", "", ""],
        [" bees", "random", "random token; original: day"],
        [", the bees. [SEP]", "", ""],
    ]


def test_a_page_shows_settings_and_units_and_has_no_empty_header(run):
    html = (run / "report.html").read_text()
    assert "<dt>optim.lr</dt><dd>0.000<" not in html
    assert "0.0 M" not in html
    assert not re.search(r"<th[^>]*></th>", html)
    assert "bertie pretrain -c" in html.partition("<footer>")[2]


def test_a_run_whose_loss_rose_says_so_first(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    [line for line in lines if line["kind"] == "train"][-1]["loss"] = 99.0
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    html = render_pretrain_page(copy).render()
    assert "The model did not learn" in html
    assert html.index('role="alert"') < html.index('class="tiles"')
    assert 'role="alert"' not in render_pretrain_page(run).render()


def test_it_is_drawn_again_by_command_and_while_the_run_goes_on(run, tmp_path):
    going = shutil.copytree(run, tmp_path / "going")
    for name in ("results.json", "report.html"):
        (going / name).unlink()
    result = CliRunner().invoke(app, ["report", str(going)])
    assert result.exit_code == 0, result.output
    assert "100% done" in (going / "report.html").read_text()
    (going / "metrics.jsonl").write_text(json.dumps({"kind": "valid", "step": 2, "loss": 1.0}) + "\n")
    with pytest.raises(DataError, match="has no lines yet"):
        render_pretrain_page(going)


def test_what_the_report_says_is_escaped(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "<b>run")
    lines = read_guesses(copy)
    lines[-1]["examples"][0]["answer"] = "<script>"
    (copy / "guesses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    html = render_pretrain_page(copy).render()
    assert "<script>" not in html
    assert "<b>run" not in html
