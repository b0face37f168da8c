"""Triton kernels of training on an NVIDIA GPU. `fused.py` calls them, and has their formulas.

Each reads and writes its tensors once, and computes in float32. Dropout keeps an element by a hash of its number and of
a seed. The backward pass draws the same mask again, so that none is stored.

R rows · H columns · S longest sequence · N heads · D head size. Arguments in upper case are known when a kernel is
compiled, but for R and H.
"""

# The names of this file are those of triton's language: upper case is known when a kernel is compiled.

import triton
import triton.language as tl

GELU, GELU_TANH, SILU, RELU = (tl.constexpr(i) for i in range(4))

# do_not_specialize: what differs from step to step, since a kernel is compiled again for a number that 16 divides


@triton.jit
def _mixed(number, seed):
    """The hash of `keep_scale`."""
    x = number.to(tl.uint32) ^ tl.load(seed).to(tl.uint32)
    x ^= x >> 16
    x *= 0x7FEB352D
    x += tl.load(seed + 1).to(tl.uint32)
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def keep_scale(index, seed, threshold, scale):
    """Returns `scale` where an element is kept, else 0. index: its number; seed (2,); threshold: p of 2**31.

    Two keys between the rounds of a multiplicative hash (lowbias32, Wellons 2018), so that no seed repeats the mask of
    another in a different order.
    """
    x = _mixed(index, seed)
    return tl.where((x >> 1).to(tl.int32) >= threshold, scale, 0.0)


@triton.jit(do_not_specialize=["size", "threshold", "scale"])
def drop(x_E, y_E, size, seed, threshold, scale, ELEMENTS: tl.constexpr):
    """Dropout of E elements."""
    at = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    x = tl.load(x_E + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(y_E + at, (x * keep_scale(at, seed, threshold, scale)).to(y_E.dtype.element_ty), mask=at < size)


@triton.jit
def keep_scale_of_scores(row_Q, place_K, seed, threshold, scale):
    """`keep_scale` of the scores of queries and keys. row_Q: the number of a query's row; place_K: of a key.

    A number of each row and a number of each key are mixed by one multiplication, a fourth of the operations.
    """
    x = (_mixed(row_Q, seed)[:, None] ^ _mixed(place_K + 0x40000000, seed)[None]) * 0x9E3779B1
    return tl.where((x >> 1).to(tl.int32) >= threshold, scale, 0.0)


@triton.jit(do_not_specialize=["threshold", "scale"])
def add_norm_forward(
    x_RH, bias_H, residual_RH, weight_H, shift_H, sum_RH, y_RH, mean_R, rstd_R,
    H, eps, seed, threshold, scale,
    RESIDUAL: tl.constexpr, BIAS: tl.constexpr, SHIFT: tl.constexpr, CENTERED: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """sum = residual + dropout(x + bias); y = norm(sum), or norm(x) without a residual. One row a program."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    real = column < H
    at = row * H + column
    total = tl.load(x_RH + at, mask=real, other=0.0).to(tl.float32)
    if RESIDUAL:
        if BIAS:
            total += tl.load(bias_H + column, mask=real, other=0.0).to(tl.float32)
        if DROPOUT:
            total *= keep_scale(at, seed, threshold, scale)
        total += tl.load(residual_RH + at, mask=real, other=0.0).to(tl.float32)
        stored = total.to(sum_RH.dtype.element_ty)
        tl.store(sum_RH + at, stored, mask=real)
        total = stored.to(tl.float32)  # what the backward pass reads
    mean = 0.0
    if CENTERED:
        mean = tl.sum(total, 0) / H
        total = tl.where(real, total - mean, 0.0)
        tl.store(mean_R + row, mean)
    rstd = 1 / tl.sqrt(tl.sum(total * total, 0) / H + eps)
    tl.store(rstd_R + row, rstd)
    y = total * rstd * tl.load(weight_H + column, mask=real, other=0.0).to(tl.float32)
    if SHIFT:
        y += tl.load(shift_H + column, mask=real, other=0.0).to(tl.float32)
    tl.store(y_RH + at, y.to(y_RH.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["R", "threshold", "scale"])
def add_norm_backward(
    grad_y_RH, more_RH, sum_RH, weight_H, mean_R, rstd_R, grad_residual_RH, grad_x_RH, partial_P3H,
    R, H, seed, threshold, scale,
    MORE: tl.constexpr, CENTERED: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of x and of the residual, and each program's sums over its rows for weight, shift and bias.

    Without dropout, the gradients of x and of the residual are one tensor. more: what is added to the gradient of y.
    """
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    real = column < H
    weight = tl.load(weight_H + column, mask=real, other=0.0).to(tl.float32)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_shift = tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(program, R, tl.num_programs(0)):
        at = row * H + column
        grad_y = tl.load(grad_y_RH + at, mask=real, other=0.0).to(tl.float32)
        if MORE:
            grad_y += tl.load(more_RH + at, mask=real, other=0.0).to(tl.float32)
        normed = tl.load(sum_RH + at, mask=real, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_R + row)
        if CENTERED:
            normed = tl.where(real, normed - tl.load(mean_R + row), 0.0)
        normed *= rstd
        of_weight += grad_y * normed
        of_shift += grad_y
        scaled = grad_y * weight
        grad = scaled - normed * (tl.sum(scaled * normed, 0) / H)
        if CENTERED:
            grad -= tl.sum(scaled, 0) / H
        grad *= rstd
        tl.store(grad_residual_RH + at, grad.to(grad_residual_RH.dtype.element_ty), mask=real)
        if DROPOUT:
            grad *= keep_scale(at, seed, threshold, scale)
            tl.store(grad_x_RH + at, grad.to(grad_x_RH.dtype.element_ty), mask=real)
        of_bias += tl.where(real, grad, 0.0)
    at = program * 3 * H + column
    tl.store(partial_P3H + at, of_weight, mask=real)
    tl.store(partial_P3H + at + H, of_shift, mask=real)
    tl.store(partial_P3H + at + 2 * H, of_bias, mask=real)


@triton.jit
def activation(x, ACT: tl.constexpr):
    """The activation and its derivative, of float32."""
    if ACT == GELU:
        # erf by Abramowitz and Stegun 7.1.26, to 1.5e-7; its exponential is that of the derivative
        t = 1 / (1 + 0.23164190 * tl.abs(x))
        bell = tl.exp(-0.5 * x * x)
        tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * bell
        below = tl.where(x > 0, 1 - 0.5 * tail, 0.5 * tail)
        return x * below, below + x * 0.3989422804014327 * bell
    if ACT == GELU_TANH:
        below = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))  # (1 + tanh) / 2
        inner = 1.5957691216057308 * (1 + 0.134145 * x * x)
        return x * below, below + x * below * (1 - below) * inner
    if ACT == SILU:
        below = tl.sigmoid(x)
        return x * below, below * (1 + x * (1 - below))
    return tl.maximum(x, 0.0), tl.where(x > 0, 1.0, 0.0)


