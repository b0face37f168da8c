"""Two start models on one task: the same fine-tuning from both, seed by seed, and the comparison.

first/, second/   a run of several seeds from each model
compare.json      what `bertie compare` prints of the two       compare.html   its page
"""

from pathlib import Path

from bertie.console import console
from bertie.files import write_json
from bertie.folders import FolderKind, held
from bertie.runs.compare import compare_runs, gather, render_comparison_page
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune import finetune_seeds
from bertie.runs.finetune_prepare import check_run
from bertie.runs.folder import AGAINST, RUN

COMPARISON = FolderKind(
    "comparison",
    begins=AGAINST,
    files=("compare.json", "compare.html"),
    folders=dict.fromkeys(AGAINST, RUN),
)


def run_finetune_against(
    config: FinetuneConfig, other: str, run: Path, seeds: int, *, resume: str = "auto", overwrite: bool = False
) -> dict[str, object]:
    """Fine-tune config.model and `other` with the same seeds and settings; return what `compare` finds.

    The same call resumes where it stopped. Raises what `finetune_seeds` raises.
    """
    configs = [config.model_copy(update={"model": model}) for model in (config.model, other)]
    if overwrite or not run.exists():  # what is wrong with the second is said now, not after the runs of the first
        examples = read_examples(config)
        for one in configs:
            check_run(one, examples)
    with held(run, COMPARISON, overwrite=overwrite):
        for name, one in zip(AGAINST, configs, strict=True):
            console.say(f"[bold]{name}:[/] {one.model}", markup=True)
            finetune_seeds(one, run / name, seeds, resume=resume)
        runs = gather([run / name for name in AGAINST])
        comparison = compare_runs(runs)
        write_json(run / "compare.json", comparison)
        render_comparison_page(runs, "bertie compare " + " ".join(str(run / name) for name in AGAINST)).save(
            run / "compare.html"
        )
    return comparison
