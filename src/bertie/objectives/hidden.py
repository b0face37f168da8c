"""Hidden states of a teacher with another tokenizer: each token learns what the teacher has in its place.

    objectives: {mlm: {rate: 0.2}, nsp: null, hidden: {teacher: minilm-l6}}

    student   [CLS] the gal ##axy [SEP]         reads the masked text
    teacher   <s>   ▁The ▁galax y </s>          reads the original text, written out from the student's tokens

A token's target is the mean of the teacher's last hidden states over the token's characters. Special tokens have no
characters: their target is the mean of the whole text, which is the vector of most sentence models. So the student
learns contextual meanings at every token, and a sentence vector at [CLS], before its masked LM has left its plateau.
The loss is that of data2vec (Baevski et al. 2022, 3.3): the squared error of a linear map, to targets normalized as by
a LayerNorm without weights. The map is trained with the model and not saved. The objective adds no labels.

B sequences · T real tokens of the batch · K of them with a target · O tokens of the original texts.
Q tokens of the output of `span` · P pairs of a student's and a teacher's token · H hidden size · C characters
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertie.data.masking import Vocabulary
from bertie.errors import UsageError, WrongValue
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops
from bertie.models.encoder import EncoderOutput
from bertie.models.model import TorchModel
from bertie.objectives.base import LossReport, LossTerm, OpensModel
from bertie.objectives.distil import Taught
from bertie.order import Draws
from bertie.text.encoding import Encoding
from bertie.text.sequences import STANDS, Int, Sequences, ranges
from bertie.text.tokenizer import Tokenizer

CLOSING, OPENING = frozenset(".,:;!?%)]}»”’'\"…·、。"), frozenset("([{«“‘")
"""Punctuation that is written without a space before it, and after it."""


@dataclass(frozen=True)
class HiddenStates(Taught):
    """Learns the hidden states of a teacher. Raises UsageError for a weight or share out of range."""

    name: ClassVar[str] = "hidden"
    whole_run: ClassVar[tuple[str, ...]] = ("teacher", "weight", "share")

    teacher: str = field(default="", repr=False)  # no batch changes with it; its weights are in the run's identity
    """Name or folder of the teacher, an encoder with any tokenizer: minilm-l6, e5-small, models/base."""
    weight: float = 10.0
    """Weight of the loss. Source: ours, measured (benchmarks/log/pre-training-results.md)."""
    share: float = 1.0
    """Fraction of a batch's texts that the teacher reads. A small one suits a GPU, where encoding the teacher's texts
    takes longer than a step of the student. Source: ours."""

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise WrongValue(f"hidden.weight is {self.weight}; it must be above 0.")
        if not 0 < self.share <= 1:
            raise WrongValue(f"hidden.share is {self.share}; it must be above 0 and at most 1.")

    def load_dependencies(self, load: OpensModel) -> "HiddenStates":
        """Loads the teacher. Raises UsageError when none is named."""
        if not self.teacher:
            raise UsageError("hidden.teacher is missing. Set it to the name or folder of a model, such as minilm-l6.")
        return self.taught_by(load(self.teacher, states_only=True))

    def prepare(self, model: TorchModel, seed: int) -> None:
        """Adds the linear map from the student's hidden size to the teacher's."""
        model.companions["hidden"] = nn.Linear(model.config.hidden_size, self._teacher.config.hidden_size)
        model.draw_companion("hidden", seed)

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns no heads."""
        return {}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences unchanged. Raises UsageError for feature vectors, which have no text."""
        if STANDS in batch.extra:
            raise UsageError("hidden needs texts without feature vectors. Omit it: objectives.hidden=null.")
        return batch

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """Returns the operations of the teacher's forward pass, or nothing when the teacher is not loaded."""
        if self.loaded is None:
            return {}
        return {"teacher": self.share * sum(forward_flops(self.loaded.config, length=length, predicted=0).values())}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of tokens of the texts that the teacher reads."""
        lengths_B = _sequences(batch).lengths
        return {"hidden": int(lengths_B[read_by_teacher(len(lengths_B), self.share)].sum())}

    def loss(self, model: TorchModel, output: EncoderOutput, batch: Batch) -> LossReport:
        """Returns the squared error of the mapped hidden states, the mean of the teacher's dimensions."""
        teacher, ours = self._teacher, output.last_hidden_state.flatten(0, -2)
        length = teacher.config.max_length
        aligned = align(
            _sequences(batch), model.text_tokenizer, teacher.text_tokenizer, max_length=length, share=self.share
        )
        aligned = aligned.to(ours.device)
        targets_KH = hidden_targets(teacher.to(ours.device), aligned, model.compute_dtype)
        places = aligned.tokens
        if batch.input_ids.ndim > 1:
            places = batch.where(batch.host.layout.mask())[places]
        mapped_KH = model.companions["hidden"](ours[places].float())
        total = (mapped_KH - targets_KH).square().mean(-1).sum()
        return {"hidden": LossTerm(total, len(places), weight=self.weight)}


