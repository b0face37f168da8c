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
run = bertie.finetune({model!r}, rows, epochs=2_000, output={run!r}, batch_size=8, max_length=64)
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

    model, run = toy_model(tmp_path / "model", "abcdefgh"), tmp_path / "run"
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
                wait_for(run / "metrics.jsonl")
                manager.interrupt_kernel()
            return answer(message)

        def value(code: str) -> str:
            message = client.execute("", user_expressions={"value": code})
            return answer(message)["user_expressions"]["value"]["data"]["text/plain"]

        cell = CELL.format(model=str(model), run=str(run))
        stopped = execute(cell, stop=True)
        assert (stopped["status"], stopped["ename"]) == ("error", "Stopped")
        assert "is saved" in stopped["evalue"], stopped["evalue"]
        assert "command" not in stopped["evalue"]
        assert execute(f"answers = bertie.load({str(run)!r}).predict(['a b c'])")["status"] == "ok"
        assert value("answers.labels[0] in ('bad', 'good')") == "True"
        steps = len((run / "metrics.jsonl").read_text().splitlines())
        again = execute(
            cell.replace("batch_size=8", "batch_size=8, callbacks=[Enough()]").replace(
                "import bertie",
                "import bertie\nclass Enough(bertie.Callback):\n    def on_step(self, run, step, metrics):\n"
                "        if step > run.step + 3:\n            raise bertie.StopTraining('enough')",
                1,
            )
        )
        assert again["status"] == "ok", again
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert len(lines) > steps
        assert value("run.model.task") == "'sequence'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
