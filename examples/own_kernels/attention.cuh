// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "small_attention"
summary = "out = softmax(q k^T scale) v, head by head, optionally causal; online softmax, sm_80."

[tensors]
q   = { in = ["bf16", "f16"], shape = "B Sq H D", aligned = 16 }
k   = { in = "q", shape = "B Sk H D", aligned = 16 }
v   = { in = "q", shape = "B Sk H D", aligned = 16 }
out = { out = "q", shape = "B Sq H D", aligned = 16 }

[options]
scale  = { default = 0.125, allowed = ">0", what = "The factor of the scores." }
causal = { default = false, compiled = true, what = "A row sees keys up to its own." }

[constants]
D = "dim"
kRows = 64                 # of queries, 16 a warp
kKeys = 64                 # of a step

[launch]
grid = ["ceil_div(Sq, kRows)", "H", "B"]
block = 128
shared = "2 * D * (kRows + 2 * kKeys)"

[cost]
flops = "4 * B * H * Sq * Sk * D / (1 + causal)"

[refuse]
"D != 64 && D != 128" = "heads must be 64 or 128 wide"
*/
#include "lathe/softmax.cuh"
#include "lathe/tile.cuh"

template <class Config>
__device__ void kernel(const Params& p) {
  using Element = typename Config::q_t;
  constexpr int D = Config::D, kKeys = Config::kKeys;
  using Queries = lathe::Tile<Element, Config::kRows, D>;
  using Keys = lathe::Tile<Element, kKeys, D>;
  extern __shared__ float4 shared[];
  const Queries q{lathe::shared_address(shared)};
  const Keys k{q.address + Queries::kBytes}, v{k.address + Keys::kBytes};
  const long long first = static_cast<long long>(blockIdx.x) * Config::kRows, stride = p.H * D;
  const long long query = ((blockIdx.z * p.Sq + first) * p.H + blockIdx.y) * D;
  const long long key = (blockIdx.z * p.Sk * p.H + blockIdx.y) * D;
  const int warp_row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
  const float scale = p.scale * lathe::kLog2E;
  const long long shift = p.Sk - p.Sq;  // a row sees keys up to its own and so many more
  long long keys = p.Sk;
  if (Config::causal && first + Config::kRows + shift < keys) keys = first + Config::kRows + shift;
  q.template copy<128>(p.q + query, stride, p.Sq - first, D);

  lathe::OnlineSoftmax row[2];  // of rows g and g + 8, the columns of this lane
  float sum[D / 8][4] = {};
  for (long long begin = 0; begin < keys; begin += kKeys) {
    __syncthreads();  // nobody reads the keys and values before these
    k.template copy<128>(p.k + key + begin * stride, stride, p.Sk - begin, D);
    v.template copy<128>(p.v + key + begin * stride, stride, p.Sk - begin, D);
    lathe::copy_async_commit(), lathe::copy_async_wait<0>();
    __syncthreads();

    float score[kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      unsigned a[4], b[4];
      q.fragment_a(warp_row, d, a);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        k.fragment_b(16 * n, d, b);
        lathe::multiply_add(score[2 * n], a, b[0], b[1], Element());
        lathe::multiply_add(score[2 * n + 1], a, b[2], b[3], Element());
      }
    }

    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long last = first + warp_row + lane / 4 + 8 * half + shift;
      float most = lathe::hidden_score();
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        float& each = score[i / 2][2 * half + i % 2];
        const long long at = begin + 8 * (i / 2) + lane % 4 * 2 + i % 2;
        const bool seen = at < p.Sk && (!Config::causal || at <= last);
        each = seen ? each * scale : lathe::hidden_score();
        most = fmaxf(most, each);
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      factor[half] = row[half].update(most);
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        float& each = score[i / 2][2 * half + i % 2];
        each = row[half].weight(each);
      }
    }

#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[n][i] *= factor[i / 2];
    }
    // The accumulators of two tiles of scores are a fragment of A for the product with values.
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      const float(&s)[4] = score[2 * j], (&t)[4] = score[2 * j + 1];
      const unsigned a[4] = {
          lathe::pack_pair(s[0], s[1], Element()), lathe::pack_pair(s[2], s[3], Element()),
          lathe::pack_pair(t[0], t[1], Element()), lathe::pack_pair(t[2], t[3], Element())};
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        unsigned b[4];
        v.fragment_b_turned(16 * j, 16 * n, b);
        lathe::multiply_add(sum[2 * n], a, b[0], b[1], Element());
        lathe::multiply_add(sum[2 * n + 1], a, b[2], b[3], Element());
      }
    }
  }
  lathe::copy_async_wait<0>();  // of a block without keys

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = row[half].sum;
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const float factor = lathe::OnlineSoftmax::finish(total);
    const int i = warp_row + lane / 4 + 8 * half;
    if (first + i >= p.Sq) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const float pair[2] = {sum[n][2 * half] * factor, sum[n][2 * half + 1] * factor};
      lathe::store_global(p.out + query + i * stride + 8 * n + lane % 4 * 2,
                          lathe::pack<Element, 4>(pair));
    }
  }
}
