"""Verification of an index: the database, the hash of every document and of every file of vectors."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from bertie.apps.search import postings
from bertie.apps.search.store import Store, text_hash
from bertie.apps.search.vectors import VectorFile
from bertie.platform import DataError, File

_WORD = re.compile(r"\w")


def verify_index(folder: Path | str) -> dict[str, Any]:
    """Verifies an index. -> {"documents", "passages", "vectors", "rejected", "damage": messages}

    Raises DataError for a folder that is no index.
    """
    store, damage = Store(Path(folder)), list[str]()
    try:
        with store.reading():
            try:
                damage += [str(row[0]) for row in store.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
                damage += _texts(store) + _words(store)
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
    """Compares each passage with its hash."""
    return [
        f"passage {passage} does not match its hash."
        for passage, text, expected in store.db.execute("SELECT id, text, hash FROM passages")
        if text_hash(text) != expected
    ]


def _words(store: Store) -> list[str]:
    """Compares the number of terms of each passage with its postings."""
    faults: list[str] = []
    worded = {i: bool(_WORD.search(text)) for i, text in store.db.execute("SELECT id, text FROM passages")}
    indexed: set[int] = set()
    for block, lengths_N, _ in store.words.blocks():
        counted_N, full_N = np.zeros(len(lengths_N), np.int64), np.zeros(len(lengths_N), bool)
        try:
            for _, rows, times in store.words.of_block(block):
                counted_N[rows] += times
                full_N[rows] |= times == postings.MAX_REPETITIONS
        except (ValueError, IndexError) as error:
            faults.append(f"the postings of block {block} cannot be read ({error}).")
            continue
        wrong_N = (lengths_N > 0) & (counted_N != lengths_N) & ~full_N
        faults += [
            f"the postings of passage {block * postings.POSTINGS_BLOCK + row} are damaged."
            for row in np.flatnonzero(wrong_N)
        ]
        indexed.update((np.flatnonzero(lengths_N) + block * postings.POSTINGS_BLOCK).tolist())
    faults += [f"passage {passage} is missing." for passage in sorted(indexed - worded.keys())]
    faults += [
        f"passage {passage} has no postings." for passage, has in worded.items() if has and passage not in indexed
    ]
    return faults


def _vectors(store: Store, damage: list[str]) -> list[int]:
    counts = []
    graph = store.get("neighbors")
    if graph and not ((path := store.folder / graph["file"]).is_file() and File(path).hash == graph["hash"]):
        damage.append(f"{path} is missing, or its hash differs.")
    for name, expected in store.db.execute("SELECT file, hash FROM vectors").fetchall():
        path = store.folder / name
        if not path.is_file():
            damage.append(f"{path} is missing.")
        elif File(path).hash != expected:
            damage.append(f"{path} is damaged: its hash differs.")
        else:
            counts.append(len(VectorFile.open(path).ids))
    return counts
