"""Probes find what is there to find, and their controls do not; runs are resumed; words are compared in texts."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import bertie as library
from bertie.apps.probe import contexts, labels, probes, run, trees
from bertie.apps.probe.sentences import Sentence, read_sentences, source, spaced_sentence
from bertie.errors import DataError, UsageError
from bertie.files import read_json, write_json
from bertie.metrics.base import Float
from toys import CommandLine, toy_model

WORDS = {"NOUN": "abcd", "VERB": "efgh", "ADJ": "ijkl"}
LETTERS = "abcdefghijkl"


def chain(*heads: int) -> trees.Tree:
    return trees.Tree(heads, (True,) * len(heads))


def random_sentence(rng: np.random.Generator, size: int) -> Sentence:
    """A random tree over random words."""
    heads = [0, *(int(rng.integers(1, n)) for n in range(2, size + 1))]
    made = spaced_sentence([LETTERS[i] for i in rng.integers(12, size=size)])
    upos = tuple(next(tag for tag, words in WORDS.items() if word in words) for word in made.words)
    return Sentence(made.text, made.spans, upos=upos, heads=tuple(heads), relations=upos)


def conllu(sentences: list[Sentence], *, heads: bool = True) -> str:
    rows = [
        [f"{n}\t{w}\t_\t{tag}\t_\t_\t{head if heads else '_'}\t{relation}\t_\t_" for n, (w, tag, head, relation) in
         enumerate(zip(one.words, one.upos, one.heads, one.relations, strict=True), 1)] for one in sentences
    ]  # fmt: skip
    return "".join("\n".join(lines) + "\n\n" for lines in rows)


# The structural probe ------------------------------------------------------------------------------------------------


def paths(tree: trees.Tree) -> Float:
    """Vectors under which squared distances are those of the tree: the edges on the way to the root. -> (S, S)"""
    rows = np.zeros((len(tree.heads), len(tree.heads)))
    for word, head in enumerate(tree.heads):
        if head:
            rows[word] = rows[head - 1]
            rows[word, word] = 1
    return rows


def test_distances_in_a_tree_made_by_hand() -> None:
    tree = chain(2, 0, 2, 3)
    assert tree.edges() == {(0, 1), (1, 2), (2, 3)}
    np.testing.assert_array_equal(tree.distances(), [[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]])
    x = paths(tree)
    np.testing.assert_array_equal(np.square(x[:, None] - x[None]).sum(-1), tree.distances())


def test_loss_is_that_of_the_published_formula() -> None:
    predicted = torch.tensor(
        [[[0.0, 3.0, 1.0], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 2.0, 0.0], [2.0, 0, 0], [0] * 3]]
    )
    told = torch.tensor([[[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]], [[0.0, 1.0, 0.0], [1.0, 0, 0], [0] * 3]])
    expected = ((2 + 1 + 1) * 2 / 9 + 1 * 2 / 4) / 2
    assert float(trees.loss(predicted, told, torch.tensor([3, 2]))) == pytest.approx(expected)


def test_measures_of_distances() -> None:
    tree = trees.Tree((2, 0, 2, 2), (True, True, True, False))  # the last is punctuation
    assert trees.uuas_counts(tree.distances(), tree) == (2, 2)
    wrong = np.array([[0, 5, 1, 1], [5, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0.0]])
    assert trees.uuas_counts(wrong, tree) == (1, 2)
    assert trees.spearman(tree.distances(), tree.distances()) == pytest.approx(1)
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    a, b = rng.random((6, 6)), rng.integers(4, size=(6, 6)).astype(float)
    assert trees.spearman(a, b) == pytest.approx(np.mean([spearmanr(x, y)[0] for x, y in zip(a, b, strict=True)]))
    sums = np.zeros((2, 92))
    sums[0, 0], sums[0, 46], sums[1, 1], sums[1, 47] = 0.5, 1, 0.9, 1
    assert trees.mean_over_lengths(sums.sum(0)) == pytest.approx(0.7)
    assert trees.mean_over_lengths(np.zeros(92)) == 0


def test_a_linear_map_that_hides_trees_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are paths to the root, turned by a random matrix among noise; a probe must find the plane."""
    monkeypatch.setattr(trees, "EPOCHS", 12)
    rng = np.random.default_rng(1)
    sentences = [random_sentence(rng, int(rng.integers(5, 9))) for _ in range(160)]
    turn = np.linalg.qr(rng.normal(size=(24, 24)))[0]
    told = [trees.sentence_tree(one) for one in sentences]
    vectors = []
    for tree in told:
        x = np.zeros((len(tree.heads), 24))
        x[:, : len(tree.heads)] = paths(tree)
        x[:, 8:] = rng.normal(size=(len(x), 16)) * 2
        vectors.append((x @ turn).astype(np.float32))
    map_HR = trees.fit_structural_probe(vectors[:120], told[:120])
    found = [trees.predicted(x, map_HR) for x in vectors[120:]]
    edges, rho = trees.edge_counts(found, told[120:])
    plain, _ = trees.edge_counts([trees.predicted(x, np.eye(24, dtype=np.float32)) for x in vectors[120:]], told[120:])
    assert edges[:, 0].sum() / edges[:, 1].sum() > 0.85
    assert edges[:, 0].sum() > 1.5 * plain[:, 0].sum()
    assert trees.mean_over_lengths(rho.sum(0)) > 0.8
    control = [trees.control_tree(one, 0) for one in sentences[120:]]
    assert all(tree.distances().max() < np.inf for tree in control), "control trees are trees"


