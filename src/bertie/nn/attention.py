"""Multi-head self-attention of each sequence, on the padded (B, S) layout; the projections run on real tokens only.

Four implementations give the same numbers: `formula` (softmax(q k^T / sqrt(D) + bias) v, which also returns the
probabilities), torch's fused SDPA, and two without padding: groups.py for training on a CPU, varlen.py for NVIDIA's
GPUs. Vaswani et al. 2017, section 3.2.

B sequences · T real tokens · Q, K query and key positions (S of them) · N heads · D head size · H = N D hidden size
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bertie.nn.dropout import dropout
from bertie.nn.fused import unbiased
from bertie.nn.groups import LayoutGroups
from bertie.nn.layout import Layout
from bertie.nn.linear import Linear
from bertie.nn.varlen import Varlen

_Pair = tuple[Tensor, Tensor]
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Of torch's SDPA on CUDA. The other one, of cuDNN, is built for each new shape, which takes 0.2 s."""


@dataclass
class LayerCache:
    """The keys and values of earlier tokens of a causal model in one layer, so that a new token needs one row of
    attention.

    read: keys and values (B, N, K, D); memory: those of the encoder's output.
    """

    read: _Pair | None = None
    memory: _Pair | None = None

    def extend(self, k: Tensor, v: Tensor) -> _Pair:
        """Adds keys and values of new tokens (B, N, Q, D). -> all of them (B, N, K + Q, D)"""
        if self.read is not None:
            k, v = torch.cat([self.read[0], k], 2), torch.cat([self.read[1], v], 2)
        self.read = k, v
        return k, v


@dataclass
class Cache:
    """The caches of all layers, and the mask of real tokens: shorter prompts leave gaps that no token attends to."""

    layers: list[LayerCache] = field(default_factory=list)
    read: Tensor | None = None  # (B, K) bool

    def layer(self, i: int) -> LayerCache:
        """Returns the cache of the i-th layer in the order of computation."""
        if i == len(self.layers):
            self.layers.append(LayerCache())
        return self.layers[i]

    def mask(self) -> Tensor:
        """Returns the mask (B, K) bool, true for real tokens."""
        if self.read is None:
            raise ValueError("Nothing has been read.")
        return self.read

    def extend(self, mask: Tensor) -> Tensor:
        """Adds the mask of new tokens (B, Q). -> their positions (B, Q) in their sequences"""
        before = mask.new_zeros(len(mask), 0) if self.read is None else self.read
        self.read = torch.cat([before, mask], 1)
        return before.sum(1, keepdim=True) + torch.arange(mask.shape[1], device=mask.device)

    def reorder(self, rows: Tensor) -> None:
        """Row i continues the tokens of row rows[i] of the same prompt, with which it shares the memory. rows (B,)"""
        self.read = self.mask()[rows]
        for layer in self.layers:
            if layer.read is not None:
                layer.read = layer.read[0][rows], layer.read[1][rows]


def attention_bias(
    layout: Layout, dtype: torch.dtype, *, causal: bool = False, cache: Cache | None = None
) -> Tensor | None:
    """Returns the bias of scores that hides padding and, if causal, later tokens. -> (B or 1, 1, Q or 1, K)

    With a cache (whose mask includes the new tokens), the keys include earlier tokens.

    None where there is nothing to hide. The lowest finite number is used instead of minus infinity: a row without
    tokens then averages over its padding and stays finite.
    """
    hidden_BNQK = None
    mask_BK = layout.mask() if cache is None else cache.mask()
    if cache is not None or not layout.full:
        hidden_BNQK = ~mask_BK[:, None, None, :]
    if causal:
        queries, keys = layout.max_seqlen, mask_BK.shape[1]
        ones = torch.ones(queries, keys, dtype=torch.bool, device=mask_BK.device)
        future = ones.triu(1 + keys - queries)[None, None]
        hidden_BNQK = future if hidden_BNQK is None else hidden_BNQK | future
    return None if hidden_BNQK is None else lowest_where(hidden_BNQK, dtype)


