"""A student that starts from its teacher's layers, compared with plain slicing of the teacher's weights."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from test_pretrain import NANO, home, settings, thread
from typer.testing import CliRunner

from bertie import objectives
from bertie.apps.cli.table import app
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.count import forward_flops
from bertie.objectives import MaskedLM
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.runs.verify import verify_folder
from bertie.text.tokenizer import Tokenizer

assert home
assert thread  # fixtures

LAYERS = [0, 2, 3]
FORBIDDEN = "with other settings or data"


def make_teacher(folder, home, seed=3):
    tokenizer = Tokenizer.load(home / "tokenizer")
    sizes = {name: int(size) for name, size in (row.split("=") for row in NANO)}
    shape = families.config("bert-tiny", vocab_size=tokenizer.vocab_size, **{**sizes, "num_hidden_layers": 4})
    families.build(shape, heads=MaskedLM().heads, seed=seed).save_pretrained(folder, tokenizer=tokenizer)
    return folder


@pytest.fixture
def teacher(home, tmp_path):
    return make_teacher(tmp_path / "teacher", home)


def distilling(home, teacher, *overrides):
    student = ["model=distilbert-base-uncased", f"model_overrides.num_hidden_layers={len(LAYERS)}"]
    asked = ["objectives.nsp=null", f"objectives.distil.teacher={teacher}", f"objectives.distil.layers={LAYERS}"]
    return settings(home, *student, *asked, *overrides)


def sliced(teacher):
    """What scripts/extract_distilbert.py takes, the head's transform too, and the first segment in the positions."""
    theirs = load_file(teacher / "model.safetensors")
    bert, head = "bert.embeddings", "cls.predictions"
    ours = {f"distilbert.embeddings.{n}.weight": theirs[f"{bert}.{n}.weight"] for n in ("word_embeddings", "LayerNorm")}
    ours["distilbert.embeddings.LayerNorm.bias"] = theirs[f"{bert}.LayerNorm.bias"]
    positions, segments = (theirs[f"{bert}.{n}_embeddings.weight"] for n in ("position", "token_type"))
    ours["distilbert.embeddings.position_embeddings.weight"] = positions + segments[0]
    names = {
        "attention.self.query": "attention.q_lin",
        "attention.self.key": "attention.k_lin",
        "attention.self.value": "attention.v_lin",
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
        "intermediate.dense": "ffn.lin1",
        "output.dense": "ffn.lin2",
        "output.LayerNorm": "output_layer_norm",
    }
    for place, layer in enumerate(LAYERS):
        for old, new in names.items():
            for part in ("weight", "bias"):
                taken = theirs[f"bert.encoder.layer.{layer}.{old}.{part}"]
                ours[f"distilbert.transformer.layer.{place}.{new}.{part}"] = taken
    for part in ("weight", "bias"):
        ours[f"vocab_transform.{part}"] = theirs[f"{head}.transform.dense.{part}"]
        ours[f"vocab_layer_norm.{part}"] = theirs[f"{head}.transform.LayerNorm.{part}"]
    ours["vocab_projector.bias"] = theirs[f"{head}.bias"]
    return ours


def test_a_run_s_student_starts_as_plain_slicing_says(home, teacher, tmp_path):
    model = PreparedRun(distilling(home, teacher)).model()
    families.save(model, tmp_path / "student")
    found, expected = load_file(tmp_path / "student" / "model.safetensors"), sliced(teacher)
    assert expected.keys() <= found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    alone = {name for name in found if name not in expected}
    assert alone <= {"vocab_projector.weight"}  # the tied copy


def test_without_layers_it_starts_from_random_weights(home, teacher):
    fresh = PreparedRun(distilling(home, teacher, "objectives.distil.layers=[]")).model()
    taken = PreparedRun(distilling(home, teacher)).model()
    assert not torch.equal(fresh.word_embeddings, taken.word_embeddings)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("objectives.distil.layers=[0,2]", "has 2 layers of .*, and the student has 3"),
        ("objectives.distil.layers=[0,2,9]", "the model has layers 0 to 3"),
        ("model_overrides.intermediate_size=64", "Cannot initialize the student from .*: weight encoder.layers.0.up"),
    ],
)
def test_a_student_that_cannot_start_so_is_told(home, teacher, override, said):
    with pytest.raises(UsageError, match=said):
        PreparedRun(distilling(home, teacher, override)).model()