# Labels --------------------------------------------------------------------------------------------------------------


def test_labels_are_those_of_scikit_learn_on_scaled_vectors() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6)).astype(np.float32) * 5 + 1
    y = np.where(x[:, 0] > 1, "a", np.where(x[:, 1] > 0, "b", "c"))
    expected = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[:200], y[:200]).predict(x[200:])
    assert (labels.predicted_labels(x[:200], y[:200], x[200:]) == expected).mean() > 0.98
    assert set(labels.predicted_labels(x, np.full(300, "a"), x)) == {"a"}


def test_control_labels_follow_words() -> None:
    rng = np.random.default_rng(0)
    items = labels.label_words(lambda one: one.upos)
    a, b = (items([random_sentence(rng, 6) for _ in range(40)]) for _ in range(2))
    told, truth = labels.control_labels(a, b, 3)
    by_word = dict(zip(a.keys, told, strict=True))
    assert all(by_word[key] == label for key, label in zip(a.keys, told, strict=True))
    assert all(by_word[key] == label for key, label in zip(b.keys, truth, strict=True))
    assert (labels.control_labels(a, b, 4)[0] != told).any()


def test_a_probe_and_its_control_are_told_apart() -> None:
    """Vectors with the part of speech in them, and nothing else of the word: the control task fails."""
    rng = np.random.default_rng(0)
    train, test = ([random_sentence(rng, 6) for _ in range(n)] for n in (80, 40))
    probe = probes.PROBES["pos"]

    def vectors(sentences: list[Sentence]) -> NDArray[np.float32]:
        tags = [list(WORDS).index(tag) for one in sentences for tag in one.upos]
        return (np.eye(8)[tags] + rng.normal(size=(len(tags), 8)) * 0.1).astype(np.float32)

    samples = [probes.ProbeSample(some, vectors(some)) for some in (train, test)]
    found = [probe.measure(*samples, control=on, seed=0) for on in (False, True)]
    parts = dict(zip(probes.PROBE_PARTS, [*found, *found], strict=True))
    figures = probes.compute_metric_figures(parts, "accuracy")
    assert figures["model"] > 0.99
    assert figures["control"] < 0.75
    low, high = figures["interval_95"]["selectivity"]
    assert low <= figures["selectivity"] <= high
    assert figures["gain"] == 0


