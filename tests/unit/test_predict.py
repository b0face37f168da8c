import io
import json
import os
import string
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import bertie
from bertie.console import Verbosity, console
from bertie.errors import DataError, UsageError, WrongModel
from bertie.infer import predict as module
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example, SkipReport
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.heads.vocabulary import MaskedLMHead
from bertie.program import main
from bertie.runs.weights import load_model
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase), "."]
LABELS = ("calm", "loud", "odd")
SCORES = tuple(f"scores.{label}" for label in LABELS)


def save_model(folder: Path, *, texts: int = 1, too_long: str = "truncate", head: str = "sequence") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS]))
    tokenizer = Tokenizer.load(folder)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    if head == "mlm":
        model = families.build(config, heads=lambda config: {"mlm": MaskedLMHead(config)})
    else:
        model = families.build(config, heads=SequenceTask(LABELS).heads)
        model.labels = LABELS
        model.training_facts = with_task(
            TrainingFacts(max_length=32, too_long=too_long, texts=texts), SequenceTask(LABELS)
        )
    families.save(model, folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder)


def texts(n: int) -> list[str]:
    rng = np.random.default_rng(n)
    return ["".join(rng.choice(list("abc de"), rng.integers(1, 40))) + "z" for _ in range(n)]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process."""

    def run(*arguments: object, stdin: str = "") -> Done:
        monkeypatch.setattr(console, "verbosity", Verbosity())
        monkeypatch.setattr(sys, "argv", ["bertie", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as exit:
            main()
        return Done(exit.value.code, *capsys.readouterr())

    return run


def close(first: dict, second: dict) -> bool:
    """Whether two answers agree to the rounding of float32 sums in batches of other shapes."""
    rounded = pytest.approx(second["scores"], abs=3e-6)
    return first["label"] == second["label"] and first["scores"] == rounded


# Python -------------------------------------------------------------------------------------------------------------


def test_predictions_come_in_order_and_do_not_depend_on_their_neighbors(model, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", 7)
    many = texts(40)
    together = bertie.predict(model, many)
    for text, prediction in zip(many, together, strict=True):
        (alone,) = bertie.predict(model, [text])
        assert alone.label == prediction.label
        # float32 rounding of another batch shape; probabilities are at most 1
        assert alone.probability == pytest.approx(prediction.probability, abs=2e-6)
    assert len({prediction.label for prediction in together}) > 1
    assert tuple(together[0].scores) == LABELS


def test_a_bad_row_is_answered_in_its_place(model):
    rows = [Example(("fine",)), BadRecord(2, "empty text"), Example(("also fine",))]
    answers = [answer for _, answer in Predictor(model).stream(rows)]
    assert answers[1] == rows[1]
    assert close(answers[0].as_json(), bertie.predict(model, ["fine"])[0].as_json())
    assert close(answers[2].as_json(), bertie.predict(model, ["also fine"])[0].as_json())
    assert bertie.predict(model, ["fine", " "])[1].error == "empty text"


def test_it_is_read_as_it_was_trained_unless_told(folder, model):
    predictor = Predictor(model)
    assert (predictor.max_length, predictor.too_long, predictor.pipeline.texts) == (32, "truncate", 1)
    assert Predictor(model, max_length=64).max_length == 64
    with pytest.raises(UsageError, match="4 to 64, the number of positions"):
        Predictor(model, max_length=65)
    with pytest.raises(UsageError, match=r"Unknown value.*windo.*Did you mean 'window'"):
        Predictor(model, too_long="windo")


def test_windows_vote_with_their_mean_probability(model):
    long = "ab cd " * 30
    predictor = Predictor(model, too_long="window")
    (answer,) = predictor.predict([long])
    encoded = predictor.encode([Example((long,))])
    votes = torch.zeros(len(LABELS))
    for window in range(len(encoded.lengths)):  # each window alone
        batch = batch_of_examples(encoded, np.array([window]))
        votes += predictor.task.logits(model, model.encode(batch))[0].softmax(-1).detach()
    assert len(encoded.lengths) > 3
    assert list(answer.scores.values()) == pytest.approx((votes / len(encoded.lengths)).tolist(), abs=1e-5)


def test_long_texts_are_counted_and_refused_alone_under_error(model):
    count = TextCount("error", 32)
    rows = [Example(("short",), None, 1), Example(("x" * 50,), None, 2), Example(("y",), None, 3)]
    answers = [answer for _, answer in Predictor(model, too_long="error").stream(rows, count=count)]
    assert answers[1] == BadRecord(2, "longer than 32 tokens")
    assert answers[2].label == bertie.predict(model, ["y"])[0].label
    assert count.notes == ["1 of 3 texts are longer than 32 tokens: refused (too_long=error)"]


def test_texts_of_unknown_words_are_counted(model):
    count = TextCount("truncate", 32)
    rows = [Example((text,), None, 1) for text in ("a film", "a 가 나", "가", "가 나 a", "a b c 가")]
    list(Predictor(model).stream(rows, count=count))
    assert (count.rows, count.unknown, count.long) == (5, 3, 0)
    assert count.notes[0].startswith("3 of 5 texts consist mostly of words")


def test_scoring_streams_and_counts(model, tmp_path):
    many = texts(30)
    truth = [p.label for p in bertie.predict(model, many)]
    truth[0] = "never seen"
    lines = [f"{text}\t{label}" for text, label in zip(many, truth, strict=True)]
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n\tcalm\n")
    report = bertie.evaluate(model, tmp_path / "dev.tsv").to_dict()
    assert report["accuracy"] == pytest.approx(29 / 30)
    assert report["unknown_labels"] == {"never seen": 1}
    assert report["left_out"] == {"rows": 31, "total": 1, "reasons": {"empty text": 1}}
    skipped = SkipReport()
    with pytest.raises(DataError, match=r"no labeled example.*1 of 1 rows skipped"):
        Predictor(model).evaluate([BadRecord(2, "empty text")], skipped=skipped)
    with pytest.raises(DataError, match=r"no labeled example to evaluate on\.$"):
        Predictor(model).evaluate([], skipped=SkipReport())


def test_eager_answers_what_has_arrived(model):
    more = threading.Event()

    def rows():
        yield Example(("first",), None, 1)
        assert more.wait(60), "the first row was not answered before the second came"
        yield Example(("second",), None, 2)
        raise DataError("the stream broke")

    answers = Predictor(model).stream(rows(), eager=True)
    assert next(answers)[0].line == 1
    more.set()
    assert next(answers)[0].line == 2
    with pytest.raises(DataError, match="the stream broke"):
        next(answers)


def test_fill_mask_proposes_tokens_for_every_mask(tmp_path):
    model = load_model(save_model(tmp_path, head="mlm"))
    first, second = bertie.fill_mask(model, "a [MASK] b [MASK].", top=3)
    assert len(first) == len(second) == 3
    assert [f.probability for f in first] == sorted((f.probability for f in first), reverse=True)
    for filled in first:
        assert filled.text.endswith(" b [MASK].")
        assert filled.token.removeprefix("##") in filled.text
    with pytest.raises(DataError, match=r"no \[MASK\]"):
        bertie.fill_mask(model, "nothing to fill")
    with pytest.raises(UsageError, match="no task head"):
        bertie.predict(model, ["x"])


def test_fill_mask_without_the_head_and_a_model_without_tokenizer(model):
    with pytest.raises(WrongModel):
        bertie.fill_mask(model, "a [MASK]")
    bare = families.build("bert-tiny", heads=SequenceTask(LABELS).heads)
    with pytest.raises(UsageError, match="no tokenizer"):
        bertie.predict(bare, ["x"])


# Command line -------------------------------------------------------------------------------------------------------


def test_stdin_to_stdout_in_order_with_errors_in_place(run, folder, model):
    done = run("predict", folder, stdin="quiet place\n\nBANG\n")
    assert done.returncode == 0, done.stderr
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert list(first) == ["text", "row", "line", "label", "probability", "scores"]
    assert (first["text"], first["row"], first["line"]) == ("quiet place", 1, 1)
    assert close(first, bertie.predict(model, ["quiet place"])[0].as_json())
    assert second == {"text": "", "row": 2, "line": 2, "error": "empty text"}
    assert third["line"] == 3
    assert "1 of 3 rows skipped: empty text" in done.stderr


def test_a_closed_pipe_is_no_failure(folder, tmp_path):
    (tmp_path / "many.txt").write_text("some text\n" * 20_000)
    script = f'"{sys.executable}" -m bertie predict {folder} {tmp_path / "many.txt"} | head -2; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[2] == "0", done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_files_in_every_format_and_out(run, folder, tmp_path):
    (tmp_path / "in.csv").write_text('id,review\n1,abc\n2,\n3,"d, e"\n')
    done = run("predict", folder, tmp_path / "in.csv", "--text", "review", "-o", tmp_path / "out.tsv")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert rows[0] == ["id", "review", "row", "line", "label", "probability", *SCORES, "error"]
    assert [row[:4] for row in rows[1:]] == [["1", "abc", "1", "2"], ["2", "", "2", "3"], ["3", "d, e", "3", "4"]]
    assert rows[2][4:] == ["", "", *[""] * len(SCORES), "empty text"]
    again = run("predict", folder, tmp_path / "in.csv", "--text", "review", "-o", tmp_path / "out.tsv")
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


def test_pairs_for_a_model_of_pairs_only(run, folder, tmp_path):
    pairs = save_model(tmp_path / "pairs", texts=2)
    done = run("predict", pairs, stdin="one\ttwo\nno tab\n")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["label"] in LABELS
    assert "error" in second
    (tmp_path / "p.jsonl").write_text('{"premise": "a", "hypothesis": "b"}\n')
    done = run("predict", folder, tmp_path / "p.jsonl")
    assert done.returncode == 3
    assert "the model reads single texts" in done.stderr


def test_evaluate_prints_figures_and_json(run, folder, tmp_path):
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + "".join(f"{t}\tcalm\n" for t in texts(20)))
    done = run("evaluate", folder, tmp_path / "dev.tsv")
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    report = json.loads(run("evaluate", folder, tmp_path / "dev.tsv", "--json").stdout)
    assert report["examples"] == 20
    low, high = report["interval_95"]["accuracy"]
    assert low <= report["accuracy"] <= high


def test_fill_mask_from_stdin_goes_on_after_a_bad_line(run, tmp_path):
    folder = save_model(tmp_path, head="mlm")
    done = run("fill-mask", folder, "--json", "--top", 2, stdin="a [MASK]\nnone here\n")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert len(first["masks"][0]) == 2
    assert "no [MASK]" in second["error"]
    done = run("fill-mask", folder, "none here")
    assert done.returncode == 3
    assert "Write [MASK]" in done.stderr


def test_usage_errors(run, folder, tmp_path):
    assert run("predict", tmp_path / "absent").returncode == 3
    assert run("predict", folder, "-o", tmp_path / "x.xls").returncode == 2
    assert run("evaluate", folder).returncode == 2
    done = run("predict", folder, "--precision", "fp64", stdin="x\n")
    assert done.returncode == 2
    assert "fp32" in done.stderr


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="needs BERTIE_DATA")
def test_a_real_file_is_answered_row_by_row(model):
    path = Path(os.environ["BERTIE_DATA"]) / "nsmc" / "ratings_test.txt"
    from bertie.io.tables import stream_examples

    rows = Predictor(model).stream(stream_examples(path, TableFormat.of(labelled=False)))
    lines = [row.line for (row, _), _ in zip(rows, range(3000), strict=False)]
    assert lines == list(range(2, 3002))
