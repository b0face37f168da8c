"""The forms of rows that sentence embeddings are learned from: columns, losses, other models, prompts, and errors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertie as api
from bertie.errors import DataError, UsageError
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example
from bertie.metrics.retrieval import Retrieval
from bertie.models.config import EncoderConfig
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune_prepare import prepare_run
from bertie.runs.judges import with_judgments
from bertie.tasks.embed import EmbedTask, compare_vectors
from bertie.tasks.embed_rows import form_of, row_of_tuple
from bertie.text.tokenizer import Tokenizer
from bertie.train.config import TrainConfig
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"epochs": 1, "max_length": 16, "batch_size": 4, "precision": "fp32"}
LETTERS = "abcdefghij"
TRIPLES = [*zip(LETTERS, LETTERS[1:], LETTERS[2:], strict=False)]


def table(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def config(path: Path, **options: Any) -> FinetuneConfig:
    return FinetuneConfig(model="m", task="embed", train_file=str(path), task_options=options)


@pytest.mark.parametrize("form", ["score_{}", "{}_score"])
def test_the_scores_of_a_teacher_may_have_a_column_each(form: str, tmp_path: Path) -> None:
    scores = ",".join(form.format(name) for name in ("positive", "negative_1", "negative_2"))
    rows = ["a,b,c,d,3,1,-0.5", "e,f,g,,2,1.5,", "h,i,j,k,1,x,2", "h,i,j,k,1,2,"]
    path = table(tmp_path / "t.csv", f"anchor,positive,negative_1,negative_2,{scores}", *rows)
    read = [*EmbedTask.rows(path, TableFormat())]
    assert [getattr(one, "label", None) for one in read] == [(3.0, 1.0, -0.5), (2.0, 1.5), None, None]
    assert [getattr(one, "texts", None) for one in read[:2]] == [("a", "b", "c", "d"), ("e", "f", "g")]
    assert getattr(read[2], "reason", "") == f"{scores.replace(',', ', ')} is not a number"
    assert "2 numbers for 3 texts after the anchor" in getattr(read[3], "reason", "")
    path = table(tmp_path / "t2.csv", f"anchor,positive,negative_1,negative_2,{scores}", rows[0], rows[1])
    examples = read_examples(config(path, loss_kind="margin_mse").model_copy(update={"held_out": 0.0}))
    assert [one.label for one in examples.train] == [(3.0, 1.0, -0.5), (2.0, 1.5)]


def test_a_row_may_have_fewer_negative_texts(tmp_path: Path) -> None:
    rows = ["a,b,c,d", "e,f,g,", "h,i,,j"]
    path = table(tmp_path / "t.csv", "anchor,positive,negative_1,negative_2", *rows)
    texts = [row.texts for row in EmbedTask.rows(path, TableFormat()) if isinstance(row, Example)]
    assert texts == [("a", "b", "c", "d"), ("e", "f", "g"), ("h", "i", "j")]


@pytest.mark.parametrize(
    ("header", "third", "label"),
    [
        ("sentence1,sentence2,score", "{}.5", "score"),
        ("anchor,positive,similarity", "{}.5", "similarity"),
        ("sentence1,sentence2,유사도", "{}", "유사도"),
        ("sentence1,sentence2,likeness", "{}.5", "likeness"),  # by its values
        ("sentence1,sentence2,id", "{}", None),
        ("sentence1,sentence2,number", "{}", None),  # 1, 2, 3: of the row
        ("sentence1,sentence2,topic", "topic {}", None),
    ],
)
def test_the_score_of_a_pair_is_recognized(header: str, third: str, label: str | None, tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", header, *(f"text {n},other text {n},{third.format(n)}" for n in range(1, 6)))
    columns: list[Columns] = []
    rows = [*EmbedTask.rows(path, TableFormat(), on_columns=columns.append)]
    assert columns[0].label == label
    assert {form_of(row) for row in rows if isinstance(row, Example)} == {"scored" if label else "positive"}


def test_two_columns_of_numbers_beside_a_pair_are_named(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "sentence1,sentence2,a,b", *(f"x {n},y {n},{n % 2},{n % 3}.5" for n in range(6)))
    with pytest.raises(DataError, match="the columns 'a' and 'b' may each be the label"):
        [*EmbedTask.rows(path, TableFormat())]


def test_scores_of_passages_are_a_margin_or_one_for_each(tmp_path: Path) -> None:
    margins = table(tmp_path / "m.csv", "query,positive,negative,margin", "a,b,c,2.5", "d,e,f,oops", *["g,h,i,1"] * 9)
    found = [*EmbedTask.rows(margins, TableFormat())]
    assert isinstance(found[0], Example)
    assert (found[0].label, getattr(found[1], "reason", "")) == ((2.5, 0.0), "margin is not a number")
    several = tmp_path / "s.jsonl"
    rows = [{"anchor": "a", "positive": "b", "negative": "c", "scores": [1, -2]}, {"anchor": "a", "positive": "b"}]
    several.write_text("\n".join(map(json.dumps, [*rows, rows[0] | {"scores": [1, 2, 3]}])))
    first, second, third = EmbedTask.rows(several, TableFormat())
    assert isinstance(first, Example)
    assert first.label == (1.0, -2.0)
    assert "scores" in getattr(second, "reason", "")
    assert getattr(third, "reason", "") == "scores has 3 numbers for 2 texts after the anchor"
    assert read_examples(config(margins)).task.loss_kind == "margin_mse"


@pytest.mark.parametrize(
    ("header", "rows", "options", "message"),
    [
        ("text1,text2,label", ["a,b,1", "c,d,0"], {"loss_kind": "triplet"}, "does not learn from pairs of texts with"),
        ("anchor,positive", ["a,b", "c,d"], {"loss_kind": "kl"}, "needs a negative text in every row"),
        ("anchor,positive,negative", ["a,b,c", "d,e,f"], {"loss_kind": "kl"}, "pass teacher=MODEL"),
        ("anchor,positive", ["a,b", "c,d"], {"margin": 1.0}, "margin has no effect under loss_kind=in_batch_negatives"),
        (
            "text1,text2,label",
            ["a,b,1", "c,d,0"],
            {"symmetric": True},
            "symmetric has no effect under loss_kind=cosine",
        ),
        ("text,label", ["a,x", "b,x"], {}, "All texts have the label 'x'"),
        ("anchor,positive", ["a,b", "c,d"], {"matryoshka": [0]}, "matryoshka has 0"),
        ("text1,text2,label", ["a,b,1", "c,d,0"], {"loss_kind": "cosnet"}, "loss_kind"),
    ],
)
def test_a_loss_that_cannot_learn_from_the_rows_is_refused(
    tmp_path: Path, header: str, rows: list[str], options: dict[str, Any], message: str
) -> None:
    path = table(tmp_path / "t.csv", header, *rows * 4)
    with pytest.raises((UsageError, DataError), match=message):
        read_examples(config(path, **options))


def test_matryoshka_names_parts_of_a_vector(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "anchor,positive", *["a,b", "c,d"] * 8)
    start = toy_model(tmp_path / "start", LETTERS)
    with pytest.raises(UsageError, match="its numbers must be below 32"):
        api.finetune(start, path, task="embed", settings={"task_options": {"matryoshka": [16, 32]}}, **FAST)
    options = {"matryoshka": [16, 8], "truncate_dim": 8}
    run = api.finetune(start, path, task="embed", settings={"task_options": options}, **FAST)
    assert api.embed(run.model, ["a"]).shape == (1, 8)


def test_texts_with_labels_are_learned_and_measured(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", LETTERS)
    rows = [f"{LETTERS[i % 10]} {LETTERS[(i // 2) % 10]},{'xyz'[i % 3]}" for i in range(60)]
    path = table(tmp_path / "t.csv", "text,label", *rows)
    run = api.finetune(start, path, task="embed", output=tmp_path / "run", **FAST)
    assert set(run.scores.metrics) == {"ndcg@10", "mrr@10", "recall@10", "map"}
    assert api.embed(run.model, ["a b"]).shape == (1, 32)


def test_a_guide_and_a_teacher_are_read_once_and_not_saved(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", LETTERS)
    rows = [",".join(LETTERS[(n * k + k) % 10] for k in (1, 3, 7)) for n in range(24)]
    triples = table(tmp_path / "t.csv", "anchor,positive,negative", *rows)
    guided = {"task": "embed", **FAST, "settings": {"task_options": {"guide": str(start)}}}
    run = api.finetune(start, triples, output=tmp_path / "guided", **guided)
    assert str(start) not in (tmp_path / "guided" / "model" / "bertie.json").read_text()
    assert 0 < run.scores["mrr@10"] <= 1
    pairs = table(tmp_path / "p.csv", "text1,text2,label", *(f"{row.rpartition(',')[0]},{len(row)}" for row in rows))
    teacher = api.finetune(start, pairs, task="regression", output=tmp_path / "teacher", **FAST)
    taught = {"task": "embed", **FAST, "settings": {"task_options": {"teacher": str(tmp_path / "teacher")}}}
    api.finetune(start, triples, output=tmp_path / "taught", **taught)
    settings = (tmp_path / "taught" / "model" / "bertie.json").read_text()
    assert "margin_mse" in settings
    assert str(tmp_path) not in settings
    examples = [row for row in EmbedTask.rows(triples, TableFormat()) if isinstance(row, Example)]
    task = EmbedTask(loss_kind="margin_mse", teacher=str(tmp_path / "teacher"), guide="")
    ids = task.encode(examples, Tokenizer.load(start), max_length=16, too_long="truncate")
    scores = with_judgments(task, examples, task.targets(examples, ids), "cpu").sequence["score"].reshape(-1, 3)
    pairs_of = [(one.texts[0], text) for one in examples for text in one.texts[1:]]
    expected = [float(one.label) for one in teacher.model.predict(pairs_of)]
    np.testing.assert_allclose(scores, np.pad(np.reshape(expected, (-1, 2)), ((0, 0), (1, 0))), atol=1e-4)
    task = EmbedTask(loss_kind="in_batch_negatives", guide=str(start))
    vectors = with_judgments(task, examples, task.targets(examples, ids), "cpu").sequence["guide"]
    np.testing.assert_allclose(vectors[:3], api.embed(start, [*examples[0].texts]), atol=1e-2)
    taught["settings"]["task_options"]["teacher"] = str(tmp_path / "guided")
    with pytest.raises(UsageError, match="does not score pairs"):
        api.finetune(start, triples, output=tmp_path / "wrong", **taught)
    assert not (tmp_path / "wrong").exists()


def test_anchors_and_passages_have_their_prompts(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(toy_model(tmp_path / "start", LETTERS))
    task = EmbedTask(prompts={"query": "a ", "passage": "b "})
    positive, scored = Example(("c", "d", "e"), 1.0, group=1), Example(("c", "d"), 0.5)
    judged = Example(("c", "d", "e"), (1.0, 0.0))
    ids = task.encode([positive, scored, judged], tokenizer, max_length=16, too_long="truncate")
    starts = [tokenizer.decode([i]) for i in ids.input_ids[ids.starts[:-1] + 1].tolist()]
    assert starts == ["a", "b", "b", "c", "d", "a", "b", "b"]
    query = EmbedTask(prompts={"query": "a "}).encode([positive], tokenizer, max_length=16, too_long="truncate")
    assert [tokenizer.decode([i]) for i in query.input_ids[query.starts[:-1] + 1].tolist()] == ["a", "d", "e"]
    saved = json.loads(json.dumps(task.files(EncoderConfig(vocab_size=9), 16)))["config_sentence_transformers.json"]
    assert saved["prompts"] == {"query": "a ", "passage": "b ", "document": "b "}


def test_measures_of_retrieval_are_their_definitions() -> None:
    rng = np.random.default_rng(0)
    counter, gains = Retrieval(compare_vectors), []
    vectors = rng.normal(size=(30, 2, 8)).astype(np.float32)
    for i, own in enumerate(vectors):
        counter.add(f"q{i // 2}", [(f"p{i}", True)], np.array([vectors[i // 2 * 2, 0], own[1]]))
    alike = compare_vectors(vectors[::2, 0], vectors[:, 1])
    for query, row in enumerate(alike):
        order = np.argsort(-row).tolist()
        ranks = sorted(order.index(passage) + 1 for passage in (2 * query, 2 * query + 1))
        ideal = 1 + 1 / np.log2(3)
        gains.append(
            (
                sum(1 / np.log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
                1 / ranks[0] if ranks[0] <= 10 else 0.0,
                sum(rank <= 10 for rank in ranks) / 2,
                (1 / ranks[0] + 2 / ranks[1]) / 2,
            )
        )
    np.testing.assert_allclose([*counter.compute().values()], np.mean(gains, 0), rtol=1e-6)
    assert (counter.report()["questions"], counter.report()["passages"]) == (15, 30)


def test_texts_of_a_row_may_be_a_list_and_the_first_row_may_have_fewer(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [
        {"query": "a", "positive": ["b"]},
        {"query": "c", "positive": "d", "negatives": ["e", "f"]},
        {"query": "g", "positive": ["h", "i"], "negatives": []},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second, third = EmbedTask.rows(path, TableFormat())
    assert isinstance(first, Example)
    assert isinstance(second, Example)
    assert (first.texts, second.texts) == (("a", "b"), ("c", "d", "e", "f"))
    assert getattr(third, "reason", "") == "positive has several texts; one was expected"


@pytest.mark.parametrize(
    ("values", "row"),
    [
        (("a", "b"), {"anchor": "a", "positive": "b"}),
        (("a", "b", "c", "d"), {"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"}),
        (("a", "b", 0.5), {"text": "a", "text_pair": "b", "label": 0.5}),
        ((("a", "b"), 1), {"text": "a", "text_pair": "b", "label": 1}),
        (("a", "b", "c", [2, 1]), {"anchor": "a", "positive": "b", "negative_1": "c", "scores": [2, 1]}),
        (("a", "b", "c", 0.5), {"anchor": "a", "positive": "b", "negative_1": "c", "scores": 0.5}),
    ],
)
def test_the_values_of_a_tuple_are_texts_and_scores(values: tuple[Any, ...], row: dict[str, Any]) -> None:
    assert row_of_tuple(values) == row


def test_tuples_of_texts_are_learned_and_measured_from_python(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", LETTERS)
    run = api.finetune(start, TRIPLES, TRIPLES, task="embed", output=tmp_path / "run", **FAST)
    assert run.scores["ndcg@10"] > 0
    assert api.evaluate(run.model, [one[:2] for one in TRIPLES])["map"] > 0
    with pytest.raises(UsageError, match="two texts or more"):
        api.finetune(start, [("a", 1)], task="embed", **FAST)


def test_a_metric_of_retrieval_selects_the_weights(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", LETTERS)
    run = api.finetune(start, TRIPLES, TRIPLES, task="embed", metric="recall@10", patience=1, **FAST)
    assert run.scores["recall@10"] > 0
    with pytest.raises(UsageError, match="no metric 'spearman'"):
        api.finetune(start, TRIPLES, TRIPLES, task="embed", metric="spearman", patience=1, **FAST)


def test_a_table_of_triples_has_a_page_of_scores_and_similarities(tmp_path: Path, bertie: CommandLine) -> None:
    start = toy_model(tmp_path / "start", LETTERS)
    path = table(tmp_path / "t.csv", "q,p,n", *(",".join(one) for one in TRIPLES))
    texts = [f"--text={name}" for name in "qpn"]
    run = tmp_path / "run"
    code, _, error = bertie(
        "finetune", start, "--task=embed", "--train", path, *texts, "-o", run, "epochs=1", "max_length=16"
    )
    assert code == 0, error
    code, out, error = bertie("evaluate", run, path, "--report", tmp_path / "r.html", "--against", run)
    assert code == 0, error
    assert "ndcg@10" in out
    assert "<html" in (tmp_path / "r.html").read_text()
    compressed = bertie("compress", run / "model", "--int8", "--texts", path, "--text", "q", "-o", tmp_path / "int8")
    assert "texts with 24 tokens are too few" in compressed[2]  # and not: pairs are read
    code, out, error = bertie("predict", run, path)
    assert code == 0, error
    assert len(out.splitlines()) == 8


def test_of_several_processes_each_compares_its_own_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = toy_model(tmp_path / "start", LETTERS)
    path = table(tmp_path / "t.csv", "anchor,positive,negative", *(",".join(row) for row in TRIPLES))
    settings = config(path).model_copy(
        update={"model": str(start), "max_length": 16, "train": TrainConfig(batch_size=4, steps=1)}
    )
    examples = read_examples(settings)
    assert not any("processes" in one for one in prepare_run(settings, examples).warnings)
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    warnings = prepare_run(settings, examples).warnings
    assert any("each of 2 processes compares only its own 2 examples" in one for one in warnings)
    few = settings.model_copy(update={"train": TrainConfig(batch_size=2, steps=1)})
    with pytest.raises(UsageError, match=r"Set train\.batch_size to at least 4"):
        prepare_run(few, examples)
