"""The store of an index: documents, passages and the postings of their terms in one SQLite database.

    INDEX/index.sqlite             settings, sources with their hashes, documents, passages, postings, rejected records
    INDEX/vectors-<n>.safetensors  int8 vectors of passages (vectors.py); the database lists them with their hashes
    INDEX/neighbors-<n>.usearch    their approximate index, where there is one (neighbors.py)

A change is one transaction. It includes the list of the vector files, which are complete on disk before it is
committed. A process that is killed therefore leaves the index as it was. Readers see the last committed state while
another process writes (SQLite's write-ahead log).
"""

import errno
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from bertie.apps.search import postings
from bertie.apps.search.postings import LISTED, Postings, State
from bertie.platform import BadRecord, BertieError, DataError, File, FolderKind

DATABASE = "index.sqlite"
LOG_BYTES = 1 << 20  # free space below which an I/O error of the log of changes means a full disk
INDEX_FORMAT = 2
INDEX_KIND = FolderKind(
    "search index",
    begins=(DATABASE,),
    files=(f"{DATABASE}*", "vectors-*.safetensors", "neighbors-*"),
    use="bertie search {} QUESTION",
)
FREQUENT = 0.3  # a term in more of the passages says little, and takes much time. A tenth costs 6 nDCG on Cranfield
_SMALL_INDEX = 20_000  # passages: below, a term is looked up however frequent it is
MAX_TERMS = 64  # different terms of a question that are looked up, the rarest: each takes time

_LASTING_SETTINGS = ("format", "change", "vector_files", "graphs")  # settings that outlive a replaced index

