"""One text in a masked language model, step by step, with the shape of every array.

The steps are those of pre-training (Devlin et al. 2018, section 3.1): tokenizer, masking, embeddings, layers, head,
loss. The classes are those of training; forward hooks record their outputs.

B sequences (1 here) · S tokens · E embedding size · H hidden size · N heads · M masked tokens · V vocabulary
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

import bertie
from bertie import Tokenizer
from bertie.apps.sample import table
from bertie.platform import DataError, Encoding, ModelInternals, TorchModel, UsageError

_NUMBERS_SHOWN = 4  # numbers of a vector
_VOCABULARY = 400  # of an untrained model: enough for the letters of any short text
BEST = 3  # proposals for a masked token


class MaskedBatch(Protocol):
    """A batch with predicted tokens. labels: mlm_positions, mlm_targets"""

    @property
    def input_ids(self) -> Tensor:
        """Token ids. (B, S)"""
        ...

    @property
    def labels(self) -> Mapping[str, Tensor]:
        """What is predicted, by name."""
        ...


@dataclass(frozen=True)
class TracedArray:
    """An array: its name, the letters of its axes ("B S H"), its shape."""

    name: str
    axes: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A step: its name, the position of its code ("module:symbol"), its arrays, and some values as rows."""

    name: str
    symbol: str
    arrays: tuple[TracedArray, ...]
    values: tuple[dict[str, Any], ...]


def trace(model: TorchModel, text: str, *, seed: int = 0) -> list[Step]:
    """Returns the steps of one text through a masked language model.

    Args:
        model: A model in evaluation mode, with a tokenizer and a masked-LM head.
        text: The text.
        seed: Seed of the masks.

    Returns:
        The steps in order: tokenizer, masking, embeddings, each layer, head, loss.

    Raises:
        UsageError: The model has no tokenizer or no masked-LM head.
        DataError: The text is empty or too long.
    """
    tokenizer, inside = _needed(model), ModelInternals(model)
    encoding = tokenizer.encode(text)
    batch = inside.masked(encoding, seed)
    if not len(batch.labels["mlm_positions"]):
        raise DataError("The text has no tokens to mask. Pass a text with at least one word.")
    batch = batch.to(model.device)
    with torch.inference_mode(), _outputs(model.encoder.embeddings) as parts:
        output = model.encode(batch, output_hidden_states=True, output_attentions=True)
        logits_MV = inside.token_logits("mlm", _predicted(output.last_hidden_state, batch))
        loss = inside.masked_loss(output, batch)
    return [
        _tokenized(tokenizer, encoding, text),
        _masked(tokenizer, batch),
        _embedded(parts, output.all_states[0], batch),
        *_layers(tokenizer, output.attentions or (), output.all_states[1:], batch),
        _guessed(tokenizer, logits_MV, batch),
        Step(
            "loss",
            "bertie.objectives.mlm:MaskedLM.loss",
            (TracedArray("targets", "M", (int(loss.count),)),),
            ({
                "loss": float(loss.total) / loss.count,
                "of a uniform guess": log(logits_MV.shape[-1]),
                "predictions": loss.count,
                "correct": None if loss.correct is None else int(loss.correct),
            },),
        ),
    ]  # fmt: skip


def _needed(model: TorchModel) -> Tokenizer:
    if "mlm" not in model.heads:
        raise UsageError(
            "This model has no masked-LM head. Use a model that was pre-trained to predict masked words, such as BERT.",
            code="wrong-model",
        )
    return model.text_tokenizer


def untrained(text: str, seed: int = 0) -> TorchModel:
    """Returns a bert-tiny with random weights, and a vocabulary made from `text` and the sample reviews."""
    texts = [text, *(row["text"] for row in table("reviews"))]
    tokenizer = bertie.train_tokenizer(iter(texts), size=_VOCABULARY, min_frequency=1, lowercase=True)
    return ModelInternals.untrained("bert-tiny", tokenizer, seed=seed)


