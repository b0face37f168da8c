"""Forward passes by kernels, recorded as CUDA graphs on an NVIDIA GPU, have the arrays of the formulas.

Without a GPU, triton's interpreter runs the kernels on the CPU, and nothing is recorded.
"""

import copy
import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from bertie.infer.batching import run_batches
from bertie.infer.recorded import RecordedForwards
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.model import TorchModel
from bertie.nn.varlen import Varlen
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.tagging import TaggingTask
from bertie.text.sequences import Sequences

pytest.importorskip("triton", reason="triton is for Linux on x86")
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
BATCHES: tuple[list[int], ...] = ([7], [5, 3], [20, 20, 2, 9])  # all of 64 rows and 8 sequences
if ON_GPU:
    BATCHES += ([12], [7, 14, 3], [300, 5, 64, 128, 3], [40] * 50)
LEARNED, ROTARY = "bert-tiny", "ModernBERT-base"
TASKS: dict[str, Any] = {"sequence": SequenceTask(("a", "b", "c")), "token": TaggingTask(("O", "B-X", "I-X"))}


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention by our kernel, where no GPU has torch's."""
    if not ON_GPU:
        monkeypatch.setattr(
            "bertie.models.encoder.unpadded", lambda layout, _, heads, __: replace(Varlen.of(layout, heads), short=True)
        )


def model_of(head: str, name: str = "bert-tiny", **changes: Any) -> TorchModel:
    size = {"hidden_size": 128, "intermediate_size": 256} if ON_GPU else {"hidden_size": 16, "intermediate_size": 24}
    heads = {"num_attention_heads": 2 if ON_GPU else 1, "num_hidden_layers": 2}
    sizes = {"vocab_size": 90, **size, **heads, **changes}
    model = families.build(name, heads=TASKS[head].heads, seed=1, **sizes).to(DEVICE).eval()
    model.compute_dtype = torch.bfloat16 if ON_GPU else None
    return model


def sequences_of(lengths: list[int]) -> Sequences:
    rng = np.random.default_rng(sum(lengths))
    total = sum(lengths)
    return Sequences(rng.integers(5, 90, total), rng.integers(0, 2, total), np.array(lengths))


def formulas(model: TorchModel, ids: Sequences, outputs: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of sequences in float32, one at a time, without kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertie.models.encoder.unpadded", lambda *_: None)
        dtype, model.compute_dtype = model.compute_dtype, None
        engine = TorchEngine(model)
        parts = [engine.run(ids.take(np.array([number])), outputs) for number in range(len(ids))]
        model.compute_dtype = dtype
    return {name: np.concatenate([part[name] for part in parts]) for name in outputs}


def error(ours: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(ours - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(
    ("head", "outputs"),
    [
        ("sequence", ["mean"]),
        ("sequence", ["cls"]),
        ("sequence", ["last_hidden_state", "max"]),
        ("sequence", ["head"]),
        ("token", ["mean", "head"]),  # of a model whose head reads every token
    ],
)
@pytest.mark.parametrize("name", [LEARNED, ROTARY])
def test_arrays_are_those_of_the_formulas(name: str, head: str, outputs: list[str]) -> None:
    model = model_of(head, name)
    outputs = [next(iter(model.heads)) if output == "head" else output for output in outputs]
    engine = TorchEngine(model)
    for lengths in BATCHES:
        ids = sequences_of(lengths)
        exact = formulas(model, ids, outputs)
        recorded = RecordedForwards(model, engine._fixed_arrays)
        fixed = recorded.fixed(Batch.of(ids))
        assert fixed is not None
        with torch.inference_mode():
            batch = fixed.to(DEVICE)
            arrays = recorded.pass_of(batch, outputs)
        # or a graph would take what is computed of these lengths for constants
        assert vars(batch.layout).keys() == {field.name for field in fields(batch.layout)}
        for output in outputs:
            ours = arrays[output].cpu().numpy()[: len(exact[output])]
            assert error(ours, exact[output]) < (0.02 if ON_GPU else 1e-5), output


@pytest.mark.skipif(not ON_GPU, reason="there is no NVIDIA GPU")
def test_a_shape_is_recorded_when_it_occurs_for_the_third_time() -> None:
    model = model_of("sequence")
    engine = TorchEngine(model)
    ids, outputs = sequences_of([300, 5, 64, 128, 3]), ["mean", "sequence"]
    exact = formulas(model, ids, outputs)
    results = [engine.run(ids, outputs) for _ in range(5)]
    assert len(engine._recorded.recordings) == 1, engine._recorded.why_not
    for result in results:
        assert error(result["mean"], exact["mean"]) < 0.02
    other = sequences_of([299, 5, 64, 128, 3])  # has the same shape
    assert error(engine.run(other, outputs)["mean"], formulas(model, other, outputs)["mean"]) < 0.02
    assert len(engine._recorded.recordings) == 1
    with torch.no_grad():
        model.word_embeddings.mul_(2)  # as training would change it
    assert error(engine.run(ids, outputs)["mean"], formulas(model, ids, outputs)["mean"]) < 0.02
    model.encoder.layers[0].up.weight.data = model.encoder.layers[0].up.weight.data.clone() * 3
    assert error(engine.run(ids, outputs)["mean"], formulas(model, ids, outputs)["mean"]) < 0.02


@pytest.mark.skipif(not ON_GPU, reason="there is no NVIDIA GPU")
def test_batches_that_overlap_have_their_own_arrays() -> None:
    model = model_of("sequence")
    ids = sequences_of([40, 64, 3, 120, 7] * 40)  # in batches of one shape, and a last one
    exact = formulas(model, ids, ["mean"])["mean"]
    for _ in range(3):
        ours = run_batches(TorchEngine(model), ids, ["mean"], max_tokens=2000)["mean"]
        assert error(ours, exact) < 0.02


def test_a_model_with_a_hook_is_not_recorded() -> None:
    model = model_of("sequence")
    assert model.is_plain
    handle = model.encoder.layers[0].register_forward_hook(lambda *_: None)
    assert not model.is_plain
    handle.remove()
    with model.computing_all():
        assert not model.is_plain
    assert model.is_plain


def test_an_engine_with_recordings_is_pickled_without_them() -> None:
    model = model_of("sequence")
    engine, ids = TorchEngine(model), sequences_of([7, 3])
    expected = formulas(model, ids, ["mean"])["mean"]
    assert engine._recorded is not None  # what a GPU records with
    for again in (pickle.loads(pickle.dumps(engine)), copy.deepcopy(engine)):
        np.testing.assert_array_equal(formulas(again.model, ids, ["mean"])["mean"], expected)