_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE sources (name TEXT PRIMARY KEY, hash TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL,
    title TEXT NOT NULL, page INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE INDEX documents_of_source ON documents (source);
CREATE INDEX documents_by_hash ON documents (hash);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, start INTEGER NOT NULL, line INTEGER NOT NULL,
    hash TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX passages_of_document ON passages (document);
CREATE TABLE rejected (source TEXT NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE vectors (
    file TEXT PRIMARY KEY, hash TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Passage:
    """A passage and its place: characters [start, start + len(text)) of a document of a source.

    line: of its beginning in the file, 0 where it has none. number: of the document in its source, from 1.
    """

    id: int
    text: str
    start: int
    line: int
    document: int
    source: str
    number: int
    name: str
    title: str
    page: int

    @property
    def place(self) -> str:
        """The place for people: "docs/a.md:12", "a.pdf, page 3", "corpus.jsonl:7 (doc-7)"."""
        where = f"{self.source}:{self.line}" if self.line else self.source
        where += f", page {self.page}" if self.page else ""
        where += f", document {self.number}" if not (self.line or self.page or self.name) else ""
        return where + (f" ({self.name})" if self.name else "")

    @property
    def whole(self) -> str:
        """The text that models read: the title, unless the passage begins with it, and the passage."""
        return join_title(self.title, self.text)


def join_title(title: str, text: str) -> str:
    """Returns a title and a text, or the text alone if it begins with the title."""
    return f"{title}\n{text}" if title and not text.lstrip("# ").startswith(title) else text


class Store:
    """An open database. `writing` gives the only way to change it."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.folder = folder
        path = folder / DATABASE
        if not write and not path.is_file():
            raise DataError(f"{folder} is not a search index. Make one: bertie index DOCUMENTS -o {folder}")
        try:
            self.db = self._opened(path, write)
            self.words = Postings(self.db)
            tables = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if write and not tables:
                with self.writing():
                    for statement in filter(str.strip, (_SCHEMA + postings.SCHEMA).split(";\n")):
                        self.db.execute(statement)
                    self.put("format", INDEX_FORMAT)
            version = self.get("format") if tables or write else INDEX_FORMAT
            ready = write or (tables and self.get("config") is not None)
        except sqlite3.DatabaseError as error:
            if stopped := self._full(error):
                raise stopped from None
            raise DataError(f"{path} cannot be read as a search index ({error}). Make it again.") from None
        if not write and not ready:
            raise DataError(f"{folder} is an index without documents: its making was interrupted. Make it again.")
        if version != INDEX_FORMAT:
            raise DataError(
                f"{folder} has index format {version}, and this version reads {INDEX_FORMAT}. Make it again."
            )

    @staticmethod
    def _opened(path: Path, write: bool) -> sqlite3.Connection:
        if write:
            db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            return db
        try:
            return _reader(path, "ro")
        except sqlite3.OperationalError:  # a folder that may not be written has no place for the log of readers
            log = path.with_name(f"{path.name}-wal")
            if log.exists() and log.stat().st_size:  # without it, the database may be an old or a damaged one
                raise DataError(
                    f"{path.parent} is a read-only index whose last changes are still in {log.name}. "
                    "First run its `bertie index` command again where it can be written."
                ) from None
            return _reader(path, "ro&immutable=1")

    def close(self) -> None:
        """Closes the database."""
        self.db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Context of one transaction: all changes at its end, or none. Raises Stopped when the disk is full."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException as error:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if stopped := self._full(error):
                raise stopped from None
            raise

    def _full(self, error: BaseException) -> BertieError | None:
        """Returns the error to raise when the disk is full: for SQLite's log of changes, this is an I/O error."""
        full = isinstance(error, sqlite3.OperationalError) and (
            "full" in str(error) or ("disk I/O" in str(error) and shutil.disk_usage(self.folder).free < LOG_BYTES)
        )
        return File(self.folder).full_disk(OSError(errno.ENOSPC, str(error))) if full else None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which all reads see the same state."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    def get(self, name: str) -> Any:
        """Returns a setting, None where there is none."""
        row = self.db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, name: str, value: Any) -> None:
        """Stores a setting, a JSON value."""
        self.db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))

    def count(self, table: str) -> int:
        """Returns the number of rows of a table."""
        return int(self.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    # Changes ----------------------------------------------------------------------------------------------------------

    def add_document(self, source: str, number: int, name: str, title: str, page: int, text: str) -> int:
        """Adds a document without passages. -> its id"""
        row = (source, number, name, title, page, document_hash(text))
        sql = "INSERT INTO documents (source, number, name, title, page, hash) VALUES (?, ?, ?, ?, ?, ?)"
        return int(self.db.execute(sql, row).lastrowid or 0)

    def add_passage(self, document: int, start: int, line: int, text: str, terms: Sequence[str]) -> int:
        """Adds a passage with its terms. -> its id"""
        row = (document, start, line, text_hash(text), text)
        sql = "INSERT INTO passages (document, start, line, hash, text) VALUES (?, ?, ?, ?, ?)"
        passage = int(self.db.execute(sql, row).lastrowid or 0)
        self.words.add(passage, terms)
        return passage

    def reject(self, record: BadRecord) -> None:
        """Adds a record that is no document."""
        self.db.execute("INSERT INTO rejected VALUES (?, ?, ?)", (record.where, record.line, record.reason))

    def remove(self, source: str) -> None:
        """Removes a source with its documents and passages."""
        own = "SELECT p.id FROM passages p JOIN documents d ON d.id = p.document WHERE d.source = ?"
        self.words.remove([row[0] for row in self.db.execute(own, (source,))])
        of_source = "SELECT id FROM documents WHERE source = ?"
        self.db.execute(f"DELETE FROM passages WHERE document IN ({of_source})", (source,))
        self.db.execute("DELETE FROM documents WHERE source = ?", (source,))
        self.db.execute("DELETE FROM rejected WHERE source = ?", (source,))
        self.db.execute("DELETE FROM sources WHERE name = ?", (source,))

    def clear(self) -> None:
        """Removes everything but what numbers changes and files, so that no name is used twice."""
        for table in ("sources", "documents", "passages", "rejected", "vectors", "blocks", "postings"):
            self.db.execute(f"DELETE FROM {table}")
        self.db.execute(
            f"DELETE FROM settings WHERE name NOT IN ({','.join('?' * len(_LASTING_SETTINGS))})", _LASTING_SETTINGS
        )

    def finish(self) -> None:
        """Ends a change: writes the postings, and counts the passages and the change."""
        self.words.flush()
        self.put("passages", self.count("passages"))
        self.put("change", int(self.get("change") or 0) + 1)

    # Reads ------------------------------------------------------------------------------------------------------------

    def matches(self, terms: Iterable[str], top: int) -> list[tuple[int, float]]:
        """Returns (passage, BM25 score) of the best passages with any of the terms, best first.

        k1 1.2, b 0.75. A term in more than three tenths of the passages of a large index is left out, unless all are
        so frequent. Of more than ASKED different terms, the rarest are looked up.
        """
        with self.reading():
            state = self.words.state(int(self.get("change") or 0))
            weights = self._chosen(Counter(terms), state)
            try:
                return self.words.best(weights, top, state)
            except (ValueError, IndexError) as error:
                raise DataError(f"{self.folder} is damaged ({error}). Make it again with --overwrite.") from None

    def _chosen(self, weights: Counter[str], state: State) -> Counter[str]:
        """Returns the terms that are looked up, of those that some passage has."""
        if state.passages < _SMALL_INDEX and len(weights) <= MAX_TERMS:
            return weights
        times = self.words.sizes(weights, state)
        rarest = sorted(times, key=times.__getitem__)[:MAX_TERMS]
        rare = [term for term in rarest if state.passages < _SMALL_INDEX or times[term] <= FREQUENT * state.passages]
        return Counter({term: weights[term] for term in rare or rarest[:1]})

    def count_of_passages(self) -> int:
        """Returns the number of passages, as the last change counted it."""
        return int(self.get("passages") or 0)

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Returns passages in the order of their ids; ids without a passage are left out."""
        sql = """SELECT p.id, p.text, p.start, p.line, d.id, d.source, d.number, d.name, d.title, d.page
                 FROM passages p JOIN documents d ON d.id = p.document WHERE p.id IN"""
        by_id = {row[0]: Passage(*row) for row in self._among(sql, ids)}
        return [by_id[i] for i in map(int, ids) if i in by_id]

    def _among(self, sql: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yields the rows of a query that ends with "id IN", for these ids."""
        for start in range(0, len(ids), LISTED):
            part = [int(i) for i in ids[start : start + LISTED]]
            yield from self.db.execute(f"{sql} ({','.join('?' * len(part))})", part)

    def passages_of(self, document: int) -> list[Passage]:
        """Returns the passages of a document in order."""
        rows = self.db.execute("SELECT id FROM passages WHERE document = ? ORDER BY start", (document,))
        return self.passages([row[0] for row in rows.fetchall()])

    def known(self, ids: Sequence[int]) -> set[int]:
        """Returns which of these passages exist."""
        return {row[0] for row in self._among("SELECT id FROM passages WHERE id IN", ids)}

    def documents_by_passage(self, ids: Sequence[int]) -> dict[int, int]:
        """Returns passage -> its document."""
        return dict(self._among("SELECT id, document FROM passages WHERE id IN", ids))

    def documents_named(self, name: str) -> list[int]:
        """Returns the documents of a name, or else those of the file of this path."""
        rows = self.db.execute("SELECT id FROM documents WHERE name = ?", (name,)).fetchall()
        rows = rows or self.db.execute("SELECT id FROM documents WHERE source = ?", (name,)).fetchall()
        return [row[0] for row in rows]

    def documents_of(self, text: str) -> list[int]:
        """Returns the documents with this text."""
        return [row[0] for row in self.db.execute("SELECT id FROM documents WHERE hash = ?", (document_hash(text),))]

    def rejected(self) -> list[BadRecord]:
        """Returns the records that could not be read."""
        sql = "SELECT reason, source, line FROM rejected ORDER BY source, line"
        return [BadRecord(line, reason, where=source) for reason, source, line in self.db.execute(sql)]


def _reader(path: Path, mode: str) -> sqlite3.Connection:
    where = f"{path.resolve().as_uri()}?mode={mode}"
    db = sqlite3.connect(where, uri=True, timeout=60, isolation_level=None, check_same_thread=False)
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return db


def text_hash(text: str) -> str:
    """Returns xxh3-128 of a text as 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def document_hash(text: str) -> str:
    """Returns `text_hash` of a document without white space around it: a file ends in a line break, a cell does not."""
    return text_hash(text.strip())
