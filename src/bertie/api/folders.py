"""What is done with the folders of runs: `verify`, `write_report`, `compare` and `export_checkpoint`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertie.api.results import html_table
from bertie.errors import DataError, UsageError, arguments
from bertie.files import Json, check_new_file
from bertie.runs import checkpoints, finetune_page, models, page, tune_results
from bertie.runs import compare as comparing
from bertie.runs.folder import RESULTS, STUDY, read_results, redraw
from bertie.runs.model_card import put
from bertie.runs.model_card import render_markdown_table as markdown
from bertie.runs.verify import Verification, verify_folder


@arguments()
def verify(folder: str | Path) -> Verification:
    """Checks the integrity of a folder that Bertie wrote: every byte of a run, a corpus, a tokenizer or a model.

    Args:
        folder: The folder, or the name of a model.

    Raises:
        DataError: The folder is none of these.

    Example:
        >>> bertie.verify("runs/reviews").ok
        True
    """
    path = Path(folder)
    return Verification(path, verify_folder(path if path.exists() else models.model_folder(folder)).checks)


@arguments()
def write_report(run: str | Path) -> Path:
    """Writes the HTML report of a run, which may be in progress, or of a search, and returns its path.

    Args:
        run: The run folder.

    Raises:
        DataError: The folder is not a run, or it is a search in progress.

    Example:
        >>> bertie.write_report("runs/reviews").name
        'report.html'
    """
    folder = Path(run)
    if (folder / STUDY).exists():
        if not (folder / RESULTS).exists():
            raise DataError(f"{folder} is a search that has not ended, and its report is made at its end.")
        return redraw(folder, tune_results.render_tune_page(read_results(folder)))
    return redraw(
        folder,
        (finetune_page.render_finetune_page if finetune_page.is_finetuning(folder) else page.render_pretrain_page)(
            folder
        ),
    )


@arguments(out="output")
def export_checkpoint(run: str | Path, output: str | Path, *, overwrite: bool = False) -> str:
    """Writes a model folder from a checkpoint of a run, and returns its progress: "step 4,000 of 10,000".

    Args:
        run: The run folder, whose newest intact checkpoint is used, or the folder of a checkpoint.
        output: Model folder to write.
        overwrite: Whether to replace an earlier output of Bertie.

    Raises:
        DataError: There is no intact checkpoint.

    Example:
        >>> class Halt(bertie.Callback):
        ...     def on_step(self, run, step, metrics):
        ...         if step == 3:
        ...             raise KeyboardInterrupt
        >>> sizes = {"model": "bert-tiny", "steps": 4, "batch_size": 4, "max_length": 32}
        >>> sizes["settings"] = {"train.save_every": 2}
        >>> try:
        ...     bertie.pretrain("corpora/notes", "tokenizers/notes", **sizes, output="runs/half", callbacks=[Halt()])
        ... except KeyboardInterrupt:
        ...     bertie.export_checkpoint("runs/half", "out/half")
        'step 2 of 4'
    """
    return checkpoints.write_checkpoint_model(Path(run), Path(output), overwrite=overwrite)


@dataclass(frozen=True)
class Comparison:
    """Runs side by side: metrics, their differences from the first run, cost, and the settings that differ.

    Attributes:
        report: Everything, as `bertie compare --json` prints it.
    """

    report: Mapping[str, object]

    def tables(self) -> Iterator[tuple[list[str], list[list[str]]]]:
        """Yields the columns and the rows of each table that has rows."""
        yield from (
            (columns, rows) for columns, rows in (make(self.report) for make in comparing.COMPARISON_TABLES) if rows
        )

    def to_dict(self) -> dict[str, object]:
        """Returns everything as JSON values."""
        return {**self.report}

    def __repr__(self) -> str:
        runs: Json = self.report
        return f"Comparison({', '.join(row['run'] for row in runs['runs'])})"

    def _repr_html_(self) -> str:
        tables = ([dict(zip(columns, row, strict=True)) for row in rows] for columns, rows in self.tables())
        return "".join(html_table(rows, "") for rows in tables)


@arguments(out="output")
def compare(
    runs: Sequence[str | Path],
    output: str | Path | None = None,
    *,
    card_of: str | Path | None = None,
    overwrite: bool = False,
) -> Comparison:
    """Compares runs: metrics, cost, and the settings that differ.

    Args:
        runs: Run folders, finished or in progress, all of pre-training or all of fine-tuning.
        output: HTML page to write.
        card_of: Model folder whose card gets the metrics.
        overwrite: Whether to replace the page.

    Raises:
        DataError: A run has no metrics.
        UsageError: There are fewer than two runs, or runs of both kinds.

    Example:
        >>> comparison = bertie.compare(["runs/reviews", "runs/other"])
        >>> columns, rows = next(comparison.tables())
        >>> len(rows)
        2
    """
    page_file, folder = (None if path is None else Path(path) for path in (output, card_of))
    if page_file is not None:
        if page_file.suffix.lower() != ".html":
            raise UsageError(
                f"{page_file} does not end in .html. Choose another name: {page_file.with_suffix('.html')}."
            )
        check_new_file(page_file, overwrite=overwrite)
    if folder is not None and not (folder / "config.json").is_file():
        raise DataError(f"{folder} is not a model folder: it has no config.json. Pass `card_of=MODEL`.")
    gathered = comparing.gather([*map(Path, runs)])
    comparison = Comparison(comparing.compare_runs(gathered))
    if folder is not None:
        put(folder, "Compared runs", markdown(*comparing.card_rows(gathered)), comparing.INTERVALS)
    if page_file is not None:
        comparing.render_comparison_page(gathered, "bertie compare " + " ".join(map(str, runs))).save(page_file)
    return comparison