@dataclass(frozen=True)
class Aligned:
    """The teacher's batch, and the weight (P,) of a teacher's token `columns` in the target of a student's token
    `tokens[rows]`. The weights of a row add up to 1. tokens: those of the T real tokens that have a target, (K,)."""

    batch: Batch
    tokens: Tensor
    rows: Tensor
    columns: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "Aligned":
        """Returns the same on another device."""
        batch, arrays = self.batch.to(device), (self.tokens, self.rows, self.columns, self.weights)
        return Aligned(batch, *map(batch.moved, arrays))


def _sequences(batch: Batch) -> Sequences:
    """Returns what a batch was made from. Raises UsageError for one that was not made from sequences."""
    if (sequences := batch.host.sequences) is None:
        raise UsageError("hidden learns from batches that were made with Batch.of, whose texts are in main memory.")
    return sequences


def read_by_teacher(texts: int, share: float) -> NDArray[np.bool_]:
    """Returns which texts of a batch the teacher reads, (B,): evenly spaced, since corpora follow each other in it."""
    chosen_B: NDArray[np.bool_] = np.diff(np.floor(np.arange(texts + 1) * share)) > 0
    chosen_B[-1:] |= not chosen_B.any()
    return chosen_B


@torch.no_grad()
def hidden_targets(teacher: TorchModel, aligned: Aligned, dtype: torch.dtype | None) -> Tensor:
    """Returns the targets of the student's tokens, with mean 0 and variance 1 over their dimensions. -> (K, H)"""
    teacher.compute_dtype = dtype
    hidden = teacher.encode(aligned.batch).last_hidden_state.float()
    means = hidden.new_zeros(len(aligned.tokens), hidden.shape[-1])
    means.index_add_(0, aligned.rows, hidden[aligned.columns] * aligned.weights[:, None])
    return F.layer_norm(means, means.shape[-1:])


def align(batch: Sequences, student: Tokenizer, teacher: Tokenizer, *, max_length: int, share: float = 1.0) -> Aligned:
    """Encodes a share of a batch's original texts for the teacher, and links the tokens by the characters that they
    share.

    A token that shares no character with a token of the teacher is linked with all of the teacher's tokens of its text.
    """
    chosen_B = read_by_teacher(len(batch), share)
    chosen_T, lengths_B = np.repeat(chosen_B, batch.lengths), batch.lengths[chosen_B]
    ids_O, rows_O = _original(batch, student.special_ids)
    read_O = chosen_T[rows_O]
    ids_O, rows_O = ids_O[read_O], (np.cumsum(chosen_T) - 1)[rows_O[read_O]]
    sizes_B = np.diff(np.searchsorted(rows_O, np.cumsum(lengths_B)), prepend=0)
    texts, owners_C = spelling(student)(ids_O, sizes_B)
    encodings = teacher.encode_batch(texts, max_length=max_length)
    theirs_C = _tokens_of_characters(texts, encodings)
    both = (owners_C >= 0) & (theirs_C >= 0)
    rows, columns = rows_O[owners_C[both]], theirs_C[both]
    starts = np.flatnonzero(np.diff(rows, prepend=-1) | np.diff(columns, prepend=-1))  # of a pair's characters
    counts = np.diff(starts, append=len(rows))
    alone = np.flatnonzero(np.bincount(rows, minlength=lengths_B.sum()) == 0)
    many_B = np.array([len(encoding) for encoding in encodings])
    text = np.repeat(np.arange(len(lengths_B)), lengths_B)[alone]
    ends_B = np.cumsum(many_B)
    all_rows, all_columns = np.repeat(alone, many_B[text]), ranges((ends_B - many_B)[text], ends_B[text])
    rows_P, columns_P = np.concatenate([rows[starts], all_rows]), np.concatenate([columns[starts], all_columns])
    counts_P = np.concatenate([counts, np.ones(len(all_rows), np.int64)])
    weights_P = (counts_P / np.bincount(rows_P, counts_P)[rows_P]).astype(np.float32)
    arrays = (np.flatnonzero(chosen_T), rows_P, columns_P, weights_P)
    theirs = Sequences.of([one.ids for one in encodings], [one.type_ids for one in encodings])
    return Aligned(Batch.of(theirs), *map(torch.from_numpy, arrays))


