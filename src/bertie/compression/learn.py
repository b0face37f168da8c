"""Makes the float model of a recipe: what is cut, and how what is left is trained.

The values of `Recipe.learned` are:

    ""            cut by importance, and fitted by least squares; no training
    distilled     the same, then trained on the answers of the original model
    layer-wise    the same, but first layer after layer on the hidden states and the attention of the original
                  model's layer, with the layers below fixed (progressive knowledge transfer; Sun et al. 2020, 3.3)
    movement      which layers, heads and neurons stay is learned while the model is trained

Movement pruning:

    score S of each unit -> factor M on its output: 1 for the units of highest score, 0 for the others
    dL/dS = dL/dM, for units that are cut as well, so that they can come back
    number of units kept: from all to the wanted number, by a cubic schedule

Source: Sanh et al. 2020 (arXiv:2005.07683), 4 (scores, straight-through gradients) and 5 (schedule); heads and neurons
instead of single weights, as Lagunas et al. 2021, so that matrices really become smaller. Every layer keeps the same
number, as a config can describe.

L layers · N heads · I neurons
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertie.compression import importance
from bertie.compression.distil import StudentLoss, distil
from bertie.compression.importance import judged
from bertie.compression.prune import Recipe, check_prunable, narrowed, prune
from bertie.errors import UsageError
from bertie.files import atomic_write
from bertie.infer.predict import Predictor
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.models.surgery import take_layers
from bertie.tasks import Example
from bertie.tasks.source import steps_of
from bertie.train.callbacks import EachStep
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.schedule import usual_rate

LAYERS, HEADS, NEURONS = "layers", "heads", "neurons"
_PARTS = ((HEADS, importance.HEADS), (NEURONS, importance.NEURONS))  # the matrices that read them
BEFORE, AFTER = 0.1, 0.3  # shares of the steps: nothing is cut yet; nothing more is cut


class Masks(nn.Module):
    """The scores of a model's units, as parameters to train with the model.

    Args:
        config: The config of the model.
        wanted: The number to keep at the end: of layers, of heads and neurons of each layer.
        steps: The steps of the training.
    """

    biases: ClassVar = (HEADS, NEURONS)  # of the optimizer: no weight decay

    def __init__(self, config: EncoderConfig, targets: Mapping[str, int], steps: int) -> None:
        super().__init__()
        layers = config.num_hidden_layers
        shapes = {
            LAYERS: (layers,),
            HEADS: (layers, config.num_attention_heads),
            NEURONS: (layers, config.intermediate_size),
        }
        self.wanted, self.steps, self.head_size = dict(targets), steps, config.head_size
        for name in self.wanted:
            self.register_parameter(name, nn.Parameter(torch.zeros(shapes[name])))
        self.step: Tensor
        self.register_buffer("step", torch.zeros((), dtype=torch.long))  # in checkpoints

    def count(self, name: str) -> int:
        """Returns how many units of a kind are kept at the current step."""
        units = self.get_parameter(name).shape[-1]
        done = (float(self.step) / self.steps - BEFORE) / (1 - BEFORE - AFTER)
        left = (1 - min(1.0, max(0.0, done))) ** 3
        return self.wanted[name] + round((units - self.wanted[name]) * left)

    def kept(self, name: str) -> Tensor:
        """Returns the units of highest score in ascending order. -> (count,) or (L, count) int64"""
        return self._best(self.get_parameter(name), name)

    def factors(self, name: str, layer: int | None = None) -> Tensor:
        """Returns 1 for the kept units and 0 for the others, with the gradient of the scores. -> (..., units)"""
        scores = self.get_parameter(name) if layer is None else self.get_parameter(name)[layer]
        hard = torch.zeros_like(scores).scatter(-1, self._best(scores, name), 1.0)
        return hard + (scores - scores.detach())

    def _best(self, scores: Tensor, name: str) -> Tensor:
        return scores.detach().topk(self.count(name), -1).indices.sort().values

    @contextmanager
    def on(self, model: TorchModel) -> Iterator[None]:
        """Multiplies the outputs of the model's units by their factors. The scores become companions of the model."""
        model.companions["masks"] = self.to(model.device)
        with model.computing_all(), ExitStack() as stack:
            for number, layer in enumerate(model.encoder.plain_layers()):
                for name, part in _PARTS:
                    if name in self.wanted:
                        hook = partial(self._narrow, name, number)
                        stack.callback(layer.get_submodule(part).register_forward_pre_hook(hook).remove)
                if LAYERS in self.wanted:
                    stack.callback(layer.register_forward_hook(partial(self._skip, number)).remove)
            try:
                yield
            finally:
                del model.companions["masks"]

    def reached(self, step: int) -> None:
        """Sets the number of finished steps."""
        self.step.fill_(step)

    def cut(self, model: TorchModel) -> TorchModel:
        """Returns the model without the units that are not kept. It computes the same as the masked model."""
        chosen = {
            (number, part): self.kept(name)[number].cpu()
            for name, part in _PARTS
            if name in self.wanted
            for number in range(model.config.num_hidden_layers)
        }
        small = narrowed(model, chosen) if chosen else model
        return take_layers(small, self.kept(LAYERS).tolist()) if LAYERS in self.wanted else small

    def _narrow(self, name: str, number: int, module: nn.Module, read: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        factors = self.factors(name, number)
        if name == HEADS:
            factors = factors.repeat_interleave(self.head_size)
        return (read[0] * factors.to(read[0].dtype), *read[1:])

    def _skip(
        self, number: int, module: nn.Module, read: tuple[object, ...], outputs: tuple[Any, ...]
    ) -> tuple[object, ...]:
        hidden, new = read[0], outputs[0]
        return (hidden + self.factors(LAYERS)[number].to(new.dtype) * (new - hidden), *outputs[1:])


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
