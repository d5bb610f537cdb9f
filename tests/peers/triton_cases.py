# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Our Triton kernels against torch on the CPU."""
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_kernels as kernels
from cases import EQUAL_STORES, case

HOPPER = ("sm_90a",)


def noise(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@case("triton")
def vector_add():
    n = 5000
    results = []
    for dtype in (torch.float32, torch.float16, torch.int32):
        x, y = ((noise(n, seed=s) * 100).to(dtype) for s in (1, 2))
        out = torch.empty_like(x)
        kernels.add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
        results.append((str(dtype), out, x + y, 0))
    return results


@case("triton")
def softmax():
    x = noise(9, 1000, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    kernels.softmax[(9,)](x, out, 1000, x.stride(0), BLOCK=1024, num_warps=8)
    y = noise(5, 37)
    small = torch.empty_like(y)
    kernels.softmax[(5,)](y, small, 37, 37, BLOCK=64, num_warps=1)
    return [("bf16", out, torch.softmax(x.float(), 1), 2**-8), ("f32", small, torch.softmax(y, 1), 2e-6)]


@case("triton")
def layer_norm():
    x, weight, bias = noise(7, 700), noise(700, seed=2), noise(700, seed=3)
    out, mean = torch.empty_like(x), torch.empty(7)
    kernels.layer_norm[(7,)](x, weight, bias, out, mean, 700, 1e-5, BLOCK=1024)
    want = torch.nn.functional.layer_norm(x, (700,), weight, bias, 1e-5)
    return [("out", out, want, 1e-5), ("mean", mean, x.mean(1), 1e-6)]


def product(dtype, M, N, K, block, precision="tf32", bound=1e-3, out_dtype=None, acc=tl.float32, **options):
    if dtype == torch.int8:
        a, b = ((noise(*s, seed=i) * 40).clamp(-127, 127).to(dtype) for i, s in ((1, (M, K)), (2, (K, N))))
        want = a.double() @ b.double()
    else:
        a, b = noise(M, K, dtype=dtype), noise(K, N, dtype=dtype, seed=2)
        want = a.double() @ b.double()
    c = torch.empty(M, N, dtype=out_dtype or dtype)
    BM, BN, BK = block
    kernels.matmul[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BM=BM, BN=BN, BK=BK, PRECISION=precision,
        ACC=acc, **options)
    return f"{dtype} {M}x{N}x{K} {block}", c, want, bound


@case("triton")
def matmul_fp16():
    return [product(torch.float16, 256, 256, 192, (128, 128, 64), num_warps=4, num_stages=3),
            product(torch.float16, 100, 72, 136, (64, 64, 32), num_warps=4, num_stages=2)]


@case("triton")
def matmul_bf16():
    return [product(torch.bfloat16, 256, 192, 160, (128, 64, 32), bound=2**-8, num_warps=8, num_stages=4),
            product(torch.bfloat16, 64, 32, 64, (16, 32, 16), bound=2**-8, num_warps=2, num_stages=3)]


@case("triton")
def matmul_tf32():
    return [product(torch.float32, 128, 128, 96, (64, 64, 32), bound=2e-3, num_warps=4, num_stages=3),
            product(torch.float32, 64, 64, 64, (64, 64, 32), "ieee", bound=1e-6, num_warps=4)]


@case("triton")
def matmul_int8():
    return [product(torch.int8, 128, 128, 128, (64, 64, 64), bound=0, out_dtype=torch.int32, acc=tl.int32,
                    num_warps=4, num_stages=3)]


@case("triton", HOPPER)
def matmul_fp8():
    return [product(torch.float8_e4m3fn, 128, 128, 128, (64, 64, 64), bound=2e-3, out_dtype=torch.float32,
                    num_warps=4, num_stages=3)]


@case("triton", HOPPER)
def matmul_two_ctas():
    return [product(torch.float16, 256, 256, 128, (128, 128, 64), num_warps=4, num_stages=3, num_ctas=2)]


@case("triton", HOPPER)
def matmul_descriptors():
    results = []
    for dtype, shape, block, warps in ((torch.float16, (256, 256, 256), (128, 128, 64), 8),
                                       (torch.bfloat16, (192, 160, 96), (64, 64, 32), 4),
                                       (torch.float32, (128, 64, 64), (64, 64, 32), 4)):
        M, N, K = shape
        BM, BN, BK = block
        a, b = noise(M, K, dtype=dtype), noise(K, N, dtype=dtype, seed=2)
        c = torch.empty(M, N, dtype=dtype)
        kernels.matmul_host_descriptor[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
            TensorDescriptor.from_tensor(a, [BM, BK]), TensorDescriptor.from_tensor(b, [BK, BN]),
            TensorDescriptor.from_tensor(c, [BM, BN]), K, BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=3)
        bound = {torch.float16: 1e-3, torch.bfloat16: 2**-8, torch.float32: 2e-3}[dtype]
        results.append((str(dtype), c, a.double() @ b.double(), bound))
    return results


@case("triton", HOPPER)
def matmul_persistent():
    M, N, K = 256, 384, 128
    results = []
    for dtype, bound in ((torch.float16, 1e-3), (torch.bfloat16, 2**-8)):
        a, b = noise(M, K, dtype=dtype), noise(K, N, dtype=dtype, seed=2)
        c = torch.empty(M, N, dtype=dtype)
        kernels.matmul_persistent[(3,)](a, b, c, M, N, K, BM=128, BN=128, BK=64, PROGRAMS=3, num_warps=8,
                                        num_stages=3)
        results.append((str(dtype), c, a.double() @ b.double(), bound))
    return results


@case("triton", HOPPER)
def descriptor_copy():
    results = []
    for dtype in (torch.float32, torch.float16):
        M, N, BM, BN = 100, 120, 32, 64
        x = (noise(M, N) * 8).round().to(dtype)
        out, total = torch.empty_like(x), torch.zeros(M, BN, dtype=dtype)
        kernels.copy_and_add[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
            *(TensorDescriptor.from_tensor(t, [BM, BN]) for t in (x, out, total)), BM=BM, BN=BN)
        padded = torch.nn.functional.pad(x, (0, 2 * BN - N))
        results += [(f"copy {dtype}", out, 2 * x, 0),
                    (f"add {dtype}", total, padded[:, :BN] + padded[:, BN:], 0)]
    return results


def attention_reference(q, k, v, scale, causal):
    score = (q.double() @ k.double().transpose(-1, -2)) * scale
    if causal:
        tokens = q.shape[-2]
        score = score.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -float("inf"))
    return torch.softmax(score, -1) @ v.double(), torch.logsumexp(score, -1)


@case("triton")
def flash_attention():
    results = []
    for dtype, tokens, D, causal, warps in ((torch.float16, 256, 64, True, 4),
                                            (torch.bfloat16, 200, 64, False, 4)):
        q, k, v = (noise(2, tokens, D, dtype=dtype, seed=s) for s in (1, 2, 3))
        out, lse = torch.empty_like(q), torch.empty(2, tokens)
        kernels.attention[(triton.cdiv(tokens, 64), 2)](q, k, v, out, lse, tokens, D**-0.5, BM=64, BN=64, D=D,
                                                        CAUSAL=causal, num_warps=warps, num_stages=2)
        want, want_lse = attention_reference(q, k, v, D**-0.5, causal)
        results += [(f"{dtype} causal={causal}", out, want, 2**-9 if dtype == torch.float16 else 2**-6),
                    ("lse", lse, want_lse, 1e-4)]
    return results


@case("triton", HOPPER)
def flash_attention_descriptors():
    heads, tokens, D = 2, 256, 64
    q, k, v = (noise(heads, tokens, D, dtype=torch.float16, seed=s) for s in (1, 2, 3))
    out = torch.empty_like(q)
    views = [TensorDescriptor.from_tensor(t.view(heads * tokens, D), [64, D]) for t in (q, k, v, out)]
    kernels.attention_descriptor[(tokens // 64, heads)](*views, tokens, D**-0.5, BM=64, BN=64, D=D,
                                                        num_warps=4, num_stages=2)
    return [("f16", out, attention_reference(q, k, v, D**-0.5, False)[0], 2**-9)]


@case("triton")
def atomics():
    n, bins = 3000, 16
    x = noise(n)
    counts, bits = (torch.zeros(bins, dtype=torch.int32) for _ in range(2))
    sums, largest = torch.zeros(bins), torch.full((bins,), -float("inf"))
    halves = torch.zeros(bins, dtype=torch.float16)
    smallest = torch.full((bins,), 2**31 - 1, dtype=torch.int32)
    tickets = torch.zeros(2, dtype=torch.int32)
    blocks = triton.cdiv(n, 256)
    kernels.atomics[(blocks,)](x, counts, sums, halves, largest, smallest, bits, tickets, n, BINS=bins,
                               BLOCK=256)
    index = torch.arange(n)
    which = index % bins
    members = [index[which == b] for b in range(bins)]
    count = torch.tensor([len(m) for m in members])
    want_bits = []
    for m in members:
        word = 0
        for i in m.tolist():
            word |= 1 << (i % 31)
        want_bits.append(word)
    return [("add i32", counts, count, 0),
            ("add f32", sums, torch.stack([x[m].double().sum() for m in members]), 1e-5),
            ("add f16", halves, count * torch.arange(1, bins + 1), 2e-2),
            ("max f32", largest, torch.stack([x[m].max() for m in members]), 0),
            ("min i32", smallest, torch.stack([m.min() for m in members]), 0),
            ("or", bits, torch.tensor(want_bits), 0),
            ("lock", tickets, torch.tensor([0, blocks]), 0)]


@case("triton")
def scan():
    length, channels = 128, 16
    x, decay = noise(length, channels), torch.sigmoid(noise(length, channels, seed=2))
    total, state, backward = (torch.empty_like(x) for _ in range(3))
    kernels.scan[(1,)](x, decay, total, state, backward, LENGTH=length, CHANNELS=channels)
    want, running = torch.empty(length, channels, dtype=torch.float64), torch.zeros(channels).double()
    for i in range(length):
        running = decay[i].double() * running + x[i].double()
        want[i] = running
    return [("sum", total, x.double().cumsum(0), 1e-5), ("decay", state, want, 1e-5),
            ("max", backward, x.flip(0).cummax(0).values.flip(0), 0)]


@case("triton", known=EQUAL_STORES)
def sort_and_histogram():
    n, bins = 256, 16
    x = torch.randperm(n * 4, generator=torch.Generator().manual_seed(3))[:n].to(torch.int32)
    ordered, found = torch.empty_like(x), torch.empty_like(x)
    counts, top = torch.empty(bins, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    kernels.order[(1,)](x, ordered, counts, top, found, N=n, BINS=bins)
    return [("sort", ordered, x.sort().values, 0), ("histogram", counts, torch.bincount(x % bins, minlength=bins), 0),
            ("argmax", top, x.argmax().view(1), 0), ("gather", found, x[(torch.arange(n) * 7) % n], 0)]


@case("triton")
def transpose():
    x = noise(100, 130, dtype=torch.float16)
    out = torch.empty(130, 100, dtype=torch.float16)
    kernels.transpose[(2, 3)](x, out, 100, 130, BM=64, BN=64)
    return [("f16", out, x.T, 0)]


@case("triton")
def random_and_special():
    n = 1024
    x = noise(n) * 3
    out, special = torch.empty(n), torch.empty(n)
    kernels.random_and_special[(4,)](7, out, x, special, BLOCK=256)
    d = x.double()
    want = torch.sin(d) + torch.erf(d) * torch.sigmoid(d) + torch.rsqrt(d * d + 1)
    outside = ((out < 0) | (out >= 1)).sum()
    return [("range", outside, torch.tensor(0), 0), ("mean", out.mean(), torch.tensor(0.5), 0.05),
            ("functions", special, want, 1e-5)]
