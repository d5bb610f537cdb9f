# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of the calibration: a kernel, its GPU, a published figure and where that was published.

`same` says that the row runs the kernel that was measured, from its authors' source; `like` says
that it runs another kernel for the same problem, so that the ratio also holds the difference between
the two. The rows of a family and GPU alternate: the first, third, ... may be fitted.
"""
from __future__ import annotations

import collections
import dataclasses
from typing import Any

SOURCES = {
    "fa3": "FlashAttention-3 paper, arXiv 2407.08608, figures 5 and 6, bars' labels as transcribed "
           "at subtext.edge.nugit.net (H100 80GB SXM5, float16)",
    "fa3 chart": "Dao-AILab/flash-attention assets/flash3_fp16_fwd.png and the paper's backward (H100 80GB SXM5, "
                 "float16)",
    "tritonbench 1267": "meta-pytorch/tritonbench pull request 1267: FlashAttention-3 on H100, bfloat16, 4 x 48 heads",
    "fa 1791": "Dao-AILab/flash-attention pull request 1791: benchmark_attn.py on H100",
    "tritonbench 1254": "meta-pytorch/tritonbench pull request 1254: FlashAttention-3 on H100, 4 x 48 heads",
    "fa2": "FlashAttention-2 paper, arXiv 2307.08691, section 4.1: at most 73 % of 312 TFLOP/s "
           "forward and 63 % backward (A100 80GB SXM4); remembered, not read again",
    "tritonbench": "pytorch/benchmark pull request 2391: triton_tutorial_flash_v2 on H100",
    "gale": "triton-lang/triton issue 3672: 03-matrix-multiplication on H100, float16",
    "cutlass": "NVIDIA/cutlass discussion 241: A100 SXM, cuBLAS and CUTLASS, 8192 cube, float16",
    "tutorial": "Triton's tutorial 03: ordered by groups, 220 to 245 TFLOP/s on A100",
    "fast.cu": "pranjalssh/fast.cu: README.md and sum.cu (H100)",
    "worklog": "Outperforming cuBLAS on H100: a Worklog, cudaforfun.substack.com (H100 SXM, CUDA 12.6)",
    "lathe": "no measurement: large copies are taken to reach 85 % of the data sheet (A100 80 GB "
             "2.04 TB/s, H100 3.35 TB/s)",
}


@dataclasses.dataclass
class Row:
    family: str
    name: str
    gpu: str
    published: float  # TFLOP/s or GB/s; 0: only the order is known
    source: str
    same: bool
    amount: float  # operations or bytes
    case: str      # module.function
    options: dict[str, Any]
    unit: str = "TFLOP/s"
    fitted: bool = False

    @property
    def key(self) -> str:
        return f"{self.family} {self.name} {self.gpu}"


ROWS: list[Row] = []
PAIRS: list[tuple[str, str, str]] = []  # the faster row, the slower one, the source


def attention(figures: dict[int, float], family: str, gpu: str, source: str, width: int, causal: bool,
              backward: bool, case: str, same: bool, dtype: str = "f16",
              fixed: tuple[int, int] | None = None) -> None:
    """The papers' shapes, unless batch and heads are fixed: 16384 tokens in all, 2048 channels."""
    for length, published in figures.items():
        b, h = fixed or (16384 // length, 2048 // width)
        operations = 4 * b * h * length**2 * width * (0.5 if causal else 1)
        ROWS.append(Row(
            family, f"D {width}{' causal' if causal else ''} {length}", gpu, published, source, same,
            operations * (2.5 if backward else 1), case,
            {"batch": b, "length": length, "heads": h, "width": width, "causal": causal,
             "backward": backward, "dtype": dtype}))


OWN, TRITON, FLASH2 = "own.attention", "triton_cases.attention", "programs.flash2"
FLASH3 = "programs.flash3"
PAPER = {
    (64, False): {512: 282, 1024: 306, 2048: 318, 16384: 324},
    (64, True): {512: 180, 1024: 229, 4096: 284, 16384: 299},
    (128, False): {512: 309, 1024: 350, 2048: 362, 16384: 370},
    (128, True): {512: 191, 1024: 260, 4096: 319, 16384: 335},
    (256, False): {1024: 313, 8192: 324},
    (256, True): {1024: 251, 8192: 297},
}
PAPER_BACKWARD = {64: {1024: 238, 4096: 279, 8192: 287}, 128: {1024: 260, 4096: 310, 8192: 318}}
PAPER_TRITON = {(64, False): {1024: 382, 8192: 401}, (64, True): {2048: 342, 8192: 376},
                (128, False): {1024: 372, 8192: 392}, (128, True): {2048: 323, 8192: 369}}

for (D, CAUSAL), BARS in PAPER.items():
    attention(BARS, "FA-2 forward", "h100", "fa3", D, CAUSAL, False, FLASH2, True)
for D, BARS in PAPER_BACKWARD.items():
    attention(BARS, "FA-2 backward", "h100", "fa3", D, False, True, FLASH2, True)
attention({16384: 0.73 * 312}, "FA-2 forward", "a100", "fa2", 128, False, False, FLASH2, True)
attention({16384: 0.63 * 312}, "FA-2 backward", "a100", "fa2", 128, False, True, FLASH2, True)
FLASH3_FORWARD = {
    (64, False): {1024: 392, 8192: 496}, (64, True): {1024: 265, 8192: 460},
    (128, False): {512: 467, 1024: 565, 8192: 646}, (128, True): {512: 292, 1024: 423, 8192: 602},
    (256, False): {1024: 630, 8192: 746}, (256, True): {1024: 427, 8192: 628},
}
FLASH3_BACKWARD = {64: {1024: 363, 8192: 472}, 128: {1024: 424, 8192: 559}}
for (D, CAUSAL), BARS in FLASH3_FORWARD.items():
    attention(BARS, "FA-3 forward", "h100", "fa3 chart", D, CAUSAL, False, FLASH3, True)
for D, BARS in FLASH3_BACKWARD.items():
    attention(BARS, "FA-3 backward", "h100", "fa3 chart", D, False, True, FLASH3, True)
attention({1024: 541.3, 4096: 628.4}, "FA-3, 4 x 48 heads", "h100", "tritonbench 1254", 128, False, False, FLASH3,
          True, "f16", (4, 48))
# Its backward's times hold the sums of gradients that a second call of backward makes.
attention({1024: 364, 2048: 560, 4096: 667}, "FA-3, 4 x 48 heads", "h100", "tritonbench 1267", 128, True, False,
          FLASH3, True, "bf16", (4, 48))
attention({8192: 531.6}, "FA-3 backward", "h100", "fa 1791", 128, True, True, FLASH3, True, "bf16")
# Ours beside the same figures: the ratio is of two kernels.
for (D, CAUSAL), BARS in PAPER.items():
    attention({1024: BARS[1024]} if 1024 in BARS else BARS, "own forward", "h100", "fa3", D, CAUSAL, False,
              OWN, False)
for D, BARS in PAPER_BACKWARD.items():
    attention({1024: BARS[1024]}, "own backward", "h100", "fa3", D, False, True, OWN, False)
for (D, CAUSAL), BARS in PAPER_TRITON.items():
    attention(BARS, "Triton attention", "h100", "fa3", D, CAUSAL, False, TRITON, False, "bf16")
attention({512: 328.9, 1024: 389.7, 2048: 433.7, 4096: 458.4, 8192: 470.7}, "Triton attention, newer",
          "h100", "tritonbench", 128, False, False, TRITON, True, "bf16")


def product(family: str, gpu: str, size: int, published: float, source: str, same: bool, case: str,
            name: str = "", **options: Any) -> str:
    row = Row(family, f"{name or size}", gpu, published, source, same, 2.0 * size**3, case,
              {"size": size, **options})
    ROWS.append(row)
    return row.key


# The configurations are those of the tutorial that its authors' tuning chooses on large shapes.
H100_TILES = [[128, 256, 64, 8, 3, 8], [128, 128, 32, 8, 4, 4]]
A100_TILES = [[128, 256, 64, 8, 3, 8], [128, 128, 32, 8, 4, 4]]
# At smaller sizes every figure of the source is of 89 microseconds: of the host, not of the kernel.
for SIZE, RATE in ((2944, 471.4), (3072, 524.7)):
    product("Triton matmul", "h100", SIZE, RATE, "gale", True, "triton_cases.matmul", tiles=H100_TILES)
GROUPED = product("Triton matmul", "a100", 8192, 245, "tutorial", True, "triton_cases.matmul",
                  tiles=A100_TILES)
UNGROUPED = product("Triton matmul", "a100", 8192, 220, "tutorial", True, "triton_cases.matmul",
                    "8192, rows in order", tiles=[[128, 256, 64, 1, 3, 8], [128, 128, 32, 1, 4, 4]])
PAIRS.append((GROUPED, UNGROUPED, "tutorial"))

# By kernel; the last is also the faster one of the README at 8192.
LADDER = {1: 32, 2: 317, 3: 423, 4: 498, 5: 631, 6: 660, 7: 704, 8: 734, 9: 747, 10: 758, 11: 764}
STEPS = [product("fast.cu matmul", "h100", 4096, RATE, "worklog", True, "programs.fast_matmul",
                 f"4096, kernel {K}", kernel=K) for K, RATE in LADDER.items()]
product("fast.cu matmul", "h100", 8192, 808, "fast.cu", True, "programs.fast_matmul", "8192, kernel 11",
        kernel=11)
# Each with the next one that is at least 4 % faster.
for SLOWER, FASTER in ((1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 11)):
    PAIRS.append((STEPS[FASTER - 1], STEPS[SLOWER - 1], "worklog"))

# Its tiles of 64 x 64 ask twice what L2 can give, which a library's do not: not to be compared.
product("sm_80 product of the tests", "a100", 8192, 0, "cutlass", False, "cuda_cases.own_ampere")
product("sm_90a product of the tests", "h100", 8192, 795, "fast.cu", False, "cuda_cases.own_hopper")


def stream(name: str, gpu: str, megabytes: float, published: float, source: str, same: bool,
           case: str, **options: Any) -> None:
    ROWS.append(Row("bandwidth", name, gpu, published, source, same, megabytes * 2**20, case, options,
                    "GB/s"))


for KERNEL, RATE in ((1, 3232.8), (2, 3239.7), (3, 3240.1)):
    stream(f"fast.cu sum, kernel {KERNEL}", "h100", 4096, RATE, "fast.cu", True, "cuda_cases.fast_sum",
           kernel=KERNEL)
for GPU, PEAK in (("a100", 2039), ("h100", 3350)):
    for KIND, PARTS in (("copy", 2), ("add", 3), ("rowsum", 1), ("transpose", 2), ("softmax", 2)):
        stream(KIND, GPU, PARTS * 256, 0.85 * PEAK, "lathe", False, "cuda_cases.stream", kernel=KIND)


def _order_pairs() -> None:
    """Adds pairs of rows that ran on one GPU for one source: longer sequences and the other kernel."""
    by_key = {row.key: row for row in ROWS}
    for first, second in (("Triton attention", "FA-2 forward"), ("FA-3 forward", "FA-2 forward"),
                          ("FA-3 forward", "Triton attention"), ("FA-3 backward", "FA-2 backward")):
        for row in [row for row in ROWS if row.family == first]:
            other = by_key.get(f"{second} {row.name} {row.gpu}")
            if other and abs(row.published / other.published - 1) >= 0.04:
                pair = (row.key, other.key) if row.published > other.published else (other.key, row.key)
                PAIRS.append((*pair, "fa3"))
    same = collections.defaultdict(list)
    for row in ROWS:
        if row.options.get("length"):
            same[row.family, row.gpu, *(row.options[name] for name in ("width", "causal", "backward"))].append(row)
    for rows in same.values():
        for first, second in zip(rows, rows[1:]):
            if second.published >= 1.04 * first.published:
                PAIRS.append((second.key, first.key, second.source))


_order_pairs()
_count: dict[tuple[str, str], int] = collections.Counter()
for _row in ROWS:
    if _row.published:
        _row.fitted = _count[_row.family, _row.gpu] % 2 == 0
        _count[_row.family, _row.gpu] += 1
