"""GLUE's zip: written as its server wants it, and every fault found."""

import io
import json
import string
import zipfile

import pytest

from bertie.apps.submission import glue
from bertie.errors import DataError, UsageError
from bertie.infer.predict import Predictor
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.tasks import with_task
from bertie.tasks.datasets import DATASETS
from bertie.tasks.regression import RegressionTask
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from toys import CommandLine


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    letters = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]))
    return Tokenizer.load(folder)


def predictor(tokenizer: Tokenizer, task, texts: int) -> Predictor:
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    model = families.build(config, heads=task.heads).eval()
    model.training_facts = with_task(TrainingFacts(max_length=16, too_long="truncate", texts=texts), task)
    model.tokenizer, model.labels, model.problem_type = tokenizer, task.labels, task.problem_type
    return Predictor(model)


def test_a_submission_is_written_and_passes_its_own_check(tokenizer, tmp_path):
    (tmp_path / "WNLI").mkdir()
    rows = [f"{i}\ta {'b' * (i % 7)}\t{'cd'[i % 2]}" for i in range(146)]
    rows[3] = "3\ta\t "
    (tmp_path / "WNLI" / "test.tsv").write_text("index\tsentence1\tsentence2\n" + "\n".join(rows) + "\n")
    (tmp_path / "STS-B").mkdir()
    rows = [f"{i}\ta\t{'b' * (1 + i % 9)}" for i in range(1379)]
    (tmp_path / "STS-B" / "test.tsv").write_text("index\tsentence1\tsentence2\n" + "\n".join(rows) + "\n")
    models = {
        "wnli": predictor(tokenizer, SequenceTask(("0", "1")), 2),
        "stsb": predictor(tokenizer, RegressionTask(), 2),
    }
    notes = glue.write_submission(models, tmp_path, tmp_path / "a.zip")
    assert "WNLI.tsv: 1 rows cannot be read and have the first label" in notes
    assert sum("is missing" in note for note in notes) == 9
    raw = (tmp_path / "a.zip").read_bytes()
    glue.write_submission(models, tmp_path, tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_bytes() == raw
    assert glue.check_submission(raw, complete=False) == []
    assert len(glue.check_submission(raw)) == 9
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_DEFLATED}
        assert archive.namelist() == ["STS-B.tsv", "WNLI.tsv"]
        lines = archive.read("WNLI.tsv").decode().splitlines()
    assert lines[0] == "index\tprediction"
    assert lines[4] == "3\t0"
    assert len(lines) == 147
    with pytest.raises(UsageError, match="Did you mean 'wnli'"):
        glue.write_submission({"wnly": models["wnli"]}, tmp_path, tmp_path / "c.zip")
    with pytest.raises(DataError, match="this model has no, yes"):
        glue.write_submission(
            {"wnli": predictor(tokenizer, SequenceTask(("no", "yes")), 2)}, tmp_path, tmp_path / "c.zip"
        )
    assert not (tmp_path / "c.zip").exists()


def zipped(**changed: str | None) -> bytes:
    """A whole submission, but for some files."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for file, test in glue.GLUE_FILES.items():
            row = DATASETS[test.data]
            answer = row.labels[0] if row.labels else "2.5"
            lines = [f"{i}\t{answer}" for i in range(row.splits[test.split].examples or 0)]
            text = changed.get(file.split(".")[0].replace("-", "_"), "\n".join(["index\tprediction", *lines]) + "\n")
            if text is not None:
                archive.writestr(file, text)
    return raw.getvalue()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, None),
        ({"RTE": None}, "RTE.tsv is missing"),
        ({"AX": "index\tprediction\n0\tmaybe\n"}, "1 rows instead of 1,104"),
        ({"AX": "index\tprediction\n0\tmaybe\n"}, "row 1 has 'maybe', not entailment or neutral or contradiction"),
        ({"STS_B": "index\tprediction\n0\t5.1\n"}, "not a number from 0 to 5"),
        ({"STS_B": "index\tprediction\n0\tnan\n"}, "row 1 has 'nan'"),
        ({"CoLA": "id\tlabel\n0\t1\n"}, "the first line is 'id\\tlabel'"),
        ({"CoLA": "index\tprediction\n1\t1\n"}, "row 1 has the index '1', not 0"),
    ],
)
def test_every_fault_is_named(changed: dict[str, str | None], problem: str | None):
    problems = glue.check_submission(zipped(**changed))
    assert (problems == []) if problem is None else any(problem in found for found in problems)


def test_the_result_is_json(tmp_path, monkeypatch, capsys):
    (tmp_path / "glue.zip").write_bytes(zipped())
    out = CommandLine(monkeypatch, capsys).good("submission", tmp_path / "glue.zip", "--json")
    assert json.loads(out) == {"file": str(tmp_path / "glue.zip"), "notes": []}


def test_what_is_no_zip_or_has_folders():
    assert "not a readable zip" in glue.check_submission(b"PK no")[0]
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("glue/CoLA.tsv", "")
    assert any("glue/CoLA.tsv is not a file of GLUE" in found for found in glue.check_submission(raw.getvalue()))


def test_a_damaged_zip_is_no_traceback():
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("CoLA.tsv", "".join(f"{i}\t{i % 2}\n" for i in range(2_000)))
    raw = bytearray(stored.getvalue())
    raw[60:100] = b"\xff" * 40
    assert "not a readable zip" in glue.check_submission(bytes(raw))[0]
