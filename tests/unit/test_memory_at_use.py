"""The peak memory of prediction that `bertie info --batch` and `bertie plan` say, against the measured rows."""

import json
from pathlib import Path

import pytest

from benchmarks.memory import MODELS, said
from bertie import info
from toys import CommandLine

ROWS = [json.loads(line) for line in (Path(__file__).parents[2] / "benchmarks/results/memory.jsonl").open()]


@pytest.mark.parametrize("model", MODELS)
def test_what_is_said_is_within_15_percent_of_every_measured_row(model: str) -> None:
    rows = [row for row in ROWS if row["model"] == model]
    assert rows
    for row in rows:
        assert said(model, row["length"], row["batch"])[row["engine"]] == pytest.approx(row["bytes"], rel=0.15), row


def test_more_texts_take_more_memory_up_to_one_pass() -> None:
    one, full, more = (said("BERT, 4 x 256", 128, batch)["torch"] for batch in (1, 64, 1_000))
    assert one < full == more


def test_the_command_prints_the_memory_of_each_engine(bertie: CommandLine) -> None:
    shown = bertie.good("info", "bert-mini", "--length", 512, "--batch", 64)
    assert "prediction, torch" in shown
    assert "prediction" not in bertie.good("info", "bert-mini")
    sizes = json.loads(bertie.good("info", "mpnet-base", "--batch", 1, "--json"))["memory_bytes"]
    assert {name for name in sizes if "prediction" in name} == {"prediction, torch"}, "no native library for MPNet"
    facts = info("mpnet-base", batch=1)
    assert facts.memory_bytes == sizes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bert-mini", "--length", 513, "--batch", 1), "at most 512 tokens"),
        (("xlnet-base-cased", "--batch", 1), "was not measured for this kind of model"),
        (("t5-small", "--batch", 1), "was not measured for this kind of model"),
    ],
)
def test_what_is_not_known_is_refused(bertie: CommandLine, arguments: tuple[object, ...], message: str) -> None:
    code, _, err = bertie("info", *arguments)
    assert (code, message in err) == (2, True)


def test_a_plan_has_the_memory_of_prediction(bertie: CommandLine) -> None:
    plan = json.loads(bertie.good("plan", "-c", "pretrain-bert-base", "--machine", "h100", "--json"))
    assert [(one["length"], one["batch"]) for one in plan["prediction"]] == [(512, 1), (512, 32)]
    _, _, err = bertie("plan", "-c", "pretrain-bert-base", "--machine", "h100")
    assert "Prediction on a CPU, 1 text of 512 tokens" in err
