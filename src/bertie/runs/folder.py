"""The folder of a run: its lock, whether the run is finished, and the list of its files.

    run.yaml          the settings                 checkpoint-<step>/  to resume from, until it is finished
    metrics.jsonl     losses, learning rate        model/, best/ ...   models in Hugging Face format
    results.json      of a finished run            report.html         the run as a page
    checksums.json    size and hash of every file, written last
    outline/          all of the model but its weights, until it is finished (runs/models.py)

A run of several seeds contains a run in each seed-<n>/, cross-validation one in each fold-<n>/ and in final/, and
tuning one folder per trial.
"""

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bertie import checksums, folders
from bertie.console import console
from bertie.errors import BadFile, DataError, OutputExists, UsageError
from bertie.files import LOCK, JsonObject, read_json, write_json
from bertie.folders import ANYTHING, FolderKind, new_folder
from bertie.models.files import MODEL_FOLDER
from bertie.report.page import Report
from bertie.runs.layout import BEST, MODEL, OUTLINE
from bertie.train import checkpoint, log
from bertie.train.callbacks import TENSORBOARD, TRACK
from bertie.train.rendezvous import is_main
from bertie.train.resume import changes, check_resume, check_unchanged

CONFIG, RESULTS, REPORT, GUESSES, FINDINGS = "run.yaml", "results.json", "report.html", "guesses.jsonl", "findings.json"
STUDY = "study.jsonl"
SUSPECTS = "label_check.csv"
OUT_OF_FOLD = "out_of_fold.csv"  # of a cross-validation
AGAINST = ("first", "second")  # the runs of `bertie finetune --against`, each of several seeds
_RESULTS_FORMAT = 2  # of results.json: a run with it has finished when its checksums.json is there, too

CHECKPOINT = FolderKind("checkpoint", (checkpoint.MANIFEST,), (*checkpoint.CHECKPOINT_FILES, checkpoint.MANIFEST))
RUN = FolderKind(
    "run",
    begins=(CONFIG, log.METRICS, STUDY, f"seed-*/{CONFIG}", f"fold-*/{CONFIG}"),
    files=(
        CONFIG,
        log.METRICS,
        RESULTS,
        REPORT,
        GUESSES,
        FINDINGS,
        SUSPECTS,
        OUT_OF_FOLD,
        STUDY,
        f"{STUDY}.lock",
        ".search.lock",
        TRACK,
    ),
    folders={
        "checkpoint-*": CHECKPOINT,
        MODEL: MODEL_FOLDER,
        OUTLINE: MODEL_FOLDER,
        "generator": MODEL_FOLDER,
        BEST: MODEL_FOLDER,
        TENSORBOARD: ANYTHING,
        "seed-*": None,
        "fold-*": None,
        "final": None,
        "*=*": None,  # a trial of a search, named by its settings
    },
    clears=(".checkpoint-*",),
    use="bertie report {}",
)


def seed_runs(run: Path) -> list[Path]:
    """Returns the runs in a folder of several seeds or folds, by name; none for another folder."""
    return sorted(path.parent for kind in ("seed", "fold") for path in run.glob(f"{kind}-*/{CONFIG}"))


def read_results(run: Path) -> JsonObject:
    """Returns the contents of a run's results.json. Raises DataError when it is missing, damaged or of another
    format."""
    results = _read(run / RESULTS)
    if results.get("format") != _RESULTS_FORMAT:
        raise DataError(
            f"{run / RESULTS} has the format {results.get('format')}, "
            f"and this version of Bertie reads {_RESULTS_FORMAT}. "
            "Start the run again: --overwrite."
        )
    return results


def read_findings(run: Path) -> dict[str, object]:
    """Returns the contents of a run's findings.json. Raises DataError when it is missing or damaged."""
    return _read(run / FINDINGS, "points", "worst")