def test_items_of_names_orders_and_lengths() -> None:
    made = spaced_sentence("New York is big".split())
    found = labels.mentions([made, Sentence(made.text, made.spans, tags=("B-LOC", "I-LOC", "O", "O"))])
    assert found.rows.tolist() == [[4, 6]]
    assert (found.labels.tolist(), found.keys.tolist(), found.sentence.tolist()) == (["LOC"], ["New York"], [1])
    np.testing.assert_array_equal(found.vectors(np.arange(16, dtype=np.float32).reshape(8, 2)), [[9, 10]])
    mixed = labels.with_shuffled([spaced_sentence("a b c d e".split()), spaced_sentence("a b".split())], 0)
    assert [one.text for one in mixed[:1]] == ["a b c d e"]
    assert sorted(mixed[1].words) == list("abcde")
    assert mixed[1].text != mixed[0].text
    assert labels.orders(mixed).labels.tolist() == ["in order", "shuffled"]
    lengths = labels.lengths([spaced_sentence(["a"] * n) for n in (5, 6, 7, 8, 9, 30)] * 2)
    a, b = labels.binned_items(lengths, lengths)
    assert a.labels.tolist() == b.labels.tolist() == list("012345")


# Runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("encoder"), [*LETTERS, "an", "un", "##do"])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "a.conllu").write_text(conllu([random_sentence(rng, int(rng.integers(5, 9))) for _ in range(30)]))
    (tmp_path / "b.conll").write_text("".join("a B-X\nb O\nc B-Y\nd I-Y\ne O\n\nf O\ng B-Y\n\n" for _ in range(10)))
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "EPOCHS", 1)
    monkeypatch.setattr(trees, "STEPS", 1)


@pytest.mark.usefixtures("quick")
def test_a_run_through_the_command_line(encoder: Path, files: Path, bertie: CommandLine) -> None:
    where = files / "run"
    command = ("probe", encoder, "--train", files / "a.conllu", "--train", files / "b.conll", "-o", where)
    found = json.loads(bertie.good(*command, "--limit", "20", "--json", "--device", "cpu"))
    assert [one["probe"] for one in found["probes"]] == list(probes.PROBES)
    assert found["probes"][3]["file"].endswith("b.conll")
    pos = found["probes"][0]
    assert len(pos["layers"]) == 2
    assert pos["layers"][pos["best_layer"]]["figures"][0]["model"] > 0.9, "every letter is a word"
    assert {path.name for path in where.iterdir()} >= {"settings.json", "rows.jsonl", "results.json", "report.html"}
    assert not (where / "vectors").exists()
    page = (where / "report.html").read_text()
    assert len(page) < 2_000_000
    assert not re.search(r"<script|(href|src)=.http", page)
    again = json.loads(bertie.good(*command, "--limit", "20", "--json", "--device", "cpu", "--card"))
    assert again == found
    assert "| part of speech | accuracy |" in (encoder / "README.md").read_text("utf-8")
    code, _, err = bertie(*command, "--limit", "21", "--device", "cpu")
    assert code == 2
    assert "a run of probes with other settings or data:\n  sentences: 20 -> 21\n" in err
    assert bertie("verify", where)[0] == 0
    settings = read_json(where / "settings.json")
    assert settings.pop("pooling") == "mean"  # a run of a version without this setting: it counts as its default
    write_json(where / "settings.json", settings)
    assert json.loads(bertie.good(*command, "--limit", "20", "--json", "--device", "cpu")) == found
    code, _, err = bertie(*command, "--limit", "20", "--pooling", "first", "--device", "cpu")
    assert (code, "pooling: mean -> first" in err) == (2, True)


