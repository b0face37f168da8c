"""Folders as `sentence-transformers` writes them: the same vectors and the same scores as there, whatever they say."""

import json
from pathlib import Path

import numpy as np
import pytest

import bertie
from bertie.errors import DataError, UsageError
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.files import copy_other_files
from bertie.models.heads import HEADS
from bertie.models.sentence import SentenceModules, read_sentence, with_activation
from bertie.runs.weights import load_model
from bertie.tasks.embed import EmbedTask
from bertie.tasks.few_shot import FewShotTask
from bertie.text.tokenizer import Tokenizer
from toys import FAST, CommandLine, toy_model

sentence_transformers = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")

from sentence_transformers.base.modules import Dense, Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["a b c", "d", "e f g h i j k l a b c d", "B a ?", " b"]
WIDTH = 32


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("base"), "abcdefghijkl", max_position_embeddings=32)


def theirs(base: Path, folder: Path, pooling: object = "mean", *more: object, lower: bool = False, **options: object):
    """A model of theirs, saved to `folder` and opened again."""
    torch.manual_seed(1)
    modules = [Transformer(str(base), max_seq_length=10, do_lower_case=lower), Pooling(WIDTH, pooling), *more]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def ours(folder: Path, **options: object) -> np.ndarray:
    found = bertie.load(folder, "cpu").embedder(**options)
    return np.array([answer.label for answer in found.predict(TEXTS)], np.float32)


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize(
    "pooling", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("lasttoken", "cls", "mean")]
)
def test_every_way_of_pooling(base: Path, tmp_path: Path, pooling: object):
    wanted = theirs(base, tmp_path, pooling).encode(TEXTS)
    same(ours(tmp_path), wanted)
    if isinstance(pooling, str):  # the layout of older folders
        name = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "weightedmean": "weightedmean_tokens"}
        old = {f"pooling_mode_{name.get(pooling, pooling)}": True}
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": WIDTH, **old}))
        same(ours(tmp_path), wanted)


@pytest.mark.parametrize("activation", ["Tanh", "Identity", "ReLU", "GELU", "Sigmoid"])
def test_matrices_then_length_one(base: Path, tmp_path: Path, activation: str):
    dense = Dense(2 * WIDTH, 8, activation_function=getattr(torch.nn, activation)())
    wanted = theirs(base, tmp_path, ("cls", "mean"), dense, Dense(8, 6, bias=False), Normalize()).encode(TEXTS)
    same(ours(tmp_path), wanted)
    assert wanted.shape == (len(TEXTS), 6)
    with pytest.raises(UsageError, match="Omit pooling"):
        ours(tmp_path, pooling="max")


def test_prompts_lengths_and_similarity(base: Path, tmp_path: Path):
    peer = theirs(
        base,
        tmp_path,
        "mean",
        Normalize(),
        prompts={"query": "a b ", "passage": "l "},
        default_prompt_name="passage",
        truncate_dim=20,
        similarity_fn_name="manhattan",
    )
    same(ours(tmp_path), peer.encode(TEXTS))
    same(ours(tmp_path, prompt="query"), peer.encode(TEXTS, prompt_name="query"))
    same(ours(tmp_path, prefix="k: "), peer.encode(TEXTS, prompt="k: "))
    same(ours(tmp_path, prefix="", truncate_dim=7), peer.encode(TEXTS, prompt="", truncate_dim=7))
    same(ours(tmp_path, normalize=True), peer.encode(TEXTS, normalize_embeddings=True))
    pairs = [answer.label for answer in bertie.predict(bertie.load(tmp_path), [(TEXTS[0], TEXTS[1])])]
    vectors = peer.encode(TEXTS[:2])
    same(np.array(pairs), peer.similarity_pairwise(vectors[:1], vectors[1:]).numpy())
    with pytest.raises(UsageError, match=r"no prompt 'qerry'.*query"):
        ours(tmp_path, prompt="qerry")
    with pytest.raises(UsageError, match="exclude each other"):
        ours(tmp_path, prompt="query", prefix="a")


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities(kind: str):
    from bertie.tasks.embed import compare_vectors

    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    model = sentence_transformers.util.SimilarityFunction.to_similarity_fn(kind)
    same(compare_vectors(vectors[:2], vectors, kind), model(vectors[:2], vectors).numpy())


