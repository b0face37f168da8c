"""Builds a corpus from files: documents of clean sentences in shards, counts of all records, and a card.

    inputs -> units (sources) -> parts (prepare, in several processes) -> deduplication -> shards, in order

    folder/manifest.json, shard-*       data/shards.py; the manifest also has the counts and the statistics
    folder/quarantine.jsonl             the unreadable records: position, reason, and their beginning
    folder/card.md, card.json           a readable summary, and the time
    folder/tokens-<tokenizer>/          the same documents as token ids (data/tokens.py)

All files but the card and checksums.json depend only on the inputs and the config. Finished units are in folder/.work
until the manifest is written; the same call resumes from them.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash

from bertie import checksums
from bertie.console import console
from bertie.data import card, dedup, executors
from bertie.data.card import Statistics
from bertie.data.decontaminate import Evaluation
from bertie.data.filters import Filters
from bertie.data.prepare import EVALUATION, CorpusConfig, CorpusPart, prepare, read_part_facts
from bertie.data.shards import SHARDS_FORMAT, Int64, Shards, ShardWriter, decode_texts, read_manifest
from bertie.data.tokens import encode_corpus
from bertie.errors import DataError, NoRows, OtherSettings, OutputExists
from bertie.files import JsonObject, atomic_write, file_hash, some_of
from bertie.folders import ANYTHING, FolderKind, check_writable, held
from bertie.io import sources
from bertie.text.sentences import splitter

__all__ = ["CorpusConfig", "build_shards", "documents", "encode_corpus", "texts"]

DEFAULT = CorpusConfig()
TOKENS_FOLDER = FolderKind(
    "token folder", ("manifest.json", ".work"), ("manifest.json", "shard-*"), {"plans": ANYTHING, ".work": ANYTHING}
)
CORPUS = FolderKind(
    "corpus",
    begins=("manifest.json", ".work"),
    files=("manifest.json", "shard-*", "quarantine.jsonl", "card.json", "card.md", ".encode.lock"),
    folders={".work": ANYTHING, "tokens-*": TOKENS_FOLDER},
    lock=".work/lock",
    use="bertie pretrain --corpus {} -o RUN",
)
_CHUNK_SENTENCES = 1 << 16  # sentences decoded at once


def build_shards(
    inputs: Sequence[str | Path],
    folder: str | Path,
    config: CorpusConfig = DEFAULT,
    *,
    lines: Iterable[bytes] | None = None,
    evaluation: Mapping[str, Iterable[str]] | None = None,
    workers: int = 1,
    on: str = "here",
    overwrite: bool = False,
) -> Shards:
    """Builds a corpus, or opens it when it is complete. The same call resumes an interrupted build.

    Args:
        inputs: Files, folders, globs, "-" (standard input) or "python:PACKAGE,...".
        folder: The corpus folder to write.
        config: The processing of the documents.
        lines: What "-" stands for, instead of standard input.
        evaluation: Name of a data set -> its texts. Documents that share a long n-gram of words with them are removed,
            or
            paragraphs where paragraphs are deduplicated.
        workers: Number of processes. It does not affect the output.
        on: "here" or "ray".
        overwrite: Whether to delete first what Bertie wrote in the folder.

    Raises:
        DataError: An input is missing, or contains no usable text.
        UsageError: The folder contains other files.
        Stopped: The disk is full. The same call resumes the build.
    """
    begun = time.monotonic()
    folder = Path(folder)
    (
        splitter(config.splitter),
        executors.PLACES[on],
        Filters.of(config.language, config.quality),
    )  # say now what is missing, not in an hour
    sets = Evaluation.of(evaluation) if evaluation else None
    check_writable(folder, CORPUS, overwrite=overwrite)
    with held(folder, CORPUS, overwrite=overwrite), executors.working(folder) as work:
        names = [str(sources.spool(work, lines)) if str(name) == "-" else str(name) for name in inputs]
        units, plan = sources.plan_units(names, config.reading)
        if plan.unreadable:
            console.warn(f"Skipped what cannot be read: {some_of(plan.unreadable)}.")
        identity, facts = _identity(units, inputs, config, sets, work)
        if (folder / "manifest.json").exists():
            if read_manifest(folder).get("inputs", {}).get("hash") != facts["hash"]:
                raise OtherSettings(
                    f"{folder} contains another corpus: its inputs or options were different, or an input has "
                    "changed since. Choose another folder, or pass --overwrite."
                )
            console.say(f"{folder} is complete; nothing to do.")
            shards = Shards.open(folder)
            if not (folder / "card.json").exists():  # interrupted between the manifest and the card
                card.write_card(shards)
            if not (folder / checksums.CHECKSUMS).exists():
                checksums.write_checksums(folder, CORPUS.name, covered=covered)
            return shards
        if not (work / "plan.json").exists() and any(path != work for path in folder.iterdir()):
            raise OutputExists(f"{folder} is not empty. Choose another folder, or pass --overwrite to replace it.")
        executors.go_on(folder, work, identity)
        if sets:
            sets.save(work / EVALUATION)
        common = {"config": config.model_dump(), "work": str(work), "evaluation": sets.fingerprint if sets else ""}
        jobs = [{"number": n, "unit": unit, "size": unit.size, **common} for n, unit in enumerate(units)]
        results = executors.run_units(prepare, jobs, work, workers=workers, on=on, about="reading")
        records = sum(result["records"] for result in results)
        dropped = sum((Counter(result["dropped"]) for result in results), Counter[str]())
        if records == sum(dropped.values()):
            _say_nothing_is_left(work, dropped, len(units))
        _write_quarantine(folder, work, len(units))
        account = {
            "kind": "text",
            "made_by": f"bertie {version('bertie')}",
            "inputs": {**facts, "passed_over": len(plan.passed_over), "unreadable": len(plan.unreadable)},
            "config": config.model_dump(),
        }
        if sets:
            removed = sum((Counter(result["overlaps"]) for result in results), Counter[str]())
            account["evaluation"] = {name: {**set_, "removed": removed[name]} for name, set_ in sets.facts.items()}
        shards = _merge(folder, work, results, config, records, dropped, account)
        card.write_card(shards, elapsed_s=time.monotonic() - begun, workers=workers)
        checksums.write_checksums(folder, CORPUS.name, covered=covered)
    return shards


def covered(name: str) -> bool:
    """Returns whether a file of a corpus folder is covered by the manifest of its shards, or is unfinished work."""
    return name.startswith(("shard-", "tokens-", ".work/", ".encode.lock"))


def documents(folder: str | Path) -> Iterator[list[str]]:
    """Yields the documents of a corpus, each as a list of sentences."""
    for values, sentences, bounds in Shards.open(folder, verify=False):
        for first, last in _chunks(bounds):
            decoded = decode_texts(values, sentences[bounds[first] : bounds[last] + 1])
            for start, stop in pairwise((bounds[first : last + 1] - bounds[first]).tolist()):
                yield decoded[start:stop]


def texts(folder: str | Path) -> Iterator[str]:
    """Yields the sentences of a corpus."""
    for document in documents(folder):
        yield from document


def _chunks(bounds: Int64) -> Iterator[tuple[int, int]]:
    """Yields ranges of documents of about CHUNK sentences."""
    first = 0
    while first < len(bounds) - 1:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + _CHUNK_SENTENCES, side="right")) - 1)
        yield first, last
        first = last


# Resuming ------------------------------------------------------------------------------------------------------------


def _identity(
    units: list[sources.Unit],
    inputs: Sequence[str | Path],
    config: CorpusConfig,
    evaluation: Evaluation | None,
    work: Path,
) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the fingerprint of unfinished work, and the description of the inputs for the manifest."""
    paths = dict.fromkeys(Path(item[0]) for unit in units for item in unit.items)
    sizes = {path: path.stat().st_size for path in paths}
    if not sum(sizes.values()):
        raise DataError(f"{', '.join(map(str, inputs))}: the input is empty (0 bytes).")
    contents = {path: file_hash(path) for path in sizes}
    # What a copy of the inputs keeps: names and contents; of standard input, the content alone.
    stable = [contents[path] if path.parent == work else [str(path), contents[path]] for path in sizes]
    more = [evaluation.fingerprint] if evaluation else []
    times = [path.stat().st_mtime_ns for path in paths if path.parent != work]
    facts = {
        "names": [str(name) for name in inputs],
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "hash": _hash([config.model_dump(), stable, *more]),
    }
    plan = _hash([SHARDS_FORMAT, version("bertie"), facts, units, times])
    return {"plan": plan}, facts


