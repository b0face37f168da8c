"""The ONNX Runtime engine: runs a graph that `bertie export` wrote. It needs no torch.

    Sequences -> rectangle of ids, mask and segments -> graph -> last_hidden_state, or the logits of heads -> rows

The metadata of the graph describes it: `Signature` as JSON, under the key "bertie".

B sequences · S longest sequence · C choices of a question (always 1 here) · V vocabulary · H hidden size
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, MissingFile, UnreadableFile, UsageError
from bertie.files import read_json
from bertie.infer.engine import Array, Facts, check_names
from bertie.models.facts import POOLED
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.text.tokenizer import Tokenizer

METADATA_KEY = "bertie"
FOLDER, MODEL = "onnx", "model.onnx"  # as in Transformers.js
_MAX_LOGITS = 1 << 26  # of one array of logits over a vocabulary: 256 MB
_NO_ONNX_RUNTIME = "ONNX Runtime is not installed. Install it: pip install 'bertie[onnx]'"


@dataclass(frozen=True)
class Signature:
    """Describes a graph. outputs: maps an array of `Facts.outputs` to outputs of the graph, which become its columns.

    summary_last: whether the last token represents its sequence, not the first.
    """

    facts: Facts
    outputs: Mapping[str, Sequence[str]]
    pad_token_id: int = 0
    summary_last: bool = False

    def as_json(self) -> str:
        """The text of the graph's metadata."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return json.dumps({**own, "facts": self.facts.as_json()})

    @classmethod
    def parsed(cls, text: str, where: str) -> "Signature":
        """Parses the JSON text. Raises DataError."""
        try:
            fields = json.loads(text)
            return cls(Facts.of_json(fields.pop("facts")), **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnreadableFile(f"{where}: the metadata of the model cannot be read ({error}).") from None


class OnnxEngine:
    """Runs a graph on the CPU. threads: number of threads; None: the default of ONNX Runtime.

    Raises DataError for a file that is not a graph of `bertie export`, UsageError if ONNX Runtime is not installed.
    """

    name = "onnx"

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise UsageError(_NO_ONNX_RUNTIME) from None
        if not path.is_file():
            raise MissingFile(f"{path} does not exist. Write an ONNX graph: bertie export MODEL --to onnx -o FOLDER")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors alone
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no base of their own
            raise DataError(f"{path} cannot be opened by ONNX Runtime: {str(error)[:300]}") from None
        text = self.session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
        if text is None:
            raise DataError(f"{path} has no metadata of Bertie. Write it with bertie export.")
        self.signature = Signature.parsed(text, str(path))
        self.tokenizer: Tokenizer | None = None  # of the graph's folder
        inputs = self.session.get_inputs()
        self._inputs, self._choices = [one.name for one in inputs], len(inputs[0].shape) == 3

    @property
    def facts(self) -> Facts:
        """The facts of the model, from the metadata of the graph."""
        return self.signature.facts

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, Array]:
        """Returns the arrays of one batch. See `Engine.run`."""
        for name in outputs:
            self.facts.rows_of(name)
        most = self._at_once(ids, outputs)
        parts = [self._run(ids.take(np.arange(i, min(i + most, len(ids)))), outputs) for i in range(0, len(ids), most)]
        return {name: np.concatenate([part[name] for part in parts]) for name in outputs} if parts else {}

    def _at_once(self, ids: Sequences, outputs: Sequence[str]) -> int:
        """Returns how many sequences run at once. Vocabulary logits of every token take much memory."""
        wide = [self.facts.heads[name] for name in outputs if self.facts.outputs[name] == "position"]
        longest = int(ids.lengths.max(initial=1))
        return max(1, _MAX_LOGITS // (longest * max(wide))) if wide else max(1, len(ids))

    def _run(self, ids: Sequences, outputs: Sequence[str]) -> dict[str, Array]:
        names = sorted({name for output in outputs for name in self._sources(output)})
        arrays = dict(zip(names, self.session.run(names, self.feeds(ids)), strict=True))
        return {name: self._rows(name, [arrays[one] for one in self._sources(name)], ids) for name in outputs}

    def feeds(self, ids: Sequences) -> dict[str, NDArray[np.int64]]:
        """Returns the inputs of the graph for a batch."""
        mask_BS = _mask(ids)
        arrays = {
            "input_ids": _rectangle(ids.input_ids, mask_BS, self.signature.pad_token_id),
            "attention_mask": mask_BS.astype(np.int64),
            "token_type_ids": _rectangle(ids.token_type_ids, mask_BS, 0),
            **{name: _rectangle(array, mask_BS, 0) for name, array in ids.extra.items()},
        }
        return {name: arrays[name][:, None] if self._choices else arrays[name] for name in self._inputs}

    def _sources(self, name: str) -> Sequence[str]:
        return self.signature.outputs["last_hidden_state" if name in POOLED else name]

    def _rows(self, name: str, arrays: list[Array], ids: Sequences) -> Array:
        if name in POOLED:
            return _pooled(arrays[0], _mask(ids), name, last=self.signature.summary_last)
        array = arrays[0] if len(arrays) == 1 else np.stack(arrays, -1)
        rows = self.facts.outputs[name]
        if rows == "sequence":
            return array[:, 0] if self._choices else array
        tokens = array[_mask(ids)]
        return tokens[ids.positions] if rows == "position" else tokens


def graph_of(path: Path) -> Path | None:
    """Returns the graph of a path: the file itself, or that of a folder without other weights. Else None."""
    if path.suffix == ".onnx" and not path.is_dir():
        return path
    graph = path / FOLDER / MODEL
    return graph if graph.is_file() and not any(path.glob("*.safetensors*")) else None


def check_options(graph: Path, precision: str, device: str, engine: str) -> None:
    """Raises UsageError for an option that a graph does not obey, and for an unknown precision or engine."""
    if check_names(precision, engine) != "auto" or precision == "bf16" or device not in ("auto", "cpu"):
        raise UsageError(
            f"{graph} runs in ONNX Runtime, on the CPU and in its own precision. Omit --engine, --precision and "
            "--device."
        )


def open_onnx_engine(graph: Path, *, threads: int | None = None) -> "tuple[OnnxEngine, Tokenizer]":
    """Opens a graph and the tokenizer of its folder."""
    from bertie.text.tokenizer import Tokenizer

    engine, folder = OnnxEngine(graph, threads=threads), graph.resolve().parent.parent
    public = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    engine.signature = replace(engine.signature, facts=engine.facts.of_folder(folder, public))
    engine.tokenizer = Tokenizer.load(folder)
    return engine, engine.tokenizer


def _mask(ids: Sequences) -> NDArray[np.bool_]:
    """Returns the mask (B, S), true for tokens."""
    mask: NDArray[np.bool_] = np.arange(ids.lengths.max(initial=0)) < ids.lengths[:, None]
    return mask


def _rectangle(tokens: NDArray[np.generic], mask_BS: NDArray[np.bool_], fill: int) -> NDArray[np.int64]:
    matrix = np.full(mask_BS.shape, fill, np.int64)
    matrix[mask_BS] = tokens
    return matrix


def _pooled(hidden_BSH: Array, mask_BS: NDArray[np.bool_], pooling: str, *, last: bool) -> Array:
    """Pools as in `models.sentence.pool`. -> (B, H)"""
    pooled: Array
    if pooling in ("cls", "last"):
        ends = pooling == "last" or last
        pooled = hidden_BSH[np.arange(len(mask_BS)), mask_BS.sum(1) - 1] if ends else hidden_BSH[:, 0]
    elif pooling == "max":
        pooled = np.where(mask_BS[..., None], hidden_BSH, -np.inf).max(1)
    else:
        weight_BS = mask_BS.cumsum(1) * mask_BS if pooling == "weighted_mean" else mask_BS
        whole_B = np.sqrt(weight_BS.sum(1)) if pooling == "mean_sqrt_len" else weight_BS.sum(1)
        pooled = (hidden_BSH * weight_BS[..., None]).sum(1) / whole_B[:, None]
    return pooled.astype(np.float32)
