"""The engine for PyTorch: a `TorchModel` on its own device, in its own precision."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from bertie.errors import WrongModel
from bertie.infer.engine import Array, Sequences
from bertie.infer.generate import generate, stream
from bertie.infer.recorded import RecordedForwards
from bertie.models.batch import Batch
from bertie.models.biaffine import LAST
from bertie.models.facts import OF_ENCODER, POOLED, Facts, parse_layer_output
from bertie.models.generation import GenerationConfig, writing_of
from bertie.models.head_config import RowUnit
from bertie.models.heads.token import with_last_pieces
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.model import SUMMARY
from bertie.models.sentence import pool
from bertie.nn.layout import copied_to_host

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

CACHED = 1 << 15  # tokens whose keys and values are held while texts are generated
_OF_SUMMARY = ("cls", "pooler_output")  # arrays of the states of the summary tokens


class TorchEngine:
    """Runs a model without dropout and without gradients, also while it is being trained."""

    name = "torch"

    def __init__(self, model: "TorchModel") -> None:
        self.model = model

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies the model. What was recorded for it belongs to this process."""
        return type(self), (self.model,)

    @property
    def facts(self) -> Facts:
        """The current facts of the model, which training may move to another device."""
        return Facts.of(self.model)

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, Array]:
        """Returns the arrays of one batch, as `Engine.run`."""
        return self.start(ids, outputs)()

    def start(self, ids: Sequences, outputs: Sequence[str]) -> Callable[[], Mapping[str, Array]]:
        """Starts one batch, and returns what waits for its arrays. A GPU computes it meanwhile."""
        model, was_training = self.model, self.model.training
        if was_training:
            model.eval()
        try:
            with torch.inference_mode():
                arrays = self._started(ids, outputs)
                copies = {name: copied_to_host(array) for name, array in arrays.items()}
        finally:
            if was_training:
                model.train()
        return lambda: {name: wait().numpy() for name, wait in copies.items()}

    def _started(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Returns the float32 arrays of a batch on the device of the model."""
        host = Batch.of(ids)
        rows = {"token": len(ids.input_ids), "sequence": len(ids)}
        units = {name: self._unit(name) for name in outputs} if self.model.device.type == "cuda" else {"": None}
        if None not in units.values() and (arrays := self._recorded.run(host, outputs)) is not None:
            return {name: array[: rows[str(units[name])]] for name, array in arrays.items()}
        batch = host.to(self.model.device)
        writing = {name: kind for name in outputs if (kind := writing_of(name)) is not None}
        own = {name: self._written(batch, kind) for name, kind in writing.items()}
        queried = [name for name in outputs if self._queries(name)]
        own |= {name: self._queried(name, batch, ids).float() for name in queried}
        if others := [name for name in outputs if name not in own]:
            output = self._encode(batch, ids, others)
            own |= {name: self._array(name, output, batch, ids).float() for name in others}
        return own

    def _queries(self, name: str) -> bool:
        head = dict(self.model.heads).get(name)
        return isinstance(head, VocabularyHead) and head.needs.queries

    def _queried(self, name: str, batch: Batch, ids: Sequences) -> torch.Tensor:
        """Returns the logits (N, V) of the requested positions. No token attends to them, whatever stands there."""
        hidden_T = torch.zeros(len(ids.input_ids), dtype=torch.bool)
        hidden_T[torch.from_numpy(ids.positions)] = True
        hidden_BS = batch.host.layout.rectangle(hidden_T)
        count_B1 = hidden_BS.sum(1, keepdim=True)
        targets_BM = hidden_BS.int().argsort(dim=1, descending=True, stable=True)[:, : int(count_B1.max())]
        device, size = batch.input_ids.device, hidden_BS.shape[1]
        order_BSS = hidden_BS[:, None].expand(-1, size, -1).to(device)
        output = self.model.encode(batch, perm_mask=order_BSS, target_positions=targets_BM.to(device))
        at = batch.where(torch.arange(targets_BM.shape[1]) < count_B1)
        head = self.model.vocabulary_head(name)
        return head.logits(output.last_hidden_state.flatten(0, 1)[at], self.model.word_embeddings)

    @cached_property
    def _recorded(self) -> RecordedForwards:
        return RecordedForwards(self.model, self._fixed_arrays)

    def _unit(self, output: str) -> RowUnit | None:
        """Returns whether a row of an output is of a token or of a sequence; None for outputs of other shapes."""
        head = dict(self.model.heads).get(output)
        if head is None:
            return OF_ENCODER.get(output)
        unit: RowUnit = getattr(head, "rows", "sequence")
        return None if unit == "position" or isinstance(head, VocabularyHead) else unit

    def _fixed_arrays(self, batch: Batch, outputs: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Returns the arrays of a batch of a fixed shape, without those of its positions."""
        ids = Sequences.of([])
        output = self.model.encode(batch, read=self._read(ids, outputs))
        return {name: self._array(name, output, batch, ids) for name in outputs}

    def stream(self, ids: Sequences, output: str, *, seed: int = 0) -> Iterator[int]:
        """Yields the tokens of one text as they are generated. output: of `written_output`; seed: of random draws."""
        writing, was_training = writing_of(output), self.model.training
        if writing is None:
            raise WrongModel(f"{output} is not generated.")
        ids_S, generator = torch.from_numpy(ids.input_ids).long(), torch.Generator(self.model.device)
        self.model.eval()
        try:
            yield from stream(self.model, ids_S.to(self.model.device), writing, generator=generator.manual_seed(seed))
        finally:
            self.model.train(was_training)

    def _encode(self, batch: "Batch", ids: Sequences, outputs: Sequence[str]) -> "EncoderOutput":
        layers = any(parse_layer_output(name) is not None for name in outputs)
        if layers:
            return self.model.encode(batch, output_hidden_states=True)
        return self.model.encode(batch, read=self._read(ids, outputs))

    def _read(self, ids: Sequences, outputs: Sequence[str]) -> torch.Tensor | None:
        """Returns the tokens whose last hidden states the outputs are made of, as `TorchModel.encode`."""
        read = [SUMMARY]
        for name in outputs:
            if isinstance(dict(self.model.heads).get(name), VocabularyHead):
                read.append(torch.from_numpy(ids.positions))
            elif name not in _OF_SUMMARY and not self.model.summary_only(name):
                return None
        return torch.cat(read)

    def _written(self, batch: "Batch", writing: GenerationConfig) -> torch.Tensor:
        """Returns the generated tokens (B, max_new_tokens) float32, -1 from the end of each text on."""
        layout, most = batch.layout, writing.max_new_tokens
        ids_BS, mask_BS = layout.rectangle(batch.input_ids), layout.mask()
        found_BL = torch.full((len(ids_BS), most), -1.0, device=ids_BS.device)
        at_once = max(1, CACHED // (writing.num_beams * (ids_BS.shape[1] + most)))
        for start in range(0, len(ids_BS), at_once):
            part = slice(start, start + at_once)
            tokens_BL = generate(self.model, ids_BS[part], mask_BS[part], writing)
            found_BL[part, : tokens_BL.shape[1]] = tokens_BL.float()
            if (end := self.model.config.eos_token_id) is not None:
                found_BL[part].masked_fill_((found_BL[part] == end).cumsum(1) > 0, -1)
        return found_BL

    def _array(self, name: str, output: "EncoderOutput", batch: "Batch", ids: Sequences) -> torch.Tensor:
        if name in POOLED:
            return pool(output, name)
        if (layer := parse_layer_output(name)) is not None:
            return output.all_states[layer]
        head = dict(self.model.heads).get(name)
        if isinstance(head, VocabularyHead):
            positions = torch.from_numpy(ids.positions).to(output.last_hidden_state.device)
            array = head.logits(output.last_hidden_state[positions], self.model.word_embeddings)
        elif head is not None:
            array = self.model.logits(
                name, with_last_pieces(output, batch.labels[LAST]) if LAST in ids.extra else output
            )
        else:
            array = getattr(output, name)
        if not isinstance(array, torch.Tensor):
            raise WrongModel(f"The model has no {name}.")
        return array
