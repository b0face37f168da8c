"""Feature vectors beside texts: what a row may hold, where the vectors go, and a task that learns from them."""

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file
from scipy.io import wavfile
from typer.testing import CliRunner

import bertie
from bertie.apps.cli.table import app
from bertie.apps.explain.attention_page import TextAttention
from bertie.apps.explain.targets import question_of
from bertie.apps.probe.contexts import compare_word_vectors
from bertie.errors import DataError, UsageError
from bertie.infer.predict import Predictor
from bertie.infer.torch_engine import TorchEngine
from bertie.io.features import BadFeaturesError, log_mel, patches, read_frames, read_vectors
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example, stream_examples
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.kinds import InputKind
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import run_finetune
from bertie.settings import build_config
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import encode_examples
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import FeatureConfig, TrainingFacts
from nano import one_thread

COLUMN = FeatureConfig(column="image")
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "is", "it", "high", "low", "?"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return Tokenizer.load(folder)


def test_arrays_of_every_kind(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", one=array)
    save_file({"x:1": array}, tmp_path / "a.safetensors")
    for value in (array.tolist(), "a.npy", "a.npz:one", "a.safetensors:x:1"):
        found = read_vectors(value, tmp_path, COLUMN)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, array)


def test_an_array_file_is_read_again_after_a_change(tmp_path: Path) -> None:
    """Its first content was kept as long as the process."""
    for size in (3, 4):
        np.save(tmp_path / "a.npy", np.full((size, 2), size))
        np.savez(tmp_path / "a.npz", x=np.full((size, 2), size))
        for value in ("a.npy", "a.npz:x"):
            assert read_vectors(value, tmp_path, COLUMN).tolist() == [[size, size]] * size
    with pytest.raises(BadFeaturesError, match=r"a\.npz has no array ''; it has 'x'"):
        read_vectors("a.npz", tmp_path, COLUMN)


@pytest.mark.parametrize(
    "value", ["", None, 3, "no.npy", "a.exe", "a.npz:two", [1.0, 2.0], [[1.0], [2.0, 3.0]], [[1e60]], []]
)
def test_what_cannot_be_read_says_so(value: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=np.zeros((1, 1)))
    with pytest.raises(BadFeaturesError, match="image"):
        read_vectors(value, tmp_path, COLUMN)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.safetensors", "a.png", "a.wav"])
@pytest.mark.parametrize("content", [b"", b"RIFF\x24\x7d\0\0WAVEfmt \x10\0\0\0\1\0", b"PK\x03\x04" * 9])
def test_broken_files_are_told_as_unreadable(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFeaturesError, match="unreadable"):
        read_vectors(name, tmp_path, COLUMN)


@pytest.mark.parametrize("array", [np.array([[1e300]]), np.array([["a"]]), np.array([[1j]])])
def test_arrays_without_usable_numbers_are_refused(array: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(BadFeaturesError, match=r"not finite|no table of numbers"):
        read_vectors("a.npy", tmp_path, COLUMN)


def test_huge_pictures_are_told_as_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (9, 9)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    with pytest.raises(BadFeaturesError, match="exceeds limit"):
        read_vectors("a.png", tmp_path, COLUMN)


def test_pictures_of_16_bits_are_scaled(tmp_path: Path) -> None:
    grays = (np.arange(64).reshape(8, 8) * 1000).astype(np.uint16)
    Image.fromarray(grays).save(tmp_path / "a.png")
    Image.fromarray((grays >> 8).astype(np.uint8)).save(tmp_path / "b.png")
    options = FeatureConfig(patch_size=4)
    np.testing.assert_array_equal(patches(tmp_path / "a.png", options), patches(tmp_path / "b.png", options))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pictures_are_seen_on_white(mode: str, tmp_path: Path) -> None:
    """The hidden colors of what is transparent were read, mostly black."""
    picture = Image.new("LA", (8, 4), (0, 0))
    picture.paste((100, 255), (0, 0, 4, 4))
    picture.convert(mode).save(tmp_path / "a.png")
    found = patches(tmp_path / "a.png", FeatureConfig(patch_size=4))
    np.testing.assert_allclose(found[0, :48], 100 / 127.5 - 1, rtol=1e-5)
    assert found[1, :48].tolist() == [1] * 48


def test_pictures_are_turned_as_the_camera_was_held(tmp_path: Path) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 4, 3), np.uint8))
    exif = picture.getexif()
    exif[0x112] = 6  # the camera was held upright
    picture.save(tmp_path / "a.png", exif=exif)
    picture.transpose(Image.Transpose.ROTATE_270).save(tmp_path / "b.png")
    options = FeatureConfig(patch_size=4)
    np.testing.assert_array_equal(patches(tmp_path / "a.png", options), patches(tmp_path / "b.png", options))


