"""What fits into a time: the presets of a family on a device, with the loss to expect of each."""

import time
from collections.abc import Mapping
from typing import Any, TypeAlias

import bertie
from bertie import PretrainConfig
from bertie.apps.plan.forecast import USABLE, Assumptions
from bertie.apps.plan.law import law
from bertie.platform import ModelFolder, ProcessorCatalog, RunPlan, console

TOKENS_PER_PARAMETER = 20
TRIED_S = 30.0  # of trying presets
_Rows: TypeAlias = list[dict[str, Any]]


def presets_within(
    config: PretrainConfig,
    key: str,
    assumptions: Assumptions,
    known: ProcessorCatalog,
    seconds: float,
    *,
    tried: bool = False,
) -> _Rows:
    """Returns what fits into some seconds for each preset of the config's family, smallest first.

    The schedule is that of the config with other steps. key: of the device in the catalog. tried: whether the
    utilization is measured on this machine (runs/planning.py). loss: expected masked-LM loss on held-out text, from
    Bertie's own runs (law.py), None far beyond them; beyond: how far. chosen: the largest preset that fits in the
    memory and reads TOKENS_PER_PARAMETER; none where no preset does.
    """
    rows: _Rows = []
    plans, device = _sizes(config), known.device(key)
    used_everywhere, count = assumptions.utilization, assumptions.count
    computed = {name: used_everywhere or device.expected_utilization(plan.job, count) for name, plan in plans.items()}
    used = tried_utilizations(plans) if tried else computed
    for name, plan in plans.items():
        job = plan.job
        share = seconds / device.seconds(job.flops, count=count, used=used[name])
        tokens = int(job.tokens * share)
        layers = job.layer_parameters
        rows.append(
            {
                "preset": name,
                "parameters": job.parameters,
                "steps": int(config.train.steps * share),
                "tokens": tokens,
                "tokens_per_parameter": tokens / job.parameters,
                "micro_batch": job.largest_batch(USABLE * device.memory_gb * 1e9),
                "loss": law().expected(layers, tokens),
                "beyond": round(law().beyond(layers, tokens), 1),
                "utilization": round(used[name], 3),
                "chosen": False,
            }
        )
    for row in reversed(rows):
        if row["micro_batch"] and row["tokens_per_parameter"] >= TOKENS_PER_PARAMETER:
            row["chosen"] = True
            break
    return rows


def tried_utilizations(plans: Mapping[str, RunPlan], seconds: float = TRIED_S) -> dict[str, float]:
    """Returns the share of the machine's rate of matrix products that training of each preset reaches.

    The presets are tried in their order until the time is over. Later ones get the share of the last one.
    """
    shares, began, share = dict[str, float](), time.monotonic(), 0.0
    with console.progress("trying presets", len(plans), unit="presets") as advance:
        for name, plan in plans.items():
            if not share or time.monotonic() - began < seconds:
                share = plan.utilization_here()
            shares[name] = share
            advance(1)
    return shares


def _sizes(config: PretrainConfig) -> dict[str, RunPlan]:
    """Returns the plan of each preset of a family with the config's vocabulary, smallest first; of presets of
    one shape, that with the shortest name."""
    rows = bertie.presets()
    own = next((row for row in rows if row.preset == config.model), None)
    public = {} if own else ModelFolder(config.model).public
    kind = own.model_type if own else public.get("model_type")
    vocabulary = own.vocab_size if own else public.get("vocab_size")
    names = sorted((row.preset for row in rows if (row.model_type, row.vocab_size) == (kind, vocabulary)), key=len)
    lengths = {key: value for key, value in config.model_overrides.items() if key == "max_position_embeddings"}
    plans = {name: RunPlan.of(config.model_copy(update={"model": name, "model_overrides": lengths})) for name in names}
    sizes = dict[str, RunPlan]()
    for name, plan in plans.items():
        same = [
            one
            for one in sizes.values()
            if one.job.parameters == plan.job.parameters and one.job.flops == plan.job.flops
        ]
        sizes |= {} if same else {name: plan}
    return dict(sorted(sizes.items(), key=lambda pair: pair[1].job.parameters))
