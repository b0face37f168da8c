"""`Scores`: the metrics of a model on labeled examples, and their display as text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from bertie.api.results import Tabular, html_table, with_interval
from bertie.errors import in_python
from bertie.files import Json
from bertie.metrics.base import called, summarize_metrics, undefined, unknown_labels, verdict
from bertie.metrics.compare import PairedDifference
from bertie.metrics.tags import split_tag

if TYPE_CHECKING:
    from rich.table import Table

_MAX_LABEL_ROWS = 50  # rows of the table of labels
RENAMED = 10  # labels that a message names
_MAX_CONFUSION_LABELS = 10  # labels of a confusion that a notebook shows
_FIGURES = ("precision", "recall", "f1", "examples")


@dataclass(frozen=True, eq=False)
class Scores(Tabular, Mapping[str, float]):
    """The metrics of a model on labeled examples by name, such as `scores["macro_f1"]`, and the counts.

    Attributes:
        report: Everything that was measured, as `bertie evaluate --json` prints it.
        metrics: The names of the metrics, the main one first.
        second: The name of the model that this one was compared with.

    Example:
        >>> scores = model.evaluate(reviews, text="review", label="stars")
        >>> scores
        Scores(accuracy 1.000 (1.000 to 1.000), macro_f1 1.000 (1.000 to 1.000))
        >>> scores["accuracy"], scores.interval("accuracy")
        (1.0, (1.0, 1.0))
        >>> scores.to_pandas()["metric"].tolist()
        ['accuracy', 'macro_f1']
    """

    report: Mapping[str, object]
    metrics: tuple[str, ...]
    second: str = ""

    def __getitem__(self, name: str) -> float:
        value = self.report[name]
        if not isinstance(value, int | float):
            raise KeyError(f"{name} is no number. It is in `report`.")
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self.report.items() if isinstance(value, int | float))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def _facts(self) -> Json:
        return self.report

    def interval(self, name: str) -> tuple[float, float] | None:
        """Returns the 95% interval of a metric, by the bootstrap over examples; None where it has none."""
        self._facts[name]  # an unknown name is a KeyError
        bounds = self._facts.get("interval_95", {}).get(name)
        return None if bounds is None else (bounds[0], bounds[1])

    def to_dict(self) -> dict[str, object]:
        """Returns everything that was measured, as JSON values."""
        return dict(self._facts)

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns a row for each metric: its value and interval, and those of the baselines."""
        rows = []
        for name in self.metrics:
            if name not in self._facts or name in self._facts.get("undefined", {}):
                continue
            low, high = self.interval(name) or (None, None)
            row = {"metric": called(name, self._facts), "value": self._facts[name], "low": low, "high": high}
            rows.append(row | {one["name"]: one["figures"].get(name) for one in self._facts.get("baselines", ())})
        return rows

    def __repr__(self) -> str:
        return f"Scores({', '.join(map(with_interval, self.to_dicts()))})"

    def _repr_html_(self) -> str:
        confused = [{"true \\ predicted": true, **row} for true, row in self.confusion.items()]
        tables = (
            self.to_dicts(),
            _by_label(self.per_label),
            confused if len(confused) <= _MAX_CONFUSION_LABELS else [],
        )
        return "".join(html_table(rows, "") for rows in tables if rows)

    @property
    def per_label(self) -> Mapping[str, Mapping[str, float]]:
        """Precision, recall, F1 and the number of examples of each label: `pandas.DataFrame(scores.per_label).T`."""
        return {**self._facts.get("per_label", {})}

    @property
    def confusion(self) -> Mapping[str, Mapping[str, int]]:
        """How often each label was predicted for a true one: `pandas.DataFrame(scores.confusion).T`.

        Empty for tasks with other answers than one label a row, and for very many labels.
        """
        labels, matrix = self._facts.get("labels", ()), self._facts.get("confusion") or ()
        rows = zip(labels, matrix, strict=True) if len(matrix) == len(labels) else ()
        return {true: dict(zip(labels, counts, strict=True)) for true, counts in rows}

    @property
    def summary(self) -> str:
        """The metrics with their intervals and the number of examples, in one line."""
        return summarize_metrics(self._facts, self.metrics)

    def lines(self) -> "Iterator[str | Table]":
        """Yields what `bertie evaluate` prints below the summary, as texts and tables of `rich`."""
        report, unknown = self._facts, self._facts.get("undefined", {})
        for name, figures in report.get("parts", {}).items():
            of_parts = {key: called(f"{name}/{key}", report).removeprefix(f"{name}/") for key in figures}
            parts = [
                f"{of_parts[key]} {value:z.3f}" for key, value in figures.items() if f"{name}/{key}" not in unknown
            ]
            yield f"{name}: {', '.join(parts) or 'nothing is defined'}"
        known = [name for name in report if (name in self.metrics or not self.metrics) and name not in unknown]
        for baseline in report.get("baselines", ()):
            if figures := {name: value for name, value in baseline["figures"].items() if name in known}:
                values = (f"{called(name, report)} {value:z.3f}" for name, value in figures.items())
                yield f"{baseline['name']}: {', '.join(values)}"
        yield from _label_table(report.get("per_label", {}))
        if "ece" in report:
            yield f"ECE {report['ece']:z.3f}" + (f", Brier {report['brier']:z.3f}" if "brier" in report else "")
        if "mean_cost" in report:
            yield f"mean cost {report['mean_cost']:.4g}"
        if done := report.get("answered"):
            metrics = "the metrics are those of the answers, ECE and Brier those of all rows"
            yield f"answered {done['share']:.1%} of {done['rows']:,} rows; {metrics}"
        if sets := report.get("prediction_sets"):
            low, high = sets["interval_95"]
            size = f"{sets['mean_size']:.2f} labels on average"
            yield f"prediction sets: coverage {sets['covered']:z.3f} ({low:z.3f} to {high:z.3f}), {size}"
        sentence, beats = verdict(report, self.metrics[0] if self.metrics else "")
        if sentence and beats:
            yield sentence
        for name in self.metrics:
            if name in report.get("against", {}):
                difference = PairedDifference(**report["against"][name])
                yield f"{called(name, report)} minus that of {self.second or 'the second model'}: {difference}"
        yield from _perturbed_lines(report, self.metrics)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done with the examples: rows that were left out, a comparison ..."""
        return tuple(map(in_python, self._facts.get("notes", ())))

    @property
    def warnings(self) -> list[str]:
        """What is unusual: unknown labels, metrics that are not defined, a model that beats no baseline."""
        report, warnings = self._facts, list[str]()
        occur = {label for label, row in report.get("per_label", {}).items() if row["examples"]}
        if unknown := report.get("unknown_labels"):
            warnings += unknown_labels(report)[:1]
            if occur and occur <= {name for tag in unknown for name in (tag, split_tag(tag)[1])}:
                first = (label for label in report["per_label"] if label in occur)
                renamed = ",".join(f"{label}=NAME" for label in islice(first, RENAMED))
                warnings.append(
                    "no label is one of the model's, which `bertie info` prints. To rename those of the file: "
                    f"--label-names {renamed}{',...' * (len(occur) > RENAMED)}"
                )
        warnings += undefined(report)
        sentence, beats = verdict(report, self.metrics[0] if self.metrics else "")
        warnings += [] if beats else [sentence]
        if report.get("all_given"):
            warnings.append(f"the model predicts {report['all_given']!r} for every example")
        return [*map(in_python, warnings)]


def _by_label(per_label: Mapping[str, Mapping[str, float]]) -> list[dict[str, object]]:
    """Returns a row for each of the labels that occur; of many labels, for the most frequent."""
    occur = {label: row for label, row in per_label.items() if row["examples"]}
    most = set(sorted(occur, key=lambda label: -occur[label]["examples"])[:_MAX_LABEL_ROWS])
    return [{"label": label, **{name: occur[label][name] for name in _FIGURES}} for label in occur if label in most]


def _label_table(per_label: Mapping[str, Mapping[str, float]]) -> "Iterator[str | Table]":
    """Yields the table of the labels that occur, and how many more there are."""
    if not (rows := _by_label(per_label)):
        return
    from rich.table import Table

    table = Table("label", box=None)
    for name in _FIGURES:
        table.add_column(name, justify="right")
    for row in rows:
        label, *figures, examples = row.values()
        table.add_row(str(label), *(f"{value:z.3f}" for value in figures), f"{examples:,}")
    yield table
    occur = sum(1 for row in per_label.values() if row["examples"])
    if occur > _MAX_LABEL_ROWS:
        yield f"labels with fewer examples: {occur - _MAX_LABEL_ROWS:,} (--json has all)"
    if occur < len(per_label):
        yield f"labels without an example: {len(per_label) - occur:,}"


def _perturbed_lines(scores: Json, metrics: Sequence[str]) -> Iterator[str]:
    """Yields a line for each perturbation."""
    for name, facts in scores.get("perturbed", {}).items():
        head = f"{name}: {facts['changed']:,} of {facts['of']:,} rows changed"
        if not facts["changed"]:
            yield head
        elif "right" in facts:
            low, high = facts["interval_95"]["both"]
            right = ", ".join(f"{what} {share:z.3f}" for what, share in facts["right"].items())
            yield f"{head}; right: {right} (95% interval {low:z.3f} to {high:z.3f})"
        else:
            same = "" if facts["same_answers"] is None else f"; same answers {facts['same_answers']:z.3f}"
            figures = (
                f"; {called(metric, scores)} {facts['differences'][metric]['difference']:+z.3f} "
                f"({facts['differences'][metric]['low']:+z.3f} to {facts['differences'][metric]['high']:+z.3f})"
                for metric in metrics[:1]
                if metric in facts["differences"]
            )
            yield head + same + "".join(figures)
