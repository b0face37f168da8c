"""`Facts`: the properties of a model that its users need, for any engine. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bertie.errors import UnknownName, UsageError, WrongModel
from bertie.models.generation import WRITTEN_PREFIX
from bertie.models.head_config import RowUnit
from bertie.models.kinds import MAX_SETTING
from bertie.models.sentence import MODES, SentenceModules, read_sentence
from bertie.training_facts import TrainingFacts, read_training_facts

if TYPE_CHECKING:
    from bertie.models.model import TorchModel

BATCH_TOKENS = 4096  # of one forward pass, padding of attention's rectangle included
GPU_BATCH_TOKENS = 32_768  # the same on a GPU
POOLED = tuple(MODES)
"""The hidden states of a sequence, pooled to one vector (`models.sentence.pool`)."""
OF_ENCODER: Mapping[str, RowUnit] = {
    "last_hidden_state": "token",
    **dict.fromkeys(("pooler_output", *POOLED), "sequence"),
}
"""The arrays that every model can return."""
_LAYER = "layer_"
OF_FILES = ("sentence", "training_facts")
"""The facts that files of a model folder hold."""


def layer_output(layer: int) -> str:
    """Returns the name of the hidden states after a layer; 0: of the embeddings."""
    return f"{_LAYER}{layer}"


def parse_layer_output(output: str) -> int | None:
    """Returns the layer of an output that `layer_output` names; None for other outputs."""
    return int(output.removeprefix(_LAYER)) if output.startswith(_LAYER) else None


@dataclass(frozen=True)
class Facts:
    """The properties of a model. heads: number of outputs by name; labels: names of a classifier's outputs.

    rows: the unit of a row of a head's logits, by default a sequence. of_encoder: the other arrays, with the unit of
    their rows. max_length: maximum number of tokens. device, precision: where and how it is computed. batch_tokens: how
    many tokens one call should have. sentence: the modules and settings of `sentence-transformers`. training_facts:
    what the folder records of the training. layers: those whose hidden states can be asked for, as `layer_output` names
    them; 0 where only the last is known. writes: whether it generates text, which is asked for as models/generation.py
    names it. feature_size: numbers of a feature vector, and max_together: how many tokens and vectors a sequence may
    have; None: it reads no vectors, or any number.
    """

    max_length: int
    hidden_size: int
    heads: Mapping[str, int]
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    device: str = "cpu"
    precision: str = "float32"
    rows: Mapping[str, RowUnit] = field(default_factory=dict)
    of_encoder: Mapping[str, RowUnit] = field(default_factory=lambda: OF_ENCODER)
    batch_tokens: int = BATCH_TOKENS
    sentence: SentenceModules = field(default_factory=SentenceModules)
    training_facts: TrainingFacts = field(default_factory=TrainingFacts)
    layers: int = 0
    writes: bool = False
    feature_size: int | None = None
    max_together: int | None = None

    @classmethod
    def of(cls, model: "TorchModel") -> Self:
        """Returns the facts of a torch model."""
        from bertie.models.seq2seq import writes

        weights = next(model.parameters())

        def outputs(name: str) -> int:
            weights = [weight for key, weight in model.heads[name].named_parameters() if key == "classifier.weight"]
            return len(weights[0]) if weights else model.config.vocab_size

        return cls(
            model.config.max_length,
            model.config.hidden_size,
            {name: outputs(name) for name in model.heads},
            model.labels,
            model.problem_type,
            str(weights.device),
            str(model.compute_dtype or weights.dtype).removeprefix("torch."),
            {name: getattr(head, "rows", "sequence") for name, head in model.heads.items()},
            batch_tokens=GPU_BATCH_TOKENS if weights.is_cuda else BATCH_TOKENS,
            sentence=model.sentence,
            training_facts=model.training_facts,
            layers=model.config.num_hidden_layers if getattr(model.encoder, "layered", False) else 0,
            writes=writes(model),
            feature_size=model.config.feature_size,
            max_together=model.config.max_together,
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the facts as JSON values, without those that have files of their own in the model folder."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in OF_FILES}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Returns the facts of `as_json`. Raises TypeError for other names."""
        return cls(**{**value, "labels": tuple(value["labels"])})

    def of_folder(self, folder: Path, public: Mapping[str, object]) -> Self:
        """Returns the facts with those that have files of their own in a folder. public: its config.json."""
        return replace(self, sentence=read_sentence(folder, public), training_facts=read_training_facts(folder))

    @cached_property
    def outputs(self) -> dict[str, RowUnit]:
        """Every array that the model can return, by name, with the unit of its rows. A head's name means its
        logits."""
        layers: dict[str, RowUnit] = {layer_output(n): "token" for n in range(self.layers + 1)} if self.layers else {}
        return {**self.of_encoder, **layers, **{name: self.rows.get(name, "sequence") for name in self.heads}}

    @property
    def on_gpu(self) -> bool:
        """Whether an NVIDIA GPU computes, while the processor does something else."""
        return self.device.startswith("cuda")

    @property
    def limited(self) -> bool:
        """Whether the model has a number of positions."""
        return self.max_length < MAX_SETTING

    @property
    def essential_outputs(self) -> list[str]:
        """The arrays that are no pooling of another one, and the mean."""
        return [name for name in self.outputs if name == "mean" or name not in POOLED]

    def layer_output(self, layer: int) -> str:
        """Returns the name of the hidden states after a layer; 0: of the embeddings, -1: of the last one."""
        return layer_output(layer % (self.layers + 1))

    def layer_numbers(self, layers: str | Sequence[int] = "all") -> tuple[int, ...]:
        """Returns layer numbers in ascending order. layers: "all", "0,6,-1" or numbers; -1 is the last layer.

        Raises UsageError for an engine that does not give its layers, and for a layer that there is not.
        """
        last = self.layers
        if not last:
            raise WrongModel(
                "The layers of this model cannot be read. Pass a model folder of a family with a single encoder, such "
                "as bert. ONNX graphs, lxmert and vilbert give only their last layer."
            )
        if layers == "all":
            return tuple(range(last + 1))
        names = [name.strip() for name in layers.split(",")] if isinstance(layers, str) else list(map(str, layers))
        numbers = set()
        for name in names:
            if not name.removeprefix("-").isdecimal():
                raise UnknownName(f"Unknown layer {name!r}. Pass all, or numbers from 0 to {last}: --layers 0,{last}.")
            if not -last - 1 <= int(name) <= last:
                raise UsageError(f"There is no layer {name}: the model has layers 0 (embeddings) to {last}.")
            numbers.add(int(name) % (last + 1))
        return tuple(sorted(numbers))

    def rows_of(self, output: str) -> RowUnit:
        """Returns the unit of the rows of an output. Raises UsageError for one that an exported graph does not have."""
        if self.writes and output.startswith(WRITTEN_PREFIX):
            return "sequence"
        if output not in self.outputs:
            known = ", ".join(self.outputs)
            raise UsageError(f"The ONNX graph gives no {output}; it gives {known}. Use the model it was made from.")
        return self.outputs[output]

    def label_names(self, head: str) -> tuple[str, ...]:
        """Returns the labels of a head, or the default names of the Hugging Face format."""
        return self.labels or tuple(f"LABEL_{number}" for number in range(self.heads[head]))
