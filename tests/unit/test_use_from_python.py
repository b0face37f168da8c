"""The functions people call from Python do what the commands of the same names do."""

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertie
from bertie import platform
from bertie.errors import DataError, UsageError, WrongModel
from bertie.infer.choose import engine_of
from bertie.infer.predict import Predictor
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.nn.layer import ACTIVATIONS
from bertie.runs.weights import load_model
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.text.formats import FORMATS, Format
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary
from bertie.train import loop
from bertie.training_facts import TrainingFacts
from toys import CommandLine, toy_model, toy_writer

TEXTS = ["a b c", "d", "e f g"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("encoder"), "abcdefghijkl")


def classifier(encoder: Path, folder: Path, *labels: str) -> Path:
    """A random one, of pairs where it has one label."""
    model = families.build(
        families.config(encoder), heads=lambda config: {"sequence": HEADS["sequence"](config, len(labels))}
    )
    families.save(model, folder, tokenizer=Tokenizer.load(encoder), labels=labels)
    return folder


@pytest.fixture
def run(bertie: CommandLine) -> CommandLine:
    return bertie


def test_predict_and_evaluate(encoder: Path, tmp_path: Path, run: CommandLine) -> None:
    folder, table = classifier(encoder, tmp_path / "m", "bad", "good"), tmp_path / "t.csv"
    table.write_text(
        "review,stars\n" + "".join(f"{text},{'bad good'.split()[n % 2]}\n" for n, text in enumerate(TEXTS))
    )
    found = bertie.predict(folder, TEXTS, device="cpu")
    for answer, of_torch in zip(found, bertie.predict(bertie.load(folder), TEXTS), strict=True):
        assert answer.label == of_torch.label
        assert answer.probability == pytest.approx(of_torch.probability, abs=1e-5)  # the engines round differently
        assert answer.label_probabilities[answer.label] == answer.probability
        assert sum(answer.label_probabilities.values()) == pytest.approx(1)
    report = bertie.evaluate(folder, table, text=["review"], label="stars")
    told = json.loads(run.good("evaluate", folder, table, "--text", "review", "--label", "stars", "--json"))
    assert json.loads(json.dumps(report.to_dict())) == told
    with pytest.raises(UsageError, match="either examples, or `data`"):
        bertie.evaluate(folder)
    with pytest.raises(UsageError, match="fp32"):
        bertie.predict(folder, TEXTS, precision="fp3")


def test_embed_and_similarity(encoder: Path, tmp_path: Path, run: CommandLine) -> None:
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "v.npy"
    run.good("embed", encoder, tmp_path / "t.txt", "-o", out, "--normalize", "--pooling", "cls,max")
    vectors = bertie.embed(encoder, TEXTS, normalize=True, pooling=("cls", "max"))
    np.testing.assert_array_equal(vectors, np.load(out))
    assert vectors.shape == (3, 64)
    np.testing.assert_allclose(
        bertie.similarity(encoder, TEXTS, TEXTS[:2], pooling=("cls", "max")), vectors @ vectors[:2].T, atol=1e-5
    )
    assert bertie.embed(encoder, []).shape == (0, 32)
    assert bertie.similarity(encoder, [], TEXTS).shape == (0, 3)
    assert bertie.similarity(encoder, TEXTS, []).shape == (3, 0)
    np.testing.assert_array_equal(bertie.embed(encoder, iter(TEXTS)), bertie.embed(encoder, TEXTS))
    with pytest.raises(UsageError, match="mean"):
        bertie.embed(encoder, TEXTS, pooling="middle")
    with pytest.raises(UsageError, match="pooling is 3; a text or a list"):
        bertie.embed(encoder, TEXTS, pooling=3)
    with pytest.raises(UsageError, match="truncate_dim is 99"):
        bertie.embed(encoder, TEXTS, truncate_dim=99)