@triton.jit(do_not_specialize=["R"])
def bias_act_forward(
    x_RI, bias_I, y_RH, R, H,
    BIAS: tl.constexpr, GATED: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """y = act(x + bias), or act(gate) * up of x's halves; a tile a program."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None]
    real = (row < R) & (column < H)
    at = row * (2 * H if GATED else H) + column
    x = tl.load(x_RI + at, mask=real, other=0.0).to(tl.float32)
    if BIAS:
        x += tl.load(bias_I + column, mask=column < H, other=0.0).to(tl.float32)
    y, _ = activation(x, ACT)
    if GATED:
        up = tl.load(x_RI + at + H, mask=real, other=0.0).to(tl.float32)
        if BIAS:
            up += tl.load(bias_I + H + column, mask=column < H, other=0.0).to(tl.float32)
        y *= up
    tl.store(y_RH + row * H + column, y.to(y_RH.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["R", "rows_each"])
def bias_act_backward(
    grad_y_RH, x_RI, bias_I, grad_x_RI, partial_PI, R, H, rows_each,
    BIAS: tl.constexpr, GATED: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of x, and each program's sums over its `rows_each` rows for the bias."""
    program = tl.program_id(0).to(tl.int64)
    I = 2 * H if GATED else H  # noqa: E741
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None]
    own = column < H
    if BIAS:
        bias = tl.load(bias_I + column, mask=own, other=0.0).to(tl.float32)
        if GATED:
            up_bias = tl.load(bias_I + H + column, mask=own, other=0.0).to(tl.float32)
    total = tl.zeros([1, COLUMNS], tl.float32)
    up_total = tl.zeros([1, COLUMNS], tl.float32)
    for start in range(program * rows_each, (program + 1) * rows_each, ROWS):
        row = (start + tl.arange(0, ROWS))[:, None]
        real = (row < R) & (row < (program + 1) * rows_each) & own
        at = row * I + column
        x = tl.load(x_RI + at, mask=real, other=0.0).to(tl.float32)
        grad = tl.load(grad_y_RH + row * H + column, mask=real, other=0.0).to(tl.float32)
        if BIAS:
            x += bias
        y, slope = activation(x, ACT)
        if GATED:
            up = tl.load(x_RI + at + H, mask=real, other=0.0).to(tl.float32)
            if BIAS:
                up += up_bias
            up_grad = grad * y
            tl.store(grad_x_RI + at + H, up_grad.to(grad_x_RI.dtype.element_ty), mask=real)
            if BIAS:
                up_total += tl.sum(up_grad, 0)[None]
            grad *= up
        grad *= slope
        tl.store(grad_x_RI + at, grad.to(grad_x_RI.dtype.element_ty), mask=real)
        if BIAS:
            total += tl.sum(grad, 0)[None]
    if BIAS:
        tl.store(partial_PI + program * I + column, total, mask=own)
        if GATED:
            tl.store(partial_PI + program * I + H + column, up_total, mask=own)


