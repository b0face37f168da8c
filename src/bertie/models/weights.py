"""Weights in Hugging Face format (models/codec.py), in safetensors files.

Only safetensors files are opened. A header is checked against its file before memory is allocated, and no file runs
code.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from bertie.errors import BadFile, DataError, MissingFile, UnreadableFile
from bertie.files import atomic_write
from bertie.models.codec import WeightTable
from bertie.models.files import weight_files
from bertie.models.int8 import PackedWeight, find_weight_format, fused

WORD_EMBEDDINGS = "encoder.embeddings.word.weight"
WRAPPERS = ("module.", "_orig_mod.", "model.")
"""Of torch's data parallelism and compiler, and of what people call a model inside of theirs."""
LFS = b"version https://git-lfs"  # begins a file that was not fetched


@dataclass(frozen=True)
class LoadReport:
    """The result of a strict load: our names that were loaded or initialized, and names in the file that were not used.

    dropped: names in the file that were ignored on purpose, of another task's head.
    """

    loaded: tuple[str, ...]
    fresh: tuple[str, ...]
    unused: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} weights loaded"]
        for what, names in (("start fresh", self.fresh), ("in the file are not used", self.unused + self.dropped)):
            if names:
                parts.append(f"{len(names)} {what} ({', '.join(names[:4])}{' ...' if len(names) > 4 else ''})")
        return "; ".join(parts) + "."


class _Stored(NamedTuple):
    file: Any  # an open safetensors file
    path: Path
    name: str
    shape: tuple[int, ...]

    def raw(self) -> Tensor:
        try:
            tensor: Tensor = self.file.get_tensor(self.name)
        except (SafetensorError, ValueError, OSError) as error:
            raise UnreadableFile(f"{self.path}: {self.name} cannot be read ({error}).") from None
        return tensor

    def read(self) -> Tensor:
        tensor = self.raw()
        if not tensor.is_floating_point():
            raise DataError(
                f"{self.path}: {self.name} contains {tensor.dtype}; weights must be floating-point numbers."
            )
        tensor = tensor.to(torch.float32, copy=True)
        if not tensor.isfinite().all():
            raise DataError(f"{self.path}: {self.name} contains numbers that are not finite. The file may be damaged.")
        return tensor


class _Tensors(NamedTuple):
    """Weights in memory, with the methods of an open file."""

    tensors: Mapping[str, Tensor]

    def get_tensor(self, name: str) -> Tensor:
        return self.tensors[name].detach().cpu()


