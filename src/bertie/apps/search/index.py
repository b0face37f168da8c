"""Makes and changes an index: files -> documents -> passages -> terms and vectors, in one transaction.

The same call again does nothing for a file with the same content, and replaces the documents of a changed one.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from bertie.apps.search import models, readers
from bertie.apps.search.embedded import Embedded
from bertie.apps.search.engine import Index
from bertie.apps.search.models import Embedder
from bertie.apps.search.neighbors import VectorSearch
from bertie.apps.search.passages import PASSAGE_WORDS, passages
from bertie.apps.search.readers import Reading, SourceDocument
from bertie.apps.search.rows import source_name
from bertie.apps.search.store import DATABASE, INDEX_KIND, Store
from bertie.apps.search.terms import Terms
from bertie.apps.search.vectors import FILE_ROWS, write_vectors
from bertie.platform import BadRecord, DataError, UsageError, console, nearest

EMBEDDED = 1024  # passages embedded at once, sorted by length


@dataclass(frozen=True)
class IndexConfig:
    """The settings of an index, which are stored with it. passage_words: maximum words of a passage."""

    terms: Terms = field(default_factory=Terms)
    reading: Reading = field(default_factory=Reading)
    passage_words: int = PASSAGE_WORDS

    def __post_init__(self) -> None:
        if self.passage_words < 1:
            raise UsageError(f"passage_words is {self.passage_words}; it must be at least 1.")

    def terms_of(self, title: str, text: str) -> list[str]:
        """Returns the terms of a passage: those of its document's title count too."""
        return self.terms(f"{title}\n{text}")

    def as_json(self) -> dict[str, Any]:
        """Returns the settings as JSON values."""
        return asdict(self)

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> "IndexConfig":
        """Returns the settings that an index stored."""
        return cls(Terms(**stored["terms"]), Reading(**stored["reading"]), stored["passage_words"])


@dataclass
class Changes:
    """The changes of a call: sources added, replaced, unchanged and removed; new passages; unreadable records.

    missing: files of the index that are no longer in the folders of the call. unreadable: files and folders there that
    cannot be read. copy: what was done to a copy on a server.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    vectors: int = 0
    documents: int = 0
    passages: int = 0
    rejected: int = 0
    passed_over: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    copy: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        fields = {**asdict(self), "passed_over": len(self.passed_over), "reasons": dict(self.reasons)}
        return fields if self.copy else {name: value for name, value in fields.items() if name != "copy"}


def index(
    inputs: Sequence[str | Path],
    folder: Path | str,
    config: IndexConfig | None = None,
    *,
    embedder: Embedder | None = None,
    vectors: VectorSearch = "auto",
    overwrite: bool = False,
) -> Changes:
    """Makes an index of documents, or brings one up to date.

    Args:
        inputs: Files, folders, globs, or "python:PACKAGE,...".
        folder: The folder of the index.
        config: How it is made. Default: as the index was made.
        embedder: The model of its vectors. An index with vectors needs the model that made them.
        vectors: exact: a question is compared with every vector; approximate: by a graph of neighbors; auto: by a
            graph from a million vectors, or where there is one.
        overwrite: Whether to replace an index that stands there. It remains if the new one cannot be made.

    Raises:
        DataError: An input does not exist, or nothing in it can be read.
        UsageError: The folder contains other files, or an index with other settings; another process writes to it.
        Stopped: The disk is full.
    """
    if vectors == "approximate" and embedder is None:
        raise UsageError("An approximate index is one of vectors. Pass --embed MODEL too.")
    if isinstance(inputs, (str, Path)):
        raise UsageError("inputs is one name. Pass a list of files, folders or globs.")
    if not inputs:
        raise UsageError("inputs is empty. Pass a list of files, folders or globs.")
    if vectors not in get_args(VectorSearch):
        raise UsageError(f"Unknown value {vectors!r} of vectors. {nearest(vectors, get_args(VectorSearch))}")
    folder, changes = Path(folder), Changes()
    names, changes.passed_over, changes.unreadable = readers.expand(list(map(str, inputs)))
    if embedder is not None and (overwrite or not (folder / DATABASE).exists()):
        embedder.load()  # say what is wrong with it now, before anything is replaced
    replaced = overwrite and _readable(folder)
    with INDEX_KIND.held(folder, overwrite=overwrite and not replaced):
        store = Embedded(folder, write=True)
        try:
            _sweep(store)
            with store.writing():
                if replaced:
                    store.clear()
                used = _settings(store, config)
                model = checked_embedder(store, embedder)
                _update(store, names, used, changes)
                changes.missing = _missing(store, names, [str(one) for one in inputs if os.path.isdir(one)])
                if model is not None:
                    changes.vectors = _embed(store, model)
                    store.connect(vectors)
            if replaced:
                _sweep(store)
                store.db.execute("VACUUM")
        finally:
            empty = store.get("config") is None
            store.close()
            if empty:  # nothing was ever committed
                (folder / DATABASE).unlink(missing_ok=True)
    return changes


def _readable(folder: Path) -> bool:
    """Whether a folder has an undamaged index of this version."""
    try:
        store = Store(folder)
    except DataError:
        return False
    try:
        return bool(store.db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError:
        return False
    finally:
        store.close()


def drop_documents(names: Sequence[str], folder: Path | str) -> Changes:
    """Removes the documents of files, by the names that were given, or of all files in a folder.

    Raises DataError for a name that the index does not have.
    """
    folder, changes = Path(folder), Changes()
    Store(folder).close()
    with INDEX_KIND.held(folder):
        store = Store(folder, write=True)
        try:
            _sweep(store)
            with store.writing():
                known = _known(store)
                for name in map(_stored, names):
                    chosen = {one for one in known if _inside(one, name)}
                    if not chosen:
                        raise DataError(f"{folder} has no documents of {name}. {_some(known)}")
                    for one in sorted(chosen):
                        store.remove(one)
                    changes.removed += len(chosen)
                    known -= chosen
                _finish(store)
        finally:
            store.close()
    return changes


def _known(store: Store) -> set[str]:
    return {row[0] for row in store.db.execute("SELECT name FROM sources")}


def _inside(file: str, folder: str) -> bool:
    """Whether a file has this name, however it is written, or is in this folder."""
    return bool(folder) and Path(folder) in (Path(file), *Path(file).parents)


def _missing(store: Store, names: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Returns the files of the index that were in one of the folders, and no longer exist."""
    others = _known(store).difference(map(_stored, names))
    return sorted(one for one in others if any(_inside(one, _stored(folder)) for folder in folders) and _gone(one))