@triton.jit
def rotate(
    source_R3ND, turned_R3ND, cos_RC, sin_RC, sign,
    N: tl.constexpr, C: tl.constexpr, VALUES: tl.constexpr, HEADS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Turns the queries and keys of a row by its angles, or back (sign -1). C = D / 2.

    VALUES: whether values are copied; without, the result may be the source itself.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    cell = tl.arange(0, CELLS)[None]
    within = cell < C
    cos = tl.load(cos_RC + row * C + cell, mask=within, other=0.0)
    sin = tl.load(sin_RC + row * C + cell, mask=within, other=0.0) * sign
    at = row * 6 * N * C + head * 2 * C + cell
    real = (head < 2 * N) & within
    first = tl.load(source_R3ND + at, mask=real, other=0.0).to(tl.float32)
    second = tl.load(source_R3ND + at + C, mask=real, other=0.0).to(tl.float32)
    dtype = turned_R3ND.dtype.element_ty
    tl.store(turned_R3ND + at, (first * cos - second * sin).to(dtype), mask=real)
    tl.store(turned_R3ND + at + C, (second * cos + first * sin).to(dtype), mask=real)
    if VALUES:
        real = (head < N) & within
        at += 4 * N * C
        tl.store(turned_R3ND + at, tl.load(source_R3ND + at, mask=real), mask=real)
        tl.store(turned_R3ND + at + C, tl.load(source_R3ND + at + C, mask=real), mask=real)


@triton.jit
def _heads(qkv, bias, at, real, N: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr):
    """The queries, keys and values (S, D) of a sequence and a head, with their bias."""
    dtype = qkv.dtype.element_ty
    q = tl.load(qkv + at, mask=real, other=0.0)
    k = tl.load(qkv + at + N * D, mask=real, other=0.0)
    v = tl.load(qkv + at + 2 * N * D, mask=real, other=0.0)
    if BIAS:
        at = tl.program_id(1) * D + tl.arange(0, D)[None]
        q = (q.to(tl.float32) + tl.load(bias + at).to(tl.float32)).to(dtype)
        k = (k.to(tl.float32) + tl.load(bias + N * D + at).to(tl.float32)).to(dtype)
        v = (v.to(tl.float32) + tl.load(bias + 2 * N * D + at).to(tl.float32)).to(dtype)
        q, k, v = tl.where(real, q, 0.0), tl.where(real, k, 0.0), tl.where(real, v, 0.0)
    return q, k, v


@triton.jit
def _visible(place, length, radius, WINDOW: tl.constexpr):
    """Which keys (columns) a query (row) sees."""
    mask = (place[None] < length) & (place[:, None] >= 0)
    if WINDOW:
        mask &= tl.abs(place[:, None] - place[None]) <= radius
    return mask


@triton.jit
def _attend(
    qkv, bias, context, lse, start, length, radius, sm_scale, seed, threshold, scale,
    N: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr, WINDOW: tl.constexpr, DROPOUT: tl.constexpr,
    S: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    place = tl.arange(0, S)
    row = (start + place).to(tl.int64)[:, None]
    cell = tl.program_id(1) * D + tl.arange(0, D)[None]
    real = place[:, None] < length
    q, k, v = _heads(qkv, bias, row * 3 * N * D + cell, real & (cell >= 0), N, D, BIAS)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * sm_scale
    scores = tl.where(_visible(place, length, radius, WINDOW), scores, -1e30)
    highest = tl.max(scores, 1)
    probs = tl.exp(scores - highest[:, None])
    total = tl.sum(probs, 1)
    tl.store(lse + (start + place) * N + tl.program_id(1), highest + tl.log(total), mask=place < length)
    probs = probs / total[:, None]
    if DROPOUT:
        rows = (tl.program_id(0) * N + tl.program_id(1)) * MOST + place
        probs *= keep_scale_of_scores(rows, place, seed, threshold, scale)
    result = tl.dot(probs.to(v.dtype), v, input_precision="ieee")
    tl.store(context + row * N * D + cell, result.to(context.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["threshold", "scale"])
def attention_forward(
    qkv, bias, context, lse, cu_seqlens, radius, sm_scale, seed, threshold, scale,
    N: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr, WINDOW: tl.constexpr, DROPOUT: tl.constexpr, S: tl.constexpr,
    ABOVE: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """softmax(scale q k^T) v of a head and a sequence of more than ABOVE and at most S tokens."""
    start = tl.load(cu_seqlens + tl.program_id(0))
    length = tl.load(cu_seqlens + tl.program_id(0) + 1) - start
    if (length > ABOVE) & (length <= S):
        _attend(
            qkv, bias, context, lse, start, length, radius, sm_scale, seed, threshold, scale,
            N, D, BIAS, WINDOW, DROPOUT, S, MOST,
        )  # fmt: skip


@triton.jit
def _attend_back(
    qkv, bias, context, lse, grad_context, grad_qkv, partial, start, length,
    radius, sm_scale, seed, threshold, scale,
    N: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr, WINDOW: tl.constexpr, DROPOUT: tl.constexpr,
    S: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    place = tl.arange(0, S)
    row = (start + place).to(tl.int64)[:, None]
    cell = tl.program_id(1) * D + tl.arange(0, D)[None]
    real = place[:, None] < length
    at = row * 3 * N * D + cell
    q, k, v = _heads(qkv, bias, at, real & (cell >= 0), N, D, BIAS)
    grad = tl.load(grad_context + row * N * D + cell, mask=real, other=0.0)
    attended = tl.load(context + row * N * D + cell, mask=real, other=0.0).to(tl.float32)
    delta = tl.sum(grad.to(tl.float32) * attended, 1)[:, None]
    logsum = tl.load(lse + (start + place) * N + tl.program_id(1), mask=place < length, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * sm_scale
    probs = tl.where(real & _visible(place, length, radius, WINDOW), tl.exp(scores - logsum[:, None]), 0.0)
    grad_probs = tl.dot(grad, tl.trans(v), input_precision="ieee")
    dropped = probs
    if DROPOUT:
        rows = (tl.program_id(0) * N + tl.program_id(1)) * MOST + place
        keep = keep_scale_of_scores(rows, place, seed, threshold, scale)
        grad_probs *= keep
        dropped = probs * keep
    grad_v = tl.dot(tl.trans(dropped.to(v.dtype)), grad, input_precision="ieee")
    grad_scores = (probs * (grad_probs - delta) * sm_scale).to(v.dtype)
    grad_q = tl.dot(grad_scores, k, input_precision="ieee")
    grad_k = tl.dot(tl.trans(grad_scores), q, input_precision="ieee")
    dtype = grad_qkv.dtype.element_ty
    tl.store(grad_qkv + at, grad_q.to(dtype), mask=real)
    tl.store(grad_qkv + at + N * D, grad_k.to(dtype), mask=real)
    tl.store(grad_qkv + at + 2 * N * D, grad_v.to(dtype), mask=real)
    if BIAS:
        at = tl.program_id(0) * 3 * N * D + tl.program_id(1) * D + tl.arange(0, D)
        tl.store(partial + at, tl.sum(grad_q, 0))
        tl.store(partial + at + N * D, tl.sum(grad_k, 0))
        tl.store(partial + at + 2 * N * D, tl.sum(grad_v, 0))


@triton.jit(do_not_specialize=["threshold", "scale"])
def attention_backward(
    qkv, bias, context, lse, grad_context, grad_qkv, partial, cu_seqlens,
    radius, sm_scale, seed, threshold, scale,
    N: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr, WINDOW: tl.constexpr, DROPOUT: tl.constexpr, S: tl.constexpr,
    ABOVE: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """The gradients of queries, keys and values, and of each sequence its sums for their bias."""
    start = tl.load(cu_seqlens + tl.program_id(0))
    length = tl.load(cu_seqlens + tl.program_id(0) + 1) - start
    if (length > ABOVE) & (length <= S):
        _attend_back(
            qkv, bias, context, lse, grad_context, grad_qkv, partial, start, length,
            radius, sm_scale, seed, threshold, scale, N, D, BIAS, WINDOW, DROPOUT, S, MOST,
        )  # fmt: skip


@triton.jit(do_not_specialize=["P"])
def column_sums(partial_PW, sums_W, P, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums over P rows of some columns."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, P, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        total += tl.load(partial_PW + row * W + column, mask=(row < P) & (column < W), other=0.0)
    tl.store(sums_W + column, tl.sum(total, 0)[None], mask=column < W)
