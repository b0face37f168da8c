"""Text to text: teacher forcing against a plain loop, the answers against `transformers`, and a run end to end."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertie
from bertie.errors import DataError, UsageError
from bertie.infer import torch_engine
from bertie.infer.generate import GenerationConfig, generate
from bertie.infer.predict import Predictor
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.metrics.base import Sums
from bertie.metrics.written import WrittenScores
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune import run_finetune
from bertie.runs.finetune_prepare import prepare_run, with_steps
from bertie.runs.weights import load_model
from bertie.runs.work import finetuning_work
from bertie.tasks.source import batch_of_examples
from bertie.tasks.text2text import Text2TextTask
from bertie.text.tokenizer import Tokenizer
from nano import one_thread
from toys import CommandLine, toy_model, toy_writer


@pytest.fixture(scope="module", params=["t5", "gpt2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_writer(tmp_path_factory.mktemp(request.param), request.param)


EXAMPLES = [Example(("a b c",), "c b a"), Example(("f",), "g h i k"), Example(("x y x y x",), "")]


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_teacher_forcing_is_the_loss_of_each_target_by_itself(model: Path, smoothing: float) -> None:
    """Packed batches against `transformers`, one example at a time; label smoothing against torch's."""
    ours, _ = families.load(model)
    tokenizer = Tokenizer.load(model)
    task = Text2TextTask(label_smoothing=smoothing).with_tokenizer(tokenizer)
    encoded = task.encode(EXAMPLES, tokenizer, max_length=20, too_long="truncate")
    batch = batch_of_examples(encoded, np.arange(3), task.targets(EXAMPLES, encoded))
    ours.train()
    found = task.loss(ours, task.forward(ours, batch), batch)["target"]
    decodes = "decoder" in ours.heads
    kind = transformers.AutoModelForSeq2SeqLM if decodes else transformers.AutoModelForCausalLM
    theirs = kind.from_pretrained(model).eval()
    total = torch.zeros(())
    for example in EXAMPLES:
        source = torch.tensor([tokenizer.encode(example.texts[0]).ids])
        target = torch.tensor([[*tokenizer.ids([example.label])[0], tokenizer.sep_id]])
        if decodes:
            logits = theirs(source, labels=target).logits
        else:
            logits = theirs(torch.cat([source, target], 1)).logits[:, source.shape[1] - 1 : -1]
        total = total + torch.nn.functional.cross_entropy(
            logits[0], target[0], label_smoothing=smoothing, reduction="sum"
        )
    assert found.count == task.counts(batch)["target"] == 4 + 5 + 1
    torch.testing.assert_close(found.total, total, rtol=1e-5, atol=1e-5)
    grad = torch.autograd.grad(found.total, ours.word_embeddings)[0]
    embeddings = theirs.get_input_embeddings().weight
    torch.testing.assert_close(grad, torch.autograd.grad(total, embeddings)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_predictions_equal_those_of_transformers(model: Path, beams: int) -> None:
    """Through the engine, in batches with texts of other lengths."""
    predictor = Predictor(load_model(model))
    tokenizer = predictor.tokenizer
    task = Text2TextTask(max_target_length=7, num_beams=beams).with_tokenizer(tokenizer)
    predictor = predictor.replace(task_or_none=task)
    kind = transformers.AutoModelForSeq2SeqLM if model.name.startswith("t5") else transformers.AutoModelForCausalLM
    theirs = kind.from_pretrained(model).eval()
    texts = ["a b c", "d", "e f g h i k l m", "x y"]
    for text, answer in zip(texts, predictor.predict(texts), strict=True):
        source = torch.tensor([tokenizer.encode(text).ids])
        found = theirs.generate(
            source, attention_mask=torch.ones_like(source), max_new_tokens=7, num_beams=beams, do_sample=False
        )
        own = found[0, 1:] if model.name.startswith("t5") else found[0, source.shape[1] :]
        assert answer.label == tokenizer.decode(own.tolist())


@pytest.mark.parametrize("family", ["t5", "gpt2"])
def test_a_run_learns_to_reverse_two_letters(family: str, tmp_path: Path, monkeypatch, capsys) -> None:
    draw = random.Random(0)
    for name, count in (("t.jsonl", 360), ("dev.jsonl", 40)):
        rows = [draw.sample("abcdef", 2) for _ in range(count)]
        (tmp_path / name).write_text(
            "".join(json.dumps({"source": f"{a} {b}", "target": f"{b} {a}"}) + "\n" for a, b in rows)
        )
    config = FinetuneConfig.model_validate(
        {
            "model": str(toy_writer(tmp_path / "start", family)),
            "task": "text2text",
            "train_file": str(tmp_path / "t.jsonl"),
            "dev_file": str(tmp_path / "dev.jsonl"),
            "task_options": {"template": "z {} z", "max_target_length": 6, "label_smoothing": 0.05},
            "epochs": 20,
            "max_length": 16,
            "optim": {"lr": 5e-3},
            "train": {"batch_size": 32, "precision": "fp32", "eval_every": 1000},
        }
    )
    with one_thread():
        results = run_finetune(config, tmp_path / "run")
    assert results["dev"]["exact_match"] > 0.95, results["dev"]
    assert results["dev"]["chrf"] > 95
    assert [row["name"] for row in results["dev"]["baselines"]] == ["the most frequent label", "a copy of the text"]
    cli = CommandLine(monkeypatch, capsys)
    found = [
        json.loads(line)["label"]
        for line in cli.good("predict", tmp_path / "run/model", stdin="a b\nc d\n").splitlines()
    ]
    assert found == ["b a", "d c"]


def test_what_cannot_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="t5-small"):
        Text2TextTask().heads(EncoderConfig())
    with pytest.raises(UsageError, match="needs one"):
        Text2TextTask(template="{} {}").source(["one"])
    with pytest.raises(UsageError, match="label_smoothing"):
        Text2TextTask(label_smoothing=1.0)


