"""`Run`: a finished run, its scores and its model."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertie.api.display import with_interval
from bertie.api.model import Model, load
from bertie.api.scores import Scores
from bertie.errors import Stopped
from bertie.folders import new_folder
from bertie.runs.folder import REPORT, RUN, read_results
from bertie.runs.models import MODEL

MEASURED = ("loss", "accuracy")  # ends of the names of what pre-training measures


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its folder, and what it gave.

    Attributes:
        folder: The run folder. Without `output`, it is temporary, and lasts as long as this value.
        results: The contents of results.json.
    """

    folder: Path
    results: Mapping[str, Any]
    _temporary: "TemporaryDirectory[str] | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: str | Path) -> "Run":
        """Returns the run in a folder. Raises DataError where it is not finished."""
        return cls(Path(folder), read_results(Path(folder)))

    @property
    def scores(self) -> Scores:
        """The scores on the dev examples; of pre-training, on held-out text, or else on the last steps of training."""
        if "dev" in self.results:
            return Scores(self.results["dev"], tuple(self.results["metrics"]))
        report = self.results["valid"] or self.results["train"]
        return Scores(report, tuple(name for name in report if name.endswith(MEASURED)))

    @property
    def model(self) -> Model:
        """The trained model, loaded from the folder."""
        return load(self.folder / MODEL).lasting(self._temporary)

    @property
    def report(self) -> Path:
        """The HTML page about the run."""
        return self.folder / REPORT

    def save(self, folder: str | Path, *, overwrite: bool = False) -> "Run":
        """Copies the run to a folder that lasts, and returns it there. Raises UsageError for a folder with files."""
        with new_folder(Path(folder), RUN, overwrite=overwrite) as target:
            shutil.copytree(self.folder, target, dirs_exist_ok=True)
        return Run(Path(folder), self.results)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {', '.join(map(with_interval, self.scores.to_dicts()))})"

    def _repr_html_(self) -> str:
        return f"{self.scores._repr_html_()}<p>{escape(self.results.get('worth', ''))}</p>"


@contextmanager
def run_folder(output: str | Path | None) -> "Iterator[tuple[Path, TemporaryDirectory[str] | None]]":
    """Context with the folder of a run: `output`, or one in the temporary folder that is yielded too."""
    if output is not None:
        yield Path(output), None
        return
    temporary = TemporaryDirectory(prefix="bertie-run-")
    try:
        yield Path(temporary.name) / "run", temporary
    except Stopped as stopped:
        hint = "Nothing is kept without output. Pass a folder, and the same call resumes the run."
        raise Stopped(stopped.message, hint=hint) from None
