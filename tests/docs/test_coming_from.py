"""The equivalents on docs/get-started/coming-from.md: every row is run, on both sides where both have code.

A row is found by the first code of its left cell. Cells that are Python are evaluated, commands are run, settings are
read by both configs.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

import bertie
from batches import pack, sequences_of
from bertie import Tokenizer, settings
from bertie.apps.cli.table import app
from bertie.apps.sample import table, table_text
from bertie.console import console
from bertie.data.masking import Vocabulary
from bertie.models import families
from bertie.objectives.mlm import MaskedLM
from bertie.order import Draws, key
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.tasks.embed import EmbedTask
from bertie.text.vocabulary import count_words, train_vocabulary

PAGE = Path(__file__).parents[2] / "docs" / "get-started" / "coming-from.md"
ROWS = re.findall(r"^\| (`.+?`|all settings of the paper)(.*?) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
RIGHT = {left.strip("`"): right for left, _, right in ROWS}
CHECKS: dict[str, Callable[["World", str], None]] = {}
QUICK = (
    "train.batch_size=16",
    "train.precision=fp32",
    "train.device=cpu",
    "optim.lr=1e-3",
    "epochs=1",
    "max_length=64",
)
PAIRS = "pairs.csv --label score"
TEXTS = ["The room was lovely.", "The soup was awful, and even the bread was horrible."]


def row(*lefts: str) -> Callable[[Callable[["World", str], None]], Callable[["World", str], None]]:
    """The check of a row, by its left cell; it is given what is in the right one."""

    def keep(check: Callable[["World", str], None]) -> Callable[["World", str], None]:
        CHECKS.update(dict.fromkeys(lefts, check))
        return check

    return keep


def spans(cell: str) -> list[str]:
    return re.findall(r"`(.+?)`", cell)


class World:
    """A pre-trained model, a classifier, a model of vectors, a regression, and small files in the published forms."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "reviews.csv").write_text(table_text(table("reviews"), ".csv"))
        (folder / "pairs.csv").write_text(table_text(table("pairs", rows=100), ".csv"))
        (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
        self._glue(folder / "glue" / "MRPC")
        self._squad(folder / "squad")
        tokenizer = train_vocabulary(
            count_words([*(r["text"] for r in table("reviews")), "Who when where ?"]), size=400
        )
        self.base = folder / "models" / "bert"
        model = families.build("bert-tiny", heads=MaskedLM().heads, vocab_size=tokenizer.vocab_size)
        families.save(model, self.base, tokenizer=tokenizer)
        self.tokenizer, self.runs = tokenizer, 0
        for task, file in (("sequence", "reviews.csv"), ("embed", PAIRS), ("regression", PAIRS)):
            setattr(
                self, task, self.command(f"bertie finetune FOLDER --train {file} --task {task} -o RUN")[1] / "model"
            )

    sequence: Path
    embed: Path
    regression: Path

    def _glue(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for split, seed in (("train", 0), ("dev", 1)):
            lines = [
                f"{int(row['score'] > 2)}\t{i}\t{i}\t{row['sentence1']}\t{row['sentence2']}"
                for i, row in enumerate(table("pairs", rows=30, seed=seed))
            ]
            text = "\n".join(["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *lines])
            (folder / f"{split}.tsv").write_text(text + "\n")

    def _squad(self, folder: Path) -> None:
        folder.mkdir()
        for split, seed in (("train", 0), ("dev", 1)):
            paragraphs = [
                {
                    "context": row["context"],
                    "qas": [{"id": f"{i}", "question": row["question"], "answers": row["answers"]}],
                }
                for i, row in enumerate(table("questions", rows=30, seed=seed))
            ]
            data = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
            (folder / f"{split}-v1.1.json").write_text(json.dumps(data))

    def command(self, words: str, *more: str, folder: Path | None = None, file: str = "") -> tuple[str, Path]:
        """Run a command of the page -> (stdout, the run folder that -o RUN names)."""
        self.runs += 1
        run = self.folder / "runs" / str(self.runs)
        given = {"FOLDER": str(folder or self.base), "FILE": file, "RUN": str(run)}
        line = [part for word in words.removeprefix("bertie ").split() for part in given.get(word, word).split()]
        before = vars(console.verbosity).copy()
        try:
            quick = QUICK if line[0] == "finetune" else ()
            done = CliRunner().invoke(app, [*line, *more, *quick], catch_exceptions=False)
        finally:
            vars(console.verbosity).update(before)
        assert done.exit_code == 0, done.output
        return done.stdout, run

    def both(self, left: str, folder: Path, **more: Any) -> tuple[Any, Any]:
        """What the Python of both cells of a row gives, in this folder."""
        import transformers

        names = {"folder": str(folder), "texts": TEXTS, "text": TEXTS[0], "a": TEXTS[0] * 9, "b": TEXTS[1] * 9} | more
        lazy = ("AutoTokenizer", "AutoModel", "AutoModelForSequenceClassification", "pipeline")
        theirs = {name: getattr(transformers, name) for name in lazy}
        theirs |= {"tokenizer": transformers.AutoTokenizer.from_pretrained(folder), **names}
        ours = {"bertie": bertie, "Tokenizer": Tokenizer, "tokenizer": Tokenizer.load(folder), **names}
        for side, given in ((theirs, "their_model"), (ours, "our_model")):
            side["model"] = more.get(given)
        with torch.inference_mode():
            return eval(left, theirs), eval(spans(RIGHT[left])[0], ours)  # the page is our own

    def ids(self) -> tuple[torch.Tensor, torch.Tensor]:
        batch = [self.tokenizer.encode(text).ids for text in TEXTS]
        longest = max(map(len, batch))
        mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in batch])
        return torch.tensor([ids + [0] * (longest - len(ids)) for ids in batch]), mask


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return World(folder)


def test_every_row_has_a_check():
    assert len(ROWS) == len(RIGHT) > 30
    assert set(RIGHT) == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("left", list(RIGHT))
def test_the_row_is_true(left: str, world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(world.folder)
    CHECKS[left](world, left)


# Settings ------------------------------------------------------------------------------------------------------------


def numbers(text: str) -> dict[str, Any]:
    return {k: settings.scalar(v) for k, v in re.findall(r"([\w.]+)=(\S+?)(?:,? |$|`)", text + " ")}


def resolved(kind: Any, overrides: list[str]) -> dict[str, Any]:
    """key -> value of the overrides, as the config has them."""
    config = settings.load_config(kind, None, overrides, **({"model": "models/bert"} if kind is FinetuneConfig else {}))
    found = {}
    for override in overrides:
        path = override.partition("=")[0]
        value: Any = config
        for name in path.split("."):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
        found[path] = value
    return found


@row(
    *("learning_rate=3e-5", "num_train_epochs=3", "warmup_steps=0.1"),
    "per_device_train_batch_size=8, gradient_accumulation_steps=4",
)
def a_setting_has_the_same_value(world: World, left: str):
    from transformers import TrainingArguments

    theirs = TrainingArguments(output_dir="x", use_cpu=True, report_to=[], **numbers(left))
    ours = resolved(FinetuneConfig, spans(RIGHT[left])[0].split())
    if len(ours) == 1:
        assert list(ours.values()) == list(numbers(left).values())
    else:
        assert ours["train.micro_batch_size"] == theirs.per_device_train_batch_size
        assert ours["train.batch_size"] == theirs.train_batch_size * theirs.gradient_accumulation_steps


@row("bf16=True", "load_best_model_at_end=True")
def a_setting_is_one_of_both(world: World, left: str):
    from transformers import TrainingArguments

    assert left.partition("=")[0] in TrainingArguments.__dataclass_fields__
    assert resolved(FinetuneConfig, [spans(RIGHT[left])[0]]).popitem()[1] in ("bf16", "best")


@row(
    *("--do_whole_word_mask=True", "--masked_lm_prob=0.15", "--max_predictions_per_seq=20", "--dupe_factor=10"),
    *("--max_seq_length=128", "--num_warmup_steps=10000", "AdamWeightDecayOptimizer"),
)
def a_flag_is_a_setting(world: World, left: str):
    (value,) = resolved(PretrainConfig, [spans(RIGHT[left])[0]]).values()
    assert value == {"--do_whole_word_mask=True": "whole_word", "AdamWeightDecayOptimizer": "bert_adam"}.get(
        left, settings.scalar(left.partition("=")[2])
    )


@row("all settings of the paper")
def the_recipe_is_that_of_the_paper(world: World, left: str):
    recipe = settings.load_config(PretrainConfig, Path(spans(RIGHT[left])[0].removeprefix("-c ")), ())
    assert (recipe.train.steps, recipe.train.batch_size, recipe.optim.lr) == (1_000_000, 256, 1e-4)


# transformers --------------------------------------------------------------------------------------------------------


@row("AutoTokenizer.from_pretrained(folder)")
def tokenizers(world: World, left: str):
    theirs, ours = world.both(left, world.base)
    assert theirs.get_vocab() == {ours.id_to_token(i): i for i in range(ours.vocab_size)}


@row("tokenizer(text).input_ids", "tokenizer(a, b, truncation=True, max_length=128)")
def ids(world: World, left: str):
    theirs, ours = world.both(left, world.base)
    if left.endswith("input_ids"):
        assert theirs == list(ours)
    else:
        assert (theirs.input_ids, theirs.token_type_ids) == (list(ours.ids), list(ours.type_ids))
        assert len(ours.ids) == 128


@row("AutoModel.from_pretrained(folder)")
def hidden_states(world: World, left: str):
    theirs, ours = world.both(left, world.base)
    ids, mask = world.ids()
    with torch.inference_mode():
        expected = theirs.eval()(ids, attention_mask=mask).last_hidden_state
        found = ours.encoder(ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(found[mask == 1], expected[mask == 1], atol=1e-5, rtol=1e-4)


@row("AutoModelForSequenceClassification.from_pretrained(folder)", "model(input_ids, attention_mask).logits")
def logits(world: World, left: str):
    from transformers import AutoModelForSequenceClassification

    ids, mask = world.ids()
    models = {
        "their_model": AutoModelForSequenceClassification.from_pretrained(world.sequence).eval(),
        "our_model": bertie.load(world.sequence),
    }
    theirs, ours = world.both(left, world.sequence, input_ids=ids, attention_mask=mask, **models)
    if not torch.is_tensor(theirs):
        with torch.inference_mode():
            theirs, ours = theirs.eval()(ids, attention_mask=mask).logits, ours(ids, attention_mask=mask)["sequence"]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@row("model.save_pretrained(folder)")
def saving(world: World, left: str):
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(world.sequence)
    world.both(left, world.sequence, their_model=model, our_model=bertie.load(world.sequence))
    again = AutoModelForSequenceClassification.from_pretrained(world.sequence)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight)


@row('pipeline("text-classification", folder)(texts)')
def classifying(world: World, left: str):
    theirs, ours = world.both(left, world.sequence)
    assert [one["label"] for one in theirs] == [one.label for one in ours]
    assert [one["score"] for one in theirs] == pytest.approx([one.probability for one in ours], abs=1e-5)


@row('pipeline("fill-mask", folder)(text)')
def filling(world: World, left: str):
    text = "The room was [MASK]."
    theirs, (ours,) = world.both(left, world.base, text=text)
    assert [one["score"] for one in theirs] == pytest.approx([one.probability for one in ours], abs=1e-6)
    assert [one["token_str"].strip() for one in theirs] == [one.token for one in ours]
    out, _ = world.command(f"{spans(RIGHT[left])[1]} FOLDER", text, "--json")
    assert [one["token"] for one in json.loads(out)["masks"][0]] == [one.token for one in ours]


@row("Trainer", "trainer.train(resume_from_checkpoint=True)")
def training(world: World, left: str):
    command = spans(RIGHT["Trainer"])[0]
    assert (left == "Trainer") or RIGHT[left] == "the same command again"
    world.runs += 100
    _, run = world.command(command, file="reviews.csv")
    results = (run / "results.json").read_bytes()
    world.runs -= 1
    world.command(command, file="reviews.csv")  # the same command again
    assert (run / "results.json").read_bytes() == results


@row("DataCollatorForLanguageModeling")
def masking(world: World, left: str):
    """Both choose 15% of the tokens and replace them by 80/10/10."""
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    assert isinstance(resolved(PretrainConfig, ["objectives.mlm.rate=0.15"]).popitem()[1], float)
    encodings = [world.tokenizer.encode(r["text"]) for r in table("reviews", rows=400)]
    collate = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(world.base))
    theirs = collate([{"input_ids": list(one.ids)} for one in encodings])
    clean = sequences_of(encodings)
    ours = MaskedLM().corrupt(clean, Draws(key(0, 0, clean.numbers)), Vocabulary.of(world.tokenizer))
    chosen = ours.labels["mlm_positions"]
    words = theirs["attention_mask"].sum()
    shares = [
        ((theirs["labels"] != -100).sum() / words, len(chosen) / len(clean.input_ids)),
        (
            (theirs["input_ids"][theirs["labels"] != -100] == world.tokenizer.mask_id).float().mean(),
            (ours.input_ids[chosen] == world.tokenizer.mask_id).mean(),
        ),
    ]
    for (a, b), expected in zip(shares, (0.15, 0.8), strict=True):
        assert float(a) == pytest.approx(expected, abs=0.03)
        assert float(b) == pytest.approx(expected, abs=0.03)


@row('evaluate.load("glue", "mrpc")', "run_classifier.py --task_name=MRPC")
def mrpc(world: World, left: str):
    from sklearn.metrics import accuracy_score, f1_score
    from transformers import pipeline

    _, run = world.command(spans(RIGHT["run_classifier.py --task_name=MRPC"])[0], "--seeds", "1")
    out, _ = world.command(spans(RIGHT['evaluate.load("glue", "mrpc")'])[0], "--json", folder=run / "model")
    rows = table("pairs", rows=30, seed=1)
    classify = pipeline("text-classification", str(run / "model"))
    answers = [classify({"text": r["sentence1"], "text_pair": r["sentence2"]})["label"] for r in rows]
    gold = [str(int(r["score"] > 2)) for r in rows]
    found = json.loads(out)
    assert found["accuracy"] == pytest.approx(accuracy_score(gold, answers))
    assert found["f1"] == pytest.approx(f1_score(gold, answers, pos_label="1", zero_division=0))


# sentence-transformers -----------------------------------------------------------------------------------------------


@row("SentenceTransformer(folder).encode(texts)", "extract_features.py")
def vectors(world: World, left: str):
    from sentence_transformers import SentenceTransformer

    call, command = spans(RIGHT["SentenceTransformer(folder).encode(texts)"])
    world.command(command, "--overwrite", folder=world.embed)
    assert call == "bertie.embed(folder, texts)"
    np.testing.assert_allclose(np.load("vectors.npy"), bertie.embed(world.embed, TEXTS), atol=1e-5)
    expected = SentenceTransformer(str(world.embed), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(np.load("vectors.npy"), expected, atol=1e-5)
    model = bertie.load(world.embed)  # extract_features.py: `model.encode`
    with torch.inference_mode():
        output = model.encode(pack([world.tokenizer.encode(text) for text in TEXTS]), output_hidden_states=True)
    hidden = output.last_hidden_state.split([len(world.tokenizer.encode(text).ids) for text in TEXTS])
    means = [part.mean(0).numpy() for part in hidden]
    np.testing.assert_allclose(np.stack(means), expected, atol=1e-5)
    assert spans(RIGHT["extract_features.py"]) == ["bertie embed", "model.encode"]


@row("SentenceTransformerTrainer")
def training_vectors(world: World, left: str):
    _, run = world.command(spans(RIGHT[left])[0], file=PAIRS)
    assert "spearman" in json.loads((run / "results.json").read_text())["dev"]


LOSSES = {  # the first loss of a row -> the loss here that its option is for
    "CosineSimilarityLoss": "",
    "ContrastiveLoss": "",
    "MultipleNegativesRankingLoss": "",
    "GISTEmbedLoss": "in_batch_negatives",
    "MarginMSELoss": "",
    "MatryoshkaLoss": "cosent",
}


@row(*LOSSES, 'Pooling(pooling_mode="mean")')
def options_of_vectors(world: World, left: str):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.modules import Pooling

    option, _, value = spans(RIGHT[left])[0].removeprefix("task_options.").partition("=")
    name = left.partition("(")[0]
    chosen = yaml.safe_load(value)
    task = EmbedTask.make((), {option: chosen} | ({"loss_kind": LOSSES[name]} if LOSSES.get(name) else {}))
    assert getattr(task, option) == (tuple(chosen) if isinstance(chosen, list) else chosen)
    if name == "Pooling":
        saved = SentenceTransformer(str(world.embed), device="cpu")[1].get_config_dict()
        assert saved["pooling_mode"] == Pooling(8, pooling_mode="mean").get_config_dict()["pooling_mode"]
    else:
        assert hasattr(losses, name)


@row("EmbeddingSimilarityEvaluator")
def evaluating_vectors(world: World, left: str):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    out, _ = world.command(spans(RIGHT[left])[0], "--json", folder=world.embed, file=PAIRS)
    rows = table("pairs", rows=100)
    evaluator = EmbeddingSimilarityEvaluator(*([r[k] for r in rows] for k in ("sentence1", "sentence2", "score")))
    theirs = evaluator(SentenceTransformer(str(world.embed), device="cpu"))
    assert json.loads(out)["spearman"] == pytest.approx(theirs["spearman_cosine"], abs=1e-3)


@row("CrossEncoder(folder).predict(pairs)")
def cross_encoder(world: World, left: str):
    from sentence_transformers import CrossEncoder

    pairs = [(r["sentence1"], r["sentence2"]) for r in table("pairs", rows=5)]
    ours = [one.label for one in bertie.predict(bertie.load(world.regression), pairs)]
    theirs = CrossEncoder(str(world.regression), device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


# google-research/bert ------------------------------------------------------------------------------------------------


@row("create_pretraining_data.py", "run_pretraining.py")
def pretraining(world: World, left: str):
    corpus, run = world.folder / "corpora" / "reviews", world.folder / "runs" / "pretrained"
    world.command(f"{spans(RIGHT['create_pretraining_data.py'])[0]} reviews.csv -o {corpus}", "--overwrite")
    words = f"{spans(RIGHT['run_pretraining.py'])[0]} --corpus {corpus} --tokenizer {world.base} -o {run} --overwrite"
    sizes = "model=bert-tiny objectives.nsp=null train.steps=2 train.batch_size=8 max_length=64 train.device=cpu"
    world.command(words, *sizes.split())
    assert "mlm_loss" in (run / "metrics.jsonl").read_text()


@row("run_squad.py")
def squad(world: World, left: str):
    _, run = world.command(spans(RIGHT[left])[0], "--seeds", "1")
    assert "exact_match" in json.loads((run / "results.json").read_text())["dev"]
