"""A copy of an index on a server: what is the same for every engine, and how the copy is brought up to date.

The folder stays what is true, and is what a killed process leaves whole. `publish_index` compares the numbers of the
passages, which are never given twice, adds those that the server lacks and removes those that the folder lost. A
publication that was interrupted is completed by the next one.
"""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertie.apps.search.embedded import Embedded
from bertie.apps.search.engine import Float, RankedPassages
from bertie.apps.search.index import IndexConfig
from bertie.apps.search.store import INDEX_FORMAT, Passage, document_hash
from bertie.platform import DataError, UsageError, console

SENT = 500  # passages in one request
MEAN = "mean_length"  # of the passages in terms, when the copy was made
_SETTINGS = ("uid", "config", "embedder", "passages", "format")


@dataclass(frozen=True)
class RemotePassage:
    """A passage as it is sent: its terms, the hash of its document's text, and its vector where there is one. (H,)"""

    passage: Passage
    terms: list[str]
    hash: str
    vector: Float | None

    def payload(self) -> dict[str, Any]:
        """Returns the fields of the passage and the hash, as JSON values."""
        return {**asdict(self.passage), "hash": self.hash}


class RemoteIndex(ABC):
    """An index on a server. Its name is that of the folder it is a copy of, in lower case.

    Raises:
        UsageError: There is no URL, or the package of the engine is not installed.
        DataError: The server does not answer, refuses, or has no such index.
    """

    failures: tuple[type[Exception], ...]
    """What the client raises."""

    def __init__(self, folder: Path, url: str) -> None:
        if not url:
            raise UsageError("No address of the search engine given. Pass --url.")
        self.name, self.url = folder.resolve().name.lower(), url
        self._settings: dict[str, object] | None = None

    @property
    def where(self) -> str:
        """The address of the index, without a password."""
        return f"{re.sub('//[^/]*@', '//', self.url).rstrip('/')}/{self.name}"

    def get(self, name: str) -> Any:
        """Returns a setting. Raises DataError where the server has no such index."""
        if self._settings is None:
            self._settings = self.settings()
        if self._settings is None:
            raise DataError(
                f"There is no index {self.where}. Make it: bertie index DOCUMENTS -o {self.name} --store ... --url ..."
            )
        if self._settings.get("format") != INDEX_FORMAT:
            raise DataError(f"{self.where} was not made by this version of bertie index. Make it with --overwrite.")
        return self._settings.get(name)

    def reading(self) -> nullcontext[None]:
        """A context that does nothing: requests see the newest state."""
        return nullcontext()

    def documents_named(self, name: str) -> list[int]:
        """Returns the documents of a name, or else those of the file of this path."""
        return self._documents("name", name) or self._documents("source", name)

    def documents_of(self, text: str) -> list[int]:
        """Returns the documents with this text."""
        return self._documents("hash", document_hash(text))

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Returns passages in the order of their ids; ids without a passage are left out."""
        fields = self.fields(ids)
        return [passage_of(fields[i]) for i in ids if i in fields]

    def documents_by_passage(self, ids: Sequence[int]) -> dict[int, int]:
        """Returns passage -> its document."""
        return {i: int(row["document"]) for i, row in self.fields(ids).items()}

    def passages_of(self, document: int) -> list[Passage]:
        """Returns the passages of a document in order."""
        return sorted(map(passage_of, self.rows("document", document)), key=lambda one: one.start)

    def called(self, request: Callable[..., Any], *arguments: object, **options: object) -> Any:
        """Returns what a function of the client returns. Raises DataError for its failures."""
        try:
            return request(*arguments, **options)
        except self.failures as error:
            reason = " ".join(str(error).partition(" caused by")[0].split())[:300] or type(error).__name__
            raise DataError(f"{self.where} did not answer ({reason}). Does it run, and is --url right?") from None

    def _documents(self, field: str, value: object) -> list[int]:
        return sorted({int(row["document"]) for row in self.rows(field, value)})

    @abstractmethod
    def matches(self, terms: Sequence[str], top: int) -> RankedPassages:
        """Returns the best passages with any of the terms."""

    @abstractmethod
    def nearest(self, vector: Float, top: int) -> RankedPassages:
        """Returns the passages with the nearest vectors. (H,)"""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection."""

    @abstractmethod
    def settings(self) -> dict[str, Any] | None:
        """Returns the settings of the index; None where there is no such index."""

    @abstractmethod
    def store_settings(self, settings: dict[str, object]) -> None:
        """Replaces the settings."""

    @abstractmethod
    def create(self, settings: dict[str, object], width: int | None) -> None:
        """Makes an empty index. width: of its vectors, None without."""

    @abstractmethod
    def delete(self) -> None:
        """Deletes the index."""

    @abstractmethod
    def ids(self) -> set[int]:
        """Returns the passages that the index has."""

    @abstractmethod
    def fields(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Returns the payload of passages."""

    @abstractmethod
    def rows(self, field: str, value: Any) -> list[dict[str, Any]]:
        """Returns the payloads with this value of a field."""

    @abstractmethod
    def add(self, rows: Sequence[RemotePassage]) -> None:
        """Adds passages."""

    @abstractmethod
    def remove(self, ids: Sequence[int]) -> None:
        """Removes passages."""

    @abstractmethod
    def settle(self) -> None:
        """Waits until searches see what was added."""


def passage_of(row: dict[str, Any]) -> Passage:
    """Returns the passage of a payload."""
    return Passage(**{name: row[name] for name in Passage.__dataclass_fields__})


def publish_index(folder: Path, remote: RemoteIndex, *, overwrite: bool = False) -> dict[str, int]:
    """Brings the copy of an index on a server up to date. -> {"published", "removed", "passages"}

    Raises UsageError when the server has another index of this name, unless `overwrite`.
    """
    store = Embedded(folder, write=True)
    try:
        if store.get("uid") is None:
            with store.writing():
                store.put("uid", secrets.token_hex(16))
        settings = {name: store.get(name) for name in _SETTINGS}
        there = remote.settings()
        if there is not None and any(there.get(name) != settings[name] for name in ("uid", "config", "embedder")):
            if not overwrite:
                raise UsageError(
                    f"{remote.where} is a copy of another index, or of this one with other settings. Pass --overwrite "
                    "to replace it, or another folder name to -o."
                )
            remote.delete()
            there = None
        settings[MEAN] = store.words.mean_length() if there is None else there.get(MEAN)
        if there is None:
            remote.create(settings, store.width())
        own = {row[0] for row in store.db.execute("SELECT id FROM passages")}
        known = set[int]() if there is None else remote.ids()
        gone, new = sorted(known - own), sorted(own - known)
        for start in range(0, len(gone), SENT):
            remote.remove(gone[start : start + SENT])
        with console.progress("publishing", total=len(new), unit="passages") as advance:
            for rows in _rows(store, new):
                remote.add(rows)
                advance(len(rows))
        remote.store_settings(settings)
        remote.settle()
        return {"published": len(new), "removed": len(gone), "passages": len(own)}
    finally:
        store.close()


def _rows(store: Embedded, ids: Sequence[int]) -> Iterator[list[RemotePassage]]:
    config = IndexConfig.of_json(store.get("config"))
    sql = "SELECT d.hash FROM passages p JOIN documents d ON d.id = p.document WHERE p.id = ?"
    for part in (ids[start : start + SENT] for start in range(0, len(ids), SENT)):
        hashes = [store.db.execute(sql, (i,)).fetchone()[0] for i in part]
        yield [
            RemotePassage(passage, config.terms_of(passage.title, passage.text), digest, vector)
            for passage, digest, vector in zip(store.passages(part), hashes, store.vectors_of(part), strict=True)
        ]
