"""`bertie perplexity`: any file of texts, streamed, the same figures as the function's."""

import json

import pytest
from typer.testing import CliRunner

import bertie
from bertie import objectives
from bertie.apps.cli.table import app
from bertie.errors import DataError, UsageError
from bertie.infer import perplexity
from bertie.infer.perplexity import text_perplexity
from bertie.models import families
from bertie.runs.weights import load_model
from bertie.text.vocabulary import count_words, train_vocabulary
from nano import one_thread

TEXTS = ["The old cat sees a bird.", "A small dog likes the red house near the river.", "Over and under."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("perplexity") / "model"
    tokenizer = train_vocabulary(count_words(TEXTS), size=70)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = families.build(
        "bert-tiny", heads=objectives.build_objective({"mlm": {}}).heads, vocab_size=tokenizer.vocab_size, **sizes
    )
    families.save(model, folder, tokenizer=tokenizer)
    return folder


def run(*arguments, **options):
    with one_thread():
        return CliRunner().invoke(app, ["perplexity", *map(str, arguments)], catch_exceptions=True, **options)


def test_a_file_says_what_the_function_says(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    shown = run(folder, tmp_path / "texts.txt", "-q", "--device", "cpu")
    assert "3 texts, 19 words" in shown.stdout
    found = json.loads(run(folder, tmp_path / "texts.txt", "--json", "--device", "cpu").stdout)
    with one_thread():
        expected = text_perplexity(load_model(folder), TEXTS)
    assert found["per_token"] == pytest.approx(expected.per_token, rel=1e-5)
    assert (found["texts"], found["words"], found["left_out"], found["skipped"]) == (3, 19, 0, {})


def test_batches_of_several_texts_are_texts_one_by_one(folder, monkeypatch):
    model = load_model(folder)
    with one_thread():
        together = text_perplexity(model, TEXTS)
        monkeypatch.setattr(perplexity, "_PASS_TOKENS", 1)  # every reading by itself
        alone = text_perplexity(model, TEXTS)
    assert together.per_token == pytest.approx(alone.per_token, rel=1e-5)


def test_a_stream_is_not_held(folder, monkeypatch):
    """No more texts are read ahead than fit into a batch."""
    monkeypatch.setattr(perplexity, "_PASS_TOKENS", 64)
    read, most = 0, 0

    def texts():
        nonlocal read
        for text in TEXTS * 5:
            read += 1
            yield text

    score = perplexity._scores

    def watched(engine, head, rows, mask_id):
        nonlocal most
        most = max(most, sum(len(row.ids) for row in rows))
        return score(engine, head, rows, mask_id)

    monkeypatch.setattr(perplexity, "_scores", watched)
    with one_thread():
        assert text_perplexity(load_model(folder), texts()).texts == read == 15
    assert 0 < most <= 64


def test_columns_limits_and_what_is_left_out(folder, tmp_path):
    rows = [{"body": text, "n": 1} for text in TEXTS] + [{"n": 2}, {"body": "cat " * 600, "n": 3}]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    arguments = (folder, tmp_path / "notes.jsonl", "--text", "body", "--json", "--device", "cpu")
    found = json.loads(run(*arguments).stdout)
    assert (found["texts"], found["left_out"], found["skipped"]) == (3, 1, {"no body": 1})
    assert json.loads(run(*arguments, "--limit", 2).stdout)["texts"] == 2
    assert json.loads(run(folder, "--json", "--device", "cpu", input=TEXTS[0]).stdout)["texts"] == 1


def test_what_cannot_be_scored_is_said(folder, tmp_path):
    with pytest.raises(DataError, match="no text to score"):
        bertie.perplexity(folder, [])
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    assert isinstance(run(folder, tmp_path / "empty.txt").exception, DataError)
    assert isinstance(run(folder, tmp_path / "missing.txt").exception, DataError)
    plain = tmp_path / "plain"
    model = load_model(folder)
    del model.heads["mlm"]
    model.save_pretrained(plain)
    found = run(plain, tmp_path / "empty.txt")
    assert isinstance(found.exception, UsageError)
    assert "no head for the tokens of a text" in str(found.exception)
