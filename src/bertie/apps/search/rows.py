"""Documents in memory, as a table of JSON lines that lasts as long as they are indexed."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from bertie.platform import UsageError

ROWS_FOLDER, ROWS_NAME = "bertie-documents-", "documents"
ROWS_FILE = re.compile(rf".*{ROWS_FOLDER}[^/\\]*[/\\]({ROWS_NAME})\.jsonl")  # the temporary file of documents in memory


class LazyDocuments(Protocol):
    """Protocol of a frame that is computed when it is collected."""

    def collect(self) -> object:
        """Returns the frame."""
        ...


def source_name(file: str) -> str:
    """Returns the name of a source in an index: that of a file, or "documents" for those in memory."""
    return ROWS_FILE.sub(r"\1", file)


@contextmanager
def as_files(documents: object) -> Iterator[list[str]]:
    """Context with the names of files, folders and globs; documents in memory are a file there.

    Raises UsageError for what is neither paths nor rows.
    """
    if isinstance(documents, str | PathLike):
        documents = [documents]
    if isinstance(documents, list | tuple) and all(isinstance(one, str | PathLike) for one in documents):
        yield [str(Path(one)) if isinstance(one, PathLike) else one for one in documents]
        return
    with TemporaryDirectory(prefix=ROWS_FOLDER) as folder:
        file = Path(folder) / f"{ROWS_NAME}.jsonl"
        with file.open("w", encoding="utf-8") as lines:
            for row in _rows(documents):
                lines.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        yield [str(file)]


def _rows(documents: object) -> Iterator[Mapping[str, object]]:
    """Yields the rows of a frame of any library, of a data set, or of an iterable of texts or mappings."""
    for method in ("collect", "to_dicts", "to_pylist"):  # of polars and Arrow
        if hasattr(documents, method):
            documents = getattr(documents, method)()
    if hasattr(documents, "itertuples"):  # of pandas
        documents = documents.to_dict("records")  # type: ignore[attr-defined]
    if not isinstance(documents, Iterable) or isinstance(documents, Mapping):
        raise UsageError(
            f"documents is a {type(documents).__name__}; files, a frame, or an iterable of texts or dictionaries was "
            "expected."
        )
    for one in documents:
        row = one if isinstance(one, Mapping) else {"text": one}
        yield {str(name): value for name, value in row.items() if value is not None and value == value}