@pytest.mark.usefixtures("quick")
def test_a_stopped_run_continues(encoder: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"train": [files / "a.conllu"], "probes": ["pos", "distance"], "limit": 20, "device": "cpu"}
    whole = library.probe(encoder, output=files / "whole", **options)
    measured = run.ProbeUnit.measure
    calls = []

    def stop(unit: run.ProbeUnit, layer: int, seed: int) -> list[dict[str, object]]:
        calls.append((unit.name, layer))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measured(unit, layer, seed)

    monkeypatch.setattr(run.ProbeUnit, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        library.probe(encoder, output=files / "part", **options)
    with open(files / "part" / "rows.jsonl", "a") as rows:
        rows.write('{"probe": "distance", "lay')  # killed while it wrote
    found = library.probe(encoder, output=files / "part", **options)
    assert calls == [("pos", 0), ("pos", 1), ("distance", 0), ("distance", 0), ("distance", 1)]
    assert found.results == whole.results


def test_bad_input_of_probes(encoder: Path, files: Path, bertie: CommandLine) -> None:
    rng = np.random.default_rng(0)
    (files / "none.conllu").write_text(conllu([random_sentence(rng, 6) for _ in range(9)], heads=False))
    (files / "equal.txt").write_text("a b c d e\n" * 9)
    (files / "short.txt").write_text("a b c\nd e f\n" * 9)
    (files / "five.txt").write_text("".join(" ".join(rng.permutation([*LETTERS])[:5]) + "\n" for _ in range(9)))
    (files / "empty.conllu").write_text("")
    (files / "broken.conllu").write_text("1\tword\n\n" * 9)
    for file, arguments, code, said in (
        ("none.conllu", ("--probes", "distance"), 3, "'distance' needs: heads"),
        ("a.conllu", ("--probes", "entity"), 3, "tagged names"),
        ("a.conllu", ("--probes", "poss"), 2, "Did you mean 'pos'"),
        ("a.conllu", ("--pooling", "max"), 2, "mean"),
        ("a.conllu", ("--test", "x", "--test", "y"), 2, "one --test for each --train"),
        ("empty.conllu", (), 3, "The file is empty"),
        ("broken.conllu", (), 3, "not ten columns"),
        ("missing.conllu", (), 3, "cannot be read"),
        ("equal.txt", (), 3, "all sentences are equal, so nothing can be measured"),
        ("short.txt", (), 3, "no sentence can be probed. It must fit into 64 tokens. Of a text, it needs 5 different"),
        ("five.txt", ("--probes", "length"), 3, "'length' has one answer in all sentences to train on"),
    ):
        found = bertie("probe", encoder, "--train", files / file, "-o", files / "run", *arguments, "--device", "cpu")
        assert found[0] == code, found
        assert said in " ".join(found[2].split()), found
        assert not (files / "run").exists(), file
    pos = bertie.good("probe", encoder, "--train", files / "none.conllu", "-o", files / "run", "--device", "cpu")
    assert "pos" in pos
    assert "distance" not in pos
    code, out, err = bertie("probe", encoder, "--train", files / "five.txt", "-o", files / "five", "--device", "cpu")
    assert (code, out.split()[0], len(out.splitlines())) == (0, "order", 1)
    assert "'length' has one answer in all sentences to train on (sentence length), so it is left out." in err


def test_files_are_sampled_and_split(files: Path) -> None:
    found = source(files / "a.conllu", most=10, seed=0)
    assert (len(found.train), len(found.test)) == (10, 5)
    assert not {one.text for one in found.train} & {one.text for one in found.test}
    assert source(files / "a.conllu", most=10, seed=0) == found
    (files / "t.txt").write_text("a b\n\nc\n")
    assert [one.words for one in read_sentences(files / "t.txt") if isinstance(one, Sentence)] == [("a", "b"), ("c",)]


# A word in several texts ---------------------------------------------------------------------------------------------


def test_which_word_is_compared() -> None:
    found = contexts.contexts_of(["ate an apple", "made an apology"])
    assert [one.span for one in found] == [(4, 6), (5, 7)]
    found = contexts.contexts_of(["the *bank* of", "A Banker and a bank"], "bank")
    assert [(one.text, one.word) for one in found] == [("the bank of", "bank"), ("A Banker and a bank", "bank")]
    assert [one.span for one in contexts.contexts_of(["배를 타고", "단 배가"], "배")] == [(0, 1), (2, 3)]
    for texts, word, said in (
        (["a b", "a b c"], "", "share 2 words: a, b"),
        (["a", "b"], "", "share no word"),
        (["a b", "c"], "b", "Text 2"),
        (["a"], "a", "two or more"),
    ):
        with pytest.raises(UsageError, match=said):
            contexts.contexts_of(texts, word)


def test_words_have_the_cosines_of_their_vectors(encoder: Path) -> None:
    texts, others = ["a an b", "undo c an d", "an"], ["a b", "c d", "e f", "g h"]
    found = library.words(encoder, texts, baseline=others, device="cpu").to_dict()
    vectors = library.embed(encoder, texts, tokens=True, from_layers="all", device="cpu")
    rows = [2, 4, 1]  # after [CLS], and un ##do
    for layer in (0, 1):
        x = np.stack([one.vectors[layer][row] for one, row in zip(vectors, rows, strict=True)]).astype(np.float64)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        one = found["layers"][layer]
        np.testing.assert_allclose(one["similarity"], x @ x.T, atol=1e-5)
        assert one["mean_similarity"] == pytest.approx((x[0] @ x[1] + x[0] @ x[2] + x[1] @ x[2]) / 3, abs=1e-5)
        assert one["adjusted"] == pytest.approx(one["mean_similarity"] - one["baseline"])
        assert np.array(one["points"]).shape == (8, 2)
    assert found["baseline"] == 4
    assert found["words"][found["contexts"][1]["row"]] == "an"


def test_projection_is_that_of_scikit_learn() -> None:
    from sklearn.decomposition import PCA

    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    points, share = contexts.projected(x)
    pca = PCA(2).fit(x)
    np.testing.assert_allclose(np.abs(points), np.abs(pca.transform(x)), atol=1e-4)
    assert share == pytest.approx(pca.explained_variance_ratio_.sum(), abs=1e-5)
    assert contexts.projected(x[:1])[0].shape == (1, 2)


def test_words_through_the_command_line(encoder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    out = tmp_path / "w.html"
    told = json.loads(bertie.good("words", encoder, "a <b> an", "d an", "-o", out, "--json", "--device", "cpu"))
    assert told == json.loads(json.dumps(library.words(encoder, ["a <b> an", "d an"], device="cpu").to_dict()))
    page = out.read_text()
    assert "a &lt;b&gt; <b>an</b>" in page
    assert not re.search(r"<script|(href|src)=.http", page)
    assert "layer  similarity" in bertie.good("words", encoder, "a an", "d an", "--device", "cpu", "--card")
    assert "## A word in several texts" in (encoder / "README.md").read_text("utf-8")
    code, _, err = bertie("words", encoder, "a b", "c", "--word", "zebra")
    assert (code, "Text 1" in err) == (2, True)
    (tmp_path / "e.txt").write_text("")
    code, _, err = bertie("words", encoder, "a an", "d an", "--baseline", tmp_path / "e.txt")
    assert (code, "no text" in err) == (3, True)
    with pytest.raises(DataError, match="does not read"):
        library.words(encoder, ["a " * 80 + "an", "b an"], device="cpu")


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_texts_of_a_table_are_sentences(tmp_path, suffix):
    rows = {"jsonl": '{"text": "Ada rows."}\n', "json": '[{"text": "Ada rows."}]', "csv": "text\nAda rows.\n"}
    path = tmp_path / f"a.{suffix}"
    path.write_text(rows[suffix])
    (sentence,) = read_sentences(path)
    assert (sentence.text, sentence.words) == ("Ada rows.", ("Ada", "rows."))