def test_long_targets_are_noted(tmp_path: Path) -> None:
    rows = [{"source": "a", "target": target} for target in ("a b c d", "a b c", "a b", "a")]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = FinetuneConfig(
        model=str(toy_writer(tmp_path / "start")),
        task="text2text",
        train_file=str(tmp_path / "t.jsonl"),
        dev_file=str(tmp_path / "t.jsonl"),
        max_length=24,
        task_options={"max_target_length": 4},
    )
    examples = read_examples(config)
    run = prepare_run(with_steps(config, len(examples.train)), examples)
    assert [note for note in run.notes if "targets" in note] == [
        "training: 1 of 4 targets are longer than 4 tokens with the end: truncated (task_options.max_target_length)"
    ]


def test_columns_are_recognized(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("source,target\na b,b a\nx,\n")
    rows = list(Text2TextTask.rows(tmp_path / "t.csv", TableFormat()))
    assert rows == [Example(("a b",), "b a", 2), BadRecord(3, "no target")]


def test_scores_equal_those_of_the_libraries() -> None:
    import sacrebleu
    from rouge_score.rouge_scorer import RougeScorer

    draw, words = random.Random(1), ["the", "cat", "sat", "on", "a", "mat"]
    true = [" ".join(draw.choices(words, k=7)) for _ in range(30)]
    given = [" ".join(draw.choice([word, draw.choice(words)]) for word in text.split()) for text in true]
    scores = WrittenScores(("bleu", "chrf", "rougeL", "exact_match"))
    scores.add(true[:10], given[:10])
    scores.add(true[10:], given[10:])
    found = scores.compute()
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(given, [true]).score)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(given, [true]).score)
    rouge = [RougeScorer(["rougeL"]).score(t, g)["rougeL"].fmeasure for t, g in zip(true, given, strict=True)]
    assert found["rougeL"] == pytest.approx(sum(rouge) / 30)
    assert found["exact_match"] == sum(t == g for t, g in zip(true, given, strict=True)) / 30
    report = scores.report()
    assert all(low <= found[name] <= high for name, (low, high) in report["interval_95"].items())
    assert isinstance(scores, Sums)


