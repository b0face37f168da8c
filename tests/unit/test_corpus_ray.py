"""Corpora made on a local Ray cluster, a worker of which is killed midway."""

import json
import os
import random
import signal
import time

import pytest

from bertie.data import corpus, executors
from bertie.data.prepare import CorpusConfig
from bertie.errors import UsageError
from bertie.io import sources
from bertie.text import vocabulary
from bertie.text.normalize import Normalizer

WORDS = "river house mountain library question answer garden winter 바다 산 학교 도서관".split()


def files(folder):
    kept = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in kept.items() if not name.startswith(("card.", "checksums"))}


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "UNIT", 20_000)
    rng, folder = random.Random(5), tmp_path / "in"
    folder.mkdir()
    for number in range(12):
        texts = [" ".join(rng.choices(WORDS, k=60)) + "." for _ in range(60)]
        (folder / f"{number:02d}.txt").write_text("\n\n".join(texts + texts[:3]), encoding="utf-8")
    return folder


@pytest.fixture
def tokenizer():
    return vocabulary.train_vocabulary(vocabulary.count_words(WORDS), size=120, normalizer=Normalizer())


def slowly(number, unit, config, work, size, evaluation=""):
    """`prepare`, of which the first to do unit 3 is killed; what it was is left in files."""
    from pathlib import Path

    from bertie.data.prepare import prepare

    struck = Path(work).parent.parent / "struck"
    if number == 3 and not struck.exists():
        struck.write_text(json.dumps({"pid": os.getpid()}))
        prepare(number, unit, config, work, size, evaluation)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return prepare(number, unit, config, work, size, evaluation)


def test_without_ray_it_says_what_to_install(tmp_path, inputs, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match=r"bertie\[scale\]"):
        corpus.build_shards([inputs], tmp_path / "out", on="ray")
    with pytest.raises(UsageError, match="Did you mean 'ray'"):
        corpus.build_shards([inputs], tmp_path / "out", on="rays")


@pytest.mark.promise("same-corpus")
@pytest.mark.slow
def test_one_process_several_and_ray_with_a_worker_killed_make_the_same_bytes(tmp_path, inputs, tokenizer, monkeypatch):
    pytest.importorskip("ray")
    config = CorpusConfig(dedup="near", splitter="lines")
    for name, options in {"one": {}, "two": {"workers": 2}}.items():
        corpus.build_shards([inputs], tmp_path / name, config, **options)
        corpus.encode_corpus(tmp_path / name, tokenizer, **options)
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))  # where the workers find `slowly`
    slowly.__module__ = os.path.splitext(os.path.basename(__file__))[0]
    monkeypatch.setattr(corpus, "prepare", slowly)
    corpus.build_shards([inputs], tmp_path / "ray", config, workers=2, on="ray")
    corpus.encode_corpus(tmp_path / "ray", tokenizer, workers=2, on="ray")
    killed = json.loads((tmp_path / "struck").read_text())["pid"]
    assert killed != os.getpid()
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "ray")


@pytest.mark.slow
def test_what_a_task_raises_on_ray_is_raised_here(tmp_path):
    pytest.importorskip("ray")
    unit = {"number": 0, "unit": ["none", [], 0], "config": {"dedup": "what"}, "work": str(tmp_path), "size": 0}
    from bertie.data.prepare import prepare

    with pytest.raises(ValueError, match="dedup"):  # pydantic's
        list(executors.PLACES["ray"](prepare, [(0, unit, tmp_path / "result")], 1))
