"""Training that decides what to cut, and training layer by layer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bertie.compression import learn
from bertie.compression.distil import StudentLoss, attention_loss, last_qkv
from bertie.compression.importance import importance, judged
from bertie.compression.learn import HEADS, LAYERS, NEURONS, Lessons, Masks
from bertie.compression.prune import Recipe
from bertie.errors import UsageError
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.surgery import take_layers
from bertie.runs.weights import load_model as load_module
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from bertie.train.callbacks import EachStep
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]
TASK = SequenceTask(("no", "yes"))
WANTED = {LAYERS: 2, HEADS: 2, NEURONS: 12}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    toy_model(folder, LETTERS, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, **plain)
    model = families.load(folder, heads=TASK.heads, seed=1)[0].eval()
    model.tokenizer, model.labels = Tokenizer.load(folder), TASK.labels
    return model


@pytest.fixture(scope="module")
def examples():
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice([*"abcdefgh", " "], size=rng.integers(6, 30))) + " a" for _ in range(96)]
    return [Example((text,), ("no", "yes")[text.count("a") > 2], i) for i, text in enumerate(texts)]


@pytest.fixture
def batch(teacher, examples):
    encoded = TASK.encode(examples[:24], teacher.tokenizer, max_length=64, too_long="truncate")
    return batch_of_examples(encoded, np.arange(24), TASK.targets(examples[:24], encoded))


def copy_of(model):
    return take_layers(model, range(model.config.num_hidden_layers))


def at_the_end(model, seed: int = 0) -> Masks:
    """Masks with random scores, after the last step."""
    masks = Masks(model.config, WANTED, steps=10)
    draw = torch.Generator().manual_seed(seed)
    for name in WANTED:
        masks.get_parameter(name).data.normal_(generator=draw)
    masks.reached(10)
    return masks


def test_the_number_that_is_kept_follows_the_cubic_schedule(teacher):
    masks = Masks(teacher.config, {NEURONS: 8}, steps=1000)
    for step, share in ((0, 1.0), (100, 1.0), (250, 0.75**3), (400, 0.5**3), (700, 0.0), (1000, 0.0)):
        masks.reached(step)
        assert masks.count(NEURONS) == 8 + round(40 * share)
        factors = masks.factors(NEURONS)
        assert factors.sum(1).tolist() == [masks.count(NEURONS)] * 3


def test_the_gradient_of_a_score_is_that_of_its_factor(teacher, batch):
    """Against differences of the loss, for units that are kept and for units that are cut."""
    masks, step = at_the_end(teacher), 1e-2

    def loss() -> torch.Tensor:
        return TASK.loss(teacher, TASK.forward(teacher, batch), batch)["label"].total.double()

    with masks.on(teacher):
        loss().backward()
    for name, layer, unit in ((HEADS, 1, 0), (HEADS, 1, 1), (HEADS, 1, 2), (NEURONS, 2, 3), (NEURONS, 2, 7)):
        slope = masks.get_parameter(name).grad[layer, unit]
        hard, found = masks.factors(name, layer).detach(), []
        for change in (step, -step):
            moved = hard.clone()
            moved[unit] += change
            masks.factors = lambda n, i=None, moved=moved, name=name, layer=layer: (
                moved if (n, i) == (name, layer) else Masks.factors(masks, n, i)
            )
            with masks.on(teacher), torch.no_grad():
                found.append(float(loss()))
        del masks.factors
        assert float(slope) == pytest.approx((found[0] - found[1]) / (2 * step), rel=0.05, abs=2e-4), (name, unit)
    teacher.zero_grad()


def test_the_cut_model_computes_what_the_masked_one_did(teacher, batch):
    masks = at_the_end(teacher)
    with masks.on(teacher), torch.no_grad():
        wanted = TASK.logits(teacher, teacher.encode(batch))
    small = masks.cut(teacher)
    config = small.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (2, 2, 12)
    assert small.encoder.layers[0].down.weight.shape == (32, 12)
    assert small.encoder.layers[0].attention.qkv.weight.shape == (48, 32)
    with torch.no_grad():
        assert torch.allclose(TASK.logits(small, small.encode(batch)), wanted, atol=2e-5)
        assert not torch.allclose(TASK.logits(teacher, teacher.encode(batch)), wanted, atol=1e-2)
    assert "masks" not in teacher.companions


def test_what_disturbs_the_task_is_what_is_cut(teacher, examples, tmp_path):
    """Neurons that add noise to every layer's output go. Their importance would keep them."""
    noisy = copy_of(teacher).requires_grad_(False)
    noise = torch.Generator().manual_seed(3)
    for layer in noisy.encoder.layers:
        layer.down.weight.data[:, :16] = 0.3 * torch.randn(32, 16, generator=noise)
    masks = Masks(noisy.config, {NEURONS: 32}, steps=60)
    lessons = Lessons(Predictor(teacher), examples, epochs=20)
    objective = StudentLoss(TASK, relations=0.0, hidden=1.0, hard=0.0)
    with masks.on(noisy):
        lessons.train(noisy, teacher, objective, tmp_path, callbacks=[EachStep(masks.reached)])
    gone = sum(16 - int((masks.kept(NEURONS)[layer] < 16).sum()) for layer in range(3))
    found = importance(noisy, TASK, judged(TASK, examples, teacher.tokenizer, max_length=64))
    unimportant = sum(16 - int((found.kept(layer, "down", 32) < 16).sum()) for layer in range(3))
    assert gone > 32  # of 48; by chance 16
    assert unimportant < 10


