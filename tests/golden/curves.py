"""Golden curves: the losses of small runs, kept, so that a change of numbers is seen that no comparison shows.

A path and its reference implementation may change together. These files do not:

    python tests/golden/curves.py            say how far each run is from its file
    python tests/golden/curves.py --write    write new curves after an intended change of numbers; the commit says why

A run is 50 steps of `fit` in float32 on one thread: two layers of 16, dropout, warm-up, clipping. One file a run holds
each part's mean loss of every 10 steps.
"""

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "contract")]
# ruff: noqa: E402

from test_objectives_contract import APART, CASES, NANO, VOCAB, objective_of, source_of

from bertie import objectives
from bertie.io.tables import Example
from bertie.io.words import TaggedExample
from bertie.models import families
from bertie.models.elmo import ElmoConfig
from bertie.models.model import TorchModel
from bertie.tasks import TASKS
from bertie.tasks.source import TaskSource
from bertie.text.tokenizer import Tokenizer
from bertie.train import log
from bertie.train.base import BatchSource, Trainable
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.loop import fit
from nano import NanoSource, one_thread

STEPS, EVERY = 50, 10
SIZES = {name: size for name, size in NANO.items() if "dropout" not in name} | {"hidden_dropout_prob": 0.1}
# Float32 sums in another order are off by some 1e-6 of a loss in the first step. Adam makes that larger where a
# gradient is near zero, tenfold in ten steps at the worst; a token drawn otherwise (replaced tokens) weighs 1 of
# some 500. A wrong batch, mask, rate or weight changes a loss by percents.
TOLERANCE = 2e-3


def tokenizer(folder: Path) -> Tokenizer:
    """Words w0 to w59 and pieces p0 to p19."""
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return Tokenizer.load(folder)


def pretraining(name: str, folder: Path) -> tuple[TorchModel, Trainable, BatchSource]:
    """An objective on made-up documents."""
    objective, case = objective_of(name), CASES[name]
    source = source_of(objective, tokenizer(folder), batch_size=8, micro_batch_size=4)
    sizes = SIZES | {name: value for name, value in case.overrides.items() if "dropout" not in name}
    shape = families.config(case.preset, **sizes)
    model = families.build(shape, heads=objective.heads, variant=families.family(case.preset).model_type)
    model.tokenizer = source.tokenizer
    objective.prepare(model, 0)
    return model, objective, source


def bilm(name: str, folder: Path) -> tuple[TorchModel, Trainable, BatchSource]:
    """ELMo's objective, whose words are spelled, on made-up sequences."""
    objective = objectives.build_objective({name: {}})
    sizes = {"vocab_size": 1000, "hidden_size": 12, "intermediate_size": 10, "embedding_size": 4}
    shape = ElmoConfig(**sizes, filters=((1, 3), (2, 4)))
    model = families.build(shape, heads=objective.heads, variant="elmo", seed=0)
    model.encoder.spell([f"w{i}" for i in range(1000)])
    return model, objective, NanoSource(objective=objective)


def finetuning(kind: str, folder: Path) -> tuple[TorchModel, Trainable, BatchSource]:
    """A task on made-up sentences: what the word w7 is found in, or which words have a low number."""
    rng, examples = random.Random(0), []
    for i in range(64):
        words = [f"w{rng.randrange(60)}" for _ in range(rng.randint(3, 9))] + ["w7"] * (i % 2)
        text, ends = " ".join(words), [0]
        for word in words:
            ends.append(ends[-1] + len(word) + 1)
        spans = tuple((start, start + len(word)) for start, word in zip(ends, words, strict=False))
        tags = tuple("B-LOW" if int(word[1:]) < 20 else "O" for word in words)
        examples.append(
            Example((text,), "ab"[i % 2]) if kind == "sequence" else TaggedExample((text,), tags, spans=spans)
        )
    task = TASKS[kind].from_examples(examples, (), {})
    encoded = task.encode(examples, tokenizer(folder), max_length=32, too_long="truncate")
    model = families.build(families.config("bert-tiny", **SIZES), heads=task.heads)
    targets = task.targets(examples, encoded)
    return model, task, TaskSource(encoded, targets, batch_size=8, micro_batch_size=4, seed=0)


RUNS: dict[str, Callable[[str, Path], tuple[TorchModel, Trainable, BatchSource]]] = {
    **{name: pretraining for name in CASES if name not in APART},
    "bilm": bilm,
    "sequence": finetuning,
    "tagging": finetuning,
}


def curve(name: str) -> dict[str, list[float]]:
    """Part -> its losses, each the mean of EVERY steps; and the gradients' norm in the last of them."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        model, learned, source = RUNS[name](name, Path(folder))
        train = TrainConfig(
            steps=STEPS, batch_size=8, precision="fp32", device="cpu", log_every=EVERY, save_every=STEPS
        )
        fit(model, learned, source, train=train, optim=OptimConfig(lr=3e-3, warmup=0.1), run=Path(folder) / "run")
        lines = [line for line in log.read_log(Path(folder) / "run") if line["kind"] == "train"]
    kept = [key for key in lines[0] if key.endswith("_loss") or key == "grad_norm"]
    return {key: [line[key] for line in lines] for key in kept}


def kept(name: str) -> dict[str, list[float]]:
    """What the file of a run holds."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


if __name__ == "__main__":
    for name in RUNS:
        found = curve(name)
        if "--write" in sys.argv:
            rows = {key: [float(f"{value:.6g}") for value in values] for key, values in found.items()}
            (FOLDER / f"{name}.json").write_text(json.dumps(rows) + "\n")
        pairs = [(a, b) for key, values in kept(name).items() for a, b in zip(values, found[key], strict=True)]
        print(f"{name:10} at most {max(abs(a / b - 1) for a, b in pairs):.1e} from its file")
