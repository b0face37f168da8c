"""Left to right: every token is predicted from those before. Radford et al. 2018, 3.1; Devlin et al. 2018, 5.1 (LTR).

    the cat sat   ->   the state at "the" says "cat", that at "cat" says "sat"

It corrupts nothing and needs a model whose tokens do not see what follows (config.causal).

Labels it adds to a batch: ltr_positions (N,) int64, the tokens that have one behind them, as places in `input_ids`
flattened, ascending; ltr_targets (N,) int64, the token behind each.

B sequences · T real tokens of the batch · N = T - B predictions · H hidden size
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS, VocabularyHead
from bertie.objectives.base import LossReport, LossTerm, Objective

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model


@dataclass(frozen=True)
class LeftToRight(Objective):
    """Predict the next token, everywhere."""

    name: ClassVar[str] = "ltr"
    on_tokens: ClassVar[bool] = True

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """The next-token head of the family. Raises UsageError for a model that sees what follows."""
        if not config.causal:
            raise UsageError(
                "ltr predicts the next token, to which this model can attend. Choose a causal model "
                "(model=gpt2), or make the model causal: model_overrides.causal=true."
            )
        return {"lm": HEADS["lm"](config)}

    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """The batch with its own tokens as labels."""
        followed = batch.layout.mask()[:, 1:]
        places = torch.arange(batch.input_ids.numel()).view(batch.input_ids.shape)
        return batch.with_labels(
            ltr_positions=batch.layout.rectangle(places)[:, :-1][followed],
            ltr_targets=batch.layout.rectangle(batch.input_ids)[:, 1:][followed],
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        """N"""
        return {"ltr": len(batch.labels["ltr_targets"])}

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Cross-entropy of every next token."""
        targets_N = batch.labels["ltr_targets"]
        hidden_NH = output.last_hidden_state.flatten(0, -2)[batch.labels["ltr_positions"]]
        head = model.heads["lm"]
        assert isinstance(head, VocabularyHead)
        total, correct = head.loss(hidden_NH, model.word_embeddings, targets_N)
        return {"ltr": LossTerm(total, len(targets_N), correct)}