class WeightsFolder:
    """The weights of a model folder, open for reading, by current public names. Use it as a context manager.

    tensors: weights in memory, instead of those of files; `folder` is then what messages call them.
    """

    def __init__(self, folder: Path, table: WeightTable, tensors: Mapping[str, Tensor] | None = None) -> None:
        self.folder, self.table, self._tensors = folder, table, tensors
        self.stored: dict[str, list[_Stored]] = {}  # several: copies of one weight, which must agree
        self.packed: dict[str, dict[str, _Stored]] = {}  # of the weights in few bits a number: what goes with each
        self._read: dict[str, PackedWeight] = {}

    def __enter__(self) -> "WeightsFolder":
        with ExitStack() as stack:
            if self._tensors is None:
                files = [(path, *_open(path, stack)) for path in weight_files(self.folder)]
            else:
                shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
                files = [(self.folder, _Tensors(self._tensors), shapes)]
            names = [name for *_, entries in files for name in entries]
            if not names:
                raise DataError(f"{files[0][0]} contains no tensors. Copy the model's weights again.")
            wrapped = len(_wrapper(names, self.table.base))
            for path, file, entries in files:
                for name, shape in entries.items():
                    if (today := self.table.today(name[wrapped:])) is not None:
                        self.stored.setdefault(today, []).append(_Stored(file, path, name, shape))
            kinds = {name: kind for name in self.stored if (kind := find_weight_format(name, self.stored))}
            for name, kind in kinds.items():
                parts = {part: self.stored.pop(f"{name}_{part}", []) for part in kind.PARTS}
                self.packed[name] = {part: array[0] for part, array in parts.items() if array}
                self.stored[name] = [one._replace(shape=kind.shape(one.shape)) for one in self.stored[name]]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __contains__(self, public: object) -> bool:
        return public in self.stored

    def shape(self, public: str) -> tuple[int, ...]:
        """Returns the shape of a weight in our orientation, without reading its numbers."""
        shape = self.stored[public][0].shape
        return shape[::-1] if self._turned(public) else shape

    def read(self, public: str) -> Tensor:
        """Returns a weight as float32 in our orientation. Raises DataError as `stored_as` does."""
        tensor = self.stored_as(public)
        return tensor.T if self._turned(public) else tensor

    def _turned(self, public: str) -> bool:
        return self.table.turned(public) and public not in self.packed  # those are stored as we have them

    def stored_as(self, public: str) -> Tensor:
        """Returns a weight as float32. Raises DataError when copies of it differ, as with an untied decoder."""
        first, *copies = self.stored[public]
        tensor = torch.from_numpy(self.as_packed(public).dequantized()) if public in self.packed else first.read()
        for copy in copies:
            if copy.shape != first.shape or not torch.equal(copy.read(), tensor):
                raise DataError(
                    f"{copy.path}: {copy.name} differs from {first.name}, which it should be a copy of (tied weights). "
                    "Output weights of their own are not supported in this family."
                )
        return tensor

    def as_packed(self, public: str) -> PackedWeight:
        """Returns a weight stored with few bits per number. Raises DataError when its other arrays are missing or
        damaged."""
        if public in self._read:  # asked for twice: to be dequantized, and to be kept as it is
            return self._read[public]
        first, parts = self.stored[public][0], self.packed[public]
        kind = find_weight_format(public, [f"{public}_{part}" for part in parts])
        assert kind is not None
        try:
            self._read[public] = kind.of(
                first.raw().numpy(), {part: stored.raw().numpy() for part, stored in parts.items()}
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(
                f"{first.path}: {first.name} is not a complete int{kind.BITS} weight ({error}). The file may be "
                "damaged."
            ) from None
        return self._read[public]

    def has_own_matrix(self, head: str) -> bool:
        """Returns whether the files have an output matrix for a head that is not a copy of the word embeddings."""
        own, word = (self.table.public(name)[0] for name in (f"heads.{head}.weight", WORD_EMBEDDINGS))
        return own in self and not (word in self and torch.equal(self.read(own), self.read(word)))

    def use_decoder_bias(self) -> None:
        """Of two biases of the masked-LM head, keeps the one of its own output matrix. Nothing reads the other one."""
        if copies := self.stored.get(bias := self.table.public("heads.mlm.bias")[0]):
            self.stored[bias] = [one for one in copies if one.name.endswith("decoder.bias")] or copies

    def fused(self, publics: tuple[str, ...]) -> PackedWeight | None:
        """Returns all parts of a parameter with few bits per number, or None."""
        if not all(public in self.packed for public in publics):
            return None
        try:
            return fused([self.as_packed(public) for public in publics])
        except ValueError as error:
            raise BadFile(f"{self.folder}: {publics[0]} is not a complete quantized weight: {error}.") from None


def _wrapper(names: Iterable[str], base: str) -> str:
    """Returns the common prefix of weights that were saved from within another module."""
    wrappers = re.compile(f"(?:{'|'.join(re.escape(wrapper) for wrapper in WRAPPERS if wrapper != base)})*")
    common = os.path.commonprefix([match[0] for name in names if (match := wrappers.match(name))])  # noqa: RUF071 (cut between two wrappers below)
    return match[0] if (match := wrappers.match(common)) else ""


def _open(path: Path, stack: ExitStack) -> tuple[object, dict[str, tuple[int, ...]]]:
    try:
        file = stack.enter_context(safe_open(str(path), framework="pt"))
        return file, {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise MissingFile(f"{path} does not exist, although the index lists it.") from None
    except (SafetensorError, OSError, ValueError) as error:
        with path.open("rb") as begun:
            if begun.read(len(LFS)) == LFS:
                raise DataError(f"{path} is a pointer of Git LFS. Get the file itself: git lfs pull") from None
        raise BadFile(f"{path} is not a complete safetensors file ({error}). The file may be truncated.") from None


def load_weights(
    model: nn.Module, weights: WeightsFolder, *, may_be_fresh: str, fill: Callable[[set[str]], None]
) -> LoadReport:
    """Loads weights into a model built on the meta device. Every shape is checked before a number is read.

    Parameters whose names match the pattern `may_be_fresh` may be missing in the files; `fill` then initializes them.
    Raises DataError with the name of a weight that is missing, or has another shape than config.json requires.
    """
    table, plan, fresh = weights.table, dict[str, tuple[str, ...]](), list[str]()
    for name, parameter in model.named_parameters():
        publics = table.public(name)
        missing = [public for public in publics if public not in weights]
        if not missing:
            _check_shape(name, parameter, publics, weights)
            plan[name] = publics
        elif len(missing) == len(publics) and re.match(may_be_fresh, name):
            fresh.append(name)
        else:
            raise DataError(f"{weights.folder}: the weights have no {missing[0]}, which config.json requires.")
    parts = {name: [weights.read(public) for public in publics] for name, publics in plan.items()}
    state = {name: torch.cat(several) if len(several) > 1 else several[0] for name, several in parts.items()}
    parameters = dict(model.named_parameters())
    state |= {name: torch.empty(parameters[name].shape) for name in fresh}
    model.load_state_dict(state, assign=True)
    fill(set(fresh))
    read = {public for publics in plan.values() for public in publics}
    unused = [stored.name for public, copies in weights.stored.items() if public not in read for stored in copies]
    return LoadReport(tuple(plan), tuple(fresh), tuple(sorted(unused)))


def _check_shape(name: str, parameter: Tensor, publics: tuple[str, ...], weights: WeightsFolder) -> None:
    shape = (parameter.shape[0] // len(publics), *parameter.shape[1:])
    for public in publics:
        if (stored := weights.shape(public)) != shape:
            raise DataError(
                f"{weights.folder}: {public} is {_shape(stored)} in the weights, but {_shape(shape)} in "
                "config.json. The two files belong to different models."
            )


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape) or "a single number"


def public_state(tensors: Mapping[str, Tensor], table: WeightTable, *, base: bool) -> Iterator[tuple[str, Tensor]]:
    """Yields our parameters as (public name, tensor). Without `base`, the encoder's names have no prefix."""
    for name, tensor in tensors.items():
        publics = table.public(name)
        for public, part in zip(publics, tensor.detach().chunk(len(publics)), strict=True):
            yield public if base else public.removeprefix(table.base), part.T if table.turned(public) else part


def decoder_biases(publics: Collection[str], table: WeightTable) -> dict[str, str]:
    """Returns the bias that is written a second time beside an untied output matrix, and its second name."""
    seconds = [public.replace("weight", "bias") for public in publics if public.endswith("decoder.weight")]
    today = ((table.today(second), second) for second in seconds)
    return {bias: second for bias, second in today if bias is not None and bias in publics and bias != second}


def save_weights(
    tensors: Mapping[str, Tensor],
    path: Path,
    table: WeightTable,
    *,
    base: bool,
    packed: Mapping[str, PackedWeight] = MappingProxyType({}),
) -> None:
    """Writes parameters, by our names, as one safetensors file in Hugging Face format, float or packed, atomically."""
    floats = {name: tensor for name, tensor in tensors.items() if name not in packed}
    state = {name: part.float().cpu().contiguous() for name, part in public_state(floats, table, base=base)}
    for name, weight in packed.items():
        publics = table.public(name)
        parts: Sequence[PackedWeight] = weight.parts(len(publics))
        for public, one in zip(publics, parts, strict=True):
            arrays = one.named(public if base else public.removeprefix(table.base))
            state |= {key: torch.from_numpy(array.copy()) for key, array in arrays.items()}
    for bias, second in decoder_biases(state, table).items():
        state[second] = state[bias].clone()
    with atomic_write(path) as file:
        save_file(state, file.name, metadata={"format": "pt"})  # the library opens the temporary file by its name