def test_the_name_of_a_picture_may_have_a_colon(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "10:30.png")
    assert len(read_vectors("10:30.png", tmp_path, COLUMN)) == 1


def test_sounds_of_8_bits_have_no_constant_part(tmp_path: Path) -> None:
    sound = np.random.default_rng(0).normal(0, 0.2, 8000).clip(-1, 1)
    wavfile.write(tmp_path / "a.wav", 8000, (sound * 32767).astype(np.int16))
    wavfile.write(tmp_path / "b.wav", 8000, (sound * 127 + 128).round().astype(np.uint8))
    of_16, of_8 = (read_frames(tmp_path / name, FeatureConfig(mel_bins=10)) for name in ("a.wav", "b.wav"))
    assert np.abs(of_16 - of_8).max() < 0.2


def test_a_sound_that_was_cut_short_is_refused_and_one_from_a_pipe_is_read(tmp_path: Path) -> None:
    wavfile.write(tmp_path / "a.wav", 8000, np.arange(8000, dtype=np.int16))
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "b.wav").write_bytes(whole[:-2000])
    with pytest.raises(BadFeaturesError, match="Reached EOF prematurely"):
        read_vectors("b.wav", tmp_path, COLUMN)
    unknown = b"\xff" * 4  # the sizes that ffmpeg writes to a pipe
    (tmp_path / "c.wav").write_bytes(whole[:4] + unknown + whole[8:40] + unknown + whole[44:])
    found, expected = (read_vectors(name, tmp_path, COLUMN) for name in ("c.wav", "a.wav"))
    assert np.array_equal(found, expected)


def test_a_sound_with_too_few_samples_per_second_says_so(tmp_path: Path) -> None:
    wavfile.write(tmp_path / "a.wav", 8, np.zeros(100, np.int16))
    with pytest.raises(BadFeaturesError, match="8 samples per second are too few"):
        read_vectors("a.wav", tmp_path, COLUMN)


def test_objects_in_an_array_file_are_never_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BadFeaturesError, match="unreadable"):
        read_vectors("a.npy", tmp_path, COLUMN)


def test_patches_are_the_pixels_and_their_box(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 6, 3), np.uint8)  # the last row has no whole patch
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = patches(tmp_path / "a.png", FeatureConfig(patch_size=2))
    assert found.shape == (12, 16)
    for number in range(12):
        y, x = divmod(number, 3)
        part = pixels[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].astype(np.float32).reshape(-1) / 127.5 - 1
        np.testing.assert_allclose(found[number, :12], part, atol=1e-6)
        box = 2 * (2 * np.array([x / 3, y / 4, (x + 1) / 3, (y + 1) / 4]) - 1)  # from -2 to 2, the patch's size
        np.testing.assert_allclose(found[number, 12:], box, atol=1e-6)
    pixels[2:4, :2] = 7
    Image.fromarray(pixels).save(tmp_path / "a.png")
    kept = patches(tmp_path / "a.png", FeatureConfig(patch_size=2, skip_plain=True))
    np.testing.assert_array_equal(kept[:3], found[:3])  # only the fourth patch has a single color
    np.testing.assert_array_equal(kept[3:], found[4:])
    Image.fromarray(np.full_like(pixels, 7)).save(tmp_path / "a.png")
    assert len(patches(tmp_path / "a.png", FeatureConfig(patch_size=2, skip_plain=True))) == 12
    assert patches(tmp_path / "a.png", FeatureConfig(patch_size=4, picture_size=8)).shape == (4, 52)


