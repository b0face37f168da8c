"""Attention of every head to every token of a text, and three summaries of it.

    rollout      R_l = (A_l + I)/2 R_(l-1): the paths from a token of the top layer to each token of the text
    flow         the maximum flow along the same paths, with (A_l + I)/2 as capacities
    statistics   what a head attends to: itself, the next or previous token, special tokens, how far, how many

A_l is the mean of the heads of layer l. Rollout and flow: Abnar and Zuidema 2020. Statistics: Clark et al. 2019, 3.

L layers · N heads · S tokens
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertie import Tokenizer
from bertie.platform import TorchModel, UsageError

Floats = NDArray[np.floating]


@runtime_checkable
class Windowed(Protocol):
    """Attention to the neighbors of a token."""

    def reach(self, layer: int) -> tuple[int, int]:
        """Returns the radius of a layer's windows and the distance between their tokens."""
        ...


FLOW_TOKENS = 32  # more would take minutes: there is a flow for each pair of tokens
_UNITS = 1 << 30  # of a capacity of 1, for scipy's whole numbers
SMOOTH = 1e-4  # of the entropy, as in Clark et al.'s code
POSITIONAL, SPECIAL, BROAD = 0.5, 0.6, 3.8  # least attention, and least entropy in nats, of a kind (ibid.)
MEASURES = {
    "entropy": "entropy (nats)",
    "distance": "mean distance (tokens)",
    "self": "to itself",
    "previous": "to the previous token",
    "next": "to the next token",
    "first": "to the first special token",
    "separator": "to separators",
}


def attentions(model: TorchModel, ids: Sequence[int], type_ids: Sequence[int]) -> Floats:
    """Returns the attention probabilities of one text, row for query and column for key. -> (L, N, S, S) float32

    Windowed attention has zeros outside of its windows. Raises UsageError for a family without attention.
    """
    ids_1S, types_1S = (torch.tensor([list(one)], device=model.device) for one in (ids, type_ids))
    kind = model.config.attention
    seen_1S = model.global_tokens(ids_1S) if isinstance(kind, Windowed) else None
    with torch.no_grad():
        flags = {} if seen_1S is None else {"global_attention_mask": seen_1S}
        output = model.run_encoder(ids_1S, types_1S, None, output_attentions=True, **flags)
    if output.attentions is None:
        family = model.variant.model_type if model.variant else "this"
        raise UsageError(
            f"There is no attention in {family} models, so none can be shown: their layers carry one state from word "
            "to word, or read a few neighbors. `bertie words` compares the vectors of their layers."
        )
    probs = [one[0].float() for one in output.attentions]
    if isinstance(kind, Windowed):
        at_G = torch.arange(0) if seen_1S is None else seen_1S[0].nonzero()[:, 0]
        of_global = output.global_attentions or ()
        probs = [
            _square(one, of_all[0].float(), at_G, *kind.reach(layer))
            for layer, (one, of_all) in enumerate(zip(probs, of_global, strict=True))
        ]
    probs_LNSS: Floats = torch.stack(probs).cpu().numpy()
    return probs_LNSS


def _square(window_NSW: Tensor, of_global_NSG: Tensor, at_G: Tensor, radius: int, dilation: int) -> Tensor:
    """Returns the probabilities of a windowed layer (nn.window.WindowProbs, of one text) by key. -> (N, S, S)"""
    at_S = torch.arange(window_NSW.shape[1], device=window_NSW.device)
    ahead_W = (torch.arange(window_NSW.shape[2] - len(at_G), device=at_S.device) - radius) * dilation
    key_SW = at_S[:, None] + ahead_W
    inside_SW = (key_SW >= 0) & (key_SW < len(at_S))
    local_NSW = window_NSW[..., len(at_G) :] * inside_SW
    square = window_NSW.new_zeros(*window_NSW.shape[:2], len(at_S))
    square.scatter_add_(2, key_SW.clamp(0, len(at_S) - 1).expand_as(local_NSW), local_NSW)
    square[..., at_G] += window_NSW[..., : len(at_G)]
    square[:, at_G] = of_global_NSG.mT
    return square


@torch.no_grad()
def read_vectors(model: TorchModel, ids: Sequence[int], type_ids: Sequence[int]) -> Tensor:
    """Returns what each head adds where it attends to a token: (x W_V + b_V) W_O. -> (L, N, S, H)

    Raises UsageError for a family whose layers have no fused projection, or separate ones for global tokens.
    """
    layers = list(model.encoder.in_order()) if hasattr(model.encoder, "in_order") else []
    attention = [getattr(layer, "attention", None) for layer in layers]
    if not layers or isinstance(model.config.attention, Windowed) or not all(hasattr(one, "qkv") for one in attention):
        family = model.variant.model_type if model.variant else "this"
        raise UsageError(f"The norms of {family} models cannot be computed. Omit --norms.")
    fused: list[Tensor] = []
    handles = [
        one.qkv.register_forward_hook(lambda module, inputs, output: fused.append(output))
        for one in dict.fromkeys(filter(None, attention))
    ]
    try:
        attentions(model, ids, type_ids)
    finally:
        for handle in handles:
            handle.remove()
    heads, vectors = model.config.num_attention_heads, []
    for module, qkv_1SF in zip(attention, fused, strict=True):
        value_SND = qkv_1SF[0].chunk(3, -1)[2].unflatten(-1, (heads, -1))  # type: ignore[no-untyped-call]
        weight_HND = module.output.weight.unflatten(-1, (heads, -1))  # type: ignore[union-attr]
        vectors.append(torch.einsum("snd,hnd->nsh", value_SND, weight_HND))
    return torch.stack(vectors)


