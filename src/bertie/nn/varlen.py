"""Attention on an NVIDIA GPU: a kernel reads sequences of different lengths one after another.

It is torch's FlashAttention (Dao 2023), or our own in recorded layers with at most 128 tokens (graphs.py). There is no
padding, no mask and no copy. The reference implementation is `attention.formula` on the padded (B, S) layout.

R rows of a packed batch, T tokens and some more · S longest sequence · N heads · D head size
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertie.nn.fused import biased, fits_short, runs_kernels, short_attention
from bertie.nn.groups import LayoutGroups, group_layout
from bertie.nn.layout import Layout, Packed

# torch's public function for it, varlen_attn, has no dropout
flash_attention = torch.ops.aten._flash_attention_forward
LARGEST_HEAD = 128  # for larger ones, the kernel's gradient needs a data center's GPU


@dataclass(frozen=True)
class Varlen:
    """The sequences of a packed batch for the kernel.

    cu_seqlens int32: starts, and the end R. The rows after T are further sequences, so that their context is finite:
    they would otherwise spoil the gradients of weights. radius: how far a token sees to each side; None: to the ends.
    """

    layout: Packed
    num_heads: int
    cu_seqlens: Tensor
    radius: int | None = None
    short: bool = False
    """Whether our own kernel computes it, inside a recorded graph."""

    @classmethod
    def of(cls, layout: Packed, num_heads: int) -> "Varlen":
        """Returns the sequences of a layout, with those of its rows after T."""
        rows, longest, starts = layout.num_rows, layout.max_seqlen, layout.cu_seqlens
        ends = torch.arange(
            layout.num_tokens + longest, rows + longest, longest, dtype=torch.int32, device=starts.device
        )
        bounds = starts if rows == layout.num_tokens else torch.cat([starts, ends.clamp(max=rows)])
        return cls(layout, num_heads, bounds)

    def attention(self, qkv: Tensor, bias: Tensor | None = None, *, scaled: bool, dropout_p: float) -> Tensor:
        """qkv (R, 3 N D) in half precision, and what is added to it (3 N D) -> context (R, N D)"""
        if self.short:
            return short_attention(
                qkv,
                bias,
                self.cu_seqlens,
                num_heads=self.num_heads,
                longest=self.layout.max_seqlen,
                radius=self.radius,
                scaled=scaled,
                dropout_p=dropout_p,
            )
        qkv = biased(qkv, bias)
        q_RND, k_RND, v_RND = qkv.view(len(qkv), 3, self.num_heads, -1).unbind(1)
        context_RND: Tensor = flash_attention(
            q_RND,
            k_RND,
            v_RND,
            self.cu_seqlens,
            self.cu_seqlens,
            self.layout.max_seqlen,
            self.layout.max_seqlen,
            dropout_p,
            False,  # not causal
            False,
            scale=None if scaled else 1.0,
            window_size_left=self.radius,
            window_size_right=self.radius,
        )[0]
        return context_RND.flatten(1)


def unpadded(layout: Layout, hidden: Tensor, num_heads: int, head_size: int) -> LayoutGroups | Varlen | None:
    """Returns what replaces the bias of scores where attention without padding is the fastest; None: nowhere.

    It is for packed batches: `Groups` in training on a CPU, `Varlen` in half precision on an NVIDIA GPU.
    """
    if not isinstance(layout, Packed) or not layout.num_tokens:
        return None
    half = hidden.dtype in (torch.bfloat16, torch.float16) and head_size % 8 == 0 and head_size <= LARGEST_HEAD
    if half and has_kernel(hidden.device):
        short = runs_kernels() and fits_short(layout.max_seqlen, head_size)
        return replace(Varlen.of(layout, num_heads), short=short)
    return group_layout(layout, hidden, num_heads)


def has_kernel(device: torch.device) -> bool:
    """Whether the kernel runs on a device: an NVIDIA GPU from the Ampere generation on."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= (8, 0)
