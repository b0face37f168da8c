"""A corpus as token ids: the same documents and sentences in shards of uint16 or uint32, made once per tokenizer."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import safetensors.numpy

from bertie.console import console
from bertie.data import executors
from bertie.data.shards import Array, Int64, Shards, ShardWriter, decode_texts
from bertie.errors import DataError
from bertie.files import home_of, write_bytes
from bertie.io.blocks import UNIT
from bertie.text.tokenizer import Tokenizer


def encode_corpus(folder: str | Path, tokenizer: Tokenizer, *, workers: int = 1, on: str = "here") -> Shards:
    """Returns the token ids of a corpus, from folder/tokens-<tokenizer>/, where they are stored when they are missing.

    Those of a read-only corpus are stored in the user's cache, with a message. The bytes do not depend on `workers` and
    `on` (a row of executors.PLACES), and an interrupted call is resumed. Raises DataError when the corpus or the
    ids are damaged, Stopped (exit 75) when the disk is full.
    """
    folder = Path(folder)
    text = Shards.open(folder)
    if text.manifest.get("kind") != "text":
        raise DataError(
            f"{folder} contains token ids already. Encode the corpus that they were made from: {folder.parent}."
        )
    identity = {"corpus": text.fingerprint, "tokenizer": tokenizer.fingerprint}
    target = home(text, tokenizer.fingerprint)
    if (target / "manifest.json").exists():
        shards = Shards.open(target)
        if {key: shards.manifest[key] for key in identity} == identity:
            return shards
        (target / "manifest.json").unlink()  # of a corpus that stood here before
    if target.parent != folder:
        console.say(f"{folder} is read-only, so its token ids are written to {target}.")
    with executors.working(target) as work:
        executors.go_on(target, work, identity)
        tokenizer.save(work / "tokenizer")
        _opened[tokenizer.fingerprint] = tokenizer
        jobs = [
            {"number": n, "folder": str(folder), "work": str(work), **identity, "place": place, "size": size}
            for n, (place, size) in enumerate(_places(text))
        ]
        results = executors.run_units(encode_documents, jobs, work, workers=workers, on=on, about="encoding")
        with (
            ShardWriter(target, "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32") as writer,
            console.progress("writing", len(jobs), unit="units") as advance,
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


def home(text: Shards, tokenizer: str) -> Path:
    """Returns the folder of a corpus's token ids, by the fingerprint of the tokenizer."""
    return home_of(f"tokens-{tokenizer[:12]}", text.folder, text.fingerprint[:16])


def encode_documents(
    number: int, folder: str, work: str, corpus: str, tokenizer: str, place: tuple[int, int, int], size: int
) -> dict[str, object]:
    """Encodes documents [start, stop) of a shard into a part file, and returns the number of unknown tokens."""
    shard, start, stop = place
    values, sentences, documents = _text(folder, corpus)[shard]
    bounds = documents[start : stop + 1]
    engine = _opened.get(tokenizer) or _tokenizer(f"{work}/tokenizer", tokenizer)
    ids, starts = engine.flat_ids(decode_texts(values, sentences[bounds[0] : bounds[-1] + 1]))
    part = {
        "values": ids.astype(np.uint16 if engine.vocab_size <= 1 << 16 else np.uint32),
        "sentences": np.asarray(starts, np.int64),
        "documents": bounds - bounds[0],
    }
    write_bytes(Path(work) / f"unit-{number:06d}.part", safetensors.numpy.save(part))
    return {"unknown": int((ids == engine.unk_id).sum())}


# A process opens each once. A changed fingerprint means that the folder has new content.
_opened = WeakValueDictionary[str, Tokenizer]()  # by a caller in this process


@lru_cache(1)
def _tokenizer(folder: str, fingerprint: str) -> Tokenizer:
    return Tokenizer.load(folder)


@lru_cache(1)
def _text(folder: str, fingerprint: str) -> list[tuple[Array, Int64, Int64]]:
    return list(Shards.open(folder, verify=False))  # the main process has verified them


def _places(text: Shards) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Yields (shard, its first document, the one after the last), of about UNIT bytes each, and the bytes."""
    for shard, (_, sentences, documents) in enumerate(text):
        ends = sentences[documents]
        start = 0
        while start < len(documents) - 1:
            stop = min(max(int(np.searchsorted(ends, ends[start] + UNIT)), start + 1), len(documents) - 1)
            yield (shard, start, stop), int(ends[stop] - ends[start])
            start = stop
