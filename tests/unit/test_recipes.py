"""Every recipe parses, has the numbers of its paper, and runs to its end: on a nano corpus, its model made small."""

from pathlib import Path

import pytest
from test_pretrain import home, thread

from bertie import objectives
from bertie import settings as configs
from bertie.models import families
from bertie.objectives.rtd import ReplacedTokens
from bertie.runs.config import PretrainConfig
from bertie.runs.pretrain import run_pretrain
from bertie.runs.run_data import phases
from bertie.text.tokenizer import Tokenizer

assert home
assert thread  # fixtures

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("pretrain-*.yaml"))
NANO = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}


@pytest.fixture(scope="module")
def folders(home):
    """A teacher, or a model to continue from."""
    tokenizer = Tokenizer.load(home / "tokenizer")
    shape = families.config("bert-tiny", vocab_size=tokenizer.vocab_size, **NANO)
    model = families.build(shape, heads=objectives.build_objective({"mlm": {}}).heads)
    families.save(model, home / "model", tokenizer=tokenizer)
    return home


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs_to_its_end(folders, recipe, tmp_path):
    small = ["train.batch_size=4", "train.micro_batch_size=2", "train.device=cpu"]
    small += ["train.steps=10", "train.log_every=5", "train.precision=fp32"]
    given = configs.load_config(PretrainConfig, recipe)
    paths = {"corpus": str(folders / "corpus"), "tokenizer": str(folders / "tokenizer")}
    if given.corpora:
        small.append(f"corpora=[{{path: {folders / 'corpus'}, weight: 4}}]")
        paths = {"model": str(folders / "model")}
    else:
        small += [f"model_overrides.{name}={size}" for name, size in NANO.items()]
        assert families.config(given.model).max_length >= max(phase.max_length for phase in phases(given))
    if given.phases:
        kept = [phase.model_dump(exclude={"batch_size"}, exclude_none=True) for phase in given.phases]
        for one in kept:
            if "max_length" in one:
                one["max_length"] = min(one["max_length"], 512)  # the corpus is nano too
        paths["phases"] = kept
    if "distil" in given.objectives:
        small += [f"objectives.distil.teacher={folders / 'model'}", "objectives.distil.layers=[0,1]"]
    if "hidden" in given.objectives:
        small += [f"objectives.hidden.teacher={folders / 'model'}"]
    results = run_pretrain(configs.load_config(PretrainConfig, recipe, small, **paths), tmp_path / "run")
    assert (results["step"], results["plan"]["steps"]) == (10, 10)
    assert {f"{name}_loss" for name, options in given.objectives.items() if options is not None} <= set(
        results["train"]
    )
    assert ("pseudo_perplexity" in results) == bool(given.pseudo_perplexity)
    model, report = families.load(tmp_path / "run" / "model")
    assert not report.fresh
    assert model.public["model_type"] == families.family(folders / "model" if given.corpora else given.model).model_type


def recipe(name):
    return configs.load_config(PretrainConfig, f"pretrain-{name}", corpus="c", tokenizer="t")


def test_bert_has_the_published_numbers():
    base = recipe("bert-base")
    assert (base.optim.name, base.optim.lr, base.optim.warmup, base.optim.weight_decay) == (
        "bert_adam",
        1e-4,
        10_000,
        0.01,
    )
    short, long = phases(base)
    assert (short.steps, short.max_length, short.objectives["mlm"]["max_predictions"]) == (900_000, 128, 20)
    assert (long.steps, long.max_length, long.objectives["mlm"]["max_predictions"]) == (100_000, 512, 77)
    assert (short.batch_size, long.batch_size) == (256, 256)
    assert base.objectives["nsp"] == {"form": "original", "duplicates": 10}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("roberta-base", "roberta"),
        ("albert-base", "albert"),
        ("electra-small", "electra"),
        ("bert-base", "bert"),
        ("distilbert", "distilbert"),
    ],
)
def test_a_recipe_has_the_numbers_its_family_states(name, family):
    """One number, written in two places: the recipe, and the family's own table (families/)."""
    stated, given = families.VARIANTS[family].recipe, recipe(name)
    for key, value in stated["optim"].items():
        found = getattr(given.optim, key)
        assert tuple(found) == tuple(value) if key == "betas" else found == value, key
    for key, value in stated["train"].items():
        assert getattr(given.train, key) == value, key
    asked = {n for n, options in stated["objectives"].items() if options is not None}
    assert {n for n, options in given.objectives.items() if options is not None} == asked
    assert max(phase.max_length for phase in phases(given)) == stated["max_length"]


def test_electra_s_generator_is_a_quarter():
    built = objectives.build_objective(recipe("electra-small").objectives)
    assert isinstance(built, ReplacedTokens)
    assert (built.size, built.weight) == (0.25, 50.0)


def test_distilbert_starts_from_the_teacher_s_layers():
    """scripts/extract_distilbert.py"""
    asked = recipe("distilbert").objectives["distil"]
    assert asked["layers"] == [0, 2, 4, 7, 9, 11]
    assert families.config("distilbert-base-uncased").num_hidden_layers == len(asked["layers"])


def test_a_day_s_batches_grow_as_in_its_source():
    """A fifth of the sequences to each of the first three batch sizes: time goes with sequences."""
    day = phases(recipe("one-day"))
    sequences = [phase.steps * phase.batch_size for phase in day]
    shares = [n / sum(sequences) for n in sequences]
    assert [round(share, 1) for share in shares] == [0.2, 0.2, 0.2, 0.4]
    assert 128 * sum(sequences) == pytest.approx(11e9, rel=0.03)
