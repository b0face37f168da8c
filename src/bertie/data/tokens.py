"""A corpus as token ids: the same documents and sentences in shards of uint16 or uint32, made once per tokenizer."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from bertie.console import progress
from bertie.data import executors
from bertie.data.records import UNIT
from bertie.data.shards import Shards, ShardWriter, decode
from bertie.errors import DataError
from bertie.files import write_bytes
from bertie.text.tokenizer import Tokenizer


def encode(folder: str | Path, tokenizer: Tokenizer, *, workers: int = 1) -> Shards:
    """The token ids of a corpus, from folder/tokens-<tokenizer>/, made there first when they are not yet.

    The bytes do not depend on `workers`; an interrupted call is gone on with. Raises DataError when the corpus or the
    ids are damaged, Stopped (exit 75) when the disk is full.
    """
    folder = Path(folder)
    text = Shards.open(folder)
    if text.manifest.get("kind") != "text":
        raise DataError(f"{folder} holds token ids already; encode the corpus they were made from: {folder.parent}.")
    identity = {"corpus": text.fingerprint, "tokenizer": tokenizer.fingerprint}
    target = folder / f"tokens-{tokenizer.fingerprint[:12]}"
    if (target / "manifest.json").exists():
        shards = Shards.open(target)
        if {key: shards.manifest[key] for key in identity} == identity:
            return shards
        (target / "manifest.json").unlink()  # of a corpus that stood here before
    with executors.working(target) as work:
        executors.go_on(target, work, identity)
        tokenizer.save(work / "tokenizer")
        ranges = _ranges(text)
        jobs = [
            {"number": n, "folder": str(folder), "work": str(work), "start": start, "stop": stop, "size": size}
            for n, (start, stop, size) in enumerate(ranges)
        ]
        results = executors.run(encode_documents, jobs, work, workers=workers, about="encoding")
        with (
            ShardWriter(target, "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32") as writer,
            progress("writing", len(jobs), unit="units") as advance,
        ):
            for number in range(len(jobs)):
                part = safetensors.numpy.load_file(work / f"unit-{number:06d}.part")
                writer.extend(part["values"], part["sentences"], part["documents"])
                advance()
            return writer.finish(
                kind="tokens",
                **identity,
                vocab_size=tokenizer.vocab_size,
                unknown=sum(result["unknown"] for result in results),
                splitter=text.manifest["config"]["splitter"],
            )


def encode_documents(number: int, folder: str, work: str, start: int, stop: int, size: int) -> dict[str, Any]:
    """Encode documents [start, stop) into a part file; how many ids are the unknown one."""
    text, tokenizer = _text(folder), _tokenizer(f"{work}/tokenizer")
    bounds = text.document_bounds()[start : stop + 1]
    lengths = text.sentence_lengths()[bounds[0] : bounds[-1]]
    values = text.values(int(bounds[0]), int(bounds[-1]))
    sentences = decode(values, np.concatenate([[0], np.cumsum(lengths)]))
    ids, starts = tokenizer.flat_ids(sentences)
    part = {
        "values": ids.astype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32),
        "sentences": np.asarray(starts, np.int64),
        "documents": bounds - bounds[0],
    }
    write_bytes(Path(work) / f"unit-{number:06d}.part", safetensors.numpy.save(part))
    return {"unknown": int((ids == tokenizer.unk_id).sum())}


@cache
def _text(folder: str) -> Shards:
    return Shards.open(folder, verify=False)  # the process that gives out the work has looked


@cache
def _tokenizer(folder: str) -> Tokenizer:
    return Tokenizer.load(folder)


def _ranges(text: Shards) -> list[tuple[int, int, int]]:
    """(first document, the one after the last, bytes) of units of about UNIT bytes."""
    ends = np.concatenate([[0], np.cumsum(text.sentence_lengths())])[text.document_bounds()]
    found, start = [], 0
    while start < text.num_documents:
        stop = min(int(np.searchsorted(ends, ends[start] + UNIT)), text.num_documents)
        found.append((start, max(stop, start + 1), int(ends[max(stop, start + 1)] - ends[start])))
        start = found[-1][1]
    return found
