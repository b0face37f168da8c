"""Candidates: entailment gives what the zero-shot pipeline of `transformers` gives; vectors give the nearest label."""

import json
from pathlib import Path

import numpy as np
import pytest

import bertie
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

TEXTS = ["a b c", "d", "e f g h i j k l a b c d " * 9, "b a"]
LABELS = ["a", "g h", "l"]
WORDS = [*"abcdefghijkl", "this", "example", "is", "about", "."]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("encoder"), WORDS, max_position_embeddings=32)


def with_labels(encoder: Path, folder: Path, *labels: str) -> Path:
    """A random classifier with labels of these names."""
    model = families.build(families.config(encoder), heads=lambda config: {"sequence": HEADS["sequence"](config, 3)})
    families.save(model, folder, tokenizer=Tokenizer.load(encoder), labels=labels)
    return folder


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize(
    "names", [("contradiction", "neutral", "entailment"), ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")]
)
@pytest.mark.parametrize("hypothesis", [None, "this is about {} ."])
def test_as_the_pipeline(
    encoder: Path, tmp_path: Path, multi: bool, names: tuple[str, ...], hypothesis: str | None
) -> None:
    transformers = pytest.importorskip("transformers")
    folder = with_labels(encoder, tmp_path, *names)
    told = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, "model_max_length": 32}))
    ask = transformers.pipeline("zero-shot-classification", model=str(folder), device="cpu")
    template = {"hypothesis_template": hypothesis} if hypothesis else {}
    wanted = ask(TEXTS, LABELS, multi_label=multi, **template)
    found = bertie.predict(folder, TEXTS, candidates=LABELS, hypothesis=hypothesis, multi=multi)
    for ours, theirs in zip(found, wanted, strict=True):
        assert dict(ours.label_probabilities) == pytest.approx(
            dict(zip(theirs["labels"], theirs["scores"], strict=True)), abs=2e-5
        )
        if multi:
            assert set(ours.label) == {name for name, p in ours.label_probabilities.items() if p >= 0.5}
        else:
            assert (ours.label, ours.probability) == (theirs["labels"][0], pytest.approx(theirs["scores"][0], abs=2e-5))
    one = ask(TEXTS[0], LABELS[:1], **template)
    assert bertie.predict(folder, TEXTS[:1], candidates=LABELS[:1], hypothesis=hypothesis)[0].probability == (
        pytest.approx(one["scores"][0], abs=2e-5)
    )


def sentence_model(encoder: Path, folder: Path) -> Path:
    """The encoder with the files of `sentence-transformers`."""
    told = {"pooling_mode": "mean"}
    families.save(families.load(encoder)[0], folder, tokenizer=Tokenizer.load(encoder))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(told))
    modules = [{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def test_the_nearest_label(encoder: Path, tmp_path: Path) -> None:
    folder = sentence_model(encoder, tmp_path / "m")
    found = bertie.predict(folder, TEXTS, candidates=LABELS)
    wanted = bertie.similarity(folder, TEXTS, LABELS)
    np.testing.assert_allclose([list(one.scores.values()) for one in found], wanted, atol=1e-6)
    assert [one.label for one in found] == [LABELS[i] for i in wanted.argmax(1)]
    assert bertie.predict(folder, ["g h"], candidates=LABELS)[0].label == "g h"
    with pytest.raises(UsageError, match=r"Omit --multi \(multi=True\)"):
        bertie.predict(folder, TEXTS, candidates=LABELS, multi=True)
    with pytest.raises(DataError, match="pairs"):
        bertie.predict(folder, [("a", "b")], candidates=LABELS)


def test_vectors_instead_of_labels_are_hinted_at(encoder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    folder = sentence_model(encoder, tmp_path / "m")
    for arguments, hinted in (((), True), (("--candidates", "a,b"), False)):
        code, out, err = bertie("predict", folder, *arguments, stdin="a b\n")
        label = json.loads(out)["label"]
        assert (code, isinstance(label, list), "`bertie embed` writes vectors" in err) == (0, hinted, hinted)
    _, out, err = bertie("predict", folder, stdin="a b\tc\n")
    assert (isinstance(json.loads(out)["label"], list), "bertie embed" in err) == (True, True)  # a line is a text
    (tmp_path / "pairs.csv").write_text("text1,text2\na,b\n")
    _, out, err = bertie("predict", folder, tmp_path / "pairs.csv")
    assert (isinstance(json.loads(out)["label"], float), "bertie embed" in err) == (True, False)


def test_the_command(encoder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    folder = with_labels(encoder, tmp_path / "nli", "contradiction", "neutral", "entailment")
    table = tmp_path / "t.csv"
    table.write_text("text,n\n" + "\n".join(f"{text},{n}" for n, text in enumerate(TEXTS)) + "\n")
    out = bertie.good("predict", folder, table, "--candidates", "a, g h,l")
    first = json.loads(out.splitlines()[0])
    assert first["label"] in LABELS
    assert sum(first["scores"].values()) == pytest.approx(1, abs=1e-5)
    for arguments, match in (
        (("--candidates", "a,a"), "each once"),
        (("--candidates", "a,b", "--hypothesis", "no place"), "needs one {}"),
        (("--candidates", ""), "Name the candidates, each once"),  # an unset variable of a shell
        (("--multi",), "--hypothesis and --multi need --candidates."),
        (("--hypothesis", "{}"), "--hypothesis and --multi need --candidates."),
        (("--candidates", "a,b", "--too-long", "window"), "Omit --too-long"),
    ):
        code, _, err = bertie("predict", folder, table, *arguments)
        assert (code, match in " ".join(err.split())) == (2, True), err
    other = with_labels(encoder, tmp_path / "other", "good", "bad", "fair")
    code, _, err = bertie("predict", other, table, "--candidates", "a,b")
    assert code == 2
    assert "its labels: good, bad, fair" in " ".join(err.split())