def _gone(file: str) -> bool:
    """Returns whether a file does not exist; of one in a folder that cannot be read, nobody knows."""
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def _some(known: Iterable[str]) -> str:
    names = sorted(known)
    return f"It has {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}."


def stored_config(folder: Path) -> IndexConfig | None:
    """Returns the settings that an index was made with; None where there is none that can be read."""
    with suppress(DataError), closing(Store(folder)) as store:
        return IndexConfig.of_json(store.get("config"))
    return None


def _settings(store: Store, config: IndexConfig | None) -> IndexConfig:
    """Returns the settings of an index, which the first call stores."""
    stored = store.get("config")
    if stored is None:
        return config or IndexConfig()
    stored_config = IndexConfig.of_json(stored)
    if config is not None and config != stored_config:
        mine, own = config.as_json(), stored_config.as_json()
        other = ", ".join(name for name in mine if mine[name] != own[name])
        raise UsageError(
            f"{store.folder} was made with other settings ({other}). Leave them out to keep its own, choose another "
            "folder, or pass --overwrite to make it again."
        )
    return stored_config


def _update(store: Store, names: Sequence[str], config: IndexConfig, changes: Changes) -> None:
    with console.progress("indexing", total=len(names), unit="files") as advance:
        for name in names:
            source = _stored(name)
            known = store.db.execute("SELECT hash FROM sources WHERE name = ?", (source,)).fetchone()
            now = _content(name)
            if known and known[0] == now:
                changes.unchanged += 1
            else:
                if known:
                    store.remove(source)
                changes.replaced += bool(known)
                changes.added += not known
                _add_source(store, name, config, changes)
                store.db.execute("INSERT INTO sources VALUES (?, ?)", (source, now))
            advance(1, passages=changes.passages)
    if store.get("config") is None:
        if not changes.documents:
            raise DataError(f"No document could be read: {_told(changes)}.")
        store.put("config", config.as_json())
    _finish(store)


def _told(changes: Changes) -> str:
    return "; ".join(f"{reason} ({count:,})" for reason, count in changes.reasons.most_common(5))


