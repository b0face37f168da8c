"""Makes the float model of a recipe: what is cut, and how what is left is trained.

The values of `Recipe.learned` are:

    ""            cut by importance, and fitted by least squares; no training
    distilled     the same, then trained on the answers of the original model
    layer-wise    the same, but first layer after layer on the hidden states and the attention of the original
                  model's layer, with the layers below fixed (progressive knowledge transfer; Sun et al. 2020, 3.3)
    movement      what is cut is learned during the training (movement.py)
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from bertie.compression.distil import StudentLoss, distil
from bertie.compression.importance import judged
from bertie.compression.movement import Masks
from bertie.compression.prune import check_prunable, prune
from bertie.compression.recipe import Recipe
from bertie.errors import UsageError
from bertie.files import atomic_write
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models.model import TorchModel
from bertie.models.surgery import take_layers
from bertie.tasks.source import steps_of
from bertie.train.callbacks import EachStep
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.rates import usual_rate

_BATCH = 32
OF_A_LAYER = 0.5  # of the epochs: those of each layer


@dataclass(frozen=True)
class Lessons:
    """What smaller models learn from.

    Args:
        teacher: The original model, with its task and settings.
        examples: Labeled examples.
        texts: Texts, or pairs of texts, without labels.
        epochs: Epochs of training over both.
    """

    teacher: Predictor
    examples: Sequence[Example] = ()
    texts: Sequence[tuple[str, ...]] = ()
    epochs: float = 3.0

    @property
    def all(self) -> list[Example]:
        """The examples, and the texts if the task reads as many at once."""
        return [*self.examples, *(Example(one) for one in self.texts if len(one) == (self.teacher.pipeline.texts or 1))]

    def train(
        self,
        student: TorchModel,
        teacher: TorchModel,
        objective: StudentLoss,
        run: Path,
        *,
        epochs: float | None = None,
        **options: Any,
    ) -> None:
        """Trains a student in place with default settings. options: those of `distil`."""
        steps = self.steps(self.epochs if epochs is None else epochs)
        distil(
            student,
            teacher,
            objective,
            self.all,
            run,
            max_length=self.teacher.max_length,
            train=TrainConfig(steps=steps, batch_size=_BATCH, save_every=max(20, steps // 10), eval_every=steps),
            optim=OptimConfig(lr=usual_rate(student.config.hidden_size), warmup=0.06),
            **options,
        )

    def steps(self, epochs: float) -> int:
        """Returns the number of steps of some epochs."""
        return steps_of(len(self.all), batch_size=_BATCH, epochs=epochs)

    def student(self, model: TorchModel, recipe: Recipe, run: Path, answers: Path | None = None) -> TorchModel:
        """Returns the smaller model of a recipe, before quantization. A training that was stopped is resumed from
        `run`.

        answers: a folder for the teacher's answers, if several students share them. Raises UsageError for a recipe
        that does not suit the model.
        """
        if recipe.learned not in LEARNED:
            raise UsageError(
                f"A recipe cannot be learned by {recipe.learned!r}. Known: {', '.join(filter(None, LEARNED))}."
            )
        return LEARNED[recipe.learned](model, recipe, self, run, answers or run / "teacher").eval()


def _cut(model: TorchModel, recipe: Recipe, lessons: Lessons, run: Path, answers: Path) -> TorchModel:
    teacher = lessons.teacher
    ranked = recipe.heads is not None or recipe.neurons is not None
    batches = (
        judged(teacher.task, lessons.examples, teacher.tokenizer, max_length=teacher.max_length)
        if ranked and lessons.examples
        else ()
    )
    cuts: dict[str, Any] = dict(recipe.kept)
    return prune(model, learner=teacher.task, batches=batches, **cuts)


def _distilled(model: TorchModel, recipe: Recipe, lessons: Lessons, run: Path, answers: Path) -> TorchModel:
    small = _cut(model, recipe, lessons, run, answers)
    lessons.train(small, model, usual(small, model, lessons), run, answers=answers)
    return small


def _layer_wise(model: TorchModel, recipe: Recipe, lessons: Lessons, run: Path, answers: Path) -> TorchModel:
    small = _cut(model, recipe, lessons, run, answers)
    if small.config.num_hidden_layers != model.config.num_hidden_layers:
        raise UsageError(
            f"The student has {small.config.num_hidden_layers} layers, the original model "
            f"{model.config.num_hidden_layers}. Layers are learned one by one where both have as many. Use --distil."
        )
    same_heads = small.config.num_attention_heads == model.config.num_attention_heads
    heads = {"attention": 1.0} if same_heads else {"relations": 1.0}
    parts: dict[str, float] = {"soft": 0.0, "hard": 0.0, "relations": 0.0, "features": 1.0, **heads}
    objective = StudentLoss(lessons.teacher.task, **parts)
    for number in range(small.config.num_hidden_layers):
        _learn_layer(small, model, number, objective, lessons, run)
    lessons.train(small, model, usual(small, model, lessons), run / "whole", answers=answers)
    return small


def _learn_layer(
    small: TorchModel, model: TorchModel, number: int, objective: StudentLoss, lessons: Lessons, run: Path
) -> None:
    """Trains one layer of a student in place. A finished layer is read from its file."""
    done, where = run / f"layer-{number}.safetensors", run / f"layer-{number}"
    layer = f"encoder.layers.{number}."
    if not done.exists():
        first = range(number + 1)
        student, teacher = take_layers(small, first), take_layers(model, first)
        for name, parameter in student.named_parameters():
            parameter.requires_grad_(name.startswith(layer))
        lessons.train(student, teacher, objective, where, epochs=lessons.epochs * OF_A_LAYER)
        learned = {name: tensor for name, tensor in student.state_dict().items() if name.startswith(layer)}
        with atomic_write(done) as file:
            save_file(learned, file.name)
        shutil.rmtree(where)
    small.load_state_dict(load_file(done), strict=False)


def _moved(model: TorchModel, recipe: Recipe, lessons: Lessons, run: Path, answers: Path) -> TorchModel:
    check_prunable(model, recipe.heads, recipe.neurons)
    student = take_layers(model, range(model.config.num_hidden_layers))  # a copy
    masks = Masks(model.config, recipe.kept, lessons.steps(lessons.epochs))
    # Relations compare whole queries, keys and values, also those of heads that are about to go.
    objective = replace(usual(student, model, lessons), relations=0.0, hidden=1.0)
    with masks.on(student):
        lessons.train(student, model, objective, run, answers=answers, callbacks=[EachStep(masks.reached)])
    return masks.cut(student)


def usual(student: TorchModel, teacher: TorchModel, lessons: Lessons) -> StudentLoss:
    """Returns the default objective of a student."""
    alike = all(one.config.attends_to_all for one in (student, teacher))
    return StudentLoss(lessons.teacher.task, relations=1.0 if alike else 0.0)


LEARNED: Mapping[str, Callable[[TorchModel, Recipe, Lessons, Path, Path], TorchModel]] = {
    "": _cut,
    "distilled": _distilled,
    "layer-wise": _layer_wise,
    "movement": _moved,
}
