// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "topk"
summary = "The k greatest values of each row in falling order, and where they stand."

[tensors]
x       = { in = ["f32", "bf16", "f16"], shape = "T D" }
values  = { out = "f32", shape = "T K" }
indices = { out = "i32", shape = "T K" }

[options]
k = { default = 8, allowed = "[1,65)", what = "How many of each row." }

[dims]
K = "k"

[constants]
D = "dim"
kThreads = [128, 256, 64]

[launch]
grid = "T"
block = "kThreads"

[refuse]
"k > D" = "k must be at most D"
"D > 64 * kThreads" = "a row must fit 64 elements of each thread"
*/
// Each thread holds every kThreads-th element and the greatest of them; the winner of a round takes
// its element out. Of equal values the first wins; what is no
// number is passed over.
struct Best {
  float value;
  int index;
  __device__ void take(float other, int at) {
    if (other > value || (other == value && at < index)) value = other, index = at;
  }
};

template <class Config>
__device__ void kernel(const Params& p) {
  constexpr int kThreads = Config::kThreads, kWarps = kThreads / 32;
  constexpr int kSteps = (Config::D + kThreads - 1) / kThreads;
  __shared__ Best warp_best[2][kWarps];
  const long long row = static_cast<long long>(blockIdx.x) * Config::D;
  float x[kSteps];
  unsigned long long taken = 0;
  const auto greatest = [&] {
    Best best{lathe::bit_cast<float>(0xff800000u), 0x7fffffff};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = step * kThreads + threadIdx.x;
      if (at < Config::D && (taken >> step & 1) == 0) best.take(x[step], at);
    }
    return best;
  };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int at = step * kThreads + threadIdx.x;
    if (at < Config::D) x[step] = lathe::to_float(p.x[row + at]);
  }

  Best mine = greatest();
  for (int round = 0; round < p.K; ++round) {
    Best best = mine;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best.value, lanes);
      best.take(other, __shfl_xor_sync(0xffffffffu, best.index, lanes));
    }
    // Two copies in turn: a warp that is a round ahead writes the other one.
    if (threadIdx.x % 32 == 0) warp_best[round % 2][threadIdx.x / 32] = best;
    __syncthreads();
    best = warp_best[round % 2][0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      best.take(warp_best[round % 2][w].value, warp_best[round % 2][w].index);
    }
    if (threadIdx.x == 0) {
      p.values[blockIdx.x * p.K + round] = best.value;
      p.indices[blockIdx.x * p.K + round] = best.index;
    }
    if (best.index < Config::D && best.index % kThreads == static_cast<int>(threadIdx.x)) {
      taken |= 1ull << best.index / kThreads;
      mine = greatest();
    }
  }
}