def _finish(store: Store) -> None:
    store.finish()
    alive = "SELECT 1 FROM passages p WHERE p.id BETWEEN vectors.first AND vectors.last"
    store.db.execute(f"DELETE FROM vectors WHERE NOT EXISTS ({alive})")


def _sweep(store: Store) -> None:
    """Deletes files that the index does not list: of a killed process, or of removed passages."""
    listed = {row[0] for row in store.db.execute("SELECT file FROM vectors")}
    listed.add((store.get("neighbors") or {}).get("file"))
    for path in [*store.folder.glob("vectors-*.safetensors"), *store.folder.glob("neighbors-*")]:
        if path.name not in listed:
            path.unlink(missing_ok=True)


def checked_embedder(store: Index, embedder: Embedder | None) -> Embedder | None:
    """Returns the model of an index. Raises UsageError for another one, and where the index needs one; DataError for an
    incomplete one."""
    stored = store.get("embedder")
    if stored and embedder is None:
        raise UsageError(f"{store.where} has vectors of {stored['folder']}. Pass --embed with this model.")
    if stored and embedder and stored["content"] != embedder.content:
        embedder.load()  # says what is missing in an incomplete folder
        raise UsageError(
            f"{store.where} has vectors of another model ({stored['folder']}). Pass that one, or make the index "
            "again with --overwrite."
        )
    return embedder


def _embed(store: Store, embedder: Embedder) -> int:
    """Makes vectors of the passages that have none. -> their number"""
    store.put("embedder", {"folder": embedder.folder, "content": embedder.content})
    last = int(store.get("embedded") or 0)
    sql = "SELECT id FROM passages WHERE id > ? ORDER BY id"
    ids = [row[0] for row in store.db.execute(sql, (last,))]
    if not ids:
        return 0
    model, number = embedder.load(), int(store.get("vector_files") or 0)
    with console.progress("vectors", total=len(ids), unit="passages") as advance:
        for start in range(0, len(ids), FILE_ROWS):
            part, vectors = ids[start : start + FILE_ROWS], []
            for first in range(0, len(part), EMBEDDED):
                texts = [passage.whole for passage in store.passages(part[first : first + EMBEDDED])]
                vectors.append(models.embed_texts(model, texts))
                advance(len(texts))
            number += 1
            name = f"vectors-{number:06}.safetensors"
            row = (name, write_vectors(store.folder / name, part, np.concatenate(vectors)), part[0], part[-1])
            store.db.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", row)
    store.put("vector_files", number)
    store.put("embedded", ids[-1])
    return len(ids)


def _stored(name: str) -> str:
    """Returns the name of a file as the database has it: bytes that are not UTF-8 are written as \\xff."""
    return os.fsencode(source_name(name)).decode("utf-8", "backslashreplace")


def _content(name: str) -> str:
    try:
        return readers.hash_source(name)
    except (DataError, OSError):
        return ""  # the reader says why; the next call tries again


def _add_source(store: Store, name: str, config: IndexConfig, changes: Changes) -> None:
    number = 0
    for document in _or_none(name, readers.read_documents(name, config.reading)):
        if isinstance(document, BadRecord):
            store.reject(replace(document, where=_stored(document.where)))
            changes.rejected += 1
            changes.reasons[document.reason] += 1
            continue
        number += 1
        changes.documents += 1
        changes.passages += _add_document(store, _stored(name), number, document, config)


def _or_none(name: str, documents: readers.DocumentStream) -> readers.DocumentStream:
    """Yields the same, and for a file without anything the reason."""
    empty = True
    for one in documents:
        empty = False
        yield one
    if empty:
        yield BadRecord(0, "no text in this file", where=name)


def _add_document(store: Store, source: str, number: int, document_read: SourceDocument, config: IndexConfig) -> int:
    document = store.add_document(
        source, number, document_read.name, document_read.title, document_read.page, document_read.text
    )
    count, line, counted = 0, document_read.line or document_read.row, 0
    for start, stop in passages(document_read.text, config.passage_words) if document_read.text.strip() else [(0, 0)]:
        text = document_read.text[start:stop]
        if document_read.line and "\n" in document_read.text:
            line, counted = (
                line + document_read.text.count("\n", counted, start) - document_read.text.count("\n", start, counted),
                start,
            )
        store.add_passage(document, start, line, text, config.terms_of(document_read.title, text))
        count += 1
    return count