@contextmanager
def _outputs(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Context that records the outputs of a module's children by name, and the module's own output under ""."""
    outputs: dict[str, Tensor] = {}
    hooks = [
        part.register_forward_hook(lambda _part, _given, out, name=name: outputs.__setitem__(name, out))
        for name, part in [("", module), *module.named_children()]
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def _predicted(hidden_BSH: Tensor, batch: MaskedBatch) -> Tensor:
    """Returns the hidden states of the predicted tokens, (M, H)."""
    return hidden_BSH.flatten(0, -2)[batch.labels["mlm_positions"]]


def _array(name: str, axes: str, tensor: Tensor) -> TracedArray:
    return TracedArray(name, axes, tuple(tensor.shape))


def _numbers(vector: Tensor) -> list[float]:
    return [float(x) for x in vector[:_NUMBERS_SHOWN]]


def _tokenized(tokenizer: Tokenizer, encoding: Encoding, text: str) -> Step:
    rows = (
        {"position": i, "token": tokenizer.id_to_token(number), "id": number, "text": text[start:end]}
        for i, (number, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets, strict=True))
    )
    shape = (1, len(encoding.ids))
    arrays = (TracedArray("input_ids", "B S", shape), TracedArray("token_type_ids", "B S", shape))
    return Step("tokenizer", "bertie.text.tokenizer:Tokenizer.encode", arrays, tuple(rows))


def _masked(tokenizer: Tokenizer, batch: MaskedBatch) -> Step:
    """Returns the input of each predicted token: masked, a random token, or unchanged (80%, 10%, 10%)."""
    rows = []
    for position, target in zip(
        batch.labels["mlm_positions"].tolist(), batch.labels["mlm_targets"].tolist(), strict=True
    ):
        now = int(batch.input_ids.flatten()[position])
        fate = "masked" if now == tokenizer.mask_id else "unchanged" if now == target else "random"
        row = {"position": position, "token": tokenizer.id_to_token(target), "becomes": tokenizer.id_to_token(now)}
        rows.append({**row, "case": fate})
    arrays = (_array("input_ids", "B S", batch.input_ids), _array("mlm_positions", "M", batch.labels["mlm_positions"]))
    return Step("masking", "bertie.objectives.mlm:MaskedLM.corrupt", arrays, tuple(rows))


def _embedded(parts: dict[str, Tensor], embeddings_BSH: Tensor, batch: MaskedBatch) -> Step:
    """The parts whose sum is normalized; values: of the first predicted token."""
    position = int(batch.labels["mlm_positions"][0])
    names = ("word", "position", "segment", "norm")
    rows_by_part = {name: part if part.dim() > 2 else part[None] for name, part in parts.items() if name in names}
    width, rows_by_part["embeddings"] = rows_by_part["word"].shape[-1], embeddings_BSH
    rows = ({"part": name, "numbers": _numbers(part.flatten(0, -2)[position])} for name, part in rows_by_part.items()
            if part.shape[:2] == batch.input_ids.shape)  # fmt: skip
    wide = {name for name, part in rows_by_part.items() if name == "embeddings" or part.shape[-1] != width}
    arrays = (_array(name, "B S H" if name in wide else "B S E", part) for name, part in rows_by_part.items())
    return Step("embeddings", "bertie.nn.embeddings:Embeddings.forward", tuple(arrays), tuple(rows))


def _layers(
    tokenizer: Tokenizer, attentions: Sequence[Tensor], states: Sequence[Tensor], batch: MaskedBatch
) -> Iterator[Step]:
    """Each layer; values: which token the first predicted one attends to most, on average over heads."""
    position, ids = int(batch.labels["mlm_positions"][0]), batch.input_ids[0]
    for i, (probs, hidden) in enumerate(zip(attentions, states, strict=True), 1):
        row: dict[str, object] = {"numbers": _numbers(hidden[0, position])}
        if probs.shape[-1] == len(ids):  # not where each token attends to a window
            mean_S = probs[0].mean(0)[position]
            most = int(mean_S.argmax())
            row = {"attends to": tokenizer.id_to_token(int(ids[most])), "at": most, "by": float(mean_S[most]), **row}
        arrays = (_array("attention", "B N S S", probs), _array("hidden", "B S H", hidden))
        yield Step(f"layer {i}", "bertie.nn.layer:Layer.forward", arrays, (row,))


def _guessed(tokenizer: Tokenizer, logits_MV: Tensor, batch: MaskedBatch) -> Step:
    """The most probable tokens at each predicted position, and the probability of the original token."""
    probability_MV = logits_MV.float().softmax(-1).cpu().numpy()
    rows = []
    for target, position, row in zip(
        batch.labels["mlm_targets"].tolist(), batch.labels["mlm_positions"].tolist(), probability_MV, strict=True
    ):
        best = [tokenizer.id_to_token(int(i)) for i in np.argsort(-row, kind="stable")[:BEST]]
        rows.append(
            {"position": position, "token": tokenizer.id_to_token(target), "p": float(row[target]), "best": best}
        )
    arrays = (_array("logits", "M V", logits_MV),)
    return Step("head", "bertie.models.heads.vocabulary:MaskedLMHead.parts", arrays, tuple(rows))
