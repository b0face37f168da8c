"""The engine's seam: arrays in the order of the sequences whatever the batches, and answers without torch."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from bertie.infer import batching
from bertie.infer.engine import Engine
from bertie.infer.predict import Predictor
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.init import initialize
from bertie.runs.weights import load_model
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]
NAMES = (
    "sequence",
    "token",
    "span",
    "mlm",
    "last_hidden_state",
    "pooler_output",
    "mean",
    "cls",
    "max",
    "layer_0",
    "layer_1",
)


@pytest.fixture(scope="module")
def model():
    config = EncoderConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    config = config.replace(pooler=True)
    model = TorchModel(Encoder(config), {name: HEADS[name](config, 3) for name in ("sequence", "token", "span", "mlm")})
    initialize(model, std=config.initializer_range, stds={}, seed=0)
    return model


def random_ids(count: int, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 40, size=count)
    total = int(lengths.sum())
    positions = np.flatnonzero(rng.random(total) < 0.1)
    return Sequences(rng.integers(5, 40, size=total), rng.integers(0, 2, size=total), lengths, positions)


def test_arrays_are_those_of_each_sequence_alone(model):
    """Beside the public padded call, one sequence at a time; the model is in training, with dropout."""
    ids, engine = random_ids(30), TorchEngine(model.train())
    assert isinstance(engine, Engine)
    found = batching.run_batches(engine, ids, NAMES, max_tokens=128)
    assert model.training
    model.eval()
    at = 0
    for number, (start, end) in enumerate(zip(ids.starts[:-1], ids.starts[1:], strict=True)):
        tokens = torch.from_numpy(ids.input_ids[start:end])[None]
        types = torch.from_numpy(ids.token_type_ids[start:end])[None]
        with torch.no_grad():
            heads = model(tokens, token_type_ids=types)
            output = model.encoder(tokens, types, output_hidden_states=True)
        hidden = output.last_hidden_state[0]
        own = ids.positions[(ids.positions >= start) & (ids.positions < end)] - start
        plain = {
            "sequence": heads["sequence"][0],
            "token": heads["token"][0],
            "span": heads["span"][0],
            "mlm": heads["mlm"][0][own],
            "last_hidden_state": hidden,
            "pooler_output": output.pooler_output[0],
            "mean": hidden.mean(0),
            "cls": hidden[0],
            "max": hidden.amax(0),
            "layer_0": output.hidden_states[0][0],
            "layer_1": output.hidden_states[1][0],
        }
        for name in NAMES:
            rows = engine.facts.outputs[name]
            part = {"token": slice(start, end), "sequence": number, "position": slice(at, at + len(own))}[rows]
            # sums of other shapes: values are below 100, so a few hundred roundings of 6e-8 of that
            np.testing.assert_allclose(found[name][part], plain[name].numpy(), atol=2e-4, rtol=2e-4, err_msg=name)
        at += len(own)
    assert at == len(ids.positions) > 10


def test_no_batch_costs_more_than_its_budget_and_none_is_lost(model):
    ids = random_ids(50, seed=3)
    seen = []

    class Watched(TorchEngine):
        def run(self, ids, outputs):
            seen.append(batching.cost(ids.lengths))
            return super().run(ids, outputs)

    batching.run_batches(Watched(model), ids, ("sequence",), max_tokens=100)
    parts = batching.batches(ids.lengths, max_tokens=100)
    assert seen == [batching.cost(ids.lengths[part]) for part in parts]
    assert max(seen) <= 100
    assert sorted(np.concatenate(parts).tolist()) == list(range(50))
    assert batching.cost([]) == 0
    assert batching.run_batches(Watched(model), random_ids(0), ("sequence",))["sequence"].size == 0


def test_sequences_are_taken_with_their_places():
    ids = Sequences(
        np.arange(10), np.zeros(10, np.int64), np.array([3, 2, 5]), np.array([1, 3, 4, 9]), {"x": np.arange(10)}
    )
    taken = ids.take(np.array([2, 0]))
    assert taken.input_ids.tolist() == [5, 6, 7, 8, 9, 0, 1, 2]
    assert taken.positions.tolist() == [4, 6]
    assert taken.input_ids[taken.positions].tolist() == [9, 1]
    assert taken.extra["x"].tolist() == taken.input_ids.tolist()


WITHOUT_TORCH = """
import sys, json
import numpy as np

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "scipy", "sklearn", "matplotlib", "pandas"):
            raise ImportError(f"{name} is not to be imported")

sys.meta_path.insert(0, Refused())

from bertie.infer.engine import Facts
from bertie.infer.predict import Predictor
from bertie.text.tokenizer import Tokenizer

class Last:  # its logits: the last real token of each sequence
    facts = Facts(64, 32, {"sequence": 3}, ("x", "y", "z"))

    def run(self, ids, outputs):
        last = ids.input_ids[ids.starts[1:] - 2]
        return {name: np.eye(3, dtype=np.float32)[last % 3] * 4 for name in outputs}

predictor = Predictor(Last(), Tokenizer.load(sys.argv[1]))
texts = ["a b", "c", "a", "b h h", "d e f"]
print(json.dumps([[answer.label, answer.probability] for answer in predictor.predict(texts)]))
"""


def test_answers_come_from_any_engine_without_torch(tmp_path: Path):
    """In a process that cannot import torch, nor SciPy and other libraries that take seconds to load."""
    folder = toy_model(tmp_path / "model", LETTERS)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT_TORCH), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    tokenizer = Tokenizer.load(folder)
    expected = [tokenizer.ids([letter])[0][0] % 3 for letter in ("b", "c", "a", "h", "f")]
    answers = json.loads(done.stdout)
    assert [label for label, _ in answers] == ["xyz"[number] for number in expected]
    assert answers[0][1] == pytest.approx(np.exp(4) / (np.exp(4) + 2), rel=1e-6)


def test_the_engine_of_a_folder_answers_as_its_model(tmp_path: Path):
    folder = toy_model(tmp_path / "model", LETTERS)
    tokenizer, task = Tokenizer.load(folder), SequenceTask(("x", "y"))
    model, _ = families.load(folder, heads=task.heads, seed=0)
    model.labels = task.labels
    model.training_facts = with_task(TrainingFacts(max_length=16, too_long="truncate", texts=1), task)
    families.save(model, tmp_path / "tuned", tokenizer=tokenizer)
    model = load_model(tmp_path / "tuned")
    facts = TorchEngine(model).facts
    assert (facts.heads, facts.labels, facts.max_length) == ({"sequence": 2}, ("x", "y"), 64)
    assert (facts.device, facts.precision) == ("cpu", "float32")
    texts = ["a b c", "d"]
    both = [Predictor(*given).predict(texts) for given in ((model,), (TorchEngine(model), model.tokenizer))]
    assert both[0] == both[1]
