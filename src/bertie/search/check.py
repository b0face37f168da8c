"""Verification of an index: the database, the hash of every document and of every file of vectors."""

import sqlite3
from pathlib import Path
from typing import Any

from bertie.errors import DataError
from bertie.files import file_hash
from bertie.search.store import Store, text_hash
from bertie.search.vectors import VectorFile


def check(folder: Path | str) -> dict[str, Any]:
    """Verifies an index. -> {"documents", "passages", "vectors", "rejected", "damage": messages}

    Raises DataError for a folder that is no index.
    """
    store, damage = Store(Path(folder)), list[str]()
    try:
        with store.reading():
            try:
                damage += [str(row[0]) for row in store.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
                damage += _texts(store)
            except sqlite3.DatabaseError as error:
                damage.append(f"{store.folder}: {error}.")
            vectors = sum(_vectors(store, damage))
            return {
                "documents": store.count("documents"),
                "passages": store.count("passages"),
                "vectors": vectors,
                "rejected": [{"source": one.where, "line": one.line, "reason": one.reason} for one in store.rejected()],
                "damage": damage,
            }
    except sqlite3.DatabaseError as error:
        raise DataError(f"{folder} is damaged ({error}). Make the index again with --overwrite.") from None
    finally:
        store.close()


def _texts(store: Store) -> list[str]:
    """Compares each passage with its hash, and with its terms."""
    sql = "SELECT p.id, p.text, p.hash, w.rowid FROM passages p LEFT JOIN words w ON w.rowid = p.id"
    found = [
        f"passage {passage} does not match its hash."
        for passage, text, expected, words in store.db.execute(sql)
        if words is None or text_hash(text) != expected
    ]
    if store.count("passages") != store.count("words"):
        found.append("the number of passages differs from that of their terms.")
    return found


def _vectors(store: Store, damage: list[str]) -> list[int]:
    counts = []
    graph = store.get("neighbors")
    if graph and not ((path := store.folder / graph["file"]).is_file() and file_hash(path) == graph["hash"]):
        damage.append(f"{path} is missing, or its hash differs.")
    for name, expected in store.db.execute("SELECT file, hash FROM vectors").fetchall():
        path = store.folder / name
        if not path.is_file():
            damage.append(f"{path} is missing.")
        elif file_hash(path) != expected:
            damage.append(f"{path} is damaged: its hash differs.")
        else:
            counts.append(len(VectorFile.open(path).ids))
    return counts