def with_norms(probs_LNSS: Floats, read_LNSH: Tensor) -> Floats:
    """Returns the share of each token in the length of what a token reads. Kobayashi et al. 2020. -> (L, N, S, S)

    A head that attends to a token with a short vector reads little from it.
    """
    weighted = probs_LNSS * read_LNSH.norm(dim=-1).cpu().numpy()[..., None, :]
    shares: Floats = weighted / np.maximum(weighted.sum(-1, keepdims=True), 1e-30)
    return shares


def rollout(probs_LNSS: Floats) -> Floats:
    """Returns how much each token of a layer rests on each token of the text, for all layers. -> (L, S, S)"""
    first, *others = _with_residual(probs_LNSS)
    layers = [first]
    for mixed_SS in others:
        layers.append(mixed_SS @ layers[-1])
    return np.stack(layers)


def flow(probs_LNSS: Floats) -> Floats:
    """Returns the maximum flow from each token of the top layer to each token of the text; rows add up to 1. -> (S, S)

    Raises UsageError for more than FLOW_TOKENS tokens.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    layers, _, size, _ = probs_LNSS.shape
    if size > FLOW_TOKENS:
        raise UsageError(f"Attention flow is computed for at most {FLOW_TOKENS} tokens; the text has {size}.")
    capacities = np.zeros(((layers + 1) * size,) * 2, np.int32)
    for layer, mixed_SS in enumerate(_with_residual(probs_LNSS)):
        upper, lower = (slice(one * size, (one + 1) * size) for one in (layer + 1, layer))
        capacities[upper, lower] = np.floor(mixed_SS * _UNITS)
    graph = csr_array(capacities)
    flows = np.array(
        [[maximum_flow(graph, layers * size + top, below).flow_value for below in range(size)] for top in range(size)],
        np.float64,
    )
    shares: Floats = flows / flows.sum(-1, keepdims=True)
    return shares


def _with_residual(probs_LNSS: Floats) -> Floats:
    mean_LSS = probs_LNSS.astype(np.float64).mean(1)
    mixed: Floats = (mean_LSS / mean_LSS.sum(-1, keepdims=True) + np.eye(mean_LSS.shape[-1])) / 2
    return mixed


class HeadStatistics:
    """Sums the statistics of every head over the tokens of some texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.special = [tokenizer.special_id(role) for role in ("cls", "sep")]
        if self.special[1] is None:
            self.special[1] = tokenizer.special_id("eos")
        self.texts = self.tokens = 0
        self._sums: dict[str, Floats] = {}
        self._counts: dict[str, int] = {}

    def add(self, probs_LNSS: Floats, ids: Sequence[int]) -> None:
        """Adds one text."""
        special = [np.array(ids) == (-1 if one is None else one) for one in self.special]
        layers = [_of_layer(probs_NSS.astype(np.float64), *special) for probs_NSS in probs_LNSS]
        for name in MEASURES:
            values_LNQ = np.stack([one[name] for one in layers])
            self._sums[name] = self._sums.get(name, 0.0) + values_LNQ.sum(-1)
            self._counts[name] = self._counts.get(name, 0) + values_LNQ.shape[-1]
        self.texts, self.tokens = self.texts + 1, self.tokens + len(ids)

    def means(self) -> dict[str, Floats]:
        """Returns the mean over all tokens of each of MEASURES. -> name: (L, N)"""
        return {name: self._sums[name] / max(1, self._counts[name]) for name in MEASURES}

    def as_json(self) -> list[dict[str, float | int | str]]:
        """Returns one record for each head: layer and head from 1, its statistics and its kind."""
        means = self.means()
        return [
            {"layer": layer + 1, "head": head + 1, **row, "kind": classify_head(row)}
            for layer, head in np.ndindex(means["self"].shape)
            for row in [{name: round(float(values[layer, head]), 6) for name, values in means.items()}]
        ]


def _of_layer(probs_NSS: Floats, is_first: NDArray[np.bool_], is_separator: NDArray[np.bool_]) -> dict[str, Floats]:
    """Returns MEASURES for each query that has them (the last has no next token). -> name: (N, Q)"""
    at = np.arange(probs_NSS.shape[-1])
    smooth = (1 - SMOOTH) * probs_NSS + SMOOTH / len(at)
    return {
        "entropy": -(smooth * np.log(smooth)).sum(-1),
        "distance": (probs_NSS * abs(at[:, None] - at)).sum(-1),
        "self": np.diagonal(probs_NSS, 0, -2, -1),
        "previous": np.diagonal(probs_NSS, -1, -2, -1),
        "next": np.diagonal(probs_NSS, 1, -2, -1),
        "first": probs_NSS[..., is_first].sum(-1),
        "separator": probs_NSS[..., is_separator].sum(-1),
    }


def classify_head(row: Mapping[str, float]) -> str:
    """Returns what a head mostly attends to: previous, next, self, first, separator, broad; "" for none of these."""
    for name, least in (
        *((name, POSITIONAL) for name in ("previous", "next", "self")),
        *((name, SPECIAL) for name in ("first", "separator")),
    ):
        if row[name] > least:
            return name
    return "broad" if row["entropy"] > BROAD else ""


def telling(probs_LNSS: Floats, words_S: NDArray[np.bool_]) -> tuple[int, int]:
    """Returns the head with the strongest links between words that are not neighbors: (layer, head) from 0.

    A link is what a word attends to more than the other words do.
    """
    at = np.arange(len(words_S))
    linked = words_S[:, None] & words_S & (abs(at[:, None] - at) > 1)
    own = probs_LNSS - probs_LNSS.mean(-2, keepdims=True)
    strongest = (own * linked).max(-1)[..., words_S].mean(-1)
    layer, head = np.unravel_index(int(strongest.argmax()), strongest.shape)
    return int(layer), int(head)