def test_a_picture_in_the_row_itself(tmp_path: Path) -> None:
    picture, out = Image.new("RGB", (4, 4), (255, 0, 0)), io.BytesIO()
    picture.save(out, "PNG")
    value = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    assert read_vectors(value, tmp_path, FeatureConfig(column="image", patch_size=4)).shape == (1, 52)


def test_log_mel_equals_the_library_of_transformers() -> None:
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    samples = np.random.default_rng(0).normal(0, 0.1, 4000)
    filters = mel_filter_bank(129, 20, 0.0, 4000.0, 8000, mel_scale="htk")
    theirs = spectrogram(
        samples,
        window_function(200, "hann"),
        frame_length=200,
        hop_length=80,
        fft_length=256,
        power=2.0,
        center=False,
        mel_filters=filters,
        mel_floor=1e-10,
        log_mel="log",
    ).T
    ours = log_mel(samples, 8000, bins=20)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_frames_are_stacked_and_scaled(tmp_path: Path) -> None:
    sound = (np.sin(np.arange(8000) / 3) * 9000).astype(np.int16)
    wavfile.write(tmp_path / "a.wav", 8000, sound)
    found = read_frames(tmp_path / "a.wav", FeatureConfig(mel_bins=10, stacked_frames=3))
    assert found.shape == (98 // 3, 30)
    assert abs(float(found.mean())) < 0.1


def test_vectors_follow_the_text_of_their_example(tokenizer: Tokenizer) -> None:
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=(n, 4)).astype(np.float32) for n in (2, 3)]
    examples = [Example(("is it high",), vectors=vectors[0]), Example(("low",)), Example(("it",), vectors=vectors[1])]
    encoded = encode_examples(examples, tokenizer, max_length=8)
    assert encoded.lengths.tolist() == [5 + 2, 3, 3 + 3]
    batch = Batch.of(encoded.take(np.array([2, 0])))
    assert batch.features is not None
    assert batch.features.rows.tolist() == [3, 4, 5, 11, 12]
    np.testing.assert_array_equal(batch.features.vectors.numpy(), np.concatenate([vectors[1], vectors[0]]))
    assert batch.input_ids[batch.features.rows].tolist() == [0] * 5
    alone = encode_examples([Example(("low",))], tokenizer, max_length=8)
    assert encoded.part(1, 2).input_ids.tolist() == alone.input_ids.tolist()
    with pytest.raises(DataError, match="different sizes"):
        encode_examples([examples[0], Example(("it",), vectors=np.zeros((1, 5), np.float32))], tokenizer, max_length=8)


