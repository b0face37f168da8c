"""The inference benchmark: what is compared of each text, and what it says of a runner that answers wrongly."""

import numpy as np
import pytest

from benchmarks import infer, infer_peers, infer_runners
from benchmarks.infer_peers import Peer, first, mean, rectangle
from benchmarks.infer_runners import Texts, reading_of
from bertie.infer.native.library import found_compiler
from bertie.models import families
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
IDS = [[2, *range(5, 5 + length), 3] for length in (1, 3, 9, 4, 12, 7)]


def wrong(model, work, calls, cores, pool):
    """Hidden states that have nothing to do with the text."""

    def run(sequences):
        mask = rectangle(sequences)[1]
        return pool(np.random.default_rng(0).normal(size=(*mask.shape, 32)), mask)

    return run


@pytest.mark.parametrize(("labels", "answer"), [(("a", "b", "c"), "same_label"), ((), "same_nearest")])
def test_answers_are_compared_with_those_in_float32(labels, answer, tmp_path, monkeypatch):
    folder = toy_model(tmp_path / "model", "abcdefghijklmnop")
    if labels:
        model = families.load(folder, heads=SequenceTask(labels).heads)[0]
        model.save_pretrained(folder, tokenizer=Tokenizer.load(folder), labels=labels)
    assert f"same_{reading_of(folder).answer}" == answer
    monkeypatch.setitem(infer_peers.PEERS, "wrong", Peer((), wrong))
    texts = Texts([""] * len(IDS), IDS, [])
    names = ["Bertie float32", "wrong"]
    right, other = infer.measure(folder, texts, names, tmp_path, threads=1, rounds=2, memory=False)
    assert right["cosine"] == {"worst": 1, "p1": 1, "mean": 1, answer: 1}
    assert other["cosine"]["worst"] < 0.9
    assert other["cosine"][answer] < 1


def test_rows_of_padded_hidden_states():
    hidden = np.arange(12, dtype=np.float16).reshape(2, 3, 2)
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    assert mean(hidden, mask).tolist() == [[1, 2], [8, 9]]
    assert first(hidden, mask).tolist() == [[0, 1], [6, 7]]


def test_bfloat16_is_left_out_on_processors_without_it(monkeypatch, capsys):
    """Of the peers too, which would take minutes a round there."""
    kinds = 0
    library = type("Library", (), {"bertie_kinds": staticmethod(lambda: kinds)})
    monkeypatch.setattr("bertie.infer.native.library.open_library", lambda: (library, "avx2"))
    half = [name for name in [*infer_runners.OURS, *infer_peers.PEERS] if name.endswith("bfloat16")]
    monkeypatch.setattr(Peer, "missing", ())
    assert len(half) == 3
    assert infer.runners(half) == []
    assert capsys.readouterr().err.count("this processor has no products in it (avx2)") == 3
    kinds = 2
    assert infer.runners(half) == half
