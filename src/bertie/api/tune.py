"""`bertie.tune`: a search over fine-tuning runs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Unpack

from bertie.api.finetune import FOREIGN_ARGUMENTS, settings_ready
from bertie.api.model import Model, load
from bertie.api.options import FinetuneOptions
from bertie.api.results import Tabular, html_table
from bertie.api.run import at_prompt
from bertie.console import console
from bertie.errors import Stopped, UsageError, WrongValue, arguments
from bertie.files import Json
from bertie.io.memory import RowsInput
from bertie.metrics.base import called
from bertie.runs import tune as runs
from bertie.runs.arguments import FINETUNE
from bertie.runs.layout import MODEL
from bertie.runs.space import Range, Space, parse_space, published_space
from bertie.runs.tune_results import verdict_on_best

_TRIALS_SHOWN = 10  # trials of a display
CONFIRMING_SEEDS = 3


@dataclass(frozen=True)
class Search(Tabular):
    """A search, and its trials.

    The stop button of a notebook, and Ctrl-C at a prompt, end a search after the step, and return it as it stands.

    Attributes:
        folder: The folder of the search.
        results: The contents of results.json; of a search that was stopped, those of its finished trials.
    """

    folder: Path
    results: Mapping[str, object]
    _again: "Callable[[], Search] | None" = field(default=None, repr=False)

    @property
    def finished(self) -> bool:
        """Whether the search is finished."""
        return self._again is None

    def resume(self) -> "Search":
        """Continues a search that was stopped, with the arguments of its call; returns a finished one as it is."""
        return self if self._again is None else self._again()

    @property
    def model(self) -> Model:
        """The model of the best trial so far."""
        return load(self.folder / (MODEL if self.finished else f"{self.best['folder']}/{MODEL}"))

    @property
    def _facts(self) -> Json:
        if not self.results:
            raise UsageError("The search was stopped before a trial finished. Continue it: `search = search.resume()`.")
        return self.results

    @property
    def metric(self) -> str:
        """The metric that was maximized."""
        return str(self._facts["metric"])

    @property
    def best(self) -> Mapping[str, object]:
        """The best trial: its settings, its score and its folder."""
        best: Mapping[str, object] = self._facts["best"]
        return best

    @property
    def importance(self) -> Mapping[str, float]:
        """The share of the variance of scores that each setting explains; empty where too few trials tell."""
        shares: Mapping[str, float] = self._facts.get("importance", {})
        return shares

    @property
    def verdict(self) -> str:
        """Whether the best settings are shown to be better than those that were passed; "" where it was not tried."""
        comparison = self._facts.get("nested") or self._facts.get("confirmed")
        return verdict_on_best(comparison, called(self.metric, self.results)) if comparison else ""

    def to_dict(self) -> dict[str, object]:
        """Returns the results as JSON values."""
        return {**self.results}

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns a row for each trial, the best first: its settings, its score or its state, and its seconds."""
        return [
            {
                **row["settings"],
                self.metric: row["state"] if row[self.metric] is None else row[self.metric],
                "seconds": row["seconds"],
            }
            for row in self._facts["trials"]
        ]

    @property
    def title(self) -> str:
        """How many runs there were."""
        results = self._facts
        return f"{results['done']} runs finished, {results['given up']} pruned, {results['failed']} failed"

    @property
    def summary(self) -> str:
        """The best trial in one line."""
        shown = called(self.metric, self.results)
        return " ".join(
            [f"best: {self.best['folder']}, {shown} {self.best[self.metric]:z.4f} on dev.", self.verdict]
        ).strip()

    def rows(self, most: int = _TRIALS_SHOWN) -> Iterator[dict[str, str]]:
        """Yields the best trials as texts by column."""
        for row in self.to_dicts()[:most]:
            score = row.pop(self.metric)
            seconds = row.pop("seconds")
            shown = f"{score:z.4f}" if isinstance(score, float) else str(score)
            own = {name: str(value) for name, value in row.items()}
            yield {**own, called(self.metric, self.results): shown, "seconds": f"{seconds:,.0f}"}

    def __repr__(self) -> str:
        state = [] if self.finished else ["stopped"]
        return f"Search({', '.join([repr(str(self.folder)), *state, *([self.summary] if self.results else [])])})"

    def _repr_html_(self) -> str:
        if not self.results:
            return f"<p>{escape(repr(self))}</p>"
        return html_table([*self.rows()], f"{self.title}. {self.summary}")