def test_a_row_without_vectors_is_skipped_with_its_reason(tmp_path: Path) -> None:
    rows = [{"image": [[1, 2]], "label": "a"}, {"image": "nowhere.npy", "label": "b"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    good, bad = stream_examples(tmp_path / "a.jsonl", TableFormat.of(features=COLUMN))
    assert isinstance(good, Example)
    assert good.texts == ("",)  # there is no text column, only vectors
    assert isinstance(bad, BadRecord)
    assert "unreadable image" in bad.reason


def written(folder: Path, count: int) -> Path:
    """A question whose answer only the vectors tell: whether the first number of one region is above 0."""
    rng = np.random.default_rng(count)
    rows = []
    for _ in range(count):
        vectors = rng.normal(size=(int(rng.integers(1, 4)), 3))
        vectors[0, 0] = high = rng.choice([-2.0, 2.0])
        vectors[1:, 0] = high
        rows.append({"text": "is it high ?", "image": vectors.round(3).tolist(), "label": "yes" if high > 0 else "no"})
    path = folder / f"{count}.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


SIZES = {"vocab_size": len(VOCAB), "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


LOCATED: dict[str, Any] = {"visual_feat_dim": 2, "visual_pos_dim": 1}
READS: dict[str, dict[str, Any]] = {
    "visualbert-tiny": {"visual_embedding_dim": 3},
    "bert-tiny": {},
    "vilbert-tiny": {**LOCATED, "image_location": (0.0,)},
    "lxmert-tiny": LOCATED,
}


@pytest.mark.parametrize("preset", READS)
def test_a_task_learns_from_vectors(preset: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Also with a model of texts alone, whose tables for regions then start fresh."""
    start = families.build(preset, **SIZES, intermediate_size=64, **READS[preset])
    start.save_pretrained(tmp_path / "start", tokenizer=tokenizer)
    config = {
        "model": str(tmp_path / "start"),
        "train_file": str(written(tmp_path, 200)),
        "dev_file": str(written(tmp_path, 40)),
        "features": {"column": "image"},
        "epochs": 6,
        "max_length": 16,
        "label_check": "none",
        "optim": {"lr": 5e-3},
        "train": {"batch_size": 16, "precision": "fp32", "device": "cpu"},
    }
    with one_thread():
        results = run_finetune(build_config(FinetuneConfig, config), tmp_path / "run")
    assert results["dev"]["accuracy"] > 0.9
    found, _ = families.load(tmp_path / "run" / "model")
    found.tokenizer = Tokenizer.load(tmp_path / "run" / "model")
    predictor = Predictor(found)
    assert (
        predictor.pipeline.facts.training_facts.features is not None
    )  # the column and its options are saved with the model
    assert predictor.score(written(tmp_path, 41))["accuracy"] > 0.9
    answers = predictor.predict(["is it high ?"] * 2, [np.full((1, 3), x, np.float32) for x in (2, -2)])
    assert [answer.label for answer in answers] == ["yes", "no"]


def test_every_kind_of_inputs_has_the_size_of_its_vectors() -> None:
    """The config knew only two kinds, so a third was taken for a model of texts."""
    assert [kind.__name__ for kind in get_args(InputKind) if not hasattr(kind, "feature_size")] == []
    for setting in ("visual_embedding_dim", "frame_size"):
        assert families.config("bert-tiny").replace(**{setting: 7}).feature_size == 7
    assert families.config("bert-tiny").feature_size is None


def test_a_model_of_other_vectors_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    start = families.build("visualbert-tiny", **SIZES, intermediate_size=64, visual_embedding_dim=9)
    start.save_pretrained(tmp_path / "start", tokenizer=tokenizer)
    config = {"model": str(tmp_path / "start"), "train_file": str(written(tmp_path, 30))}
    config |= {"features": {"column": "image"}, "max_length": 16}
    with pytest.raises(DataError, match="reads vectors of 9"):
        run_finetune(build_config(FinetuneConfig, config), tmp_path / "run")
    with pytest.raises(UsageError, match="does not read feature vectors"):
        run_finetune(build_config(FinetuneConfig, {**config, "task": "tagging"}), tmp_path / "run")


def reader(tokenizer: Tokenizer, folder: Path) -> Predictor:
    """A model with random weights that reads vectors of 3 numbers, and 16 tokens and vectors together."""
    task = SequenceTask(("no", "yes"))
    sizes = {**SIZES, "max_position_embeddings": 16, "intermediate_size": 64, "visual_embedding_dim": 3}
    model = families.build("visualbert-tiny", **sizes, heads=task.heads)
    model.tokenizer, model.labels = Tokenizer.load(tokenizer_folder(tokenizer, folder)), task.labels
    model.training_facts = with_task(TrainingFacts(max_length=16, too_long="truncate", texts=1, features=COLUMN), task)
    model.eval().requires_grad_(False)
    model.save_pretrained(folder / "model")
    return Predictor(model)


def test_rows_that_the_model_cannot_read_are_skipped(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """One of them ended the whole file, with a traceback or advice about max_length."""
    predictor = reader(tokenizer, tmp_path)
    sizes = ((2, 3), (2, 4), (12, 3), (10, 3))
    rows = [{"text": "is it high ?", "label": "no", "image": np.zeros(size).tolist()} for size in sizes]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    report = predictor.score(tmp_path / "a.jsonl")
    assert report["left_out"]["reasons"] == {
        "its vectors have 4 numbers, and the model reads vectors of 3": 1,
        "its text and vectors are longer than the model's 16 positions": 1,
    }
    (tmp_path / "b.jsonl").write_text(
        "\n".join(map(json.dumps, [rows[0], {**rows[2], "label": "yes"}])), encoding="utf-8"
    )
    config = {
        "model": str(tmp_path / "model"),
        "train_file": str(tmp_path / "b.jsonl"),
        "features": {"column": "image"},
    }
    config |= {"dev_file": str(tmp_path / "b.jsonl"), "max_length": 16, "label_check": "none"}
    with pytest.raises(DataError, match=r"1 of 2 training examples cannot be read. Line 2: its text and vectors"):
        run_finetune(build_config(FinetuneConfig, config), tmp_path / "run")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.zeros(3), r"vectors is no table of numbers, but an array \(3,\)"),
        (np.zeros((2, 4)), "its vectors have 4 numbers"),
        ([[np.nan] * 3], "not finite"),
        ([[1.0], [1.0, 2.0]], "inhomogeneous"),
        ("a.png", "no table of numbers"),
        (np.zeros((20, 3)), "longer than the model's 16 positions"),
    ],
)
def test_arrays_from_python_are_checked(given: Any, reason: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    predictor, good = reader(tokenizer, tmp_path), np.zeros((2, 3), np.float32)
    assert predictor.predict(["is it ?"], [good.tolist()]) == predictor.predict(["is it ?"], [good])
    answers = predictor.predict(["is it ?", ""], [good, given])
    assert answers[0].error == ""
    assert re.search(reason, answers[1].error)
    with pytest.raises(UsageError, match=r"1 array of vectors for 2 texts"):
        predictor.predict(["is it ?"] * 2, [good])
    with pytest.raises(UsageError, match="must be a list of texts"):
        predictor.predict("is it ?", [good])


def test_a_table_without_texts_says_so(tmp_path: Path) -> None:
    """A column of another name was ignored in silence."""
    row = {"question": "is it high ?", "label": "no", "image": [[0, 0, 0]]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    found = list[Columns]()
    assert [*stream_examples(tmp_path / "a.jsonl", TableFormat.of(features=COLUMN), on_columns=found.append)]
    assert str(found[0]) == "no text column, label column `label`"


def test_what_reads_only_texts_refuses_the_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Each with one error that names the column, instead of answers without the picture."""
    engine = reader(tokenizer, tmp_path).engine
    assert isinstance(engine, TorchEngine)
    model, folder = engine.model, str(tmp_path / "model")
    refusals: list[Callable[[], object]] = [
        lambda: bertie.predict(folder, ["is it high ?"]),
        lambda: bertie.embed(folder, ["is it high ?"]),
        lambda: question_of(model, ["is it high ?"]),
        lambda: TextAttention.of(model, ("is it high ?",)),
        lambda: compare_word_vectors(model, ["is it high ?", "is it low ?"], word="is"),
    ]
    for refusal in refusals:
        with pytest.raises(UsageError, match="column 'image'"):
            refusal()
    for command in (
        ("export",),
        ("compress",),
        ("audit", "--sets", "words"),
        ("heads", "--texts", "a.txt"),
        ("probe", "--train", "a.txt"),
        ("debias", "a.txt"),
    ):
        (tmp_path / "a.txt").write_text("is it high ?\n", encoding="utf-8")
        wanted = [str(tmp_path / one) if one == "a.txt" else one for one in command[1:]]
        out = tmp_path / ("out.html" if command[0] == "heads" else "out")
        run = CliRunner().invoke(app, [command[0], folder, *wanted, "-o", str(out)])
        assert isinstance(run.exception, UsageError), command
        assert "feature vectors" in str(run.exception), command
        assert not out.exists()


def tokenizer_folder(tokenizer: Tokenizer, folder: Path) -> Path:
    """A copy whose settings the test may change."""
    tokenizer.save(folder / "tokenizer")
    return folder / "tokenizer"
