# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of our own, one for each thing that Triton's code generator does."""
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * stride + at, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + at, power / tl.sum(power, 0), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, out, mean_out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    result = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, result, mask=inside)
    tl.store(mean_out + row, mean)


@triton.jit
def matmul(a, b, c, M, N, K, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        k = start + depth
        left = tl.load(a + row[:, None] * stride_a + k[None, :],
                       mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * stride_b + column[None, :],
                        mask=(k[:, None] < K) & (column[None, :] < N), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=ACC)
    tl.store(c + row[:, None] * stride_c + column[None, :], total.to(c.dtype.element_ty),
             mask=(row[:, None] < M) & (column[None, :] < N))


@triton.jit
def matmul_host_descriptor(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def matmul_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                      PROGRAMS: tl.constexpr):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    result = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS):
        row = tile // across * BM
        column = tile % across * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(left.load([row, k]), right.load([k, column]), total)
        result.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def copy_and_add(x, out, total, BM: tl.constexpr, BN: tl.constexpr):
    """Tiles through the tensor memory accelerator alone: load with fill, store, store that adds."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    tile = x.load([row, column])
    out.store([row, column], tile * 2)
    total.atomic_add([row, 0], tile)


@triton.jit
def attention(q, k, v, out, lse, tokens, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
              CAUSAL: tl.constexpr):
    base = tl.program_id(1) * tokens * D
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    inner = tl.arange(0, D)
    query = tl.load(q + base + row[:, None] * D + inner[None, :], mask=row[:, None] < tokens, other=0.0)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(tokens, (tl.program_id(0) + 1) * BM) if CAUSAL else tokens
    for start in range(0, end, BN):
        column = start + tl.arange(0, BN)
        inside = column[:, None] < tokens
        key = tl.load(k + base + column[:, None] * D + inner[None, :], mask=inside, other=0.0)
        score = tl.dot(query, tl.trans(key)) * (scale * 1.44269504)
        seen = column[None, :] < tokens
        if CAUSAL:
            seen = seen & (row[:, None] >= column[None, :])
        score = tl.where(seen, score, -1e30)
        larger = tl.maximum(largest, tl.max(score, 1))
        power = tl.exp2(score - larger[:, None])
        shrink = tl.exp2(largest - larger)
        weight = weight * shrink + tl.sum(power, 1)
        value = tl.load(v + base + column[:, None] * D + inner[None, :], mask=inside, other=0.0)
        total = tl.dot(power.to(value.dtype), value, total * shrink[:, None])
        largest = larger
    inside = row < tokens
    tl.store(out + base + row[:, None] * D + inner[None, :],
             (total / weight[:, None]).to(out.dtype.element_ty), mask=inside[:, None])
    tl.store(lse + tl.program_id(1) * tokens + row, (largest + tl.log2(weight)) / 1.44269504, mask=inside)


@triton.jit
def attention_descriptor(q, k, v, out, tokens, scale, BM: tl.constexpr, BN: tl.constexpr,
                         D: tl.constexpr):
    """q, k, v, out: descriptors of [heads * tokens, D]; tokens is a multiple of BM and BN."""
    base = tl.program_id(1) * tokens
    query = q.load([base + tl.program_id(0) * BM, 0])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, tokens, BN):
        score = tl.dot(query, k.load([base + start, 0]).T) * (scale * 1.44269504)
        larger = tl.maximum(largest, tl.max(score, 1))
        power = tl.exp2(score - larger[:, None])
        shrink = tl.exp2(largest - larger)
        weight = weight * shrink + tl.sum(power, 1)
        value = v.load([base + start, 0])
        total = tl.dot(power.to(value.dtype), value, total * shrink[:, None])
        largest = larger
    out.store([base + tl.program_id(0) * BM, 0], (total / weight[:, None]).to(out.dtype))


@triton.jit
def atomics(x, bins, sums, halves, largest, smallest, bits, tickets, n, BINS: tl.constexpr,
            BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0)
    which = at % BINS
    tl.atomic_add(bins + which, 1, mask=inside)
    tl.atomic_add(sums + which, value, mask=inside)
    tl.atomic_add(halves + which, (which + 1).to(tl.float16), mask=inside)
    tl.atomic_max(largest + which, value, mask=inside)
    tl.atomic_min(smallest + which, at, mask=inside)
    tl.atomic_or(bits + which, 1 << (at % 31), mask=inside)
    # A lock, as kernels that take turns have it: whoever swaps 0 for 1 may add to the plain word.
    while tl.atomic_cas(tickets, 0, 1) == 1:
        pass
    count = tl.load(tickets + 1, volatile=True)
    tl.debug_barrier()  # every thread loads, one stores
    tl.store(tickets + 1, count + 1)
    tl.debug_barrier()
    tl.atomic_xchg(tickets, 0)


@triton.jit
def _both(a_scale, a_shift, b_scale, b_shift):
    return a_scale * b_scale, a_shift * b_scale + b_shift


@triton.jit
def scan(x, decay, total, state, backward, LENGTH: tl.constexpr, CHANNELS: tl.constexpr):
    """Down the rows: a running sum, s = decay * s + x, and a running maximum from the end."""
    row = tl.arange(0, LENGTH)[:, None]
    at = row * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    value = tl.load(x + at)
    tl.store(total + at, tl.cumsum(value, 0))
    _, result = tl.associative_scan((tl.load(decay + at), value), 0, _both)
    tl.store(state + at, result)
    tl.store(backward + at, tl.associative_scan(value, 0, _larger, reverse=True))


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def order(x, sorted_out, counts, top, found, N: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(sorted_out + tl.arange(0, N), tl.sort(value))
    tl.store(counts + tl.arange(0, BINS), tl.histogram(value % BINS, BINS))
    tl.store(top, tl.argmax(value, 0))
    where = (tl.arange(0, N) * 7) % N
    tl.store(found + tl.arange(0, N), tl.gather(value, where, 0))


@triton.jit
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x + row[:, None] * N + column[None, :], mask=(row[:, None] < M) & (column[None, :] < N))
    tl.store(out + column[:, None] * M + row[None, :], tile.T,
             mask=(column[:, None] < N) & (row[None, :] < M))


@triton.jit
def random_and_special(seed, out, x, math_out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at))
    value = tl.load(x + at)
    tl.store(math_out + at, tl.sin(value) + tl.erf(value) * tl.sigmoid(value) + tl.rsqrt(value * value + 1))
