"""Every family's published recipe, on a nano model of it: it builds, trains, and leaves folders that open."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from test_families import small

from bertie import objectives
from bertie import settings as configs
from bertie.data import corpus
from bertie.models import families
from bertie.models.variant import Variant
from bertie.objectives import MaskedLM
from bertie.runs.config import PretrainConfig
from bertie.runs.pretrain import run_pretrain
from bertie.text.normalize import Normalizer
from bertie.text.vocabulary import count_words, train_vocabulary
from nano import one_thread

WORDS = "the a small old red cat dog bird house river sees likes finds leaves near under over and but".split()
FAMILIES = [pytest.param(variant, id=name) for name, variant in families.VARIANTS.items()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a tokenizer with rows for sentinels, and a teacher."""
    home = tmp_path_factory.mktemp("recipes")
    draw = random.Random(0)
    texts = ["\n".join(" ".join(draw.choices(WORDS, k=8)) + "." for _ in range(6)) for _ in range(40)]
    (home / "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")
    corpus.build_shards([home / "texts.txt"], home / "corpus")
    words = count_words(corpus.texts(home / "corpus"))
    tokenizer = train_vocabulary(words, size=90, unused=20, normalizer=Normalizer(lowercase=True))
    tokenizer.save(home / "tokenizer")
    shape = small(families.VARIANTS["bert"]).replace(vocab_size=tokenizer.vocab_size)
    families.build(shape, heads=MaskedLM().heads).save_pretrained(home / "teacher", tokenizer=tokenizer)
    return home


def _corpus(home: Path, recipe: dict[str, Any], size: int | None) -> dict[str, Any]:
    """Texts, or a table of captions with vectors where the recipe learns from pictures."""
    if "itm" not in recipe["objectives"]:
        return {"corpus": str(home / "corpus")}
    rows = [{"text": " ".join(WORDS[n : n + 5]), "image": [[n / 9] * (size or 0)] * 2} for n in range(12)]
    (home / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return {"corpus": str(home / "captions.jsonl"), "features": {"column": "image"}}


@pytest.mark.parametrize("variant", FAMILIES)
def test_a_recipe_takes_a_step(variant: Variant, home: Path, tmp_path: Path) -> None:
    recipe: dict[str, Any] = configs.merge({}, variant.recipe)
    if "distil" in recipe["objectives"]:
        recipe["objectives"]["distil"] = {"teacher": str(home / "teacher")}
    assert objectives.build_objective(recipe["objectives"])
    preset, base = next(iter(variant.presets.items()))
    nano = small(variant)
    overrides = {
        name: getattr(nano, name)
        for name in vars(nano)
        if name not in ("vocab_size", "pad_token_id") and getattr(nano, name) != getattr(base, name)
    }
    recipe = configs.merge(
        recipe,
        {
            **_corpus(home, recipe, nano.feature_size),
            "tokenizer": str(home / "tokenizer"),
            "model": preset,
            "model_overrides": overrides,
            "max_length": 32,
            "train": {"steps": 1, "batch_size": 4, "device": "cpu", "precision": "fp32"},
        },
    )
    with one_thread():
        results = run_pretrain(configs.build_config(PretrainConfig, recipe), tmp_path / "run")
    assert results["step"] == 1
    parts = {name for name in results["train"] if name.endswith("_loss")}
    assert {f"{name}_loss" for name, options in recipe["objectives"].items() if options is not None} <= parts
    model, report = families.load(tmp_path / "run" / "model")
    assert not report.fresh
    own = "bertie-" if variant.model_type == "mpnet" else ""  # the id of this tokenizer's padding is not theirs
    assert model.public["model_type"] == own + variant.model_type
