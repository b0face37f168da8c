"""Attention to a window around each token, and to and from a few global tokens. Beltagy et al. 2020, 3.1.

The sequence is split into chunks as long as the window's radius w. A chunk's queries are multiplied with the keys of
three chunks, and a band of the products is used. Time and memory grow with S w, not with S^2:

    keys       . . . . | c c c c | . . . .          query 0 of the chunk      - - - - # - - - -
    band w=4   # # # # | # . . .                    a window dilated by 2 has every other token: the same band over
                 # # # | # # . .    and so on       the even tokens, and over the odd ones

B sequences · S longest sequence · N heads · D head size · H = N D · G global tokens, of the sequence that has most.
C chunks of w tokens · W = 2 w + 1 the window
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.errors import UsageError
from bertie.nn.attention import Cache, LayerCache, SelfAttention, attend, lowest_where, split_heads
from bertie.nn.layout import Layout
from bertie.nn.linear import Linear


@dataclass(frozen=True)
class WindowMask:
    """Mask of real and of global tokens for windowed attention.

    mask_BS bool: real tokens. global_BS bool: global tokens. at_BG int64: positions of global tokens where is_BG bool
    is true, else of others. G = 0 where there is no global token. causal: whether a token attends to earlier tokens
    only.
    """

    mask_BS: Tensor
    global_BS: Tensor
    at_BG: Tensor
    is_BG: Tensor
    causal: bool = False


def window_mask(
    layout: Layout, global_attention_mask: Tensor | None, *, causal: bool = False, cache: Cache | None = None
) -> WindowMask:
    """global_attention_mask: same shape as input_ids, true or 1 for global tokens; None: there are none.

    With a cache (whose mask includes the new tokens), S includes earlier tokens. Raises UsageError for global tokens
    together with a cache.
    """
    mask_BS = layout.mask() if cache is None else cache.mask()
    if global_attention_mask is None:
        none_B0 = mask_BS[:, :0]
        return WindowMask(mask_BS, torch.zeros_like(mask_BS), none_B0.long(), none_B0, causal)
    if cache is not None:
        raise UsageError("A cache stores only windows. Omit the global_attention_mask, or the cache.")
    global_BS = layout.rectangle(global_attention_mask).bool() & mask_BS
    most = int(global_BS.sum(1).max()) if len(global_BS) else 0
    at_BG = global_BS.long().argsort(dim=1, descending=True, stable=True)[:, :most]
    return WindowMask(mask_BS, global_BS, at_BG, global_BS.gather(1, at_BG), causal)


class WindowProbs(NamedTuple):
    """The attention probabilities of a layer, in the format of Longformer's public code.

    window (B, N, S, G + W): each token's attention to the global tokens, then to its window from left to right; zeros
    for global tokens. of_global (B, N, S, G): the attention of each global token to each token.
    """

    window: Tensor
    of_global: Tensor


class WindowAttention(SelfAttention):
    """Sliding-window attention with global tokens, which have separate projections.

    radius: tokens on each side of the window; dilation: the distance between two of them.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        radius: int,
        dilation: int = 1,
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(hidden_size, num_heads, bias=bias, **options)
        self.radius, self.dilation = radius, dilation
        self.qkv_global = Linear(hidden_size, self.qkv.out_features, bias, parts=3)

    def forward(  # type: ignore[override]
        self,
        hidden: Tensor,
        layout: Layout,
        bias: WindowMask,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, WindowProbs | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, and the probabilities on request.

        With a cache, hidden follows the tokens in the cache; the probabilities are then (B, N, Q, K).
        """
        q_BNSD, k_BNSD, v_BNSD = split_heads(layout.rectangle(self.qkv(hidden)), 3, self.num_heads)
        dropout_p = self.dropout_p if self.training else 0.0
        if cache is not None:
            visible = mask_window(bias, layout.max_seqlen, radius=self.radius, dilation=self.dilation)
            hide = lowest_where(~visible, hidden.dtype)
            x, probs = self._attended((q_BNSD, *cache.extend(k_BNSD, v_BNSD)), hide, layout, output_attentions)
            return x, None if probs is None else WindowProbs(probs, probs[..., :0])
        context_BNSD, probs = window_attention(
            q_BNSD,
            k_BNSD,
            v_BNSD,
            bias,
            radius=self.radius,
            dilation=self.dilation,
            scaled=self.scaled,
            dropout_p=dropout_p,
            output_attentions=output_attentions,
        )
        context_BSH = context_BNSD.transpose(1, 2).flatten(2)
        of_global = None
        if bias.at_BG.shape[1]:
            context_BSH, of_global = self._put_global(context_BSH, hidden, layout, bias, dropout_p, output_attentions)
        shown = None
        if probs is not None:
            of_global = probs[..., :0] if of_global is None else of_global.mT
            shown = WindowProbs(probs.masked_fill((bias.global_BS | ~bias.mask_BS)[:, None, :, None], 0), of_global)
        return self.output(layout.flat(context_BSH)), shown

    def _put_global(
        self, context_BSH: Tensor, hidden: Tensor, layout: Layout, window: WindowMask, dropout_p: float, show: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Replaces the context of the global tokens by their own attention, and returns its probabilities (B, N, G,
        S)."""
        size = context_BSH.shape[-1]
        weight = self.qkv_global.weight.to(hidden.dtype)
        bias = None if self.qkv_global.bias is None else self.qkv_global.bias.to(hidden.dtype)
        q_bias, kv_bias = (None, None) if bias is None else (bias[:size], bias[size:])
        at_BGH = window.at_BG[..., None].expand(-1, -1, size)
        hidden_BGH = layout.rectangle(hidden).gather(1, window.at_BG[..., None].expand(-1, -1, hidden.shape[-1]))
        (q_BNGD,) = split_heads(F.linear(hidden_BGH, weight[:size], q_bias), 1, self.num_heads)
        kv = layout.rectangle(F.linear(hidden, weight[size:], kv_bias))
        k_BNSD, v_BNSD = split_heads(kv, 2, self.num_heads)
        hidden_B1GS = ~window.mask_BS[:, None, None]
        if window.causal:
            hidden_B1GS = hidden_B1GS | (
                torch.arange(k_BNSD.shape[2], device=hidden.device) > window.at_BG[:, None, :, None]
            )
        hide = lowest_where(hidden_B1GS, hidden.dtype)
        context_BNGD, probs = attend(
            q_BNGD, k_BNSD, v_BNSD, hide, scaled=self.scaled, dropout_p=dropout_p, output_attentions=show
        )
        context_BGH = context_BNGD.transpose(1, 2).flatten(2)
        context_BGH = torch.where(window.is_BG[..., None], context_BGH, context_BSH.gather(1, at_BGH))
        return context_BSH.scatter(1, at_BGH, context_BGH), probs


def mask_window(window: WindowMask, queries: int, *, radius: int, dilation: int = 1) -> Tensor:
    """Returns the window of the last `queries` of a row as a mask over all tokens. -> (B, 1, Q, K) bool"""
    place_BK = window.mask_BS.cumsum(1)
    ahead_BQK = place_BK[:, None, :] - place_BK[:, -queries:, None]
    mask = (ahead_BQK.abs() <= radius * dilation) & (ahead_BQK % dilation == 0)
    mask = mask & (ahead_BQK <= 0) if window.causal else mask
    return (mask & window.mask_BS[:, None])[:, None]


def window_attention(
    q_BNSD: Tensor,
    k_BNSD: Tensor,
    v_BNSD: Tensor,
    window: WindowMask,
    *,
    radius: int,
    dilation: int = 1,
    scaled: bool = True,
    dropout_p: float = 0.0,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of each token to its window and to the global tokens, in one softmax. -> context (B, N, S, D)

    And the probabilities (B, N, S, G + W) on request. A global token is counted only among the global ones, not in
    windows. Rows of padding and of global tokens have no meaning.
    """
    batch, heads, length, size = q_BNSD.shape
    w = min(radius, max(1, -(-length // dilation) - 1))  # what reaches beyond the sequence need not be computed
    chunks = -(-length // (w * dilation))

    def interleaved(x: Tensor) -> Tensor:  # (B, N, S, D) -> (B * dilation, N, C * w, D): every d-th token
        x = F.pad(x, (0, 0, 0, chunks * w * dilation - length))
        return x.reshape(*x.shape[:2], chunks * w, dilation, x.shape[-1]).movedim(3, 1).flatten(0, 1)

    def windows(x: Tensor) -> Tensor:  # (B', N, C * w, D) -> (B' * C, N, 3 w, D): a chunk with both its neighbors
        x = F.pad(x, (0, 0, w, w)).unfold(-2, 3 * w, w).movedim(-3, 1)
        return x.flatten(0, 1).mT

    def everywhere(x: Tensor) -> Tensor:  # (B, ...) -> (B' * C, ...)
        return x.repeat_interleave(dilation * chunks, 0)

    q = interleaved(q_BNSD).view(batch * dilation, heads, chunks, w, size).movedim(2, 1).flatten(0, 1)
    at_BNGD = window.at_BG[:, None, :, None].expand(-1, heads, -1, q_BNSD.shape[-1])
    k = torch.cat([everywhere(k_BNSD.gather(2, at_BNGD)), windows(interleaved(k_BNSD))], 2)
    v = torch.cat([everywhere(v_BNSD.gather(2, at_BNGD)), windows(interleaved(v_BNSD))], 2)
    local = window.mask_BS & ~window.global_BS
    local = windows(interleaved(local[:, None, :, None])).mT  # (B' * C, 1, 1, 3 w)
    step = torch.arange(3 * w, device=q.device) - torch.arange(w, device=q.device)[:, None]  # 0 ... 2 w in the band
    visible = local & (step >= 0) & (step <= (w if window.causal else 2 * w))
    of_global = everywhere(window.is_BG)[:, None, None].expand(-1, -1, w, -1)
    if window.causal:
        place_S = torch.arange(length, device=q.device)[None, None, :, None]
        place = interleaved(place_S.expand(batch, -1, -1, -1)).reshape(batch * dilation * chunks, 1, w, 1)
        of_global = of_global & (everywhere(window.at_BG)[:, None, None] <= place)
    visible = torch.cat([of_global, visible], -1)
    context, probs = attend(
        q,
        k,
        v,
        lowest_where(~visible, q.dtype),
        scaled=scaled,
        dropout_p=dropout_p,
        output_attentions=output_attentions,
    )

    def in_order(x: Tensor) -> Tensor:  # (B' * C, N, w, D) -> (B, N, S, D)
        x = x.view(batch, dilation, chunks, heads, w, x.shape[-1]).permute(0, 3, 2, 4, 1, 5)
        return x.reshape(batch, heads, chunks * w * dilation, x.shape[-1])[:, :, :length]

    if probs is None:
        return in_order(context), None
    num_global = window.at_BG.shape[1]
    band = (torch.arange(w, device=q.device)[:, None] + torch.arange(2 * w + 1, device=q.device)).expand(
        *q.shape[:2], -1, -1
    )
    in_window = F.pad(probs[..., num_global:].gather(-1, band), (radius - w, radius - w))
    return in_order(context), in_order(torch.cat([probs[..., :num_global], in_window], -1))
