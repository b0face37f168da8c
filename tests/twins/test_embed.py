"""Sentence embeddings: `sentence-transformers` opens what Bertie saves and finds the same vectors, and back."""

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest

import bertie
from bertie.errors import DataError, UsageError
from bertie.infer.embed import embed_rows, write_npy
from bertie.io.lines import BadRecord
from bertie.io.tables import Example, SkipReport
from bertie.models.sentence import read_sentence
from bertie.program import main
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import run_finetune
from bertie.runs.weights import load_model
from bertie.tasks.embed import EmbedTask
from bertie.text.tokenizer import Tokenizer
from bertie.train.config import OptimConfig, TrainConfig
from toys import CommandLine, toy_model

TEXTS = ["a b c", "d", "e f g h i j k l a b c d", "b a"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder, and pairs that mean the same where both have letters of the same half of the alphabet."""
    folder = toy_model(tmp_path_factory.mktemp("base"), "abcdefghijkl", max_position_embeddings=32)
    rng = random.Random(0)
    halves = ["abcdef", "ghijkl"]
    lines = ["sentence1\tsentence2\tscore"]
    for i in range(120):
        first = rng.randrange(2)
        a, b = (" ".join(rng.choices(halves[half], k=4)) for half in (first, first ^ (i % 2)))
        lines.append(f"{a}\t{b}\t{5 - 5 * (i % 2)}")
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    return folder


def trained(base: Path, run: Path, **options: object) -> dict:
    return run_finetune(
        FinetuneConfig(
            model=str(base),
            task="embed",
            task_options=options,
            train_file=str(base / "pairs.tsv"),
            label="score",
            max_length=16,
            epochs=6,
            optim=OptimConfig(lr=3e-3),
            train=TrainConfig(batch_size=16, precision="fp32", steps=1),
        ),
        run,
    )


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_sentence_transformers_finds_the_same_vectors(base: Path, tmp_path: Path, pooling: str):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    results = trained(base, tmp_path / "run", pooling=pooling, normalize=pooling == "max")
    assert results["dev"]["spearman"] > 0.6
    folder = tmp_path / "run" / "model"
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 16
    ours = [answer.label for answer in bertie.predict(bertie.load(folder), TEXTS)]
    np.testing.assert_allclose(theirs.encode(TEXTS), ours, atol=1e-5)
    theirs.save(str(tmp_path / "again"))
    told = read_sentence(tmp_path / "again", {})
    assert (told.pooling, told.normalize) == ((pooling,), pooling == "max")
    again = bertie.load(tmp_path / "again", "cpu").embedder()
    np.testing.assert_allclose([answer.label for answer in again.predict(TEXTS)], ours, atol=1e-6)


def test_pairs_of_a_batch_are_told_from_one_another(base: Path, tmp_path: Path):
    results = trained(base, tmp_path / "run", loss_kind="in_batch_negatives")
    assert results["dev"]["spearman"] > 0.5
    model = load_model(tmp_path / "run" / "model")
    near, far = bertie.predict(model, [("a b c d", "c d e f"), ("a b c d", "i j k l")])
    assert near.label > far.label


def test_vectors_are_written_with_bad_rows_in_their_places(base: Path):
    predictor = bertie.load(base, "cpu").embedder(pooling="mean", normalize=True)
    rows = [Example((TEXTS[0],), None, 1), BadRecord(2, "empty text"), Example((TEXTS[2],), None, 3)]
    array, skipped = io.BytesIO(), SkipReport()
    records = [(row.line, found) for row, found in embed_rows(predictor, rows, skipped)]
    write_npy(predictor, rows, array, SkipReport())
    assert (skipped.rows, skipped.total) == (3, 1)
    assert records[1] == (2, rows[1])
    array.seek(0)
    found = np.load(array)
    assert found.shape == (3, 32)
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[[0, 2]], [records[0][1], records[2][1]], atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(found[[0, 2]], axis=1), 1, atol=1e-6)


def test_the_command(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "texts.txt").write_text("\n".join([TEXTS[0], " ", TEXTS[1]]) + "\n")
    output = tmp_path / "v.npy"
    monkeypatch.setattr("sys.argv", ["bertie", "embed", str(base), str(tmp_path / "texts.txt"), "-o", str(output)])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    found = np.load(output)
    assert found.shape == (3, 32)
    assert np.isnan(found).any(1).tolist() == [False, True, False]


def test_pairs_are_refused_and_long_texts_counted(base: Path, tmp_path: Path, bertie: CommandLine):
    table, output = tmp_path / "pairs.csv", tmp_path / "v.npy"
    table.write_text("sentence1,sentence2\na b,c\n" + "a " * 40 + ",d\n")
    for where in ((), ("-o", output)):
        code, out, err = bertie("embed", base, table, *where)
        assert (code, out) == (3, "")
        assert "Choose the column to embed" in " ".join(err.split())
    assert not output.exists()
    code, _, err = bertie("embed", base, table, "--text", "sentence1", "--format", "csv", "-o", output)
    assert code == 0, err
    assert np.load(output).shape == (2, 32)
    assert "1 of 2 texts are longer than 32 tokens" in " ".join(err.split())


def test_what_is_not_known_is_refused(base: Path, tmp_path: Path):
    modules, pooling = tmp_path / "modules.json", tmp_path / "1_Pooling" / "config.json"
    pooling.parent.mkdir()

    def refused(kinds: str, told: dict, match: str, settings: dict | None = None) -> None:
        modules.write_text(json.dumps([{"type": f"x.{kind}", "path": "1_Pooling"} for kind in kinds.split()]))
        pooling.write_text(json.dumps(told))
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings or {}))
        with pytest.raises(DataError, match=match):
            read_sentence(tmp_path, {})

    mean = {"pooling_mode": "mean"}
    refused("Transformer LSTM", mean, "LSTM")
    refused("Transformer Pooling Normalize Dense", mean, "in this order")
    refused("Transformer Pooling", {"pooling_mode_attention": True}, "attention")
    refused("Transformer Pooling", {"word_embedding_dimension": 32}, "names no way of pooling")
    refused("Transformer Pooling Dense", mean, "no model.safetensors")
    refused("Transformer Pooling", mean, "similarity_fn_name", {"similarity_fn_name": "hamming"})
    refused("Transformer Pooling", mean, "default_prompt_name", {"default_prompt_name": "query"})
    refused("Transformer Pooling", mean, "truncate_dim", {"truncate_dim": 0})
    refused("Transformer Pooling", {**mean, "include_prompt": False}, "include_prompt", {"prompts": {"query": "q: "}})
    with pytest.raises(DataError, match="activation"):
        read_sentence(tmp_path / "none", {"sbert_ce_default_activation_function": "torch.nn.Softplus"})
    with pytest.raises(UsageError, match=r"pooling is empty.*Known: cls"):
        EmbedTask.make((), {"pooling": []})
    with pytest.raises(UsageError, match="dense cannot be set"):
        EmbedTask.make((), {"dense": [1]})
    with pytest.raises(DataError, match="pairs"):
        EmbedTask.from_examples([Example(("a",), 1.0)], (), {})
    with pytest.raises(UsageError, match="windows"):
        EmbedTask().encode([Example(("a",))], Tokenizer.load(base), max_length=16, too_long="window")