def test_a_model_folder_keeps_its_weights(home, teacher):
    config = settings(home, model_overrides={}, objectives=distilling(home, teacher).objectives, model=str(teacher))
    with pytest.raises(UsageError, match="is a model folder with weights"):
        PreparedRun(config.model_copy(update={"model_overrides": {}})).model()


def test_another_teacher_is_another_run(home, teacher, tmp_path):
    """The folder's name stays, its weights change: refused, with what was and what is."""
    short, whole = distilling(home, teacher, "train.steps=3"), distilling(home, teacher, "train.steps=6")
    run = tmp_path / "run"
    run_pretrain(short, run)
    assert all(check.ok for check in verify_folder(run).checks)
    kept = tmp_path / "kept"
    shutil.copytree(teacher, kept)
    make_teacher(teacher, home, seed=4)
    with pytest.raises(UsageError, match=FORBIDDEN) as refused:
        run_pretrain(whole, run, allow_change=("train.steps",))
    assert "objectives.distil.teacher: " in str(refused.value)
    with pytest.raises(DataError, match=r"objectives.distil.teacher differs"):
        run_pretrain(short, tmp_path / "again", reference_run=run)
    (bad,) = [check for check in verify_folder(run).checks if not check.ok]
    assert "now contains another model" in bad.result
    # the same teacher in another folder is the same run
    moved = distilling(home, kept, "train.steps=6")
    assert run_pretrain(moved, run, allow_change=("train.steps",))["step"] == 6


def test_a_run_that_goes_on_from_a_folder_names_its_weights(home, teacher, tmp_path):
    config = settings(home, "objectives.nsp=null", model=str(teacher)).model_copy(update={"model_overrides": {}})
    before = PreparedRun(config).contents["model"]
    assert before != str(teacher)
    make_teacher(teacher, home, seed=4)
    assert PreparedRun(config).contents["model"] != before


def test_what_is_run_beside_the_model_is_counted(home, teacher):
    """Planned operations: the teacher reads what the student reads, and is not trained."""
    alone = plan_pretraining(settings(home, "model=distilbert-base-uncased", "objectives.nsp=null"))
    taught = plan_pretraining(
        distilling(home, teacher, "model_overrides.num_hidden_layers=2", "objectives.distil.layers=[0,1]")
    )
    beside = taught["flops_beside"]["teacher"]
    assert taught["flops"] > alone["flops"] + beside
    assert not alone["flops_beside"]
    sizes = objectives.build_objective({"mlm": {}, "distil": {"teacher": str(teacher)}}).load_dependencies(
        lambda f: families.load(f)[0]
    )
    config = families.config(teacher)
    (per_token,) = sizes.extra_cost(config, length=20.0, shares={"distil": 1.0}).values()
    assert per_token == sum(forward_flops(config, length=20.0, predicted=1.0).values())


def test_a_generator_is_counted(home):
    config = families.config("electra-small-discriminator")
    built = objectives.build_objective({"rtd": {}})
    cost = built.extra_cost(config, length=128.0, shares={"generator": 0.15, "rtd": 1.0})
    once = forward_flops(built.smaller(config), length=128.0, predicted=0.15)
    assert cost["generator"] == pytest.approx(3 * sum(once.values()) + once["masked-LM head"])
    found = plan_pretraining(
        settings(
            home, "model=electra-small-discriminator", "objectives.nsp=null", "objectives.mlm=null", "objectives.rtd={}"
        )
    )
    assert 0 < found["flops_beside"]["generator"] < found["flops"]


def test_the_recipe_starts_from_the_teacher(home, teacher):
    small = ["train.batch_size=4", "train.micro_batch_size=2", "train.steps=2", "train.device=cpu", "max_length=32"]
    sizes = [f"model_overrides.{row}" for row in NANO]
    given = ["--corpus", str(home / "corpus"), "--tokenizer", str(teacher), f"objectives.distil.teacher={teacher}"]
    layers = ["objectives.distil.layers=[0,3]", "model_overrides.num_hidden_layers=2"]
    command = ["pretrain", "-c", "pretrain-distilbert", *given, *small, *sizes, *layers, "--dry-run", "--json", "-q"]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["flops_beside"]["teacher"] > 0
