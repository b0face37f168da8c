"""Multi-head self-attention: every sequence by itself, on the (B, S) rectangle; the projections on real tokens only.

Two ways to the same numbers: `formula` (softmax(q k^T / sqrt(D) + bias) v, which also shows the probabilities) and
torch's fused SDPA. Vaswani et al. 2017, section 3.2.

B sequences · T real tokens · Q, K query and key positions (S of them) · N heads · D head size · H = N D hidden size
"""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.dropout import dropout
from bertie.nn.layout import Layout
from bertie.nn.linear import Linear


def attention_bias(layout: Layout, dtype: torch.dtype, *, causal: bool = False) -> Tensor | None:
    """What is added to the scores so that no query sees padding or, if causal, the future. -> (B or 1, 1, Q or 1, K)

    None where there is nothing to hide. The lowest finite number stands for minus infinity: a row without any token
    then averages over its padding and stays finite.
    """
    hidden_BNQK = None
    if not layout.full:
        hidden_BNQK = ~layout.mask()[:, None, None, :]
    if causal:
        size = layout.mask().shape[1]
        future = torch.ones(size, size, dtype=torch.bool, device=layout.mask().device).triu(1)[None, None]
        hidden_BNQK = future if hidden_BNQK is None else hidden_BNQK | future
    return None if hidden_BNQK is None else lowest_where(hidden_BNQK, dtype)


def lowest_where(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """hidden bool (...) -> the lowest number where it is true, else 0, in the same shape."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill(hidden, torch.finfo(dtype).min)


def formula(
    q_BNQD: Tensor, k_BNKD: Tensor, v_BNKD: Tensor, bias: Tensor | None, *, dropout_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention as the paper writes it. -> context (B, N, Q, D), probabilities after dropout (B, N, Q, K)"""
    scores_BNQK = (q_BNQD / sqrt(q_BNQD.shape[-1])) @ k_BNKD.mT
    if bias is not None:
        scores_BNQK = scores_BNQK + bias
    probs_BNQK = dropout(scores_BNQK.softmax(-1), dropout_p, training=True)
    return probs_BNQK @ v_BNKD, probs_BNQK


class SelfAttention(nn.Module):
    """Self-attention with one fused projection for query, key and value (rows in that order) and one for the output."""

    def __init__(self, hidden_size: int, num_heads: int, *, bias: bool = True, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.dropout_p = num_heads, dropout_p
        self.qkv = Linear(hidden_size, 3 * hidden_size, bias)
        self.output = Linear(hidden_size, hidden_size)

    def forward(
        self, hidden: Tensor, layout: Layout, bias: Tensor | None, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, and the probabilities (B, N, Q, K) when asked for."""
        q_BNQD, k_BNKD, v_BNKD = split_heads(layout.rectangle(self.qkv(hidden)), 3, self.num_heads)
        dropout_p = self.dropout_p if self.training else 0.0
        context_BNQD, probs = attend(
            q_BNQD, k_BNKD, v_BNKD, bias, dropout_p=dropout_p, output_attentions=output_attentions
        )
        context_BSH = context_BNQD.transpose(1, 2).flatten(2)
        return self.output(layout.flat(context_BSH)), probs


def split_heads(fused_BSPH: Tensor, parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """What a fused projection of several parts gives, (B, S, parts * N * D) -> one (B, N, S, D) for each part."""
    parts_BSPND = fused_BSPH.view(*fused_BSPH.shape[:2], parts, num_heads, -1)
    # one contiguous copy per part: ten times as fast on a CPU as permuting all at once
    return tuple(x_BSND.transpose(1, 2).contiguous() for x_BSND in parts_BSPND.unbind(2))


def attend(
    q_BNQD: Tensor,
    k_BNKD: Tensor,
    v_BNKD: Tensor,
    bias: Tensor | None,
    *,
    dropout_p: float = 0.0,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention by whichever way is quicker. -> context (B, N, Q, D), the probabilities (B, N, Q, K) when asked for"""
    if output_attentions or _slow_fused(q_BNQD):
        context_BNQD, probs = formula(q_BNQD, k_BNKD, v_BNKD, bias, dropout_p=dropout_p)
        return context_BNQD, probs if output_attentions else None
    return F.scaled_dot_product_attention(q_BNQD, k_BNKD, v_BNKD, bias, dropout_p), None


def _slow_fused(q: Tensor) -> bool:
    """On a CPU the backward of SDPA takes four to six times as long as the formula's, and it has no dropout."""
    return q.device.type == "cpu" and q.requires_grad