def test_rank(encoder: Path, tmp_path: Path) -> None:
    """By a score, by the second of two labels, by vectors; a model that gives none of them says so."""
    passages = ["a b", "k l", "c", "a b"]
    scored = classifier(encoder, tmp_path / "one", "score")
    scores = [answer.label for answer in bertie.predict(scored, [("a", text) for text in passages])]
    order = sorted(range(4), key=lambda index: -scores[index])
    found = bertie.rank(scored, "a", passages)
    assert [one.index for one in found] == order
    assert [one.text for one in found] == [passages[index] for index in order]
    assert [one.score for one in bertie.rank(scored, "a", passages, top=2)] == [scores[index] for index in order[:2]]
    two = bertie.rank(classifier(encoder, tmp_path / "two", "no", "yes"), "a", passages)
    assert all(0 < one.score < 1 for one in two)
    with pytest.raises(WrongModel):
        bertie.rank(classifier(encoder, tmp_path / "three", "a", "b", "c"), "a", passages)


def test_masks_and_perplexity(encoder: Path, tmp_path: Path, run: CommandLine) -> None:
    model = families.build(families.config(encoder), heads=lambda config: {"mlm": HEADS["mlm"](config, 0)})
    families.save(model, str(tmp_path / "m"), tokenizer=Tokenizer.load(encoder))
    filled = bertie.fill_mask(tmp_path / "m", "a [MASK] c", top=2)
    told = json.loads(run.good("fill-mask", tmp_path / "m", "a [MASK] c", "--top", "2", "--json"))
    assert [one.token for one in filled[0]] == [one["token"] for one in told["masks"][0]]
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    told = json.loads(run.good("perplexity", tmp_path / "m", tmp_path / "t.txt", "--json"))
    assert bertie.perplexity(tmp_path / "m", TEXTS).per_word == pytest.approx(told["per_word"])


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_pickled_and_copied(encoder: Path, tmp_path: Path, engine: Any) -> None:
    model = bertie.load(classifier(encoder, tmp_path / "m", "bad", "good"), engine=engine)
    expected = model.predict(TEXTS)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert again.predict(TEXTS) == expected
        assert (again.engine, again.folder) == (engine, model.folder)
        assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    weight = model.module.heads["sequence"].get_parameter("classifier.weight")
    with torch.no_grad():
        weight.zero_()  # as a loop of one's own may
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert again.predict(TEXTS)[0].probability != expected[0].probability


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_predictors_are_pickled(encoder: Path, tmp_path: Path, engine: Any) -> None:
    model = load_model(classifier(encoder, tmp_path / "m", "bad", "good"))
    predictor = Predictor(engine_of(model, engine), model.tokenizer)
    expected = predictor.predict(TEXTS)
    predictor.tokenizer.settings["bertie"] = {"texts": 1}
    predictor.tokenizer.flat_ids(TEXTS)  # makes the fast encoder
    for again in (pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor)):
        assert again.predict(TEXTS) == expected
        assert again.tokenizer.fingerprint == predictor.tokenizer.fingerprint
        again.tokenizer.settings["bertie"]["texts"] = 2
    assert predictor.tokenizer.settings["bertie"] == {"texts": 1}


@pytest.mark.parametrize("family", FORMATS, ids=lambda family: family.classes[0])
def test_tokenizers_are_pickled(family: Format) -> None:
    if family.japanese:
        pytest.skip("made by another library")
    tokenizer = train_vocabulary(count_words([" ".join(TEXTS * 9)]), size=400, family=family)
    assert pickle.loads(pickle.dumps(tokenizer)).encode("a b").ids == tokenizer.encode("a b").ids


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_pickled(activation: str) -> None:
    function = ACTIVATIONS[activation]
    assert pickle.loads(pickle.dumps(function))(torch.ones(2)).equal(function(torch.ones(2)))