def _original(batch: Sequences, special: Collection[int]) -> tuple[Int, Int]:
    """Returns the tokens of the texts before they were corrupted, and the real token of the batch that each belongs to:
    (O,), (O,). The tokens of a removed span belong to its sentinel."""
    ids_T = batch.input_ids.copy()
    if "mlm_positions" in batch.labels:
        ids_T[batch.labels["mlm_positions"]] = batch.labels["mlm_targets"]
    sizes_T = np.ones(len(ids_T), np.int64)
    if "span_targets" not in batch.labels:
        return ids_T, np.arange(len(ids_T))
    written_Q, sentinel_Q = batch.labels["span_targets"], batch.labels["span_sentinels"]
    removed_Q = ~sentinel_Q & ~np.isin(written_Q, [*special])  # not the end of the text, which stays in the text
    stands_T = np.isin(ids_T, written_Q[sentinel_Q])  # for a span, in the order of the sentinels that are written
    sizes_T[stands_T] = np.bincount((np.cumsum(sentinel_Q) - 1)[removed_Q], minlength=int(stands_T.sum()))
    original_O = np.repeat(ids_T, sizes_T)
    original_O[np.repeat(stands_T, sizes_T)] = written_Q[removed_Q]
    return original_O, np.repeat(np.arange(len(ids_T)), sizes_T)


def _tokens_of_characters(texts: Sequence[str], encodings: Sequence[Encoding]) -> Int:
    """Returns the token of each character of the joined texts, counted over all encodings; -1: none. -> (C,)"""
    first = np.cumsum([0, *map(len, texts)])
    found_C = np.full(first[-1], -1)
    bounds = np.array(list(chain.from_iterable(chain.from_iterable(e.offsets) for e in encodings)), np.int64)
    bounds = bounds.reshape(-1, 2)
    sizes = bounds[:, 1] - bounds[:, 0]
    starts = bounds[:, 0] + np.repeat(first[:-1], [len(encoding) for encoding in encodings])
    found_C[ranges(starts, starts + sizes)] = np.repeat(np.arange(len(sizes)), sizes)
    return found_C


@lru_cache(4)
def spelling(tokenizer: Tokenizer) -> Callable[[Int, Int], tuple[list[str], Int]]:
    """Returns a function that writes texts from their token ids (O,) and their numbers of tokens (B,).

    It returns the texts, and the token of each character of the joined texts (C,), -1 for spaces.
    """
    written = [tokenizer.written(i) for i in range(tokenizer.vocab_size)]
    written = ["" if i in tokenizer.special_ids else text for i, text in enumerate(written)]
    spaced = [" " + text for text in written]
    tight = tokenizer.continues_word(np.arange(tokenizer.vocab_size))
    tight |= np.array([not text or text in CLOSING for text in written])
    opening = np.array([text in OPENING for text in written])
    length = np.array([len(text) for text in written])

    def spelled(ids: Int, sizes: Int) -> tuple[list[str], Int]:
        lengths, numbers = length[ids], np.arange(len(ids))
        begin = np.repeat(np.cumsum(sizes) - sizes, sizes)  # the first token of each token's text
        # the token before it that has characters, or -1
        before = np.concatenate([[-1], np.maximum.accumulate(np.where(lengths > 0, numbers, -1))[:-1]])[: len(ids)]
        space = ~tight[ids] & (before >= begin) & ~opening[ids[before]]
        parts = [(spaced if gap else written)[i] for i, gap in zip(ids.tolist(), space.tolist(), strict=True)]
        ends = np.cumsum(sizes).tolist()
        texts = ["".join(parts[start:end]) for start, end in pairwise([0, *ends])]
        spelled_lengths = lengths + space
        owners = np.repeat(numbers, spelled_lengths)
        owners[(np.cumsum(spelled_lengths) - spelled_lengths)[space]] = -1
        return texts, owners

    return spelled