def test_small_letters(base: Path, tmp_path: Path):
    cased = base / "tokenizer.json"
    tree = json.loads(cased.read_text())
    tree["normalizer"] = None
    cased.write_text(json.dumps(tree))
    wanted = theirs(base, tmp_path, lower=True).encode(["B A", "b a"])
    same(wanted[0], wanted[1])
    found = bertie.load(tmp_path, "cpu").embedder()
    same(np.array([answer.label for answer in found.predict(["B A", "b a"])]), wanted)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_small_letters_remain_small_in_what_is_saved(tmp_path: Path, family: str):
    """The class of the folder would build its own normalizer again."""
    from transformers import AutoTokenizer, BertTokenizer, RobertaTokenizer

    letters, folder = [*"abAB", "##a", "##b"], tmp_path / "m"
    if family == "bert":
        peer = BertTokenizer({t: i for i, t in enumerate([*BERT_SPECIAL, *letters])}, do_lower_case=False)
    else:
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abABĠ"]
        peer = RobertaTokenizer(vocab={t: i for i, t in enumerate(tokens)}, merges=[])
    peer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    cased = Tokenizer.load(folder).encode("AB b").ids
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    ours = Tokenizer.load(folder)
    ours.save(tmp_path / "saved")
    found = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert found("AB b")["input_ids"] == ours.encode("AB b").ids == ours.encode("ab b").ids != cased
    (tmp_path / "saved" / "config.json").write_text(json.dumps({"model_type": family}))
    assert Tokenizer.load(tmp_path / "saved").encode("AB b").ids == ours.encode("ab b").ids


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_the_older_names_of_the_longest_text(base: Path, tmp_path: Path, family: str):
    theirs(base, tmp_path / "m")
    (tmp_path / "m" / "sentence_bert_config.json").unlink()
    told = {"max_seq_length": 5, "do_lower_case": True}
    (tmp_path / "m" / f"sentence_{family}_config.json").write_text(json.dumps(told))
    tokenizer = tmp_path / "m" / "tokenizer.json"
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "normalizer": None}))
    wanted = sentence_transformers.SentenceTransformer(str(tmp_path / "m"), device="cpu").encode([*TEXTS, "B"])
    found = bertie.load(tmp_path / "m", "cpu").embedder()
    same(np.array([answer.label for answer in found.predict([*TEXTS, "B"])]), wanted)
    assert found.max_length == 5
    copy_other_files(tmp_path / "m", tmp_path)
    assert (tmp_path / f"sentence_{family}_config.json").is_file()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    rows = [f"a b\t{'a b' if i % 2 else 'k l'} {'cdefgh'[i % 6]}\t{i % 2}" for i in range(24)]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return path


def tune(bertie: CommandLine, start: Path, pairs: Path, task: str, *more: str) -> tuple[Path, str]:
    """The model of a short run, and what was printed."""
    run = start.parent / f"run-{task}-{len(more)}"
    columns = ("--text", "sentence1", "--text", "sentence2", "--label", "score")
    code, _, err = bertie(
        *("finetune", start, "--task", task, "--train", pairs, "--dev", pairs, *columns, "-o", run, *FAST),
        *("epochs=1", "max_length=10", *more),
    )
    assert code == 0, err
    return run / "model", " ".join(err.split())


