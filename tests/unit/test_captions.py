"""Pre-training on a table with vectors: batches as a function of seed and step, other pictures, hidden frames."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertie.data.masking import Vocabulary
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.objectives import ImageTextMatching, MaskedFrames, MaskedLM, NextSentence, Objective
from bertie.objectives.captions import Captions, CaptionSource
from bertie.objectives.frames import START_STREAM
from bertie.order import Draws, key
from bertie.runs.config import PretrainConfig
from bertie.runs.pretrain import run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.runs.run_data import RunData, read_captions
from bertie.runs.verify import verify_folder
from bertie.settings import build_config
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import FeatureConfig
from nano import one_thread

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
ROWS = 130


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def captions() -> Captions:
    """Row n has the number n in all of its vectors."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(5, len(VOCAB), int(rng.integers(3, 9))).tolist() for _ in range(ROWS)]
    return Captions(ids, [np.full((int(rng.integers(1, 6)), 2), n, np.float32) for n in range(ROWS)])


def source(captions: Captions, tokenizer: Tokenizer, objective: Objective, **options: int) -> CaptionSource:
    return CaptionSource(captions, tokenizer, objective, **{"batch_size": 12, "max_length": 16, **options})


def test_batches_are_a_function_of_seed_and_step(captions: Captions, tokenizer: Tokenizer) -> None:
    objective = MaskedLM() + ImageTextMatching()
    (whole,) = source(captions, tokenizer, objective).batches(20)
    parts = source(captions, tokenizer, objective, micro_batch_size=5).batches(20)
    ranks = [source(captions, tokenizer, objective).batches(20, rank=r, world=2)[0] for r in range(2)]
    assert whole.features is not None
    for several in (parts, ranks):
        assert torch.equal(torch.cat([one.input_ids for one in several]), whole.input_ids)
        assert torch.equal(torch.cat([one.features.vectors for one in several if one.features]), whole.features.vectors)
        assert torch.equal(torch.cat([one.labels["itm_labels"] for one in several]), whole.labels["itm_labels"])
    (other,) = source(captions, tokenizer, objective).batches(21)
    assert not torch.equal(other.labels["mlm_targets"], whole.labels["mlm_targets"])


def test_the_label_says_whose_picture_it_is(captions: Captions, tokenizer: Tokenizer) -> None:
    made = source(captions, tokenizer, MaskedLM() + ImageTextMatching(share=0.4))
    seen, rows = [], set[int]()
    for step in range(40):
        (batch,) = made.batches(step)
        assert batch.features is not None
        ends = batch.layout.mask().sum(1).cumsum(0)
        _, chosen = made.order.at(np.arange(step * 12, step * 12 + 12))
        for number, row in enumerate(made.rows[chosen].tolist()):
            last = batch.features.rows == ends[number] - 1
            picture = int(batch.features.vectors[last][0, 0])
            assert (picture != row) == bool(batch.labels["itm_labels"][number])
            assert picture not in set(made.held.tolist())
            seen.append(picture != row)
            rows.add(row)
    assert 0.3 < np.mean(seen) < 0.5
    assert rows == set(made.rows.tolist())


def test_only_words_are_masked(captions: Captions, tokenizer: Tokenizer) -> None:
    (batch,) = source(captions, tokenizer, MaskedLM(rate=0.5)).batches(0)
    assert batch.features is not None
    assert not set(batch.labels["mlm_positions"].tolist()) & set(batch.features.rows.tolist())
    texts = batch.tokens - len(batch.features.rows)
    assert len(batch.labels["mlm_targets"]) == pytest.approx(0.5 * texts, abs=12)