CALLS = {  # of every function that takes texts
    "texts": [
        bertie.predict,
        bertie.embed,
        lambda model, texts: bertie.embed(model, texts, tokens=True),
        lambda model, texts: bertie.load(model).predict(texts),
        bertie.perplexity,
        bertie.words,
        bertie.write,
    ],
    "first": [lambda model, texts: bertie.similarity(model, texts, ["a"])],
    "second": [lambda model, texts: bertie.similarity(model, ["a"], texts)],
    "passages": [lambda model, texts: bertie.rank(model, "a", texts)],
    "candidates": [lambda model, texts: bertie.predict(model, ["a"], candidates=texts)],
}


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in CALLS.items() for call in calls])
def test_what_is_no_list_of_texts_is_refused(folders: dict[str, Path], name: str, call: Callable[..., object]) -> None:
    """A string would be read letter by letter."""
    folder = folders["mlm" if call is bertie.perplexity else "labels"]
    with pytest.raises(UsageError, match=rf"{name} (must be a list of texts: |is 'abc'; a list .* Pass \['abc'\])"):
        call(folder, "abc")
    with pytest.raises(UsageError, match=rf"{name} (is 5; a list|must be a list)"):
        call(folder, 5)
    for wrong in (None, 5, [], b"a") if name == "candidates" else ([], b"a", object()):
        with pytest.raises(UsageError, match=f"^Text 2 of {name} is .*; it must be a string"):
            call(folder, iter(["a b", wrong]))


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), "", " "])
def test_a_text_that_is_missing_has_a_reason_and_the_others_have_answers(
    folders: dict[str, Path], missing: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in files, where a number is a text too."""
    texts, why = ["a b", missing, 7], "empty text" if isinstance(missing, str) else "no text"
    first, second, third = bertie.predict(folders["labels"], texts)
    assert [second.label, second.error, second.as_json()] == [None, why, {"error": why}]
    assert [first, third] == bertie.predict(folders["labels"], ["a b", "7"])
    assert f"1 of 3 texts have no answer: {why} (text 2)" in " ".join(capsys.readouterr().err.split())
    vectors = bertie.embed(folders["labels"], texts)
    assert np.isnan(vectors).all(1).tolist() == [False, True, False]
    assert [one is None for one in bertie.embed(folders["labels"], texts, tokens=True)] == [False, True, False]
    assert np.isnan(bertie.similarity(folders["labels"], ["a"], texts)).tolist() == [[False, True, False]]
    ranked = bertie.rank(folders["pairs"], "a", texts)
    assert (len(ranked), ranked[-1].index, math.isnan(ranked[-1].score)) == (3, 1, True)
    assert bertie.write(folders["writer"], ["a", missing], max_new_tokens=2)[1] is None
    assert bertie.perplexity(folders["mlm"], texts).left_out == 1
    for call in (bertie.predict, bertie.embed):
        with pytest.raises(DataError, match=f"Text 1: {why}"):
            call(folders["labels"], [missing])


@pytest.mark.parametrize("number", [7, np.int64(7), np.uint8(7)])
def test_numbers_of_numpy_are_texts_as_in_files(folders: dict[str, Path], number: Any) -> None:
    expected = bertie.predict(folders["labels"], ["7", "0.5"])
    assert bertie.predict(folders["labels"], [number, np.float32(0.5)]) == expected
    assert not np.isnan(bertie.embed(folders["labels"], np.array([1, 2]))).any()


def test_an_unknown_argument_names_the_nearest(folders: dict[str, Path], tmp_path: Path) -> None:
    """Also what other libraries call it: of every public function, and of the settings of a run."""
    model: Any = folders["labels"]
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: bertie.predict(model, ["a"], max_lenght=8), r"predict\(\) has no argument 'max_lenght'.*'max_length'"),
        (lambda: bertie.embed(model, ["a"], batch_size=8), r"embed\(\) has no argument 'batch_size'. Choices: columns"),
        (
            lambda: bertie.embed(model, ["a"], normalize_embeddings=True),
            "'normalize_embeddings'. Did you mean 'normalize'",
        ),
        (lambda: bertie.similarity(model, ["a"], ["b"], prefx=""), "Did you mean 'prefix'"),
        (lambda: bertie.rank(model, "a", ["b"], tops=1), "Did you mean 'top'"),
        (lambda: bertie.write(model, ["a"], max_tokens=1), "Did you mean 'max_new_tokens'"),
        (lambda: bertie.words(model, ["a"], words="a"), "Did you mean 'word'"),
        (lambda: bertie.evaluate(model, "f.csv", lable="x"), "Did you mean 'label'"),
        (lambda: bertie.fill_mask(model, "a", top_k=1), "Did you mean 'top'"),
        (lambda: bertie.perplexity(model, ["a"], lenght=1), "perplexity.. has no argument"),
        (lambda: bertie.probe(model, "f", output=tmp_path, test_file="x"), "Did you mean 'test'"),
        (lambda: bertie.load(model, dtype="bf16"), r"load\(\) has no argument 'dtype'. Did you mean 'precision'"),  # type: ignore[call-arg]
        (lambda: platform.Predictor(model, batch_size=8), r"Predictor\(\) has no argument 'batch_size'"),  # type: ignore[call-arg]
        (lambda: bertie.finetune(model, "r.csv", overwite=True), "Did you mean 'overwrite'"),  # type: ignore[call-arg]
        (lambda: bertie.pretrain(model, "r", overwite=True), "Did you mean 'overwrite'"),  # type: ignore[call-arg]
        (lambda: loop.fit(model, "r", batches=1), r"fit\(\) has no argument 'batches'"),  # type: ignore[call-arg]
        (lambda: bertie.FinetuneConfig(model="m", learning_rate=1e-4), "'learning_rate'. Did you mean 'optim.lr'"),  # type: ignore[call-arg]
        (lambda: bertie.FinetuneConfig(model="m", train={"num_train_epochs": 3}), "Did you mean 'epochs'"),
        (lambda: bertie.PretrainConfig(max_seq_length=128), "Did you mean 'max_length'"),  # type: ignore[call-arg]
    ]
    for call, told in calls:
        with pytest.raises(UsageError, match=told):
            call()


@pytest.fixture(scope="module")
def folders(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A masked language model, a classifier, and a cross-encoder."""
    home, shape = tmp_path_factory.mktemp("folders"), families.config(encoder)
    model = families.build(shape, heads=lambda config: {"mlm": HEADS["mlm"](config, 0)})
    families.save(model, home / "mlm", tokenizer=Tokenizer.load(encoder))
    pairs = Tokenizer.load(encoder)
    task = SequenceTask.make(("no", "yes"), {})
    model = families.build(shape, heads=task.heads)
    model.training_facts = with_task(TrainingFacts(max_length=32, too_long="truncate", texts=2), task)
    families.save(model, home / "pairs", tokenizer=pairs, labels=task.labels)
    return {
        "mlm": home / "mlm",
        "labels": classifier(encoder, home / "labels", "entailment", "contradiction"),
        "pairs": home / "pairs",
        "writer": toy_writer(home / "writer"),
    }


def test_another_number_of_texts_is_refused(encoder: Path, folders: dict[str, Path]) -> None:
    """As by the commands. A folder that does not name its number of texts reads single texts and pairs."""
    with pytest.raises(DataError, match="reads pairs of texts, and text 2 is a single text"):
        bertie.predict(folders["pairs"], [("a", "b"), "c"])
    with pytest.raises(DataError, match="reads pairs of texts, and text 1 is a tuple of 3 texts"):
        bertie.predict(folders["pairs"], [("a", "b", "c")])
    assert len(bertie.predict(folders["pairs"], [["a", "b"]])) == 1
    with pytest.raises(DataError, match="single texts or pairs of texts, and text 1 is a tuple of 3 texts"):
        bertie.predict(folders["labels"], [("a", "b", "c")])
    for pair in (("a", "b"), ["a", "b"]):
        with pytest.raises(UsageError, match="Text 1 of texts is"):
            bertie.embed(encoder, [pair])


def test_options_that_would_be_ignored_are_refused(encoder: Path, folders: dict[str, Path]) -> None:
    for options, told in (
        ({"tokens": True, "prefix": "a"}, "^`tokens` excludes `prefix`: vectors of tokens are not pooled"),
        ({"tokens": True, "normalize": True, "truncate_dim": 4}, "^`tokens` excludes `normalize`, `truncate_dim`: "),
        ({"tokens": True, "from_layers": 0}, r"from_layers is 0; a text or a list was expected"),
        ({"from_layers": [1]}, "Pass `tokens=True`"),
        ({"prompt": "query"}, "The model has no prompts. Pass the text with --prefix"),
    ):
        with pytest.raises(UsageError, match=told):
            bertie.embed(encoder, ["a"], **options)
    assert len(bertie.embed(encoder, ["a"], tokens=True, normalize=False, max_length=16)) == 1
    for options, told in (
        ({"multi": True}, "^`hypothesis` and `multi` need `candidates`"),
        ({"hypothesis": "{}"}, "^`hypothesis` and `multi` need `candidates`"),
        ({"candidates": []}, "Name the candidates"),
        ({"candidates": ["a", "b"], "too_long": "window"}, "Omit `too_long`"),
        ({"candidates": ["a", "b"], "head": "x"}, "`head` does not work with `candidates`"),
    ):
        with pytest.raises(UsageError, match=told):
            bertie.predict(folders["labels"], ["a"], **options)
    with pytest.raises(UsageError, match="top is -1"):
        bertie.rank(folders["pairs"], "a", ["b", "c"], top=-1)
    with pytest.raises(UsageError, match="query is None; a text was expected"):
        bertie.rank(folders["pairs"], None, ["b", "c"])
    assert bertie.rank(folders["pairs"], "a", []) == bertie.rank(folders["pairs"], "a", ["b"], top=0) == []
    assert [one.text for one in bertie.rank(folders["pairs"], "a", iter(["b"]))] == ["b"]
    with pytest.raises(UsageError, match="top is -1"):
        bertie.fill_mask(folders["mlm"], "a [MASK]", top=-1)
    with pytest.raises(UsageError, match="top is '3'"):
        bertie.fill_mask(folders["mlm"], "a [MASK]", top="3")
    with pytest.raises(UsageError, match=r"text is \['a \[MASK\]'\]; a text was expected"):
        bertie.fill_mask(folders["mlm"], ["a [MASK]"])


def test_texts_may_be_any_iterable(folders: dict[str, Path]) -> None:
    assert bertie.predict(folders["labels"], iter(TEXTS)) == bertie.predict(folders["labels"], TEXTS)
    assert bertie.perplexity(folders["mlm"], iter(TEXTS)) == bertie.perplexity(folders["mlm"], TEXTS)
    assert len(bertie.write(folders["writer"], iter(["a", "b"]), max_new_tokens=2)) == 2


def test_arguments_of_another_type_are_named(folders: dict[str, Path], tmp_path: Path) -> None:
    config = bertie.FinetuneConfig(model=str(folders["labels"]), train_file="t.csv")
    wrong: list[tuple[Callable[[], object], str]] = [
        (
            lambda: bertie.finetune({"model": "m"}, tmp_path / "run"),
            "model is .*; a text or a path or None",
        ),  # type: ignore[arg-type]
        (lambda: bertie.pretrain(config="tiny.yaml"), "tiny.yaml is neither a file nor a recipe"),  # type: ignore[arg-type]
        (
            lambda: bertie.finetune(config=config, output=tmp_path / "run", callbacks=3),
            r"finetune\(\): callbacks is 3; a list",
        ),  # type: ignore[arg-type]
        (lambda: bertie.finetune(config=config, output=3), r"finetune\(\): output is 3; a text or a path or None"),  # type: ignore[arg-type]
        (
            lambda: bertie.evaluate(folders["labels"], "t.csv", text=[3]),
            r"evaluate\(\): text is \[3\]; a text or a list was",
        ),  # type: ignore[list-item]
        (lambda: bertie.evaluate(folders["labels"], "t.csv", label_names=["a"]), "label_names .* a dictionary"),  # type: ignore[arg-type]
        (lambda: bertie.predict(folders["labels"], ["a"], device=3.5), "device is 3.5; a text was expected"),  # type: ignore[arg-type]
        (lambda: bertie.perplexity(3, ["a"]), "model is 3; a name, a folder or what bertie.load returns was expected"),  # type: ignore[arg-type]
        (lambda: bertie.Tokenizer.load(3), "folder is 3"),  # type: ignore[arg-type]
        (lambda: bertie.load(""), "'' is no name or path of a folder"),
        (lambda: bertie.words(folders["labels"], ["a b", "b c"], word="b", baseline="a b"), "baseline must be a list"),
        (lambda: bertie.words(folders["labels"], ["a b", "b c"], word=3), "word is 3"),
        (lambda: bertie.words(folders["labels"], ["a b", "b c"], pooling=None), "pooling is None"),
    ]
    for call, said in wrong:
        with pytest.raises(UsageError, match=said):
            call()
    assert not (tmp_path / "run").exists()


def test_a_name_alone_is_a_list_of_one_and_label_names_may_be_numbers(
    folders: dict[str, Path], encoder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="Unknown probe 'wordorder'"):
        bertie.probe(encoder, "a.conllu", output=tmp_path / "run", probes="wordorder")
    with pytest.raises(DataError, match=r"a\.conllu cannot be read"):
        bertie.probe(encoder, "a.conllu", output=tmp_path / "run", probes="order")
    table = tmp_path / "t.csv"
    table.write_text("text,label\na,0\nb,1\n")
    names = dict(enumerate(bertie.load(folders["labels"]).labels))
    texts = {str(number): name for number, name in names.items()}
    assert bertie.evaluate(folders["labels"], table, label_names=names) == bertie.evaluate(
        folders["labels"], table, label_names=texts
    )


def test_settings_may_be_paths() -> None:
    given = bertie.FinetuneConfig(model=Path("m"), train_file=Path("a.csv"))  # type: ignore[arg-type]
    assert given == bertie.FinetuneConfig(model="m", train_file="a.csv")


def test_a_column_of_a_table_is_embedded(encoder: Path, tmp_path: Path) -> None:
    """The names of its columns were read as texts."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS, "more": TEXTS[::-1]})
    expected = bertie.embed(encoder, TEXTS)
    for texts in (table, {"text": TEXTS}, table["text"], [{"text": text} for text in TEXTS]):
        np.testing.assert_array_equal(bertie.embed(encoder, texts), expected)
    np.testing.assert_array_equal(bertie.embed(encoder, table, text="more"), expected[::-1])
    with pytest.raises(UsageError, match="Pass one column"):
        bertie.similarity(encoder, table, TEXTS)


@pytest.mark.parametrize("wrong", [None, 5, "folder", torch.nn.Linear(1, 1)])
def test_what_is_no_model(wrong: Any) -> None:
    with pytest.raises(UsageError, match="must be what"):
        platform.Predictor(wrong)


def test_values_of_other_types(encoder: Path, tmp_path: Path) -> None:
    model = families.build(families.config(encoder), heads=lambda config: {"mlm": HEADS["mlm"](config, 0)})
    families.save(model, tmp_path / "m", tokenizer=Tokenizer.load(encoder))
    with pytest.raises(UsageError, match="Unknown precision torch"):
        bertie.embed(encoder, TEXTS, precision=torch.bfloat16)
    for length in (30.5, "30"):
        with pytest.raises(UsageError, match=r"max_length is .*; a whole number or None was expected"):
            bertie.embed(encoder, TEXTS, max_length=length)
    for length in (0, -1, 10**6):
        with pytest.raises(UsageError, match="must be 4 to 64"):
            bertie.embed(encoder, TEXTS, max_length=length)
        with pytest.raises(UsageError, match="must be 4 to 64"):
            bertie.perplexity(tmp_path / "m", TEXTS, max_length=length)
    two = bertie.embed(encoder, TEXTS, tokens=True, from_layers=np.array([0, 1]))
    assert [*two[0].vectors] == [*bertie.embed(encoder, TEXTS, tokens=True, from_layers=[0, 1])[0].vectors]
    assert len(bertie.fill_mask(tmp_path / "m", "a [MASK]", top=np.int64(2))[0]) == 2


def test_an_open_model_refuses_another_device_and_precision(encoder: Path) -> None:
    model = bertie.load(encoder)
    assert bertie.embed(model, TEXTS, device="auto", precision="fp32").shape == (3, 32)
    for options in ({"device": "cuda"}, {"precision": "bf16"}, {"engine": "torch"}):
        with pytest.raises(UsageError, match="is open already"):
            bertie.embed(model, TEXTS, **options)  # type: ignore[call-overload]
