"""The native encoder against torch's, for every kind of processor that this machine can run.

float32 sums in another order: errors grow with the root of the width and with the depth, as in torch itself.
"""

import numpy as np
import pytest
import torch

from bertie.errors import UsageError
from bertie.infer.native import library
from bertie.infer.native.encoder import KEEP, chunks_of_sequences
from bertie.infer.native.fits import positions_of, rows_read
from bertie.infer.native.library import found_compiler, targets
from bertie.infer.native_engine import NativeEngine, unsupported
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.tasks.sequence import SequenceTask
from bertie.text.sequences import Sequences

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
LENGTHS = np.array([1, 2, 5, 17, 33, 47, 128, 15, 16])
SMALL = {"hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 176}
SHAPES = {  # odd numbers of panels, one head and many, heads of 16 to 128
    "bert-tiny": {},
    "one head": {"hidden_size": 96, "num_attention_heads": 1, "intermediate_size": 176},
    "narrow heads": {"hidden_size": 80, "num_attention_heads": 5, "intermediate_size": 320},
    "fewer heads": {"num_attention_heads": 4, "attention_head_size": 16},
    "relu": {"hidden_act": "relu"},
    "tanh": {"hidden_act": "gelu_tanh"},
    "ModernBERT": {"preset": "ModernBERT-base", **SMALL, "num_hidden_layers": 5, "local_attention": 12},
    "ModernBERT, 64 wide heads": {
        **{"preset": "ModernBERT-base", **SMALL, "hidden_size": 128, "num_attention_heads": 2},
        **{"num_hidden_layers": 2, "local_attention": 64, "hidden_act": "swiglu", "first_attention_norm": True},
    },
    "NomicBERT": {"preset": "nomic-bert-2048", **SMALL, "num_hidden_layers": 2, "hidden_act": "geglu"},
    "pre-norm": {"norm": "pre", "embedding_size": 64},
}


def ids(vocab: int, types: int = 2) -> Sequences:
    generator = np.random.default_rng(0)
    total = int(LENGTHS.sum())
    return Sequences(generator.integers(5, vocab, total), generator.integers(0, max(types, 1), total), LENGTHS)


def spread(model: torch.nn.Module) -> None:
    """Weights so large that a layer does something; the first values of a model are nearly the identity."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)
        else:  # biases, and the scales of norms around 1
            parameter.data += 0.1 * torch.randn_like(parameter)


def built(name: str, **settings: object) -> TorchModel:
    chosen = {"preset": "bert-tiny", **SHAPES[name], **settings}
    model = families.build(chosen.pop("preset"), vocab_size=300, seed=1, **chosen).eval()
    torch.manual_seed(0)
    spread(model)
    return model


@pytest.fixture(
    params=[
        name if name in (targets()[0], "portable") else pytest.param(name, marks=pytest.mark.slow) for name in targets()
    ]
)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", SHAPES)
def test_float32_is_torchs(name, target):
    model = built(name)
    assert unsupported(model) is None
    read = ids(300, model.config.type_vocab_size)
    outputs = ("last_hidden_state", *(["pooler_output"] if model.config.pooler else []))
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


@pytest.mark.parametrize("name", ["bert-tiny", "fewer heads", "ModernBERT"])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fewer_bits_stay_near(precision, name, target):
    model = built(name)
    read = ids(300, model.config.type_vocab_size)
    try:
        engine = NativeEngine(model, precision, target=target)
    except ValueError:
        pytest.skip(f"{target} has no {precision}")
    x, y = (e.run(read, ["last_hidden_state"])["last_hidden_state"] for e in (TorchEngine(model), engine))
    cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    # int8 rounds to 255 steps (127 on AVX2): relative errors of about 0.4 % (0.8 %) a product, which cost their square
    assert cosines.min() > 0.998


@pytest.mark.parametrize("name", ["bert-tiny", "ModernBERT"])
def test_a_text_does_not_depend_on_its_neighbors(name):
    model = built(name)
    read, engine = ids(300, model.config.type_vocab_size), NativeEngine(model, "int8")
    together = engine.run(read, ["last_hidden_state"])["last_hidden_state"]
    for number in range(len(LENGTHS)):
        alone = read.take(np.array([number]))
        rows = together[read.rows(np.array([number]))]
        assert (engine.run(alone, ["last_hidden_state"])["last_hidden_state"] == rows).all()  # scales are a token's own


@pytest.mark.parametrize(
    ("preset", "why"),
    [
        ("longformer-base-4096", "attention is window"),
        ("gpt2", "attention is causal"),
        ("mobilebert-uncased", "layers are bottleneck"),
        ("deberta-v3-base", "positions are disentangled"),
    ],
)
def test_other_shapes_are_named(preset, why):
    model = families.build(preset, vocab_size=300, num_hidden_layers=1)
    assert why in str(unsupported(model))


def given(read: Sequences, model: TorchModel) -> tuple[np.ndarray | None, ...]:
    types = read.token_type_ids if model.config.type_vocab_size > 1 else None
    return read.input_ids, types, positions_of(model.config, read), read.lengths


@pytest.mark.parametrize("name", ["bert-tiny", "ModernBERT"])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_a_text_compute_the_same(threads, name, target):
    model = built(name)
    native = NativeEngine(model, "int8", target=target).native
    read = given(ids(300), model)
    for keep in KEEP:
        alone, together = (native.run(*read, threads=number, keep=keep) for number in (1, threads))
        assert (alone == together).all(), keep


@pytest.mark.parametrize("name", ["bert-tiny", "ModernBERT", "pre-norm"])
def test_each_layer_gives_the_states_of_torchs(name):
    model = built(name)
    read, rounds = ids(300, model.config.type_vocab_size), range(model.config.num_hidden_layers + 1)
    expected = TorchEngine(model).run(read, [f"layer_{number}" for number in rounds])
    native = NativeEngine(model).native
    for number in rounds:
        for threads in (1, 2):
            found = native.run(*given(read, model), layers=number, threads=threads)
            np.testing.assert_allclose(found, expected[f"layer_{number}"], atol=1e-5, rtol=0)


def test_positions_beyond_those_of_the_model_are_refused():
    model = built("ModernBERT", max_position_embeddings=100)
    with pytest.raises(IndexError, match="positions go from 0 to 127; the model has 100"):
        NativeEngine(model).native.run(*given(ids(300), model))


@pytest.mark.parametrize("name", ["bert-tiny", "ModernBERT"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_row_of_a_text_is_that_of_all_its_tokens(precision, name, target):
    labeled = name == "bert-tiny"  # ModernBERT's labels are read from all tokens
    model = built(name, **({"heads": SequenceTask(("no", "yes")).heads} if labeled else {}))
    engine, read = NativeEngine(model, precision, target=target), ids(300, model.config.type_vocab_size)
    few = ("cls", "pooler_output", "sequence") if labeled else ("cls",)
    whole = engine.run(read, ("last_hidden_state", "mean", *few))  # of all tokens
    assert rows_read(model.config, few) == "firsts"
    for output, found in engine.run(read, few).items():
        np.testing.assert_allclose(found, whole[output], atol=1e-6, rtol=0)
    np.testing.assert_allclose(engine.run(read, ("mean",))["mean"], whole["mean"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_hold_each_sequence_once_and_are_of_like_size(threads):
    lengths = np.random.default_rng(0).integers(1, 60, 200)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    found = chunks_of_sequences(starts, threads, most=300)
    assert [i for first, end in found for i in range(first, end)] == list(range(200))
    assert len(found) % threads == 0
    tokens = [starts[end] - starts[first] for first, end in found]
    assert max(tokens) - min(tokens) < 2 * lengths.max()
    assert max(tokens) < 300 + lengths.max()
    assert chunks_of_sequences(starts[:3], threads) == [(0, 2)]
    assert chunks_of_sequences(starts[:1], threads) == []


def test_a_build_for_another_processor_is_refused(monkeypatch):
    monkeypatch.setattr(library, "features", lambda: frozenset({"avx2", "fma"}))
    with pytest.raises(UsageError, match=r"needs avx_vnni, which this processor .*: avx2, portable\."):
        library.open_library("avx-vnni")
