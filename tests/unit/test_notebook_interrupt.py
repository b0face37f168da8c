"""The stop button of a notebook: a run ends after a step, can be used as it is, and the same cell continues it."""

import json
import os
import time
from pathlib import Path

import pytest

from toys import toy_model

CELL = """
import bertie
rows = [("a b c", "bad"), ("d e f", "good")] * 40
enough = [10**9]  # steps after a start
class Enough(bertie.Callback):
    def on_step(self, run, step, metrics):
        if step > run.step + enough[0]:
            raise bertie.StopTraining("enough")
run = bertie.finetune(
    {model!r}, rows, epochs=2_000, output={run!r}, batch_size=8, max_length=64, callbacks=[Enough()]
)
"""


def wait_for(file: Path) -> None:
    """Waits until a run has written the metrics of some steps."""
    end = time.monotonic() + 60
    while not (file.is_file() and file.stat().st_size):
        assert time.monotonic() < end, f"{file} is not there"
        time.sleep(0.05)


@pytest.mark.slow
def test_the_stop_button_leaves_a_run_that_can_be_used_and_continued(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    from jupyter_client.manager import start_new_kernel

    model, folder = toy_model(tmp_path / "model", "abcdefgh"), tmp_path / "run"
    manager, client = start_new_kernel(cwd=str(tmp_path), env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:

        def answer(message: str) -> dict:
            while True:
                reply = client.get_shell_msg(timeout=120)
                if reply["parent_header"]["msg_id"] == message:
                    return reply["content"]

        def execute(code: str, *, stop: bool = False) -> dict:
            message = client.execute(code)
            if stop:
                wait_for(folder / "metrics.jsonl")
                manager.interrupt_kernel()
            return answer(message)

        def value(code: str) -> str:
            message = client.execute("", user_expressions={"value": code})
            return answer(message)["user_expressions"]["value"]["data"]["text/plain"]

        cell = CELL.format(model=str(model), run=str(folder))
        assert execute(cell, stop=True)["status"] == "ok"
        assert value("run.finished") == "False"
        assert value("run.model.predict(['a b c']).labels[0] in ('bad', 'good')") == "True"
        steps = len((folder / "metrics.jsonl").read_text().splitlines())
        assert execute("enough[0] = 3; run = run.resume()")["status"] == "ok"
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert len(lines) > steps
        assert value("run.finished, run.scores['accuracy'] >= 0, run.model.task") == "(True, True, 'sequence')"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
