"""What the removal of a concept costs in tasks: the same fine-tuning of the model before and after it, seed by seed."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bertie
from bertie import FinetuneConfig
from bertie.platform import BertieError, File, console

STOPPED = 75  # exit code of a run that could be resumed
QUICK = {"baselines": False, "label_check": "none"}  # they have nothing to do with the start model


def fine_tuned(before: Path, after: Path, sets: Mapping[str, FinetuneConfig], *, seeds: int) -> list[dict[str, Any]]:
    """Returns the dev metric of each set, fine-tuned from both folders, and the difference paired by seed.

    The interval of the difference is None for one seed. Raises what `bertie.finetune` raises.
    """
    rows = []
    for name, config in sets.items():
        quick = config.model_copy(update={**QUICK, "model": str(before)})
        with TemporaryDirectory(prefix="bertie-run-") as folder:
            runs = Path(folder) / "runs"
            try:
                bertie.finetune_against(None, after, config=quick, output=runs, seeds=seeds)
            except BertieError as error:
                if error.exit_code == STOPPED and error.hint:  # the folder goes
                    error.hint = "Run the same command again."
                raise
            pair_of_runs = File(runs / "compare.json").read_json()["runs"]
            metric = File(runs / "first" / "results.json").read_json()["metrics"][0]
        if any(metric not in one["figures"] for one in pair_of_runs):
            console.warn(f"{name}: {metric} is not defined on the dev examples, so it is left out.")
            continue
        first, second = (one["figures"][metric]["mean"] for one in pair_of_runs)
        apart = pair_of_runs[1]["minus_first"].get(metric) or {"low": None, "high": None}
        difference = {"value": second - first, "low": apart["low"], "high": apart["high"]}
        rows.append(
            {
                "set": name,
                "metric": metric,
                "before": first,
                "after": second,
                "difference": difference,
                "seeds": seeds,
            }
        )
    return rows
