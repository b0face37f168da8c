"""Block-sparse attention: each block of tokens attends to its neighbors, the first and the last, and a few random
blocks.

Zaheer et al. 2020, section 2, internal construction (ITC): the first and the last block are global, they attend to all
blocks and all blocks attend to them. No tokens are added.

    block   0 1 2 3 4 5 6 7 8
      0     # # # # # # # # #     global
      1     # # # . . ? . . #     window of three, one random (?), both global blocks
      2     # # # # . . ? . #
      3     # ? # # # . . . #     time and memory grow with the length, not with its square

B sequences · S longest sequence, as whole blocks · N heads · D head size · C blocks of b tokens · R random blocks.
M blocks that are not global (C - 2) · P entries of a block's list of blocks (5 + R)
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertie.errors import UsageError
from bertie.nn.attention import LayerCache, SelfAttention, attend, lowest_where, split_heads
from bertie.nn.layout import Layout

PAPER_LENGTHS = (1024, 3072, 4096)  # for these the release draws as in its experiments


class BlockSparseAttention(SelfAttention):
    """Window, random and global blocks; full attention for short sequences, where this would not save anything.

    As in `transformers`, random blocks are drawn from `seed`, the layer's number, in training. In evaluation, all of
    them are the first block, which then counts several times. Sparse attention has no dropout. The number of blocks,
    and which one is the last, depend on the longest sequence of the batch.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        block_size: int,
        num_random: int,
        max_length: int,
        seed: int,
        causal: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(hidden_size, num_heads, **options)
        self.block_size, self.num_random, self.causal = block_size, num_random, causal
        self.max_length, self.seed = max_length, seed

    def forward(  # type: ignore[override]
        self,
        hidden: Tensor,
        layout: Layout,
        bias: Tensor | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, and the probabilities (B, N, Q, K) on request.

        Raises UsageError for a cache that is longer than the limit of full attention, since the blocks would change
        with each token.
        """
        shortest = (5 + 2 * self.num_random) * self.block_size
        if cache is not None and bias is not None and bias.shape[-1] > shortest:
            raise UsageError(
                f"Block-sparse attention cannot generate text after {shortest:,} tokens. Generate fewer "
                "tokens, or choose attention=window."
            )
        if cache is not None or layout.max_seqlen <= shortest:
            return super().forward(hidden, layout, bias, cache=cache, output_attentions=output_attentions)
        length, pad = layout.max_seqlen, -layout.max_seqlen % self.block_size
        q_BNSD, k_BNSD, v_BNSD = (
            F.pad(x, (0, 0, 0, pad)) for x in split_heads(layout.rectangle(self.qkv(hidden)), 3, self.num_heads)
        )
        random_NMR = random_blocks(
            (length + pad) // self.block_size,
            self.num_random,
            self.num_heads,
            block_size=self.block_size,
            max_length=self.max_length,
            seed=self.seed if self.training else None,
        )
        context_BNSD, probs = block_sparse_attention(
            q_BNSD,
            k_BNSD,
            v_BNSD,
            F.pad(layout.mask(), (0, pad)),
            torch.from_numpy(random_NMR).to(hidden.device),
            causal=self.causal,
            scaled=self.scaled,
            output_attentions=output_attentions,
        )
        context_BSH = context_BNSD[:, :, :length].transpose(1, 2).flatten(2)
        return self.output(layout.flat(context_BSH)), None if probs is None else probs[:, :, :length, :length]


def block_sparse_attention(
    q_BNSD: Tensor,
    k_BNSD: Tensor,
    v_BNSD: Tensor,
    mask_BS: Tensor,
    random_NMR: Tensor,
    *,
    causal: bool = False,
    scaled: bool = True,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """mask_BS bool, real tokens; random_NMR int64, random blocks of every block but the global two; C is at least 5.

    -> context (B, N, S, D), and the probabilities (B, N, Q, K) on request. A block that is listed twice, at random and
    by its position, counts twice; its probability is returned once, as in `transformers`.
    """
    batch, heads, length, size = q_BNSD.shape
    blocks = random_NMR.shape[1] + 2
    b = length // blocks
    list_NMP, is_MP = _lists(random_NMR)
    places = list_NMP.shape[2]
    hidden_B11S = ~mask_BS[:, None, None]
    at_S = torch.arange(length, device=q_BNSD.device)
    in_block_b = at_S[:b]

    def look_up(x_BNSD: Tensor) -> Tensor:  # -> (B, N * M, P * b, D)
        first_N11 = torch.arange(heads, device=x_BNSD.device)[:, None, None] * blocks
        x_BXbD = x_BNSD.reshape(batch, heads * blocks, b, size)
        return x_BXbD.index_select(1, (first_N11 + list_NMP).flatten()).view(
            batch, heads * (blocks - 2), places * b, size
        )

    there_BNMPb = mask_BS.view(batch, blocks, b)[:, list_NMP] & is_MP[..., None]
    hidden = ~there_BNMPb.reshape(batch, heads * (blocks - 2), 1, places * b)
    if causal:
        key_NMPb = list_NMP[..., None] * b + in_block_b
        later_NMbPb = key_NMPb.flatten(2)[:, :, None] > at_S[b:-b].view(1, blocks - 2, b, 1)
        hidden = hidden | later_NMbPb.flatten(0, 1)
    hide = lowest_where(hidden, q_BNSD.dtype)
    middle_q = q_BNSD[:, :, b:-b].reshape(batch, heads * (blocks - 2), b, size)
    show = {"scaled": scaled, "output_attentions": output_attentions}
    middle, probs = attend(middle_q, look_up(k_BNSD), look_up(v_BNSD), hide, **show)
    ends_q, end_at = (torch.cat([x[..., :b, :], x[..., -b:, :]], -2) for x in (q_BNSD, at_S[:, None]))
    end_hide = lowest_where(hidden_B11S | (at_S > end_at) if causal else hidden_B11S, q_BNSD.dtype)
    ends, end_probs = attend(ends_q, k_BNSD, v_BNSD, end_hide, **show)
    middle_BNSD = middle.reshape(batch, heads, length - 2 * b, size)  # on CUDA, SDPA returns heads last in memory
    context_BNSD = torch.cat([ends[:, :, :b], middle_BNSD, ends[:, :, b:]], 2)
    if probs is None or end_probs is None:
        return context_BNSD, None
    to = list_NMP[None, :, :, None, :, None] * b + torch.arange(b, device=list_NMP.device)
    to = to.expand(batch, -1, -1, b, -1, -1).flatten(4)
    shown = q_BNSD.new_zeros(batch, heads, blocks - 2, b, length)
    shown = shown.scatter_reduce(4, to, probs.view(to.shape), "amax")
    return context_BNSD, torch.cat([end_probs[:, :, :b], shown.flatten(2, 3), end_probs[:, :, b:]], 2)


def _lists(random_NMR: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the blocks that every block but the global two attends to: their numbers (N, M, P), which of them count
    (M, P).

    First, its window, last, random ones; a block next to a global one has it in its window already.
    """
    heads, middle, num_random = random_NMR.shape
    at_M1 = torch.arange(1, middle + 1, device=random_NMR.device)[:, None]
    fixed = torch.cat([torch.zeros_like(at_M1), at_M1 - 1, at_M1, at_M1 + 1, torch.full_like(at_M1, middle + 1)], 1)
    counts = torch.ones(middle, 5 + num_random, dtype=torch.bool, device=random_NMR.device)
    counts[0, 0] = counts[-1, 4] = False
    return torch.cat([fixed.expand(heads, -1, -1), random_NMR], 2), counts


@lru_cache(maxsize=256)
def random_blocks(
    num_blocks: int, num_random: int, num_heads: int, *, block_size: int, max_length: int, seed: int | None
) -> NDArray[np.int64]:
    """Returns the random blocks of every block but the first and the last, for each head. -> (N, M, R)

    They are the numbers that `transformers` (modeling_big_bird.py) draws from numpy's global generator, here from a
    separate one. seed None: all zeros, as in evaluation. max_length: positions of the model.
    """
    if seed is None:
        return np.zeros((num_heads, num_blocks - 2, num_random), np.int64)
    draw = np.random.RandomState(seed)
    chosen = np.zeros((num_heads, num_blocks - 2, num_random), np.int64)
    if num_blocks * block_size in PAPER_LENGTHS:  # one head after the other, over all blocks the model has
        of_model = max_length // block_size
        last = (1024 // block_size if block_size < 512 else of_model) - 1
        for head in range(num_heads):
            rows = [draw.permutation(_allowed_in_paper(row, of_model, last)) for row in range(1, of_model - 1)]
            chosen[head] = [_first(row, num_random, block_size) for row in rows[: num_blocks - 2]]
    else:
        among = 2 * num_random + 5
        for row in range(1, num_blocks - 1):
            for head in range(num_heads):
                drawn = [block for block in draw.permutation(np.arange(among)) if block not in _seen(row, among)]
                chosen[head, row - 1] = _first(drawn, num_random, block_size)
    return chosen


def _allowed_in_paper(row: int, num_blocks: int, last: int) -> NDArray[np.int64]:
    """Returns the candidates among the blocks of the first 1,024 tokens. As in BigBird's code, some are in the window
    anyway."""
    inner = np.arange(1, num_blocks - 1)
    if row <= 2:
        return inner[row + 1 : last]
    if row >= num_blocks - 3 or row - 2 > last:
        return inner[:last]
    if row + 1 == last:
        return inner[: row - 2]
    return np.concatenate((inner[: row - 2], inner[row + 1 : last]))


def _seen(row: int, among: int) -> set[int]:
    """Returns the blocks among the first ones that a block does not draw: the ends, its neighbors, its window."""
    across = {1: {among - 2}, among - 2: {1}}.get(row, set())
    return {0, row - 1, row, row + 1, among - 1} | across


def _first(
    drawn: Sequence[int] | NDArray[np.int64], num_random: int, block_size: int
) -> Sequence[int] | NDArray[np.int64]:
    if len(drawn) < num_random:
        raise UsageError(
            f"There are too few blocks of {block_size} tokens to draw {num_random} at random. Choose smaller blocks."
        )
    return drawn[:num_random]