def _hash(value: object) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(value).encode())


# Putting together ----------------------------------------------------------------------------------------------------


def _merge(
    folder: Path,
    work: Path,
    results: list[JsonObject],
    config: CorpusConfig,
    records: int,
    dropped: Counter[str],
    account: JsonObject,
) -> Shards:
    """Writes the shards from all parts in order, without duplicates."""
    parts = [
        work / f"unit-{number:06d}.{part:03d}.part"
        for number, result in enumerate(results)
        for part in range(result["parts"])
    ]
    counts = sum((Counter(result["counts"]) for result in results), Counter[str]())
    statistics = sum((Statistics.from_dict(result["statistics"]) for result in results), Statistics.zero())
    mask = _kept(parts, work, config, dropped)
    with (
        ShardWriter(folder, "uint8") as writer,
        console.progress("writing", sum(p.stat().st_size for p in parts) / 1e6, unit="MB") as advance,
    ):
        at = 0
        for path in parts:
            part = CorpusPart.load(path)
            keep, at = mask[at : at + len(part.hashes)], at + len(part.hashes)
            if not keep.all():
                out = part.without(~keep)
                statistics -= Statistics.of(out.values, out.sentences)
                before, part = len(part.documents), part.without(keep)
                if config.dedup == "paragraphs":
                    counts["paragraphs removed (duplicates)"] += len(out.hashes)
                    dropped["exact duplicate"] += before - len(part.documents)
            writer.extend(part.values, part.sentences, part.pieces[part.documents])
            advance(path.stat().st_size / 1e6)
        return writer.finish(
            **account,
            records={
                "in": records,
                "kept": records - sum(dropped.values()),
                "dropped": dict(sorted((+dropped).items())),
            },
            counts=dict(sorted(counts.items())),
            statistics=statistics.to_dict(),
        )