def test_a_stopped_training_is_resumed_with_its_scores(teacher, examples, tmp_path):
    recipe, lessons = Recipe(heads=2, neurons=16, learned="movement"), Lessons(Predictor(teacher), examples, epochs=8)
    whole = lessons.student(teacher, recipe, tmp_path / "whole")

    class Stop(Exception):
        pass

    reached = Masks.reached

    def stop(self: Masks, step: int) -> None:
        reached(self, step)
        if step == 22:  # after the checkpoint of step 20
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Masks, "reached", stop)
        with pytest.raises(Stop):
            lessons.student(teacher, recipe, tmp_path / "again")
    again = lessons.student(teacher, recipe, tmp_path / "again")
    assert all(torch.equal(x, y) for x, y in zip(whole.parameters(), again.parameters(), strict=True))
    assert not whole.companions


def test_attention_is_compared_head_by_head(teacher, batch):
    other = copy_of(teacher)
    other.encoder.layers[-1].attention.qkv.weight.data *= 1.5
    with torch.no_grad():
        ours, theirs = (one.encode(batch, output_hidden_states=True) for one in (other, teacher))
        found = attention_loss(last_qkv(other, ours), last_qkv(teacher, theirs), ours, 4)
        p, q = (
            one(batch.input_ids, batch.token_type_ids, batch.layout, output_attentions=True).attentions[-1]
            for one in (teacher.encoder, other.encoder)
        )
    p, q = (x.double().clamp_min(1e-30) for x in (p, q))
    wanted = (p * (p.log() - q.log())).sum(-1).mean(1)[ours.layout.mask()].sum()
    assert float(wanted) > 0.1
    assert float(found) == pytest.approx(float(wanted), rel=1e-3)


def test_layers_are_learned_one_by_one(teacher, examples, tmp_path):
    """Each layer comes nearer to the teacher's, the layers below do not move, and a second run reads the files."""
    lessons = Lessons(Predictor(teacher), examples, epochs=16)
    recipe = Recipe(neurons=16, learned="layer-wise")
    cut = lessons.student(teacher, replace(recipe, learned=""), tmp_path / "cut")
    states = []

    def train(self: Lessons, student, original, objective, run, **options) -> None:
        states.append((student, {name: tensor.clone() for name, tensor in student.state_dict().items()}, objective))
        Lessons.train(self, student, original, objective, run, **options)

    class Watched(Lessons):
        pass

    Watched.train = train
    watched = Watched(lessons.teacher, examples, epochs=16)
    small = watched.student(teacher, recipe, tmp_path / "run")
    assert [student.config.num_hidden_layers for student, *_ in states] == [1, 2, 3, 3]
    for number, (student, before, objective) in enumerate(states[:3]):
        assert (objective.features, objective.attention, objective.soft, objective.hard) == (1, 1, 0, 0)
        moved = {name for name, tensor in student.state_dict().items() if not torch.equal(tensor, before[name])}
        assert moved
        assert all(name.startswith(f"encoder.layers.{number}.") for name in moved)
    encoded = TASK.encode(examples, teacher.tokenizer, max_length=64, too_long="truncate")
    encoded = batch_of_examples(encoded, np.arange(96))
    with torch.no_grad():
        exact, first, last = (
            one.encode(encoded, output_hidden_states=True).hidden_states for one in (teacher, cut, states[2][0])
        )
    for layer in range(1, 4):
        assert (last[layer] - exact[layer]).square().mean() < 0.9 * (first[layer] - exact[layer]).square().mean()
    states.clear()
    again = watched.student(teacher, recipe, tmp_path / "run")
    assert len(states) == 1  # the layers were read
    assert all(torch.equal(x, y) for x, y in zip(small.parameters(), again.parameters(), strict=True))


def test_what_does_not_go_together_is_refused(teacher, examples, tmp_path, bertie):
    lessons = Lessons(Predictor(teacher), examples)
    with pytest.raises(UsageError, match="Layers are learned one by one"):
        lessons.student(teacher, Recipe(layers=2, learned="layer-wise"), tmp_path)
    with pytest.raises(UsageError, match="64 neurons cannot be kept"):
        lessons.student(teacher, Recipe(neurons=64, learned="movement"), tmp_path)
    with pytest.raises(UsageError, match=r"'magic'\. Known: distilled, layer-wise, movement"):
        lessons.student(teacher, Recipe(neurons=64, learned="magic"), tmp_path)
    fewer = lessons.student(teacher, Recipe(heads=2), tmp_path)
    with pytest.raises(UsageError, match="2 attention heads, the teacher 4"):
        StudentLoss(TASK, relations=0.0, attention=1.0).check(fewer, teacher)


def test_from_the_command_line(teacher, examples, tmp_path, bertie, monkeypatch):
    monkeypatch.setattr(learn, "_BATCH", 16)
    teacher.save_pretrained(tmp_path / "teacher")
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(f"{one.texts[0]},{one.label}" for one in examples))
    common = ("compress", tmp_path / "teacher", "--train", tmp_path / "rows.csv", "--epochs", "2")
    cuts = ("--layers", "2", "--heads", "2", "--neurons", "16")
    bertie.good(*common, *cuts, "--movement", "-o", tmp_path / "moved")
    config = load_module(tmp_path / "moved").config
    assert (config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (2, 2, 16)
    bertie.good(*common, "--neurons", "16", "--layer-wise", "-o", tmp_path / "layers")
    assert load_module(tmp_path / "layers").config.intermediate_size == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layers", "moved", "rows.csv", "teacher"]
    for flags, said in (
        (("--movement", "--layer-wise", "--neurons", "16"), "cannot be combined"),
        (("--movement",), "need --train FILE and one of"),
        (("--layers", "2", "--layer-wise"), "Layers are learned one by one"),
    ):
        code, _, err = bertie(*common, *flags, "-o", tmp_path / "none")
        assert (code, said in " ".join(err.split())) == (2, True), err
        assert not (tmp_path / "none").exists()
