"""Python, the command line and the server open a model alike: the same engine, the same numbers to the last digit."""

import json

import pytest

import bertie as library
from bertie import platform
from bertie.apps.serve.worker import load_engines
from bertie.errors import UsageError
from bertie.models.names import bundled
from bertie.runs.opening import open_engine

TEXTS = {
    "sentiment-ko": "배우들의 연기가 훌륭하고 이야기도 재미있다.",
    "names-en": "Angela Merkel met Emmanuel Macron in Berlin.",
}


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_python_and_the_command_have_the_same_numbers(precision, bertie):
    text = TEXTS["sentiment-ko"]
    said = bertie.good("predict", "sentiment-ko", "--precision", precision, stdin=text)
    (answer,) = library.predict("sentiment-ko", [text], precision=precision)
    shown = {label: round(share, 6) for label, share in answer.label_probabilities.items()}
    assert json.loads(said)["scores"] == shown


@pytest.mark.parametrize("name", TEXTS)
def test_python_and_the_server_run_the_same_engine(name):
    engines, _ = load_engines(str(bundled()[name]), "fp32", "auto", "auto", None, {})
    engine, tokenizer = open_engine(name)
    assert type(engine) is type(engines[""])
    ours, theirs = (platform.Predictor(one, tokenizer).predict([TEXTS[name]]) for one in (engine, engines[""]))
    assert ours == theirs


def test_a_graph_opens_by_every_door(tmp_path, bertie):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    text = TEXTS["names-en"]
    bertie.good("export", "names-en", "--to", "onnx", "-o", tmp_path / "graph")
    engine = library.load(tmp_path / "graph")
    assert engine.engine == "onnx"
    with pytest.raises(UsageError, match="has no weights for torch"):
        engine.module.eval()
    answers = [library.predict(model, [text])[0].label for model in (engine, tmp_path / "graph", "names-en")]
    assert answers[0] == answers[1] == answers[2]
    words = json.loads(bertie.good("predict", tmp_path / "graph", stdin=text))["words"]
    assert tuple(word["label"] for word in words) == answers[0]