def _kept(parts: list[Path], work: Path, config: CorpusConfig, dropped: Counter[str]) -> dedup.Mask:
    """Returns which passages of all parts are kept. It needs 40 to 50 bytes of memory per passage."""
    signatures, hashes = work / "signatures", []
    with atomic_write(signatures) as file:
        for path in parts:
            hashes_N, signed = read_part_facts(path)
            hashes.append(hashes_N)
            file.write(signed.data)
    pieces = np.concatenate(hashes)
    if config.dedup == "none":
        return np.ones(len(pieces), np.bool_)
    first = dedup.first_seen(pieces)
    if config.dedup == "paragraphs":
        return first  # documents left without any are counted when they are
    dropped["exact duplicate"] += int((~first).sum())
    if config.dedup == "documents":
        return first
    rows = np.memmap(signatures, np.uint32, "r", shape=(len(pieces), dedup.PERMUTATIONS))
    unlike = dedup.first_alike(rows, first, config.near_threshold)
    dropped["near duplicate"] += int((first & ~unlike).sum())
    return unlike


def _write_quarantine(folder: Path, work: Path, units: int) -> None:
    """Writes the unreadable records of all units to one file, with line numbers of the input files."""
    base: dict[str, tuple[int, int]] = {}  # path -> (byte, line ends before it)
    with atomic_write(folder / "quarantine.jsonl") as file:
        for number in range(units):
            with open(work / f"unit-{number:06d}.quarantine", "rb") as entries:
                for entry in map(json.loads, entries):
                    path, line = entry["where"], entry["line"]
                    if entry["start"]:
                        byte, ends = base.get(path, (0, 0))
                        if byte < entry["start"]:
                            base[path] = entry["start"], ends + _line_ends(path, byte, entry["start"])
                        line += base[path][1]
                    name = "standard input" if Path(path).parent == work else path
                    row = {"where": f"{name}:{line}" if line else name, "reason": entry["reason"]}
                    row["text"] = entry["excerpt"]
                    file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


def _line_ends(path: str, start: int, stop: int) -> int:
    count = 0
    with open(path, "rb") as file:
        file.seek(start)
        while start < stop and (piece := file.read(min(1 << 22, stop - start))):
            count += piece.count(b"\n")
            start += len(piece)
    return count


def _say_nothing_is_left(work: Path, dropped: Counter[str], units: int) -> None:
    """Raises DataError with the reasons of all dropped records. The folder remains unchanged."""
    _write_quarantine(work, work, units)
    with open(work / "quarantine.jsonl", encoding="utf-8") as file:
        first = next(map(json.loads, file), None)
    (work / "plan.json").unlink()
    if not dropped:
        raise NoRows("The inputs contain no documents, only white space.")
    reasons = "; ".join(f"{reason} ({count:,})" for reason, count in dropped.most_common(5))
    where = f" The first: {first['where']}." if first else ""
    raise NoRows(f"No record could be used ({sum(dropped.values()):,} read): {reasons}.{where}")
