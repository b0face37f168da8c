"""Every published set has a recipe with its published settings, chosen by --data and overridden by what is typed."""

from pathlib import Path

import pytest

from bertie import settings
from bertie.api.finetune import settings_of
from bertie.models import families
from bertie.models.encoder import Encoder
from bertie.models.model import TorchModel
from bertie.runs.config import FinetuneConfig
from bertie.runs.start import with_rate
from bertie.tasks.datasets import DATASETS
from bertie.train.schedule import usual_rate

PUBLISHED = {  # batch size, epochs, learning rate. Devlin et al. 2018, 4.1 to 4.4; KLUE-baseline, run_all.sh
    "rte": (32, 3, 2e-5),
    "squad": (32, 3, 5e-5),
    "squad2": (48, 2, 5e-5),
    "swag": (16, 3, 2e-5),
    "klue-tc": (32, 4, 5e-5),
    "klue-sts": (32, 4, 5e-5),
    "klue-nli": (32, 5, 5e-5),
    "klue-ner": (32, 3, 5e-5),
    "klue-re": (32, 3, 5e-5),
    "klue-dp": (32, 10, 5e-5),
    "klue-mrc": (16, 5, 3e-5),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_set_s_recipe_is_chosen_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = settings_of({"model": "m", "data": name})
    assert chosen.data == name
    assert DATASETS[name].recipe in "".join(capsys.readouterr().err.split())
    batch, epochs, rate = PUBLISHED.get(name, (chosen.train.batch_size, chosen.epochs, chosen.optim.lr))
    assert (chosen.train.batch_size, chosen.epochs, chosen.optim.lr) == (batch, epochs, rate)
    recipe = settings.load_config(FinetuneConfig, Path(DATASETS[name].recipe), model="m")
    assert recipe.data in ("", name) or DATASETS[name].recipe == "finetune-squad"


def test_what_is_typed_counts_more_than_the_recipe() -> None:
    chosen = settings_of({"model": "m", "data": "squad"}, overrides=("epochs=2", "train.batch_size=12"))
    assert (chosen.epochs, chosen.train.batch_size, chosen.max_length, chosen.optim.lr) == (2, 12, 384, 5e-5)


@pytest.mark.parametrize(
    ("width", "typed", "rate"),
    [(256, [], usual_rate(256)), (768, [], 2e-5), (1024, [], 2e-5), (256, ["optim.lr=7e-5"], 7e-5)],
)
def test_a_published_rate_is_for_wide_models(
    width: int, typed: list[str], rate: float, capsys: pytest.CaptureFixture[str]
) -> None:
    model = TorchModel(Encoder(families.config("bert-tiny", hidden_size=width, num_hidden_layers=0, vocab_size=9)))
    assert with_rate(settings_of({"model": "m", "data": "rte"}, overrides=tuple(typed)), model, []).optim.lr == rate
    assert ("learning rate for the model's width" in " ".join(capsys.readouterr().err.split())) == (not typed)
    named = settings_of({"model": "m", "data": "rte"}, DATASETS["rte"].recipe, tuple(typed))
    assert with_rate(named, model, []).optim.lr == named.optim.lr


def test_a_file_that_is_named_is_taken_instead(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 7\n")
    chosen = settings_of({"model": "m", "data": "squad"}, tmp_path / "mine.yaml")
    assert (chosen.epochs, chosen.max_length) == (7, 128)


def test_every_recipe_is_some_set_s() -> None:
    files = {path.stem for path in (Path(__file__).parents[2] / "recipes").glob("finetune-*.yaml")}
    assert files == {row.recipe for _, row in DATASETS.items()} | {
        "finetune-klue",
        "finetune-few-shot",
        "finetune-xnli",
    }
