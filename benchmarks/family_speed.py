"""Benchmark of the families: a training step and inference of Bertie and of `transformers`, on texts of real lengths.

    python -m benchmarks families --models ModernBERT-base,deberta-v3-base,mpnet-base

Both sides have the same random weights, token ids and predicted positions. Bertie reads packed texts. `transformers`
reads texts sorted by length and padded to the longest of a batch, with the attention that is its default. It computes
in float32 and with autocast to bfloat16. A training step is masked LM with AdamW and gradient clipping. The number of
layers is reduced, since speed per layer is what differs.

B texts · S longest text · T real tokens
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.heads.vocabulary import MaskedLMHead
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed

TEXTS, BATCH = 64, 16  # of a round; of a rectangle, after sorting
MEDIAN, SIGMA, LONGEST = 40, 0.6, 256  # tokens of a text, log-normal, as the fine-tuning benchmark has them
PREDICTED, FIRST = 0.15, 10  # share of tokens; the first id that is drawn
VOCABULARY = 30_000  # of all models: updates of rows that no text has would hide the layers
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Texts:
    """Token ids of each text, and which of all tokens are predicted, in the order of the texts."""

    ids: list[Tensor]
    predicted: Tensor

    @property
    def tokens(self) -> int:
        """Of all texts."""
        return sum(map(len, self.ids))


def texts_of(vocab_size: int, count: int = TEXTS, seed: int = 0) -> Texts:
    """Returns random texts, sorted by length."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.clip(np.exp(rng.normal(np.log(MEDIAN), SIGMA, count)), 4, LONGEST).astype(int))
    ids = [torch.from_numpy(rng.integers(FIRST, vocab_size, n)) for n in lengths]
    return Texts(ids, torch.from_numpy(rng.random(int(lengths.sum())) < PREDICTED))


def ours(model: TorchModel, texts: Texts, dtype: torch.dtype, *, train: bool) -> harness.Runner:
    """Bertie: all texts packed, in batches of as many texts as the peer's."""
    head, step = model.heads["mlm"], _update(model)
    assert isinstance(head, MaskedLMHead)

    def run() -> tuple[float, float]:
        model.train(train)
        model.compute_dtype = None if dtype == torch.float32 else dtype
        began, at = time.perf_counter(), 0
        for start in range(0, len(texts.ids), BATCH):
            part = texts.ids[start : start + BATCH]
            ids, layout = torch.cat(part), Packed.from_lengths(torch.tensor([len(one) for one in part]))
            asked = texts.predicted[at : at + len(ids)].nonzero()[:, 0]
            at += len(ids)
            with torch.set_grad_enabled(train):
                output = model.run_encoder(ids, None, layout)
                if train:
                    total, _ = head.loss(output.last_hidden_state[asked], model.word_embeddings, ids[asked])
                    step(total / max(1, len(asked)))
        return float(texts.tokens), time.perf_counter() - began

    return run


def theirs(peer: Any, texts: Texts, dtype: torch.dtype, *, train: bool) -> harness.Runner:
    """`transformers`: rectangles of texts of similar length."""
    step = _update(peer)

    def run() -> tuple[float, float]:
        peer.train(train)
        began, at = time.perf_counter(), 0
        for start in range(0, len(texts.ids), BATCH):
            part = texts.ids[start : start + BATCH]
            ids_BS = torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=peer.config.pad_token_id)
            mask_BS = torch.nn.utils.rnn.pad_sequence([torch.ones_like(one) for one in part], batch_first=True)
            labels_BS = torch.full_like(ids_BS, -100)
            count = sum(map(len, part))
            labels_BS[mask_BS.bool()] = torch.cat(part).where(texts.predicted[at : at + count], -100)
            at += count
            with torch.set_grad_enabled(train), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                if train:
                    loss = peer(input_ids=ids_BS, attention_mask=mask_BS, labels=labels_BS).loss
                else:
                    peer.base_model(input_ids=ids_BS, attention_mask=mask_BS)
            if train:
                step(loss)
        return float(texts.tokens), time.perf_counter() - began

    return run


def _update(model: torch.nn.Module) -> Callable[[Tensor], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step(loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(preset: str, *, layers: int, rounds: int) -> list[dict[str, Any]]:
    """Returns a line per kind of work and runner, with its speed relative to each runner of `transformers`."""
    import transformers

    flat: dict[str, Any] = {**families.config(preset).flat()}
    ids = {name: i for i, name in enumerate(("pad_token_id", "sep_token_id")) if (flat[name] or 0) >= VOCABULARY}
    config = families.config(preset, num_hidden_layers=layers, vocab_size=VOCABULARY, **ids)
    model = families.build(config, heads=lambda config: {"mlm": HEADS["mlm"](config)}, seed=0, variant=_family(preset))
    with tempfile.TemporaryDirectory() as place:
        families.save(model, Path(place))
        peer = transformers.AutoModelForMaskedLM.from_pretrained(place)
    texts, lines = texts_of(config.vocab_size), list[dict[str, Any]]()
    _same(model, peer, texts)
    for train in (True, False):
        runners = {f"Bertie {name}": ours(model, texts, dtype, train=train) for name, dtype in DTYPES.items()}
        runners |= {f"transformers {name}": theirs(peer, texts, dtype, train=train) for name, dtype in DTYPES.items()}
        cells = harness.interleave(runners, rounds=rounds)
        lines += [_line(preset, layers, "training" if train else "inference", cell, cells) for cell in cells]
    return lines


def _family(preset: str) -> str:
    return families.family(preset).model_type


def _same(model: TorchModel, peer: Any, texts: Texts) -> None:
    """Asserts that both sides compute the same, on the shortest text."""
    ids = texts.ids[0]
    with torch.no_grad():
        found = model.eval().run_encoder(ids, None, Packed.from_lengths(torch.tensor([len(ids)]))).last_hidden_state
        wanted = peer.eval().base_model(input_ids=ids[None])[0][0]
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def _line(preset: str, layers: int, work: str, cell: harness.Cell, cells: Sequence[harness.Cell]) -> dict[str, Any]:
    times = {}
    for other in cells:
        if other.name.startswith("transformers"):
            median, low, high = harness.ratios(cell, other)
            times[other.name] = {"median": median, "low": low, "high": high}
    return {
        "model": preset,
        "layers": layers,
        "work": work,
        "runner": cell.name,
        "tokens_per_s": cell.median,
        "spread": cell.spread,
        "times_quicker_than": times,
        "machine": harness.machine(),
    }
