"""ONNX graphs: they answer as the model does, by themselves and through Bertie, or they are not written."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from bertie.apps.export import folder as writing
from bertie.apps.export import graph
from bertie.apps.export.graph import traced
from bertie.apps.export.parity import Parity, _measure, _shapes, compare_graph, encoded, expected, join
from bertie.errors import DataError, UsageError
from bertie.infer.batching import run_batches
from bertie.infer.graph_model import GraphModel, _signature
from bertie.infer.onnx_engine import OnnxEngine, graph_of
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.runs.internals import ModelInternals
from bertie.runs.weights import load_model as load_module
from bertie.tasks.sequence import SequenceTask
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]
PAGE = Path(__file__).parents[2] / "docs" / "inference.md"


def lines(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join("".join(draw.choices("abcdefgh", k=draw.randint(1, 4))) for _ in range(12)) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("models") / "float"
    toy_model(where, LETTERS, hidden_size=64, num_attention_heads=2)
    tokenizer = Tokenizer.load(where)
    tokenizer.settings["model_max_length"] = 20
    model = families.load(where, heads=SequenceTask(("no", "yes", "maybe")).heads)[0]
    model.save_pretrained(where, tokenizer=tokenizer, labels=("no", "yes", "maybe"))
    (where / "1_Pooling").mkdir()
    (where / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (where / "modules.json").write_text(json.dumps(modules))
    return where


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("graphs")
    model = load_module(folder)
    found = writing.onnx_folder(model, out, lines(600), int8=True)
    assert [one.passed for one in found] == [True, True]
    assert found[1].bytes < 0.6 * found[0].bytes
    assert b"encoder.py" not in (out / "onnx" / "model.onnx").read_bytes()  # no traces of this machine
    return out


@pytest.fixture
def traced_before(exported, monkeypatch):
    """The graph as it was written: tracing takes seconds."""
    import onnx_ir

    monkeypatch.setattr(graph, "traced", lambda model: onnx_ir.load(exported / "onnx" / "model.onnx"))


def test_a_graph_answers_as_the_model_does(folder, exported, tmp_path, bertie):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(lines(30, seed=1)))
    assert graph_of(exported) == exported / "onnx" / "model.onnx"
    assert graph_of(folder) is None
    (tmp_path / "named.onnx").symlink_to(exported)
    assert graph_of(tmp_path / "named.onnx") == tmp_path / "named.onnx" / "onnx" / "model.onnx"
    ours = [json.loads(line) for line in bertie.good("predict", folder, texts).splitlines()]
    for model in (exported, exported / "onnx" / "model_quantized.onnx"):
        theirs = [json.loads(line) for line in bertie.good("predict", model, texts).splitlines()]
        assert [one["label"] for one in theirs] == [one["label"] for one in ours]
        tolerance = 1e-4 if model == exported else 0.02
        for one, other in zip(theirs, ours, strict=True):
            assert one["scores"] == pytest.approx(other["scores"], abs=tolerance)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "native"], "Omit --engine"),
        (["--precision", "bf16"], "Omit --engine, --precision"),
        (["--engine", "nonsense"], "Unknown engine"),
        (["--precision", "nonsense"], "Unknown precision"),
        (["--tokens", "-o", "tokens.npz"], "give only their last layer"),
    ],
)
def test_options_that_a_graph_does_not_obey_are_refused(exported, bertie, options, message):
    code, _, err = bertie("embed", exported, *options, stdin="a text")
    assert (code, message in " ".join(err.split())) == (2, True), err


def test_the_page_s_program_needs_no_torch(folder, exported, bertie):
    section = PAGE.read_text(encoding="utf-8").partition("## Export to ONNX")[2]
    (program,) = re.findall(r"```python\n(.+?)```", section, re.DOTALL)
    assert len(program.strip().splitlines()) <= 25
    blocked = "import sys; sys.modules['torch'] = sys.modules['bertie'] = None\n"
    texts = [*lines(8, seed=2), "a " * 100]
    done = subprocess.run([sys.executable, "-c", blocked + program, exported, *texts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in bertie.good("predict", folder, stdin="\n".join(texts)).splitlines()]
    assert done.stdout.splitlines() == [f"{one['label']}\t{text}" for one, text in zip(answers, texts, strict=True)]


def test_what_does_not_answer_alike_is_not_written(folder, tmp_path, bertie, monkeypatch, traced_before):
    other = load_module(folder)
    monkeypatch.setattr(writing, "ModelInternals", lambda model: ModelInternals(other))
    other.heads["sequence"].classifier.bias.data[0] += 0.01
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(lines(200)))
    out = tmp_path / "out"
    code, _, err = bertie("export", folder, "-o", out, "--texts", texts)
    assert code == 3
    assert "does not give the answers of the model" in " ".join(err.split())
    assert not out.exists()
    said = bertie.good("export", folder, "-o", out, "--texts", texts, "--force")
    assert "misses the quality threshold" in said
    assert "misses the quality threshold" in (out / "README.md").read_text()
    assert (out / "1_Pooling" / "config.json").exists()
    monkeypatch.setattr(graph, "traced", None)  # nothing is made again
    assert bertie.good("export", folder, "-o", out, "--texts", texts, "--force") == said
    assert bertie("export", folder, "-o", out, "--texts", texts)[0] == 2  # another command: the folder is taken


def test_the_error_of_the_logits_is_that_of_all_texts():
    found = Parity(texts=2)
    for size in (1e-3, 1.0):  # a text on which the model is undecided, and one on which it is not
        exact = {"classifier": np.array([[size, -size]])}
        _measure(found, {"classifier": exact["classifier"] + 1e-3}, exact, heads={"classifier"})
    assert found.relative == pytest.approx(1e-3 * (2 / (1 + 1e-6)) ** 0.5)
    assert (found.same, found.near) == (2, True)
    _measure(found, {"classifier": np.full((1, 2), np.nan)}, exact, heads={"classifier"})
    assert found.relative == found.difference == float("inf")


def test_bad_input_is_refused_in_one_line(folder, tmp_path, bertie, traced_before):
    few = tmp_path / "few.txt"
    few.write_text("\n".join(lines(199)))
    for arguments, code, said in (
        (["--texts", few], 3, "199 texts are too few"),
        (["--to", "onxx"], 2, "Did you mean 'onnx'"),
        (["--texts", tmp_path / "none.txt"], 3, "cannot be read"),
    ):
        found, _, err = bertie("export", folder, "-o", tmp_path / "out", *arguments)
        assert (found, said in " ".join(err.split())) == (code, True), err
        assert not (tmp_path / "out").exists()
    few.write_text("\n".join(lines(205)))
    with pytest.raises(DataError, match="calibration of int8 weights"):
        writing.onnx_folder(load_module(folder), tmp_path / "int8", lines(205), int8=True)
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(DataError, match="cannot be opened by ONNX Runtime"):
        OnnxEngine(tmp_path / "broken.onnx")


def test_large_weights_lie_beside_the_graph(folder, tmp_path, monkeypatch, traced_before):
    monkeypatch.setattr(writing, "_MAX_MESSAGE_BYTES", 1000)
    writing.onnx_folder(load_module(folder), tmp_path, lines(200))
    sizes = [(tmp_path / "onnx" / name).stat().st_size for name in ("model.onnx", "model.onnx_data")]
    assert sizes[1] > sizes[0]
    assert OnnxEngine(tmp_path / "onnx" / "model.onnx").facts.labels == ("no", "yes", "maybe")


def test_the_tokenizer_goes_along(folder, exported):
    """10,000 lines of anything through both; a tokenizer that tokenizer.json cannot say is refused."""
    draw = random.Random(3)
    ranges = [(32, 127), (0xA0, 0x250), (0x300, 0x370), (0xAC00, 0xB000), (0x4E00, 0x5000), (0x1F300, 0x1F600), (1, 32)]
    words = ["[CLS]", "[MASK]", "[SEP]", "abc", "##a", "it's", "\u200b", "\ufeff"]

    def line() -> str:
        return "".join(
            draw.choice(words) if draw.random() < 0.2 else chr(draw.randrange(*draw.choice(ranges)))
            for _ in range(draw.randrange(40))
        )

    many = [line() for _ in range(10_000)]
    tokenizer = Tokenizer.load(folder)
    writing.check_tokenizer(exported, tokenizer, many)
    tokenizer.settings["split_special_tokens"] = True
    with pytest.raises(DataError, match="alone gives other tokens"):
        writing.check_tokenizer(exported, Tokenizer(tokenizer.engine, settings=tokenizer.settings), many[:500])


def test_heads_that_no_graph_has_are_refused_by_name():
    model = families.build("bert-tiny", heads=lambda c: {"features_last": HEADS["features_last"](c, 3)}, vocab_size=50)
    assert "LSTM" in str(GraphModel.refusal(model))
    with pytest.raises(UsageError, match="This bert cannot be exported to ONNX"):
        traced(model)
    shape = {"vocab_size": 50, "num_hidden_layers": 1, "hidden_size": 24, "num_attention_heads": 2}
    shape |= {"intermediate_size": 48, "max_position_embeddings": 70}
    assert "windows" in str(GraphModel.refusal(families.build("longformer-base-4096", **shape)))


@pytest.mark.parametrize(("preset", "last"), [("bert-tiny", False), ("xlnet-base-cased", True), ("gpt2", True)])
def test_the_graph_knows_which_token_represents_a_text(preset, last):
    shape = {"num_hidden_layers": 1, "vocab_size": 21, "hidden_size": 32, "num_attention_heads": 2}
    model = families.build(preset, intermediate_size=32, **shape).eval()
    assert _signature(model).summary_last == last
    ids = Sequences(np.arange(5, 12), np.zeros(7, np.int64), np.array([7]))
    rows = TorchEngine(model).run(ids, ["last_hidden_state", "cls"])
    assert np.allclose(rows["cls"][0], rows["last_hidden_state"][-1 if last else 0], atol=1e-6)


ROWS = [
    ("bert-tiny", ("mlm", "pair")),
    ("bert-tiny", ("choice",)),
    ("bert-tiny", ("parse",)),
    ("bert-tiny", ()),
    ("roberta-base", ("token",)),
    ("albert-base-v2", ("sequence",)),
    ("distilbert-base-uncased", ("span",)),
    ("electra-small-discriminator", ("rtd",)),
    ("mobilebert-uncased", ("sequence",)),
    ("gpt2", ("lm",)),
    ("xlnet-base-cased", ()),
    ("mpnet-base", ("sequence",)),
    ("deberta-v3-small", ("sequence",)),
    ("deberta-v2-xlarge", ("token",)),
    ("nomic-bert-2048", ("sequence",)),
    ("ModernBERT-base", ("sequence",)),
    ("ModernBERT-base", ("mlm",)),
]
SHORT = {
    "nomic-bert-2048": {"initializer_range": 0.05},
    "ModernBERT-base": {
        "initializer_range": 0.05,
        "local_attention": 16,
        "num_hidden_layers": 3,
        "pad_token_id": 0,
    },
}
"""Settings of a family: narrower weights for gated layers, whose random weights of 0.1 amplify rounding (torch and ONNX
Runtime are then equally far from float64); windows that hide some of 64 tokens."""


def test_long_texts_are_compared_in_small_batches(folder):
    pool = join(encoded(Tokenizer.load(folder), lines(3), max_length=20, last=False))
    shapes = [(int(batch.lengths.max()), len(batch.lengths)) for batch in _shapes(pool, 4096)]
    assert shapes == [*((length, size) for length in (1, 2, 17) for size in (1, 2, 7)), (4096, 1)]
    assert [(int(batch.lengths.max()), len(batch.lengths)) for batch in _shapes(pool, 512)][-1] == (512, 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "heads"), ROWS, ids=lambda value: "+".join(value) if isinstance(value, tuple) else value
)
def test_families_and_heads(preset, heads, folder, tmp_path):
    import onnx_ir

    shape = {"num_hidden_layers": 2, "vocab_size": 21, "initializer_range": 0.1} | SHORT.get(preset, {})
    model = families.build(preset, heads=lambda c: {name: HEADS[name](c, 3) for name in heads}, **shape).eval()
    onnx_ir.save(traced(model), tmp_path / "model.onnx")
    tokenizer = Tokenizer.load(folder)
    sequences = encoded(tokenizer, lines(200), max_length=64, last="parse" in heads)
    engine = OnnxEngine(tmp_path / "model.onnx")
    outputs = [name for name in engine.facts.outputs if name not in ("cls", "max")]
    found = compare_graph(engine, expected(TorchEngine(model), outputs, sequences))
    assert found.equal, str(found)
    if not heads:
        for name in ("mean", "cls", "max", *({"pooler_output"} & {*outputs})):  # XLNet has no pooler
            assert (
                np.abs(
                    run_batches(engine, sequences[3], [name])[name] - TorchEngine(model).run(sequences[3], [name])[name]
                ).max()
                < 1e-4
            )


@pytest.mark.slow
def test_a_model_with_fewer_heads_in_8_bits(folder, tmp_path):
    shape = {"num_attention_heads": 1, "attention_head_size": 32, "hidden_size": 64, "num_hidden_layers": 2}
    model = families.build("bert-tiny", vocab_size=21, intermediate_size=128, initializer_range=0.1, **shape).eval()
    model.tokenizer = Tokenizer.load(folder)
    found = writing.onnx_folder(model, tmp_path / "out", lines(600), int8=True)
    assert [one.passed for one in found] == [True, True]