def test_words_come_as_they_are_generated(model: Path, monkeypatch, capsys) -> None:
    """What is printed is what is predicted; beams, draws by a seed, lines that cannot be read."""
    found = load_model(model)
    cli = CommandLine(monkeypatch, capsys)
    options = ("--max-new-tokens", 9)
    whole = bertie.write(found, ["a b"], max_new_tokens=9)[0]
    assert cli.good("write", model, "a b", *options) == whole + "\n"
    beams = bertie.write(model, ["a b"], max_new_tokens=9, beams=3)[0]
    assert cli.good("write", model, *options, "--beams", 3, stdin="a b\n\n") == f"{beams}\n\n"
    drawn = [cli.good("write", model, "a b", *options, "--sample", "--seed", seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len({*drawn}) > 1
    (line,) = cli.good("write", model, "--json", *options, stdin="a b\n").splitlines()
    assert json.loads(line) == {"line": 1, "text": whole}
    code, _, err = cli("write", model, "a b", "--top-p", 0.5)
    assert (code, "--sample" in err) == (2, True)


def test_texts_of_a_list_are_written_together_as_one_by_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy and with beams; drawn texts do not depend on the others."""
    found, texts = load_model(model), ["a b", "c", "x y x y x", "b a b", "g"]
    calls = list[int]()

    def counted(module: TorchModel, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        calls.append(len(ids))
        return generate(module, ids, *rest)

    monkeypatch.setattr(torch_engine, "generate", counted)
    for options in ({}, {"beams": 3, "length_penalty": 0.6}):
        calls.clear()
        together = bertie.write(found, texts, max_new_tokens=9, **options)
        assert sum(calls) == len(texts)
        assert len(calls) < len(texts)
        assert together == [bertie.write(found, [text], max_new_tokens=9, **options)[0] for text in texts]
    drawn = {"sample": True, "seed": 1, "max_new_tokens": 9}
    assert bertie.write(found, ["c", *texts], **drawn)[1:] == bertie.write(found, texts, **drawn)


def test_a_text_that_leaves_no_positions_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    folder = toy_writer(tmp_path, "gpt2")
    code, out, err = CommandLine(monkeypatch, capsys)(
        "write", folder, "--max-new-tokens", 4, stdin=f"a b\n{'a ' * 60}\nb a\n"
    )
    assert (code, [bool(line) for line in out.split("\n")]) == (0, [True, False, True, False])
    assert "1 of 3 lines skipped: The text and its continuation may have" in err
    with pytest.raises(UsageError, match="48 positions"):
        bertie.write(folder, ["a " * 30], max_new_tokens=30)


def test_write_notes_texts_that_are_cut_and_options_without_effect(tmp_path: Path, monkeypatch, capsys) -> None:
    cli, folder = CommandLine(monkeypatch, capsys), toy_writer(tmp_path)
    for arguments, stdin in ((["a b c d e f"], ""), ([], "a b c d e f\na\n")):
        code, _, err = cli("write", folder, *arguments, "--max-new-tokens", 2, "--max-length", 5, stdin=stdin)
        assert code == 0
        assert f"1 of {len(stdin.splitlines()) or 1} texts are longer than 5 tokens: truncated" in err
    for options, named in ((("--length-penalty", 2), "--beams"), (("--sample", "--beams", 2), "--sample and --beams")):
        code, _, err = cli("write", folder, "a", *options)
        assert (code, named in err) == (2, True)


def test_a_causal_model_continues_the_text_as_in_its_training(tmp_path: Path) -> None:
    """The separator that ends a text in pre-training is not between a text and its continuation."""
    tokenizer = Tokenizer.load(toy_model(tmp_path, "abcde"))
    shape = families.config("bert-tiny").replace(vocab_size=tokenizer.vocab_size, causal=True)
    model = families.build(shape, heads=lambda config: {"lm": HEADS["lm"](config)}, variant="bert")
    model.tokenizer = tokenizer
    assert model.training
    predictor = Predictor(model)
    encoded = predictor.encode([Example(("a b",)), Example(("c",))])
    assert encoded.lengths.tolist() == [3, 2]
    ids = tokenizer.ids(["a b", "c"])
    assert encoded.input_ids.tolist() == [tokenizer.special_id("cls"), *ids[0], tokenizer.special_id("cls"), *ids[1]]
    found = bertie.write(model, ["a b"], max_new_tokens=3)  # without dropout
    assert model.training
    model.eval()
    prompt = torch.from_numpy(encoded.part(0, 1).input_ids).long()[None]
    assert found == [tokenizer.decode(generate(model, prompt, writing=GenerationConfig(max_new_tokens=3))[0].tolist())]


@pytest.mark.parametrize("text", ["", "  "])
def test_python_refuses_empty_texts_and_unknown_options(model: Path, text: str) -> None:
    assert bertie.write(model, ["a", text], max_new_tokens=2)[1] is None
    with pytest.raises(DataError, match="1: empty text"):
        bertie.write(model, [text], max_new_tokens=2)
    with pytest.raises(UsageError, match=r"max_tokens.*Did you mean"):
        bertie.write(model, ["a"], max_tokens=2)
    with pytest.raises(UsageError, match=r"max_new_tokens is '5'; a whole number"):
        bertie.write(model, ["a"], max_new_tokens="5")
    with pytest.raises(UsageError, match=r"temperature is .1.; a number or None"):
        bertie.write(model, ["a"], sample=True, temperature="1")


def test_no_examples_have_scores_of_zero() -> None:
    """`evaluate --data` asks an empty counter for the names of its metrics."""
    names = ("exact_match", "chrf", "bleu", "rougeL")
    assert WrittenScores(names).compute() == dict.fromkeys(names, 0.0)


def test_places_of_spaces() -> None:
    """Against F1 of the sets of "the text before a space, without its spaces"."""

    def before(text: str) -> set[str]:
        return {text[:i].replace(" ", "") for i, letter in enumerate(text) if letter == " "}

    draw = random.Random(0)
    true = ["".join(draw.choices("abc ", k=20)) for _ in range(40)]
    given = ["".join(draw.choice([letter, letter, letter, "b", " ", ""]) for letter in text) for text in true[:30]]
    true, given = ([" ".join(text.split()) for text in texts] for texts in (true, given + true[30:]))
    scores = WrittenScores(("space_f1",))
    scores.add(true, given)
    right = sum(len(before(t) & before(g)) for t, g in zip(true, given, strict=True))
    every = sum(len(before(t)) + len(before(g)) for t, g in zip(true, given, strict=True))
    assert scores.compute()["space_f1"] == pytest.approx(2 * right / every)
    alone = WrittenScores(("space_f1",))
    alone.add(["가 나 다", "라마"], ["가 나다", "라마"])
    assert alone.compute()["space_f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("family", ["t5", "gpt2"])
def test_the_cost_of_a_run_counts_the_targets(family: str, tmp_path: Path) -> None:
    """A decoder reads the targets beside the text; a causal model after it."""
    rows = [{"text": "a b c d"[: 1 + i % 7], "label": "e f g"[: 1 + i % 5]} for i in range(40)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {"model": str(toy_writer(tmp_path / "m", family)), "task": "text2text", "max_length": 20}
    config = FinetuneConfig.model_validate({**tree, "train_file": str(tmp_path / "t.jsonl")})
    examples = read_examples(config)
    run = prepare_run(with_steps(config, len(examples.train)), examples)
    (phase,) = (work := finetuning_work(run)).phases
    lengths, target = run.train.sequences.lengths, int(run.source.targets.sequence["target_length"].sum())
    share, shape = target / lengths.sum(), run.model.config
    mean = float((lengths**2).sum() / lengths.sum())
    if family == "t5":
        once = sum(forward_flops(shape, length=mean, predicted=share).values())
        assert work.job.parameters == sum(one.numel() for one in run.model.parameters())
    else:
        read = 1 + share
        once = read * sum(forward_flops(shape, length=mean * read, predicted=share / read).values())
    assert phase.flops == pytest.approx(3 * once * lengths.mean() * 32)
    assert phase.shape.predicted > 0