def test_fine_tuning_keeps_the_settings(base: Path, tmp_path: Path, pairs: Path, bertie: CommandLine):
    theirs(
        *(base, tmp_path / "m", ("lasttoken", "cls"), Normalize()),
        prompts={"document": "", "query": "a b "},
        default_prompt_name="query",
        truncate_dim=40,
        similarity_fn_name="dot",
    )
    tuned, told = tune(bertie, tmp_path / "m", pairs, "embed")
    assert (
        'settings are kept: pooling ["last", "cls"], normalize true, truncate_dim 40, similarity "dot", prompt' in told
    )
    peer = sentence_transformers.SentenceTransformer(str(tuned), device="cpu")
    same(ours(tuned), peer.encode(TEXTS))
    same(ours(tuned, prompt="document"), peer.encode(TEXTS, prompt_name="document"))
    kept = (peer.prompts, peer.default_prompt_name, peer.truncate_dim, peer.similarity_fn_name)
    assert kept == ({"document": "", "query": "a b "}, "query", 40, "dot")
    assert (peer[1].pooling_mode, type(peer[2]).__name__) == (("lasttoken", "cls"), "Normalize")

    options = ("task_options.pooling=max", "task_options.prompt=k", "task_options.normalize=false")
    other, _ = tune(bertie, tuned, pairs, "embed", *options)
    peer = sentence_transformers.SentenceTransformer(str(other), device="cpu")
    same(ours(other), peer.encode(TEXTS))
    assert (len(peer), peer[1].pooling_mode) == (2, "max")
    assert peer.prompts == {"document": "", "query": "a b ", "default": "k"}


def test_the_prompt_is_read_in_training(base: Path, tmp_path: Path):
    theirs(base, tmp_path, prompts={"query": "a b "}, default_prompt_name="query")
    task, _ = EmbedTask().continued(read_sentence(tmp_path, {}))
    encoded = task.encode([Example(("c", "d"))], Tokenizer.load(base), max_length=10, too_long="truncate")
    assert encoded.lengths.tolist() == [5, 5]


def test_what_is_not_continued_is_told(base: Path, tmp_path: Path):
    theirs(base, tmp_path, ("cls", "mean"), Dense(2 * WIDTH, 8), prompts={"q": "a "}, default_prompt_name="q")
    sentence = read_sentence(tmp_path, {})
    task, notes = EmbedTask().continued(sentence, {"pooling": "max"})
    assert (task.pooling, task.prompt, task.dense) == ("mean", "a ", ())
    assert notes[-1] == "the start model's Dense modules are not continued"
    _, (note,) = FewShotTask(("x", "y")).continued(sentence)
    assert "pooling, default prompt, Dense modules" in note
    assert FewShotTask(("x", "y")).continued(SentenceModules(("cls",), normalize=True))[1] == []


def test_the_command(base: Path, tmp_path: Path, bertie: CommandLine):
    peer = theirs(base, tmp_path / "m", ("cls", "max"), Dense(2 * WIDTH, 8), prompts={"query": "a b "})
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "v.npy"
    code, _, err = bertie("embed", tmp_path / "m", tmp_path / "texts.txt", "--prompt", "query", "-o", out)
    assert code == 0, err
    same(np.load(out), peer.encode([text.strip() for text in TEXTS], prompt_name="query"))
    code, _, err = bertie("embed", tmp_path / "m", tmp_path / "texts.txt", "--prompt", "passage")
    assert code == 2
    assert "no prompt 'passage'" in " ".join(err.split())
    code, _, err = bertie("convert", tmp_path / "m", "-o", tmp_path / "again")
    assert code == 0, err
    same(ours(tmp_path / "again"), ours(tmp_path / "m"))


