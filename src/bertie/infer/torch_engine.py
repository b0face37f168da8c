"""The engine for PyTorch: a `Model` on its own device, in its own precision."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from bertie.data.collate import batch_of
from bertie.infer.engine import Array, Facts, Ids
from bertie.models.biaffine import LAST
from bertie.models.facts import POOLED, facts_of, layer_of
from bertie.models.heads import VocabularyHead
from bertie.models.heads.parse import with_last_pieces
from bertie.models.pooling import pool

if TYPE_CHECKING:
    from bertie.data.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model


class TorchEngine:
    """Runs a model without dropout and without gradients, also while it is being trained."""

    def __init__(self, model: "Model") -> None:
        self.model = model

    @property
    def facts(self) -> Facts:
        """The current facts of the model, which training may move to another device."""
        return facts_of(self.model)

    def run(self, ids: Ids, outputs: Sequence[str]) -> Mapping[str, Array]:
        """Returns the arrays of one batch, as `Engine.run`."""
        model, was_training = self.model, self.model.training
        if was_training:
            model.eval()
        try:
            with torch.inference_mode():
                batch = batch_of(ids).to(model.device)
                output = self._encode(batch, ids, outputs)
                return {name: self._array(name, output, batch, ids).float().cpu().numpy() for name in outputs}
        finally:
            if was_training:
                model.train()

    def _encode(self, batch: "Batch", ids: Ids, outputs: Sequence[str]) -> "EncoderOutput":
        layers = any(layer_of(name) is not None for name in outputs)
        return self.model.encode(batch, output_hidden_states=True) if layers else self.model.encode(batch)

    def _array(self, name: str, output: "EncoderOutput", batch: "Batch", ids: Ids) -> torch.Tensor:
        if name in POOLED:
            return pool(output, name)
        if (layer := layer_of(name)) is not None:
            assert output.hidden_states is not None, "they were asked for"
            return output.hidden_states[layer]
        head = dict(self.model.heads).get(name)
        if isinstance(head, VocabularyHead):
            positions = torch.from_numpy(ids.positions).to(output.last_hidden_state.device)
            found = head.logits(output.last_hidden_state[positions], self.model.word_embeddings)
        elif head is not None:
            found = self.model.logits(name, with_last_pieces(output, batch.labels[LAST]) if ids.extra else output)
        else:
            found = getattr(output, name)
        assert isinstance(found, torch.Tensor), f"the model has no {name}"
        return found