def test_what_a_table_cannot_give_is_refused(captions: Captions, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder. With feature vectors, pass a table"):
        read_captions(tmp_path, FeatureConfig(column="image"), tokenizer)
    with pytest.raises(UsageError, match="pairs of texts"):
        source(captions, tokenizer, MaskedLM() + NextSentence())
    with pytest.raises(DataError, match="fewer than one batch"):
        source(captions, tokenizer, MaskedLM(), batch_size=500)
    with pytest.raises(UsageError, match=r"itm\.share"):
        ImageTextMatching(share=1.0)


@pytest.mark.parametrize(("told", "read"), [(2, {"mlm": {}}), (1, {"frames": {"clusters": 2}})])
def test_what_a_table_lacks_is_told(told: int, read: dict[str, object], tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Skipped rows were not counted, and a model of words learned from empty texts."""
    rows = [{"caption": "a b", "image": [[n, 2]]} for n in range(9)] + [{"caption": "c", "image": "nowhere.png"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = {"corpus": str(tmp_path / "a.jsonl"), "features": {"column": "image"}, "objectives": read}
    found = RunData(build_config(PretrainConfig, {**config, "train": {"steps": 2, "batch_size": 4}}), tokenizer).notes
    assert "1 of 10 rows skipped: unreadable image" in found[0]
    assert len(found) == told
    assert told == 1 or "no recognized text column for mlm" in found[1]


def test_rows_longer_than_the_positions_are_refused_at_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The run ended at the step that read one."""
    rows = [{"text": "a b c", "image": np.zeros((size, 4)).tolist()} for size in (1, 12) for _ in range(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    tokenizer.save(tmp_path / "tokenizer")
    config = {
        "corpus": str(tmp_path / "rows.jsonl"),
        "features": {"column": "image"},
        "tokenizer": str(tmp_path / "tokenizer"),
        "model": "visualbert-tiny",
        "model_overrides": {"visual_embedding_dim": 4, "max_position_embeddings": 16},
        "objectives": {"nsp": None, "itm": {}},
        "max_length": 16,
        "train": {"steps": 4, "batch_size": 8, "device": "cpu", "precision": "fp32"},
    }
    with pytest.raises(UsageError, match="need up to 17 positions, and visualbert-tiny has 16"):
        run_pretrain(build_config(PretrainConfig, config), tmp_path / "run")
    config["model_overrides"] = {"visual_embedding_dim": 4, "max_position_embeddings": 17}
    PreparedRun(build_config(PretrainConfig, config))


def test_hidden_frames_are_spans_from_their_starts(captions: Captions, tokenizer: Tokenizer) -> None:
    """Against a plain loop over the same draws."""
    objective = MaskedFrames(clusters=4, start=0.2, length=2)
    made = source(captions, tokenizer, objective)
    (batch,) = made.batches(3)
    features = batch.features
    assert features is not None
    assert features.hidden is not None
    clean = batch.sequences
    assert clean is not None
    keys = key(7, np.arange(12))
    again = objective.corrupt(clean, Draws(keys), Vocabulary.of(tokenizer))
    ends = batch.layout.mask().sum(1).cumsum(0).tolist()
    rows = features.rows.tolist()
    mine = [[row for row in rows if low <= row < end] for low, end in zip([0, *ends], ends, strict=False)]
    draws = Draws(keys).uniform(START_STREAM, max(map(len, mine)))
    hidden = set[int]()
    for frames, draw in zip(mine, draws.tolist(), strict=True):
        starts = {i for i in range(len(frames)) if draw[i] < 0.2} | {int(np.argmin(draw[: len(frames)]))}
        hidden |= {frames[i] for start in starts for i in (start, start + 1) if i < len(frames)}
    assert again.labels["frame_positions"].tolist() == sorted(hidden)
    assert len(again.labels["frame_targets"]) == len(hidden)


def test_masked_frames_are_not_seen(captions: Captions, tokenizer: Tokenizer) -> None:
    objective = MaskedFrames(clusters=4)
    sizes = {"vocab_size": 15, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = families.build("bert-tiny", heads=objective.heads, frame_size=2, **sizes).eval()
    (batch,) = source(captions, tokenizer, objective).batches(0)
    assert batch.features is not None
    assert batch.features.hidden is not None
    changed = batch.features.vectors.clone()
    changed[batch.features.hidden] += 5
    other = replace(batch, features=replace(batch.features, vectors=changed))
    with torch.no_grad():
        a, b = (model.encode(one).last_hidden_state for one in (batch, other))
        report = objective.loss(model, model.encode(batch), batch)
    assert torch.equal(a, b)
    assert report["frames"].count == objective.counts(batch)["frames"] > 0


@pytest.mark.parametrize("objectives", [{"mlm": {}, "itm": {}}, {"mlm": None, "frames": {"clusters": 4}}])
def test_a_run_on_a_table(objectives: dict[str, object], tokenizer: Tokenizer, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        {"text": " ".join(rng.choice(list("abcdefghij"), 5)), "image": rng.normal(size=(3, 4)).round(3).tolist()}
        for _ in range(ROWS)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    tokenizer.save(tmp_path / "tokenizer")
    pictures = objectives.get("itm") is not None
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64}
    config = {
        "corpus": str(tmp_path / "rows.jsonl"),
        "features": {"column": "image"},
        "tokenizer": str(tmp_path / "tokenizer"),
        "model": "visualbert-tiny" if pictures else "bert-tiny",
        "model_overrides": {**sizes, ("visual_embedding_dim" if pictures else "frame_size"): 4},
        "objectives": {"nsp": None, **objectives},
        "max_length": 16,
        "train": {"steps": 4, "batch_size": 8, "device": "cpu", "precision": "fp32"},
    }
    with one_thread():
        results = run_pretrain(build_config(PretrainConfig, config), tmp_path / "run")
    assert results["step"] == 4
    model, report = families.load(tmp_path / "run" / "model")
    assert not report.fresh
    assert model.config.feature_size == 4
    checked = verify_folder(tmp_path / "run")
    assert (checked.ok, "is the same" in str(checked)) == (True, True)
    assert "column image" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    config["model_overrides"] = {**sizes, ("visual_embedding_dim" if pictures else "frame_size"): 9}
    with pytest.raises(UsageError, match=r"have 4 numbers.* vectors of 9\. Set model_overrides.*=4"):
        run_pretrain(build_config(PretrainConfig, config), tmp_path / "other")
    assert not (tmp_path / "other").exists()