@pytest.mark.parametrize("place", ["none", "config", "older", "settings"])
@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_scores_of_cross_encoders(base: Path, tmp_path: Path, place: str, activation: str):
    model = families.build(families.config(base), heads=lambda config: {"sequence": HEADS["sequence"](config, 1)})
    families.save(model, tmp_path, tokenizer=Tokenizer.load(base), labels=("LABEL_0",))
    named = f"torch.nn.modules.{'linear' if activation == 'Identity' else 'activation'}.{activation}"
    told = json.loads((tmp_path / "config.json").read_text())
    told |= {
        "config": {"sentence_transformers": {"activation_fn": named, "version": "5.0.0"}},
        "older": {"sbert_ce_default_activation_function": named},
    }.get(place, {})
    (tmp_path / "config.json").write_text(json.dumps(told))
    if place == "settings":  # as today's version writes it
        activation_fn = getattr(torch.nn, activation)()
        sentence_transformers.CrossEncoder(str(tmp_path), device="cpu", activation_fn=activation_fn).save(str(tmp_path))
    pairs = [("a b", "c d"), ("l", "k j i"), ("a", "a")]
    wanted = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu").predict(pairs)
    same(np.array([answer.label for answer in bertie.predict(bertie.load(tmp_path), pairs)]), wanted)


def test_a_default_prompt_of_a_cross_encoder_is_refused(base: Path, tmp_path: Path):
    model = families.build(families.config(base), heads=lambda config: {"sequence": HEADS["sequence"](config, 1)})
    families.save(model, tmp_path, tokenizer=Tokenizer.load(base), labels=("LABEL_0",))
    prompts = {"query": "a b "}
    peer = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu", prompts=prompts, default_prompt_name="query")
    peer.save(str(tmp_path))
    with pytest.raises(DataError, match="default prompt 'query' of a cross-encoder"):
        load_model(tmp_path)
    settings = tmp_path / "config_sentence_transformers.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "default_prompt_name": None}))
    score = bertie.predict(bertie.load(tmp_path), [("a b c", "d")])[0].label
    assert score == pytest.approx(float(peer.predict([("c", "d")])[0]), abs=2e-5)


def test_numbers_of_pairs_are_the_same_in_a_cross_encoder(base: Path, tmp_path: Path, pairs: Path, bertie: CommandLine):
    """Which would apply a sigmoid to them. A model of single texts names no activation, since it is none."""
    model = families.build(families.config(base), heads=lambda config: {"sequence": HEADS["sequence"](config, 1)})
    families.save(model, tmp_path / "m", tokenizer=Tokenizer.load(base), labels=("score",))
    config = tmp_path / "m" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **with_activation({}, "Sigmoid")}))
    tuned, _ = tune(bertie, tmp_path / "m", pairs, "regression")
    texts = [("a b", "c d"), ("l", "k j i")]
    wanted = sentence_transformers.CrossEncoder(str(tuned), device="cpu").predict(texts)
    found = [
        json.loads(line)["label"] for line in bertie.good("predict", tuned, stdin="a b\tc d\nl\tk j i\n").splitlines()
    ]
    same(np.array(found), wanted)
    assert read_sentence(tuned, json.loads((tuned / "config.json").read_text())).activation == "Identity"
    (tmp_path / "one.csv").write_text("text,label\n" + "a b,1\nc d,0\n" * 12)
    single = ("--task", "regression", "--train", tmp_path / "one.csv", "-o", tmp_path / "one", *FAST, "max_length=9")
    bertie.good("finetune", tuned, *single)
    assert json.loads(bertie.good("predict", tmp_path / "one", stdin="a b\n"))["label"]


def test_a_cross_encoder_reads_pairs(base: Path, tmp_path: Path, bertie: CommandLine):
    """A line of two texts is a pair; a single text has no score."""
    model = families.build(families.config(base), heads=lambda config: {"sequence": HEADS["sequence"](config, 1)})
    families.save(model, tmp_path, tokenizer=Tokenizer.load(base), labels=("LABEL_0",))
    peer = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    peer.save(str(tmp_path))
    found = json.loads(bertie.good("predict", tmp_path, "-", stdin="a b\tc d\n"))
    assert found["label"] == pytest.approx(float(peer.predict([("a b", "c d")])[0]), abs=2e-5)
    table = tmp_path / "t.csv"
    table.write_text("text\na b\n")
    code, _, err = bertie("predict", tmp_path, table)
    assert (code, "pairs of texts" in err) == (3, True)
