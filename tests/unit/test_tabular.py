"""Columns of numbers and categories beside the text: learned, saved, and needed again."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bertie as api
from bertie.errors import DataError, UsageError
from bertie.tasks.tabular import TabularColumn
from serving import live
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"epochs": 2, "max_length": 16, "batch_size": 16, "precision": "fp32", "lr": 1e-3}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("model"), "abcdefghz")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """The label depends on the price and the region alone, the number on the price."""
    rng = random.Random(0)
    table = []
    for number in range(240):
        price, region = rng.gauss(50, 10), rng.choice(["north", "south"])
        high = (price > 50) == (region == "north")
        text = " ".join(rng.choices("abcdefgh", k=4))
        cell = None if number % 40 == 7 else round(price, 2)
        table.append((text, cell, region, "yes" if high else "no", 2 * price + 1, "p" if price > 50 else "q"))
    return pd.DataFrame(table, columns=["text", "price", "region", "label", "number", "side"])


def test_numbers_are_standardized_and_categories_are_one_of_their_values() -> None:
    price = TabularColumn.fitted("price", ["1", 3, None, " ", float("nan"), "2.0"])
    assert (price.mean, price.width) == (2.0, 1)
    assert price.encode(3) == [pytest.approx(1 / price.deviation)]
    assert price.encode(None) == price.encode("") == [0.0]
    region = TabularColumn.fitted("region", ["b", "a ", None, "b"])
    assert (region.values, region.encode("b"), region.encode(" a"), region.encode("new")) == (
        ("a", "b"),
        [0.0, 1.0],
        [1.0, 0.0],
        [0.0, 0.0],
    )
    assert (price.wrong("dear"), price.wrong("NA"), region.wrong("dear")) == ("price is not a number", "", "")
    assert price.encode("NA") == [0.0]
    with pytest.raises(DataError, match="'day' has dates"):
        TabularColumn.fitted("day", ["2024-01-02", "2024-01-03 10:00", "2024-01-02", None])
    with pytest.raises(DataError, match="is empty in all training rows"):
        TabularColumn.fitted("empty", [None, ""])
    with pytest.raises(DataError, match="300 different values"):
        TabularColumn.fitted("name", [f"n{i}" for i in range(300)])
    assert TabularColumn.fitted("same", [1, 1]).encode(1) == [0.0]
    assert TabularColumn.fitted("cost", ["1,5", "N/A", "3,5", "1.234,5", "20%"]).mean == pytest.approx(1239.7 / 4)
    with pytest.raises(DataError, match="'cost' has a comma that may separate thousands or decimals"):
        TabularColumn.fitted("cost", ["1,234", "12"])
    paid = TabularColumn.fitted("paid", [True, False])
    assert paid.encode("true") == paid.encode("TRUE") == paid.encode(True) == [0.0, 1.0]


def test_a_row_whose_number_is_none_is_left_out(
    start: Path, rows: pd.DataFrame, tmp_path: Path, bertie: CommandLine
) -> None:
    run = api.finetune(start, rows[:200], rows[200:], tabular=["price"], output=tmp_path / "r", **FAST)
    table = tmp_path / "t.csv"
    table.write_text("text,price,label\na b,1,yes\na b,dear,yes\na b,,no\na b,NA,no\n")
    out = bertie.good("predict", run.folder, table)
    answers = list(map(json.loads, out.splitlines()))
    assert [answer.get("error") for answer in answers] == [None, "price is not a number", None, None]
    assert answers[2]["scores"] == answers[3]["scores"]
    assert api.evaluate(run.folder, table)["examples"] == 3
    train = tmp_path / "train.csv"
    rows.to_csv(train, index=False)
    with pytest.raises(DataError, match=r"1 of 4 dev examples .* Line 3: price is not a number. Remove them.$"):
        api.finetune(start, train, table, text="text", label="label", tabular=["price"], **FAST)


def test_several_columns_of_labels_keep_what_else_is_read(start: Path, tmp_path: Path, bertie: CommandLine) -> None:
    table = tmp_path / "t.csv"
    table.write_text("text,price,x,y\n" + "".join(f"a <b>b</b>,{i},{i % 2},{i % 3 % 2}\n" for i in range(40)))
    fast = ("--epochs", 1, "--max-length", 16, "--batch-size", 16, "--task", "multilabel", "--label", "x,y")
    run = tmp_path / "r"
    bertie.good("finetune", start, "--train", table, "--tabular", "price", "--markup", "html", "-o", run, *fast)
    facts = json.loads((run / "model" / "bertie.json").read_text())
    assert (facts["markup"], facts["task_options"]["tabular"][0]["name"]) == ("html", "price")
    assert "read the answer" in bertie("finetune", start, "--train", table, "--tabular", "x", "-o", run, *fast)[2]
    twice = bertie("finetune", start, "--train", table, "--tabular", "price,price", "-o", run, *fast)
    assert (twice[0], "'price' twice" in twice[2]) == (2, True)


def test_a_classification_reads_them_in_every_engine(start: Path, rows: pd.DataFrame, tmp_path: Path) -> None:
    before = rows.copy()
    train, dev = rows[:200], rows[200:]
    own = {"text": "text", "label": "side", "output": tmp_path / "run"}
    run = api.finetune(start, train, dev, tabular=["price", "region"], metric="accuracy", **own, **FAST)
    pd.testing.assert_frame_equal(rows, before)
    assert run.scores["accuracy"] > 0.85
    plain = api.finetune(start, train, dev, text="text", label="side", **FAST)
    assert plain.scores["accuracy"] < 0.75
    answers = [api.load(run.folder, engine=engine).predict(dev, text="text") for engine in ("torch", "native")]
    np.testing.assert_allclose(answers[0].probabilities, answers[1].probabilities, atol=1e-5)
    assert api.evaluate(run.folder, dev)["accuracy"] == run.scores["accuracy"]
    with pytest.raises(UsageError, match="texts alone, and the model also reads the columns price, region"):
        run.model.predict(["a b c"])
    with pytest.raises(DataError, match="no column 'price'"):
        run.model.predict(dev[["text", "region"]])
    odd = dev.assign(region="west", price=None)
    assert len(run.model.predict(odd, text="text")) == len(odd)


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_numbers_and_sets_of_labels_depend_on_them(start: Path, rows: pd.DataFrame, task: str) -> None:
    label = "number" if task == "regression" else "side"
    run = api.finetune(start, rows, text="text", label=label, task=task, tabular=["price"], **FAST)
    assert run.scores["spearman" if task == "regression" else "micro_f1"] > 0.8
    again = run.model.evaluate(rows, text="text", label=label)
    assert again["spearman" if task == "regression" else "micro_f1"] > 0.8


@pytest.mark.parametrize("more", [{"calibrate": "temperature"}, {"lora": 2}, {"settings": {"select": "best"}}], ids=str)
def test_calibration_lora_and_the_best_weights_keep_them(
    start: Path, rows: pd.DataFrame, tmp_path: Path, more: dict[str, Any]
) -> None:
    run = api.finetune(
        start,
        rows[:200],
        rows[200:],
        text="text",
        label="side",
        tabular=["price"],
        output=tmp_path / "r",
        **FAST,
        **more,
    )
    assert run.scores["accuracy"] > 0.85
    assert api.evaluate(tmp_path / "r", rows[200:])["accuracy"] == run.scores["accuracy"]


def test_folds_and_the_command(start: Path, rows: pd.DataFrame, tmp_path: Path, bertie: CommandLine) -> None:
    table = tmp_path / "t.csv"
    rows.drop(columns=["label", "number"]).to_csv(table, index=False)
    fast = ("--epochs", 1, "--max-length", 16, "--batch-size", 16, "--lr", 1e-3, "--text", "text", "--label", "side")
    bertie.good(
        "finetune", start, "--train", table, "--tabular", "price,region", "--folds", 2, "-o", tmp_path / "r", *fast
    )
    assert "side" not in bertie.good("predict", tmp_path / "r", table, "--text", "text").splitlines()[0].split(",")[0]
    assert "accuracy" in bertie.good("evaluate", tmp_path / "r", table)
    absent = ("finetune", start, "--train", table, "--tabular", "cost", "-o", tmp_path / "x", *fast)
    assert "no column 'cost'" in bertie(*absent)[2]
    wrong = ("finetune", start, "--train", table, "--tabular", "price", "--task", "tagging", "-o", tmp_path / "x")
    assert "tabular has no effect under task=tagging" in bertie(*wrong)[2]
    leak = ("finetune", start, "--train", table, "--tabular", "side", "-o", tmp_path / "x", *fast)
    assert "the model would read the answer" in " ".join(bertie(*leak)[2].split())
    assert not (tmp_path / "x").exists()


def test_the_server_reads_them_whichever_end_of_a_text_is_cut(start: Path, rows: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    model = api.finetune(start, train=rows, dev=rows, tabular=["price", "region"], output=tmp_path, **FAST).model
    cheap, dear = ({"text": "a b", "price": price, "region": "north"} for price in (20, 90))
    with live({"m": tmp_path / "model"}) as server:
        for side in ("right", "left"):
            answers = server.ok("/answer", {"inputs": [cheap, dear], "truncation_direction": side})["answers"]
            expected = model.predict(pd.DataFrame([cheap, dear]))
            assert [one["probability"] for one in answers] == pytest.approx(
                [one.probability for one in expected], abs=1e-5
            )
            assert answers[0]["scores"] != answers[1]["scores"]
            for path in ("/answer", "/predict"):
                refused = server.post(path, {"inputs": "a b", "truncation_direction": side})
                wanted = 'the model also reads the columns price, region: {"text": "...", "price": ..., "region": ...}'
                assert (refused.status_code, wanted in refused.json()["error"]) == (422, True), refused.text


def test_lines_of_text_say_which_columns_are_missing(
    start: Path, rows: pd.DataFrame, tmp_path: Path, bertie: CommandLine
) -> None:
    api.finetune(start, train=rows, dev=rows, tabular=["price", "region"], output=tmp_path / "run", **FAST)
    (tmp_path / "texts.txt").write_text("a b\n")
    code, _, err = bertie("predict", tmp_path / "run", tmp_path / "texts.txt")
    row = '{"text": "...", "price": ..., "region": ...}'
    told = (
        f"has texts alone, and the model also reads the columns price, region: {row}. Pass a file with a table, or JSON"
    )
    assert (code, told in " ".join(err.split())) == (3, True), err
