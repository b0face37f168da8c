"""The faster precision of the machine is measured, stored, and chosen by `auto`."""

import json
from pathlib import Path

import pytest
import torch

from bertie.console import Verbosity, console
from bertie.errors import UsageError
from bertie.models import families, machine
from bertie.models.machine import ProductRates
from bertie.train import precision
from nano import nano_fit, nano_model
from toys import CommandLine

CPU = torch.device("cpu")
SLOW, FAST, ALIKE = ProductRates(fp32=117, bf16=0.9), ProductRates(fp32=100, bf16=600), ProductRates(fp32=100, bf16=110)


@pytest.fixture
def processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, and the file the rates are kept in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine.cpu_rates.cache_clear()
    yield tmp_path / "bertie" / "processors.json"
    machine.cpu_rates.cache_clear()


@pytest.mark.parametrize(
    ("rates", "dtype"), [(SLOW, torch.float32), (ALIKE, torch.float32), (FAST, torch.bfloat16)], ids=str
)
def test_auto_is_what_the_machine_is_quicker_in(
    rates: ProductRates, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cpu_rates", lambda: rates)
    assert precision.choose_dtype("auto", CPU) == dtype
    assert precision.choose_dtype("fp32", CPU) == torch.float32
    assert precision.choose_dtype("bf16", CPU) == torch.bfloat16
    assert f"{rates.bf16:,.3g} GFLOP/s" in precision.why("auto", dtype, CPU)


def test_rates_are_measured_once_for_all_processes(processors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    rates = machine.cpu_rates()
    assert min(rates.fp32, rates.bf16) > 0
    assert torch.get_num_threads() == threads
    assert len(json.loads(processors.read_text())) == 1
    machine.cpu_rates.cache_clear()  # another process
    monkeypatch.setattr(machine, "_measured", lambda: pytest.fail("measured twice"))
    assert machine.cpu_rates() == rates


def test_what_limits_instructions_is_another_processor(processors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in machine.LIMIT_VARIABLES:  # the tests themselves may be run with fewer instructions
        monkeypatch.delenv(name, raising=False)
    found = iter([FAST, SLOW])
    monkeypatch.setattr(machine, "_measured", lambda: next(found))
    assert machine.cpu_rates() == FAST
    machine.cpu_rates.cache_clear()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert machine.cpu_rates() == SLOW
    assert len(json.loads(processors.read_text())) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", '{"x": 3}', '{"x": {"fp32": "a", "bf16": 1}}', '{"x": {"fp32": 0}}', "{" * 9]
)
def test_a_damaged_file_is_measured_anew(text: str, processors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processor_facts", lambda: "x")
    monkeypatch.setattr(machine, "_measured", lambda: FAST)
    processors.parent.mkdir()
    processors.write_text(text)
    assert machine.cpu_rates() == FAST
    assert json.loads(processors.read_text())["x"] == {"fp32": 100, "bf16": 600}


def test_a_cache_folder_that_cannot_be_written_is_no_matter(processors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_measured", lambda: FAST)
    processors.parent.write_text("a file where the folder belongs")
    assert machine.cpu_rates() == FAST


def test_a_run_says_what_it_computes_in_and_stays_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run keeps its precision, also where the machine would now choose another."""
    monkeypatch.setattr(console, "verbosity", Verbosity())
    used = []
    for rates, steps in ((FAST, 2), (SLOW, 4)):
        monkeypatch.setattr(machine, "cpu_rates", lambda rates=rates: rates)
        model = nano_model()
        nano_fit(
            tmp_path, model=model, precision="auto", steps=steps, allow_change=["train.steps"],
            on_step=lambda _, model=model: used.append(model.compute_dtype),
        )  # fmt: skip
    assert used == [torch.bfloat16] * 4
    first, second = [line for line in capsys.readouterr().err.splitlines() if "Computing in" in line]
    assert first == "Computing in bfloat16: here a bfloat16 product runs at 600 GFLOP/s, a float32 product at 100."
    assert "as when the run started" in second


def test_the_same_precision_is_told_once_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("Computing in float8: once.", "Computing in float8: once.", "Computing in float4."):
        precision.tell_precision(line)
    assert capsys.readouterr().err.splitlines() == ["Computing in float8: once.", "Computing in float4."]


def test_a_device_that_is_not_here_is_named_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for name in ("cuda", "cuda:1", "tpu", "cpu:1", "meta", ""):
        with pytest.raises(UsageError, match="Choose one of mps, cpu; or auto"):
            precision.choose_device(name)


@pytest.mark.parametrize(("gpus", "apple", "best"), [(2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")])
def test_auto_takes_the_best_device(gpus: int, apple: bool, best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
    assert precision.choose_device("auto").type == best


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_command_line_refuses_a_device_that_is_not_here(tmp_path: Path, bertie: CommandLine) -> None:
    families.build("bert-tiny", vocab_size=40, hidden_size=16, num_attention_heads=2).save_pretrained(tmp_path)
    for command in ("embed", "perplexity"):
        code, _, error = bertie(command, tmp_path, "a text", "--device", "cuda")
        assert code == 2
        assert "This machine has no device" in error
