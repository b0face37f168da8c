"""The functions people call from Python do what the commands of the same names do."""

import json
from pathlib import Path

import numpy as np
import pytest

import bertie
from bertie import families
from bertie.errors import UsageError
from bertie.models.heads import HEADS
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

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
    assert found == bertie.predict(bertie.load(folder), TEXTS)
    for answer in found:
        assert answer.label_probabilities[answer.label] == answer.probability
        assert sum(answer.label_probabilities.values()) == pytest.approx(1)
    report = bertie.evaluate(folder, table, text=["review"], label="stars")
    told = json.loads(
        run.good("evaluate", folder, table, "--text", "review", "--label", "stars", "--json", "--engine", "torch")
    )
    assert json.loads(json.dumps(report)) == told
    with pytest.raises(UsageError, match="file or data"):
        bertie.evaluate(folder)
    with pytest.warns(DeprecationWarning, match=r"bertie.score\(\) is now bertie.evaluate\(\)"):
        assert bertie.score is bertie.evaluate
    with pytest.raises(UsageError, match="fp32"):
        bertie.predict(folder, TEXTS, precision="fp3")


def test_embed_and_similarity(encoder: Path, tmp_path: Path, run: CommandLine) -> None:
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "v.npy"
    run.good(
        "embed", encoder, tmp_path / "t.txt", "-o", out, "--normalize", "--pooling", "cls,max", "--engine", "torch"
    )
    vectors = bertie.embed(encoder, TEXTS, normalize=True, pooling=("cls", "max"))
    np.testing.assert_array_equal(vectors, np.load(out))
    assert vectors.shape == (3, 64)
    np.testing.assert_allclose(
        bertie.similarity(encoder, TEXTS, TEXTS[:2], pooling=("cls", "max")), vectors @ vectors[:2].T, atol=1e-5
    )
    assert bertie.embed(encoder, []).shape == (0, 32)
    with pytest.raises(UsageError, match="mean"):
        bertie.embed(encoder, TEXTS, pooling="middle")


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
    with pytest.raises(UsageError, match="cannot rank"):
        bertie.rank(classifier(encoder, tmp_path / "three", "a", "b", "c"), "a", passages)


def test_masks_and_perplexity(encoder: Path, tmp_path: Path, run: CommandLine) -> None:
    model = families.build(families.config(encoder), heads=lambda config: {"mlm": HEADS["mlm"](config, 0)})
    families.save(model, tmp_path / "m", tokenizer=Tokenizer.load(encoder))
    filled = bertie.fill_mask(tmp_path / "m", "a [MASK] c", top=2)
    told = json.loads(run.good("fill-mask", tmp_path / "m", "a [MASK] c", "--top", "2", "--json", "--engine", "torch"))
    assert [one.token for one in filled[0]] == [one["token"] for one in told["masks"][0]]
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    told = json.loads(run.good("perplexity", tmp_path / "m", tmp_path / "t.txt", "--json"))
    assert bertie.perplexity(tmp_path / "m", TEXTS).per_word == pytest.approx(told["per_word"])