@arguments(*FinetuneOptions.__annotations__, **FOREIGN_ARGUMENTS)
def tune(
    model: str | Path | None = None,
    train: RowsInput | None = None,
    dev: RowsInput | None = None,
    *,
    output: str | Path,
    vary: Sequence[str] | Mapping[str, Sequence[object]] = (),
    trials: int | None = None,
    hours: float | None = None,
    prune: bool = False,
    confirm: int | None = None,
    folds: int | None = None,
    overwrite: bool = False,
    **options: Unpack[FinetuneOptions],
) -> Search:
    """Searches fine-tuning hyperparameters. The same call resumes an interrupted search.

    Args:
        model: Name or folder of a pre-trained model.
        train: Labeled examples, as for `finetune`.
        dev: Examples to evaluate on.
        output: Folder to write.
        vary: Choices by name: {"lr": [1e-5, 1e-4]}, or texts "optim.lr=1e-5,1e-4" and "optim.lr=1e-5..1e-3", a range.
            Default: the grid of BERT's paper, around the usual rate of the model.
        trials: Number of runs. Default: the whole grid.
        hours: Hours after which no further run starts.
        prune: Whether to stop runs whose dev score is below the median of earlier runs.
        confirm: New seeds with which the best settings are compared with those that you passed. Default: 3, or none
            with `folds`. 0: none.
        folds: Folds of nested cross-validation instead: the search is repeated in each.
        overwrite: Whether to delete first what Bertie wrote to the folder.
        **options: The settings of `finetune`.

    Returns:
        The search, with its trials and the best model.

    Raises:
        DataError: Examples cannot be read.
        UsageError: A setting is wrong, or the folder contains another search, or optuna is missing.
        Stopped: The search was interrupted. At a prompt, Ctrl-C and the stop button return it instead.

    Example:
        >>> settings = {"text": "review", "label": "stars", "epochs": 1}
        >>> search = bertie.tune("runs/tiny", reviews, vary={"lr": [1e-4, 1e-3]}, output="out/tune", **settings)
        >>> len(search.to_pandas())
        2
        >>> search.model.labels
        ('bad', 'good')
    """
    call = dict(locals())
    space = _space(vary)
    chosen = {FINETUNE[name]: name for name in FINETUNE if options.get(name) is not None}
    chosen |= {name: name for name in options.get("settings") or {}}
    chosen |= {name: name for name in (text.partition("=")[0] for text in options.get("overrides") or ())}
    varied = space or published_space(1.0)
    if both := [name for key, name in chosen.items() if key in varied]:
        raise UsageError(f"The search varies {both[0]}, so you cannot set it. Omit it, or vary others: `vary`.")
    if confirm and folds is not None:
        raise UsageError("`folds` and `confirm` exclude each other. Omit one of them.")
    confirm = CONFIRMING_SEEDS if confirm is None and folds is None else confirm or 0
    if confirm < 0 or (folds is not None and folds < 2):
        wrong = (
            f"confirm is {confirm}; it must be 0 or more" if confirm < 0 else f"folds is {folds}; it must be 2 or more"
        )
        raise UsageError(f"{wrong}.")
    with settings_ready({**options, "model": model, "train": train, "dev": dev}) as ready:
        try:
            results = runs.run_tune(
                ready,
                Path(output),
                space,
                trials=trials,
                hours=hours,
                prune=prune,
                confirm=confirm,
                folds=folds,
                overwrite=overwrite,
            )
        except Stopped as stopped:
            if not at_prompt(stopped):
                raise
            console.warn(f"{stopped.message} `search.resume()` continues the search.")
            again = partial(tune, **call.pop("options"), **{**call, "overwrite": False})
            return Search(Path(output), runs.results_so_far(Path(output)), again)
    return Search(Path(output), results)


def _space(vary: Sequence[str] | Mapping[str, Sequence[object]]) -> Space:
    """Returns the search space of texts, or of choices by name."""
    if not isinstance(vary, Mapping):
        return parse_space(vary)
    if wrong := next(
        (name for name, one in vary.items() if isinstance(one, str) or not (isinstance(one, Collection) and len(one))),
        None,
    ):
        raise WrongValue(f"{wrong} of vary is {vary[wrong]!r}; a list of values was expected.")
    space: dict[str, tuple[object, ...] | Range] = {
        FINETUNE.get(name, name): (*values,) for name, values in vary.items()
    }
    return space
