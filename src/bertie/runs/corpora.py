"""A corpus recipe: the processing of the text, and the evaluation sets for decontamination, by name or by file."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bertie.console import console
from bertie.data.decontaminate import evaluation_texts
from bertie.data.prepare import CorpusConfig
from bertie.errors import DataError, UnknownName, nearest
from bertie.io.lines import BadRecord


class CorpusRecipe(CorpusConfig):
    """The settings that `bertie corpus -c` reads."""

    decontaminate: tuple[str, ...] = ()
    """Evaluation sets whose text is removed from the corpus: names of published data sets, or files."""
    data_dirs: tuple[str, ...] = (".",)
    """Folders with the files of these data sets. Each data set may have its own folder inside."""

    @property
    def corpus(self) -> CorpusConfig:
        """The settings of the processing of documents."""
        return CorpusConfig(**self.model_dump(include=set(CorpusConfig.model_fields)))

    def evaluation(self) -> dict[str, Iterator[str]]:
        """Returns the texts of every evaluation set by name. Raises DataError for missing files, UsageError for a wrong
        name."""
        folders = [Path(folder) for folder in self.data_dirs]
        return {name: _texts(name, folders, self.encoding) for name in self.decontaminate}


def _texts(name: str, folders: list[Path], encoding: str) -> Iterator[str]:
    """Yields the texts of a file, or of all splits of a published data set except the training split."""
    from bertie.tasks import TASKS  # torch with it, which no corpus needs
    from bertie.tasks.datasets import DATASETS

    if name not in DATASETS:
        if not Path(name).is_file():
            raise UnknownName(
                f"--decontaminate {name}: there is no file and no data set of this name. {nearest(name, DATASETS)}"
            )
        return evaluation_texts(Path(name), encoding)
    dataset, tables = DATASETS[name], []
    for split in dataset.splits:
        for folder in folders if split != "train" else []:
            with suppress(DataError):  # a test set that was never published, or another folder's
                tables += dataset.tables(split, folder)
                break
        else:
            if split != "train":
                console.warn(f"{name}: no file of its split {split!r}, so its text is not removed.")
    if not tables:
        places = ", ".join(map(str, folders))
        raise DataError(f"No file of {name} was found in: {places} Pass the folder of its files: --data-dir FOLDER")
    rows = (row for path, format in tables for row in TASKS[dataset.task].rows(path, format))
    return (text for row in rows if not isinstance(row, BadRecord) for text in row.texts)