def lowest_where(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """hidden bool (...) -> the lowest number where it is true, else 0, in the same shape."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill(hidden, torch.finfo(dtype).min)


def formula(
    q_BNQD: Tensor, k_BNKD: Tensor, v_BNKD: Tensor, bias: Tensor | None, *, scaled: bool = True, dropout_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention as in the paper. -> context (B, N, Q, D), probabilities after dropout (B, N, Q, K)"""
    scores_BNQK = (q_BNQD / sqrt(q_BNQD.shape[-1]) if scaled else q_BNQD) @ k_BNKD.mT
    if bias is not None:
        scores_BNQK = scores_BNQK + bias
    probs_BNQK = dropout(scores_BNQK.softmax(-1), dropout_p, training=True)
    return probs_BNQK @ v_BNKD, probs_BNQK


class MultiHeadAttention(nn.Module):
    """The base of self-attention and cross-attention: the projections, and the attention between them.

    head_size: None where the heads together have the hidden size. bias: of query, key and value. scaled: whether scores
    are divided by the square root of the head size. memory_size: width of what keys and values are made of; None: the
    hidden size.
    """

    projections: ClassVar[Mapping[str, int]]  # name -> how many of query, key and value it makes, one upon the other

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        head_size: int | None = None,
        memory_size: int | None = None,
        bias: bool = True,
        output_bias: bool = True,
        scaled: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.scaled, self.dropout_p = num_heads, scaled, dropout_p
        size = num_heads * head_size if head_size else hidden_size
        for name, parts in self.projections.items():
            read = memory_size or hidden_size if name == "kv" else hidden_size
            self.add_module(name, Linear(read, parts * size, bias, parts=parts))
        self.output = Linear(size, hidden_size, output_bias)

    def _attended(
        self, qkv: tuple[Tensor, Tensor, Tensor], bias: Tensor | None, layout: Layout, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Queries (B, N, Q, D), keys and values (B, N, K, D) -> (T, H) or (B, Q, H), and the probabilities."""
        dropout_p = self.dropout_p if self.training else 0.0
        context_BNQD, probs = attend(
            *qkv, bias, scaled=self.scaled, dropout_p=dropout_p, output_attentions=output_attentions
        )
        return self.output(layout.flat(context_BNQD.transpose(1, 2).flatten(2))), probs


class SelfAttention(MultiHeadAttention):
    """Self-attention with one fused projection for query, key and value, and one for the output."""

    projections: ClassVar = {"qkv": 3}
    qkv: Linear

    def forward(
        self,
        hidden: Tensor,
        layout: Layout,
        bias: Tensor | LayoutGroups | Varlen | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, and the probabilities (B, N, Q, K) on request.

        With a cache, hidden follows the tokens in the cache, and is added to it. Groups and Varlen replace a bias for
        attention without padding, which has no cache and returns no probabilities.
        """
        if isinstance(bias, Varlen) and bias.short:
            return self.of_context(bias.attention(*unbiased(self.qkv, hidden), **self._choices()), layout), None
        return self.attended(self.qkv(hidden), layout, bias, cache=cache, output_attentions=output_attentions)

    def attended(
        self,
        qkv: Tensor,
        layout: Layout,
        bias: Tensor | LayoutGroups | Varlen | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` from the projections on: qkv (T, 3 N D) or (B, S, 3 N D)."""
        if isinstance(bias, LayoutGroups | Varlen):
            return self.of_context(bias.attention(qkv, **self._choices()), layout), None
        q_BNQD, k_BNKD, v_BNKD = split_heads(layout.rectangle(qkv), 3, self.num_heads)
        if cache is not None:
            k_BNKD, v_BNKD = cache.extend(k_BNKD, v_BNKD)
        return self._attended((q_BNQD, k_BNKD, v_BNKD), bias, layout, output_attentions)

    def of_context(self, context: Tensor, layout: Layout) -> Tensor:
        """The output of attention without padding, for the rows that the layout keeps. (R, N D) -> (R, H)

        Where kernels run, it is without its bias, which the layer adds.
        """
        return unbiased(self.output, layout.kept(context))[0]

    def output_bias(self) -> Tensor | None:
        """What the layer adds to the output of attention without padding, where kernels run. -> (H,)"""
        return self.output.bias

    def _choices(self) -> dict[str, Any]:
        return {"scaled": self.scaled, "dropout_p": self.dropout_p if self.training else 0.0}


class CrossAttention(MultiHeadAttention):
    """Attention to another sequence, as of a decoder to the encoder's output. Vaswani et al. 2017, 3.2.3."""

    projections: ClassVar = {"query": 1, "kv": 2}
    query: Linear
    kv: Linear

    def forward(
        self,
        hidden: Tensor,
        layout: Layout,
        memory: Tensor,
        memory_layout: Layout,
        bias: Tensor | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, Q, H), memory (T', H) or (B, K, H) -> as hidden; probabilities (B, N, Q, K) on request.

        With a cache, the keys and values of the memory are computed once.
        """
        (q_BNQD,) = split_heads(layout.rectangle(self.query(hidden)), 1, self.num_heads)
        if cache is not None and cache.memory is not None:
            k_BNKD, v_BNKD = cache.memory
        else:
            k_BNKD, v_BNKD = split_heads(memory_layout.rectangle(self.kv(memory)), 2, self.num_heads)
        if cache is not None:
            cache.memory = k_BNKD, v_BNKD
        return self._attended((q_BNQD, k_BNKD, v_BNKD), bias, layout, output_attentions)


def split_heads(fused_BSPH: Tensor, parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """Splits the output of a fused projection, (B, S, parts * N * D) -> one (B, N, S, D) for each part."""
    head_size = fused_BSPH.shape[-1] // (parts * num_heads)  # not -1, which an empty batch leaves open
    parts_BSPND = fused_BSPH.view(*fused_BSPH.shape[:2], parts, num_heads, head_size)
    # one contiguous copy per part: ten times as fast on a CPU as permuting all at once
    return tuple(x_BSND.transpose(1, 2).contiguous() for x_BSND in parts_BSPND.unbind(2))


def attend(
    q_BNQD: Tensor,
    k_BNKD: Tensor,
    v_BNKD: Tensor,
    bias: Tensor | None,
    *,
    scaled: bool = True,
    dropout_p: float = 0.0,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention by the faster implementation. -> context (B, N, Q, D), the probabilities (B, N, Q, K) on request"""
    if output_attentions or _slow_fused(q_BNQD):
        context_BNQD, probs = formula(q_BNQD, k_BNKD, v_BNKD, bias, scaled=scaled, dropout_p=dropout_p)
        return context_BNQD, probs if output_attentions else None
    scale = None if scaled else 1.0
    with sdpa_kernel(KERNELS) if q_BNQD.device.type == "cuda" else nullcontext():
        return F.scaled_dot_product_attention(q_BNQD, k_BNKD, v_BNKD, bias, dropout_p, scale=scale), None


def _slow_fused(q: Tensor) -> bool:
    """On a CPU, the backward pass of SDPA takes four to six times as long as the formula's, and it has no dropout."""
    return q.device.type == "cpu" and q.requires_grad
