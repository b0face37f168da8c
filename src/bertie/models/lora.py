"""Low-rank adaptation (LoRA): frozen matrices, to which a product of two small trained ones is added. Hu et al. 2021.

    W = W0 + alpha / rank * B A          A (r, in), B (out, r)

The parameters of the model have the sum, so every layer, engine and file reads a plain model. The gradient of W becomes
those of A and B as soon as it is computed, and is then dropped; the optimizer has a state for A and B alone. Dropout
leaves out inputs of A, the same ones for all tokens of a forward pass, as their sum with W0 is one matrix.

The files are those of `peft`: adapter_config.json and adapter_model.safetensors, with bertie_adapter.json beside them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertie.errors import BadFile, DataError, MissingFile, UsageError
from bertie.files import Json, atomic_write, read_json, write_json
from bertie.models.codec import WeightTable
from bertie.models.encoder import Encoder
from bertie.models.model import TorchModel
from bertie.models.variant import ADAPTER

TENSORS, OURS = "adapter_model.safetensors", "bertie_adapter.json"
WRAPPED = "base_model.model."
COMPANION = "lora"
EMBEDDING, LAYERS = "encoder.embeddings.word.weight", "encoder.layers."
TASK_TYPES = {"sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}
HEADS_OF = {kind: head for head, kind in TASK_TYPES.items()}
VARIANTS = ("use_dora", "alpha_pattern", "rank_pattern", "layer_replication", "megatron_config", "use_qalora")


@dataclass(frozen=True)
class LoraMatrix:
    """A matrix in the public format: its name, our parameter, and its rows there."""

    public: str
    parameter: str
    rows: slice

    @property
    def embeds(self) -> bool:
        """Whether it is a table of embeddings, whose small matrices `peft` stores transposed."""
        return self.parameter == EMBEDDING


class Lora(nn.Module):
    """The small matrices of a model in training. It is a companion of the model, until `detach`."""

    def __init__(
        self,
        model: TorchModel,
        rank: int,
        alpha: float,
        targets: Sequence[str],
        trained: Sequence[str],
        seed: int,
        dropout: float = 0.0,
    ) -> None:
        """Adds the matrices to a model, and freezes all but them, the heads, and the modules in `trained`.

        Raises UsageError for an unknown target, a rank above the size of a matrix, and weights of few bits.
        """
        super().__init__()
        self.rank, self.scale, self.targets, self.dropout = rank, alpha / rank, tuple(targets), dropout
        self.places = [place for place in list_matrices(model) if _kind(place.parameter) in targets]
        if not self.places:
            raise UsageError(f"lora.targets={','.join(targets)} names no matrix of this model.")
        parameters, generator = dict(model.named_parameters()), torch.Generator().manual_seed(seed)
        targeted = {place.parameter for place in self.places}
        self.saved = [name for name in parameters if name.startswith(("heads.", *trained))]
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in targeted or name in self.saved or name.startswith("companions."))
        for number, place in enumerate(self.places):
            base = parameters[place.parameter].detach()[place.rows]
            if rank > min(base.shape):
                raise UsageError(f"lora.rank is {rank}; {place.public} is {base.shape[0]} x {base.shape[1]}. Lower it.")
            bound = 1 / math.sqrt(base.shape[1])  # as nn.Linear, and peft
            down = torch.empty(rank, base.shape[1]).uniform_(-bound, bound, generator=generator)
            self.register_parameter(f"A{number}", nn.Parameter(down))
            self.register_parameter(f"B{number}", nn.Parameter(torch.zeros(base.shape[0], rank)))
            self.register_buffer(f"base{number}", base.clone(), persistent=False)
        self._kept = dict[int, Tensor]()  # what dropout multiplies the inputs of each A by in this pass
        self._stale = True  # whether an update of the optimizer may have followed, which no version counts
        self._version = -1
        self._hooks = [model.encoder.register_forward_pre_hook(lambda *_: self.sync(model, drop=model.training))]
        for name in targeted:
            parameter = parameters[name]
            parameter.is_derived = True  # type: ignore[attr-defined]  # not the optimizer's (train/optim.py)
            some = [number for number, place in enumerate(self.places) if place.parameter == name]
            hook = parameter.register_post_accumulate_grad_hook(self._passed_on(some))  # type: ignore[no-untyped-call]
            self._hooks.append(hook)
        model.companions[COMPANION] = self

    @property
    def pairs(self) -> Iterator[tuple[LoraMatrix, nn.Parameter, nn.Parameter]]:
        """The places with their A (r, in) and B (out, r)."""
        for number, place in enumerate(self.places):
            yield place, getattr(self, f"A{number}"), getattr(self, f"B{number}")

    def _passed_on(self, numbers: Sequence[int]) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            grad, parameter.grad, self._stale = parameter.grad, None, True  # the optimizer's step follows
            if grad is None:
                return
            for number in numbers:
                a, b, part = getattr(self, f"A{number}"), getattr(self, f"B{number}"), grad[self.places[number].rows]
                part = part * self._kept.get(number, 1.0)
                for one, more in ((a, self.scale * (b.T @ part)), (b, self.scale * (part @ a.T))):
                    one.grad = more if one.grad is None else one.grad + more

        return hook

    @torch.no_grad()
    def sync(self, model: TorchModel, *, drop: bool = False) -> None:
        """Writes the sums into the parameters, where A or B may have changed. drop: whether inputs are left out."""
        if dropped := self.dropout > 0 and drop:
            ones = {number: a.new_ones(a.shape[1]) for number, (_, a, _) in enumerate(self.pairs)}
            self._kept = {number: nn.functional.dropout(one, self.dropout) for number, one in ones.items()}
        elif self._kept:
            self._kept, self._stale = {}, True
        version = sum(a._version + b._version for _, a, b in self.pairs)  # of a checkpoint that was read
        if not dropped and not self._stale and version == self._version:
            return
        parameters = dict(model.named_parameters())
        for number, (place, a, b) in enumerate(self.pairs):
            parameters[place.parameter][place.rows] = getattr(self, f"base{number}") + self.scale * (
                b @ (a * self._kept.get(number, 1.0))
            )
        self._stale, self._version = False, version

    def detach(self, model: TorchModel) -> None:
        """Leaves a plain model with the sums."""
        self.sync(model)
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        del model.companions[COMPANION]

    def write(self, model: TorchModel, folder: Path, base: str, base_hash: str) -> None:
        """Writes the files of the adapter. base, base_hash: the name and the fingerprint of the model it is of."""
        self.sync(model)
        table = _table(model)
        publics = {name: table.public(name) for name in self.saved}
        modules = sorted({_module(public, table.base) for some in publics.values() for public in some})
        heads = [head for head in model.heads if head in TASK_TYPES]
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "peft_type": "LORA",
            "task_type": TASK_TYPES[heads[0]] if len(heads) == 1 else None,
            "base_model_name_or_path": base,
            "r": self.rank,
            "lora_alpha": self.scale * self.rank,
            "lora_dropout": self.dropout,
            "bias": "none",
            "target_modules": [place.public.removeprefix(table.base).removesuffix(".weight") for place in self.places],
            "modules_to_save": modules,
            "inference_mode": True,
        }
        tensors: dict[str, Tensor] = {}
        for place, a, b in self.pairs:
            name = WRAPPED + place.public.removesuffix(".weight")
            down, up = (b.T, a.T) if place.embeds else (a, b)
            kinds = ("lora_embedding_A", "lora_embedding_B") if place.embeds else ("lora_A.weight", "lora_B.weight")
            tensors |= {f"{name}.{kind}": one for kind, one in zip(kinds, (down, up), strict=True)}
        parameters = dict(model.named_parameters())
        for name, some in publics.items():
            for public, part in zip(some, parameters[name].chunk(len(some)), strict=True):
                tensors[WRAPPED + public] = part.T if table.turned(public) else part
        with atomic_write(folder / TENSORS) as file:
            save_file({name: one.detach().float().cpu().contiguous() for name, one in tensors.items()}, file.name)
        own = {"base": base_hash, "heads": [*model.heads], "labels": list(model.labels)}
        write_json(folder / OURS, {**own, "problem_type": model.problem_type})
        write_json(folder / ADAPTER, config)

    @torch.no_grad()
    def read(self, folder: Path) -> None:
        """Takes the matrices of an adapter that `write` wrote."""
        adapter = Adapter.read(folder)
        for place, a, b in self.pairs:
            down, up = adapter.pairs[place.public]
            a.copy_(down)
            b.copy_(up)


@dataclass(frozen=True)
class Adapter:
    """An adapter as it is in files: small matrices A (r, in) and B (out, r), and whole weights, by public name."""

    folder: Path
    config: Json
    own: Json
    pairs: Mapping[str, tuple[Tensor, Tensor]]
    saved: Mapping[str, Tensor]

    @classmethod
    def read(cls, folder: Path) -> "Adapter":
        """Reads a folder. Raises DataError for what is damaged, no LoRA, or of a variant that is not read here."""
        config = read_json(folder / ADAPTER)
        if not isinstance(config, dict) or config.get("peft_type") != "LORA":
            kind = config.get("peft_type") if isinstance(config, dict) else None
            raise DataError(f"{folder / ADAPTER} is not of LoRA (peft_type is {kind!r}). Other adapters are not read.")
        if other := next((name for name in VARIANTS if config.get(name)), None) or (
            "bias" if config.get("bias", "none") != "none" else None
        ):
            raise DataError(f"{folder / ADAPTER} has {other}={config[other]!r}, which is not read. Merge it with peft.")
        if not (folder / TENSORS).is_file():
            raise MissingFile(f"{folder} has no {TENSORS}. Other files of weights are pickles, which can run code.")
        try:
            tensors = {name.removeprefix(WRAPPED): one for name, one in load_file(folder / TENSORS).items()}
        except Exception as error:
            raise BadFile(f"{folder / TENSORS} is not a complete safetensors file ({error}).") from None
        pairs: dict[str, tuple[Tensor, Tensor]] = {}
        for name in [one for one in tensors if one.endswith((".lora_A.weight", ".lora_embedding_A"))]:
            embeds = name.endswith(".lora_embedding_A")
            other = name.replace("lora_embedding_A", "lora_embedding_B").replace("lora_A.weight", "lora_B.weight")
            if other not in tensors:
                raise DataError(f"{folder / TENSORS} has {name} without {other}.")
            a, b = tensors.pop(name).float(), tensors.pop(other).float()
            public = name.rpartition(".lora_")[0] + ".weight"
            pairs[public] = (b.T, a.T) if embeds else (a, b)
        own = read_json(folder / OURS) if (folder / OURS).is_file() else {}
        return cls(folder, config, own, pairs, {name: one.float() for name, one in tensors.items()})

    @property
    def scale(self) -> float:
        """What the products are multiplied by."""
        rank, alpha = self.config["r"], self.config["lora_alpha"]
        return float(alpha / math.sqrt(rank) if self.config.get("use_rslora") else alpha / rank)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the model with the adapter."""
        known = HEADS_OF.get(self.config.get("task_type") or "")
        return tuple(self.own["heads"]) if self.own else ((known,) if known else ())

    @property
    def outputs(self) -> int:
        """The number of outputs of its head: as it is told, or that of the last saved matrix."""
        sizes = [len(one) for name, one in self.saved.items() if one.ndim == 2]
        return len(self.own.get("labels", ())) or (sizes[-1] if sizes else 2)

    @torch.no_grad()
    def merge_into(self, model: TorchModel) -> None:
        """Adds the products to the weights of a model, and replaces those that are saved whole.

        Raises DataError for a matrix that the model does not have, or of another size.
        """
        parameters = dict(model.named_parameters())
        for place, product in self._products(model):
            parameters[place.parameter][place.rows] += product()
        self._replace_saved(model)

    @torch.no_grad()
    def attach(self, model: TorchModel) -> None:
        """Lets the layers of a model compute with the sums, each of which is in memory only while its layer computes.

        The weights of the layers stay as they are, and may be shared with other models. What is saved whole, or is
        changed outside the layers, becomes the model's own. Raises DataError as `merge_into`.
        """
        parameters = dict(model.named_parameters())
        by_layer: dict[str, list[tuple[nn.Parameter, slice, Callable[[], Tensor]]]] = {}
        outside, products = [place for place, _ in self._saved(model)], list(self._products(model))
        for place, product in products:
            if type(model.encoder) is Encoder and place.parameter.startswith(LAYERS):
                sums = by_layer.setdefault(_layer_of(place.parameter), [])
                sums.append((parameters[place.parameter], place.rows, product))
            else:
                outside.append(place)
        for name in {place.parameter for place in outside}:
            parameters[name].data = parameters[name].data.clone()
        for place, product in products:
            if place in outside:
                parameters[place.parameter][place.rows] += product()
        self._replace_saved(model)
        for layer, sums in by_layer.items():
            _compute_with(model.get_submodule(layer), sums)

    def _products(self, model: TorchModel) -> Iterator[tuple[LoraMatrix, Callable[[], Tensor]]]:
        """Yields the places of the small matrices, with what computes their products."""
        parameters, place_of = dict(model.named_parameters()), self._places(model)
        for public, (a, b) in self.pairs.items():
            place = place_of(public)
            self._check_shape(parameters[place.parameter][place.rows], (b.shape[0], a.shape[1]), public)
            device = parameters[place.parameter].device
            yield place, partial(_product, a.to(device), b.to(device), self.scale)

    def _saved(self, model: TorchModel) -> Iterator[tuple[LoraMatrix, Tensor]]:
        place_of = self._places(model)
        for public, value in self.saved.items():
            yield place_of(public), value.T if _table(model).turned(public) else value

    def _replace_saved(self, model: TorchModel) -> None:
        parameters = dict(model.named_parameters())
        for place, value in self._saved(model):
            target = parameters[place.parameter][place.rows]
            self._check_shape(target, tuple(value.shape), place.public)
            target.copy_(value)

    def _places(self, model: TorchModel) -> Callable[[str], LoraMatrix]:
        known, base = {place.public: place for place in list_matrices(model, every=True)}, _table(model).base

        def place_of(public: str) -> LoraMatrix:
            place = known.get(public) or known.get(base + public)
            if place is None:
                raise DataError(
                    f"{self.folder} changes {public}, which the model does not have. It is of another base."
                )
            return place

        return place_of

    def _check_shape(self, target: Tensor, shape: tuple[int, ...], what: str) -> None:
        if target.shape != shape:
            raise DataError(
                f"{self.folder}: {what} is {shape}, and {tuple(target.shape)} in the model. It is of another base."
            )


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return scale * (b @ a)