def _read(path: Path, *keys: str) -> JsonObject:
    value = read_json(path)
    if not isinstance(value, dict) or not value.keys() >= {*keys}:
        raise BadFile(f"{path} is damaged: it contains no {path.stem}.")
    return value


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def check(self, *, overwrite: bool = False) -> None:
        """Raises UsageError early, before anything is read, when the run could not be written."""
        folders.check_writable(self.path, RUN, overwrite=overwrite)

    @contextmanager
    def held(self, *, overwrite: bool = False) -> Iterator[None]:
        """Context with a lock against other processes. With `overwrite`, what Bertie wrote there is deleted first."""
        with folders.held(self.path, RUN, overwrite=overwrite):
            yield

    def finished(
        self,
        identity: Mapping[str, object],
        *,
        resume: str = "auto",
        allow_change: Collection[str] | None = None,
    ) -> JsonObject | None:
        """Returns the results of a finished run, or None for an unfinished one.

        allow_change: keys that may differ; None for a command without that option. Raises UsageError when they are of
        other settings or data, or the run may not be resumed (never), or `check_resume` does.
        """
        if not (self.path / RESULTS).exists():
            return None
        if resume == "never":
            raise OutputExists(
                f"{self.path} contains a finished run. Choose another folder, read its results (--resume "
                "auto), or replace it (--overwrite)."
            )
        check_resume(resume)
        results = read_results(self.path)
        before = results["identity"]
        goes_on = any(self.path.glob("checkpoint-*"))
        offered = allow_change if allow_change or goes_on else None
        check_unchanged(self.path, "a finished run", before, identity, offered)
        if not changes(before, identity):
            return results
        if resume == "auto" and not goes_on:
            raise UsageError(
                f"{self.path} is finished and has no checkpoint to continue from. Start a new run from its "
                f"weights (model={self.path / MODEL}). A run with train.keep_checkpoints=true can be extended."
            )
        return None

    def answer(self, results: dict[str, object], page: Callable[[], Report], *, keep: bool) -> JsonObject:
        """Returns the results of a finished run, after writing its last files if its process was killed before."""
        if is_main() and not (self.path / checksums.CHECKSUMS).exists():
            self._seal(page, keep)
        console.say(f"{self.path} is finished already: returning its results. --overwrite starts again.")
        return results

    def begin(self, outline: Callable[[Path], None] | None = None) -> None:
        """Prepares the folder of a run that starts or is resumed: results of fewer steps and the list of files are
        deleted.

        outline: writes all of the model but its weights, so that a checkpoint can be used before the run is finished.
        """
        for name in (checksums.CHECKSUMS, RESULTS):
            (self.path / name).unlink(missing_ok=True)
        if outline is not None:
            with new_folder(self.path / OUTLINE, MODEL_FOLDER, keep_strangers=True) as folder:
                outline(folder)

    def finish(
        self, results: Mapping[str, object], page: Callable[[], Report], *, keep: bool = False
    ) -> dict[str, object]:
        """Writes results.json, the report, and last the list of all files. -> the results as written

        keep: whether checkpoints are kept. They are deleted after results.json is written.
        """
        written = {**results, "format": _RESULTS_FORMAT}
        write_json(self.path / RESULTS, written)
        self._seal(page, keep)
        return written

    def _seal(self, page: Callable[[], Report], keep: bool) -> None:
        for leftover in [self.path / OUTLINE, *(() if keep else self.path.glob("checkpoint-*"))]:
            shutil.rmtree(leftover, ignore_errors=True)
        with console.no_failure(self.path / REPORT):
            page().save(self.path / REPORT)
        checksums.write_checksums(self.path, "run", covered=_is_of_trackers)


def _is_of_trackers(name: str) -> bool:
    """Whether a file changes after the run has finished: a lock, or a tracker's."""
    return name.endswith(LOCK) or name == TRACK or name.startswith(f"{TENSORBOARD}/")


def redraw(run: Path, page: Report) -> Path:
    """Writes the report of a run again, and returns its path."""
    page.save(run / REPORT)
    checksums.update(run, REPORT)
    return run / REPORT
