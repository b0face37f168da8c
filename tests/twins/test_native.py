"""The native encoder against torch's, for every kind of processor that this machine can run.

float32 sums in another order: errors grow with the root of the width and with the depth, as in torch itself.
"""

import numpy as np
import pytest
import torch

from bertie import families
from bertie.data.ids import Ids
from bertie.errors import UsageError
from bertie.infer.native import library
from bertie.infer.native.encoder import KEEP, chunks
from bertie.infer.native.fits import rows_read
from bertie.infer.native.library import found_compiler, targets
from bertie.infer.native_engine import NativeEngine, unsupported
from bertie.infer.torch_engine import TorchEngine
from bertie.tasks import SequenceTask

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
LENGTHS = np.array([1, 2, 5, 17, 33, 47, 128, 15, 16])
SHAPES = {  # odd numbers of panels, one head and many, heads of 16 to 128
    "bert-tiny": {"vocab_size": 300},
    "one head": {"vocab_size": 300, "hidden_size": 96, "num_attention_heads": 1, "intermediate_size": 176},
    "narrow heads": {"vocab_size": 300, "hidden_size": 80, "num_attention_heads": 5, "intermediate_size": 320},
    "fewer heads": {"vocab_size": 300, "num_attention_heads": 4, "attention_head_size": 16},
    "relu": {"vocab_size": 300, "hidden_act": "relu"},
    "tanh": {"vocab_size": 300, "hidden_act": "gelu_tanh"},
}


def ids(vocab: int) -> Ids:
    generator = np.random.default_rng(0)
    total = int(LENGTHS.sum())
    return Ids(generator.integers(5, vocab, total), generator.integers(0, 2, total), LENGTHS)


def spread(model: torch.nn.Module) -> None:
    """Weights so large that a layer does something; the first values of a model are nearly the identity."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)


@pytest.fixture(
    params=[
        name if name in (targets()[0], "portable") else pytest.param(name, marks=pytest.mark.slow) for name in targets()
    ]
)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", SHAPES)
def test_float32_is_torchs(name, target):
    model = families.build("bert-tiny", **SHAPES[name]).eval()
    spread(model)
    read = ids(300)
    outputs = ("last_hidden_state", "pooler_output")
    expected, found = TorchEngine(model).run(read, outputs), NativeEngine(model, target=target).run(read, outputs)
    for output in outputs:
        np.testing.assert_allclose(found[output], expected[output], atol=1e-5, rtol=0)  # hidden states are about 1


@pytest.mark.parametrize(
    "preset", ["albert-base-v2", "roberta-base", "electra-small-discriminator", "distilbert-base-uncased"]
)
def test_kin_of_bert_run_too(preset):
    small = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 128}
    model = families.build(preset, vocab_size=300, **small).eval()
    spread(model)
    assert unsupported(model) is None
    read = ids(300)
    expected, found = (engine.run(read, ["last_hidden_state"]) for engine in (TorchEngine(model), NativeEngine(model)))
    np.testing.assert_allclose(found["last_hidden_state"], expected["last_hidden_state"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bert-tiny", "fewer heads"])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fewer_bits_stay_near(precision, name, target):
    model = families.build("bert-tiny", **SHAPES[name]).eval()
    spread(model)
    read = ids(300)
    try:
        engine = NativeEngine(model, precision, target=target)
    except ValueError:
        pytest.skip(f"{target} has no {precision}")
    x, y = (e.run(read, ["last_hidden_state"])["last_hidden_state"] for e in (TorchEngine(model), engine))
    cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    # int8 rounds to 255 steps (127 on AVX2): relative errors of about 0.4 % (0.8 %) a product, which cost their square
    assert cosines.min() > 0.998


def test_a_text_does_not_depend_on_its_neighbors():
    model = families.build("bert-tiny", vocab_size=300).eval()
    spread(model)
    read, engine = ids(300), NativeEngine(model, "int8")
    together = engine.run(read, ["last_hidden_state"])["last_hidden_state"]
    for number in range(len(LENGTHS)):
        alone = read.take(np.array([number]))
        rows = together[read.tokens(np.array([number]))]
        assert (engine.run(alone, ["last_hidden_state"])["last_hidden_state"] == rows).all()  # scales are a token's own


@pytest.mark.parametrize(
    ("preset", "why"), [("longformer-base-4096", "attention"), ("gpt2", "attention"), ("mobilebert-uncased", "layers")]
)
def test_other_shapes_are_named(preset, why):
    model = families.build(preset, vocab_size=300, num_hidden_layers=1)
    assert why in str(unsupported(model))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_a_text_compute_the_same(threads, target):
    model = families.build("bert-tiny", vocab_size=300).eval()
    spread(model)
    native = NativeEngine(model, "int8", target=target).native
    read = ids(300)
    positions = np.arange(len(read.input_ids)) - np.repeat(read.starts[:-1], LENGTHS)
    given = (read.input_ids, read.token_type_ids, positions, LENGTHS)
    for keep in KEEP:
        alone, together = (native.run(*given, threads=number, keep=keep) for number in (1, threads))
        assert (alone == together).all(), keep


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_row_of_a_text_is_that_of_all_its_tokens(precision, target):
    model = families.build("bert-tiny", vocab_size=300, heads=SequenceTask(("no", "yes")).heads).eval()
    spread(model)
    engine, read = NativeEngine(model, precision, target=target), ids(300)
    few = ("cls", "pooler_output", "sequence")
    whole = engine.run(read, ("last_hidden_state", "mean", *few))  # of all tokens
    assert rows_read(model.config, few) == "firsts"
    for name, found in engine.run(read, few).items():
        np.testing.assert_allclose(found, whole[name], atol=1e-6, rtol=0)
    np.testing.assert_allclose(engine.run(read, ("mean",))["mean"], whole["mean"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_hold_each_sequence_once_and_are_of_like_size(threads):
    lengths = np.random.default_rng(0).integers(1, 60, 200)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    found = chunks(starts, threads, most=300)
    assert [i for first, end in found for i in range(first, end)] == list(range(200))
    assert len(found) % threads == 0
    tokens = [starts[end] - starts[first] for first, end in found]
    assert max(tokens) - min(tokens) < 2 * lengths.max()
    assert max(tokens) < 300 + lengths.max()
    assert chunks(starts[:3], threads) == [(0, 2)]
    assert chunks(starts[:1], threads) == []


def test_a_build_for_another_processor_is_refused(monkeypatch):
    monkeypatch.setattr(library, "features", lambda: frozenset({"avx2", "fma"}))
    with pytest.raises(UsageError, match=r"needs avx_vnni, which this processor .*: avx2, portable\."):
        library.open_library("avx-vnni")