def _layer_of(parameter: str) -> str:
    """Returns the layer of a parameter. Layers that share weights are in groups: encoder.layers.GROUP.LAYER."""
    parts = parameter.removeprefix(LAYERS).split(".")
    return LAYERS + ".".join(parts[: 2 if parts[1].isdigit() else 1])


def _compute_with(module: nn.Module, sums: Sequence[tuple[nn.Parameter, slice, Callable[[], Tensor]]]) -> None:
    """Lets a module compute with sums of its weights and products."""
    weights = {id(parameter): (parameter, parameter.data) for parameter, _, _ in sums}

    def add(*_: object) -> None:
        for parameter, weight in weights.values():
            parameter.data = weight.clone()
        for parameter, rows, product in sums:
            parameter.data[rows] += product().to(parameter.dtype)

    def restore(*_: object) -> None:
        for parameter, weight in weights.values():
            parameter.data = weight

    module.register_forward_pre_hook(add)
    module.register_forward_hook(restore, always_call=True)


def list_matrices(model: TorchModel, *, every: bool = False) -> list[LoraMatrix]:
    """Returns the matrices of a model by public name. every: also those that LoRA does not change, and vectors."""
    table, some = _table(model), list[LoraMatrix]()
    for name, parameter in model.own_parameters().items():
        if (not every and _kind(name) == "") or (not every and parameter.ndim != 2):
            continue
        publics = table.public(name)
        size = len(parameter) // len(publics)
        some += [LoraMatrix(public, name, slice(i * size, (i + 1) * size)) for i, public in enumerate(publics)]
    return some


def _kind(name: str) -> str:
    if name == EMBEDDING:
        return "embeddings"
    if not name.startswith(LAYERS) or not name.endswith(".weight"):
        return ""
    return "attention" if ".attention." in name else "feed_forward"


def _table(model: TorchModel) -> WeightTable:
    if model.variant is None:
        raise UsageError("This model belongs to no family, so its weights have no public names.")
    return model.variant.table


def _module(public: str, base: str) -> str:
    """Returns the module that peft saves whole: `classifier` of classifier.dense.weight, `pooler` of
    bert.pooler.dense.weight."""
    return public.removeprefix(base).partition(".")[0]
