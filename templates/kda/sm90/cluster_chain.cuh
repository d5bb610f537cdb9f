// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The chain over the segments of a head, whose thread blocks are a cluster (sm_90a).
//
//   S_1 = E_0       S_{p+1} = M_p S_p + E_p      S_p: the state before segment p
//
// Rows of S^T, one for each value, do not meet. A block takes 32 of them through all links, and as
// many again until none is left; a warp makes 16 columns of them. So up to four blocks work and no
// more: each reads all of M, and L2 gives no more than that in time. What a warp reads of M nobody
// else in its block does, so that it goes to registers, two links ahead. S^T of all warps is in
// shared memory, as the first operand of the next product.
//
// M is its diagonal, in float32, and the rest, in bfloat16. The diagonal has what decays leave of a
// state; the rest is sums of beta k k^T, whose factors are bfloat16 already, as the rows are that
// the walks multiply. It multiplies S in bfloat16, as rows of a walk do. So a link adds what one
// more block of tokens would to the error of a walk, and not that much in each number of the state.
//
// Everything goes through L2, in the order in which the registers of a warp have it. A block tells
// the others by barriers in their shared memory.
#pragma once
#include "common/mbarrier.cuh"
#include "kda/scan.cuh"
#include "lathe/cluster.cuh"
#include "params/kda_warpgroups.h"

namespace lathe {

// How a cluster cuts a sequence, in blocks of 16 tokens. The first segment, which is walked once
// and with its outputs, is a quarter longer than the others: their walks for E and M take as long.
struct KdaClusterCut {
  int each, first, used;  // used: segments with tokens

  __device__ __forceinline__ KdaClusterCut(int tokens, int segments) {
    const int blocks = ceil_div(tokens, 16);
    each = ceil_div(kKdaOtherShare * blocks, kKdaOtherShare * (segments - 1) + kKdaFirstShare);
    first = maximum(each, blocks - (segments - 1) * each);
    used = blocks == 0 ? 0 : 1 + ceil_div(maximum(blocks - first, 0), each);
  }
  // The block where a segment begins.
  __device__ __forceinline__ int begin(int segment) const {
    return segment == 0 ? 0 : first + (segment - 1) * each;
  }
};

template <class Config>
struct KdaClusterChain {
  static constexpr int kWidth = Config::kWidth, kWarps = kWidth / 16;
  static constexpr int kSteps = kWidth / 16;  // of the index that is summed over
  static constexpr int kTiles = 2;            // of 16 rows, of a round
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kMostBlocks = kWidth / kRows;  // that work
  static constexpr int kPart = 32 * 16;               // a fragment of a first operand, of all lanes
  static constexpr int kState = kTiles * kSteps * kPart;
  static constexpr int kBytes = 2 * kState;  // before and behind a link
  static_assert(kWarps == 8, "as many warps walk");
  // Numbers of E^T or S^T, [rows / 16][columns / 16][lane][8 sums of a product]. Rows and columns
  // that are not there are zeros.
  static constexpr int kEnd = kWidth * kWidth, kTile = 16 * 16;
  // Words of a map: fragments of second operands, [columns / 16][steps][lane][4], and the diagonal.
  static constexpr int kFragments = kWarps * kSteps * 32 * 4, kMap = kFragments + kWidth;
  static_assert(kMap == kKdaClusterMap && kEnd == kKdaClusterEnd);
  using Rows = float[kTiles][2][4];  // a lane's sums

  struct Link {  // the warp's columns of M and E
    unsigned word[kSteps][4];
    float diagonal[2][2];
    Rows end;
  };

  const KdaForwardWarpgroupsParams& p;
  const KdaScanTile& tile;
  const unsigned states, given;  // shared memory; the barrier of states is the next one
  const int segments, used;      // used: those with tokens

  __device__ __forceinline__ KdaClusterChain(const KdaForwardWarpgroupsParams& params,
                                             const KdaScanTile& of, unsigned shared,
                                             unsigned barriers)
      : p(params),
        tile(of),
        states(shared),
        given(barriers),
        segments(params.forward.in.segments),
        used(KdaClusterCut(kda_tokens_of<Config>(params.forward.in, of.sequence).count, segments)
                 .used) {}

  // The last blocks of the cluster work: the first one walks meanwhile.
  __device__ __forceinline__ int workers() const { return minimum(segments - 1, kMostBlocks); }
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  // In [N, segments, HV, ..].
  __device__ __forceinline__ long long run_of(int segment) const {
    const KdaInputs& in = p.forward.in;
    return (static_cast<long long>(tile.sequence) * segments + segment) * in.value_heads +
           tile.head;
  }
  __device__ __forceinline__ float* map_of(int segment) const {
    return static_cast<float*>(p.forward.transitions) + run_of(segment) * kMap;
  }
  // E^T, or later S^T behind the segment.
  __device__ __forceinline__ float* end_of(int segment) const {
    return static_cast<float*>(const_cast<void*>(p.forward.summaries)) + run_of(segment) * kEnd;
  }
  __device__ __forceinline__ unsigned given_state() const { return given + 8; }

  __device__ __forceinline__ void init() const;
  template <class State>
  __device__ __forceinline__ void give_end(const State& end) const;
  template <class State>
  __device__ __forceinline__ void give_map(State& map) const;
  __device__ __forceinline__ void tell() const;
  static __device__ __forceinline__ void load_tile(const float* from, float (&x)[4], float (&y)[4]);
  static __device__ __forceinline__ void store_tile(float* to, const float (&x)[4],
                                                    const float (&y)[4]);
  static __device__ __forceinline__ void load_rows(const float* from, Rows& x);
  static __device__ __forceinline__ void load(const float* map, const float* end, int lane,
                                              Link& to);
  static __device__ __forceinline__ void go(const Link& link, unsigned state, int lane, float* end,
                                            Rows& x);
  __device__ __forceinline__ void run_rows(int row) const;
  __device__ __forceinline__ void run() const;
  template <class State>
  __device__ __forceinline__ void take(State& state) const;
};

// By one thread. A block waits for both barriers, if anybody arrives there, so that it is not gone
// when somebody does.
template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::init() const {
  mbarrier_init(given, kWarps * maximum(used - 1, 1));
  // Without links the state before segment 1 is E of the block before; else from those who work.
  mbarrier_init(given_state(), kWarps * (used > 2 ? workers() : 1));
}

// E of the segment, or of the first one the state behind it, by the warps that have it.
template <class Config>
template <class State>
__device__ __forceinline__ void KdaClusterChain<Config>::give_end(const State& end) const {
  float* const to = end_of(tile.segment) + warp() * kWarps * kTile + 8 * fresh_lane();
#pragma unroll
  for (int c = 0; c < kWarps; ++c) store_tile(to + c * kTile, end.s[2 * c], end.s[2 * c + 1]);
}

// M of the segment.
template <class Config>
template <class State>
__device__ __forceinline__ void KdaClusterChain<Config>::give_map(State& map) const {
  const int lane = fresh_lane(), g = lane / 4, t = lane % 4;
  float* const to = map_of(tile.segment);
  float diagonal[2] = {};
#pragma unroll
  for (int c = 0; c < kWarps; ++c) {
    unsigned word[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // rows g and g + 8
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float pair[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          pair[e] = map.s[2 * c + n][2 * h + e];
          if (n == h && c == warp() && 2 * t + e == g) diagonal[h] = pair[e], pair[e] = 0.0f;
        }
        word[2 * n + h] = transpose_matrix(pack_pair(pair[0], pair[1], bf16{}));
      }
    }
    store_global(to + ((c * kSteps + warp()) * 32 + lane) * 4, bit_cast<Words<16>>(word));
  }
  if (t == g / 2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      store_element(to + kFragments + 16 * warp() + g + 8 * h, diagonal[h]);
    }
  }
}

// Tells those who work, or, where there are no links, the block behind the first one.
template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::tell() const {
  const int lane = fresh_lane();
  __syncwarp();  // all lanes' stores come before a lane's arrival
  if (used > 2) {
    if (lane >= segments - workers() && lane < segments) mbarrier_arrive_cluster(given, lane);
  } else if (lane == 1) {
    mbarrier_arrive_cluster(given_state(), 1);
  }
}

// The lane's sums of 16 rows and two times 8 columns. By plain loads, as all here: the grid writes
// what it reads.
template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::load_tile(const float* from, float (&x)[4],
                                                                   float (&y)[4]) {
  const float4 left = *reinterpret_cast<const float4*>(from);
  const float4 right = *reinterpret_cast<const float4*>(from + 4);
  x[0] = left.x, x[1] = left.y, x[2] = left.z, x[3] = left.w;
  y[0] = right.x, y[1] = right.y, y[2] = right.z, y[3] = right.w;
}

template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::store_tile(float* to, const float (&x)[4],
                                                                    const float (&y)[4]) {
  Words<16> left, right;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    left.word[i] = bit_cast<unsigned>(x[i]), right.word[i] = bit_cast<unsigned>(y[i]);
  }
  store_global(to, left), store_global(to + 4, right);
}

template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::load_rows(const float* from, Rows& x) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) load_tile(from + i * kWarps * kTile, x[i][0], x[i][1]);
}

template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::load(const float* map, const float* end,
                                                              int lane, Link& to) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint4 four = *reinterpret_cast<const uint4*>(map + (step * 32 + lane) * 4);
    to.word[step][0] = four.x, to.word[step][1] = four.y;
    to.word[step][2] = four.z, to.word[step][3] = four.w;
  }
  // `map` is that of the warp's columns.
  const float* const diagonal = map - warp() * kSteps * 32 * 4 + kFragments + 16 * warp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float2 pair = *reinterpret_cast<const float2*>(diagonal + 8 * n + 2 * (lane % 4));
    to.diagonal[n][0] = pair.x, to.diagonal[n][1] = pair.y;
  }
  load_rows(end, to.end);
}

// x becomes the rows of the state behind the segment, and goes to where its E was.
template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::go(const Link& link, unsigned state,
                                                            int lane, float* end, Rows& x) {
  const unsigned from = state + 16 * lane;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    store_shared(from + (i * kSteps + warp()) * kPart, fragment_of<bf16>(x[i][0], x[i][1]).word[0]);
  }
  // Every warp's columns are there, and all have left those of the link before the last.
  named_barrier_sync<1, 32 * kWarps>();
  Rows sum = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      unsigned of[4];
      load_shared(from + (i * kSteps + step) * kPart, of);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        multiply_add(sum[i][n], of, link.word[step][2 * n], link.word[step][2 * n + 1], bf16{});
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float rest = __fadd_rn(sum[i][n][j], link.end[i][n][j]);
        x[i][n][j] = __fmaf_rn(x[i][n][j], link.diagonal[n][j % 2], rest);
      }
    }
    store_tile(end + i * kWarps * kTile, x[i][0], x[i][1]);
  }
}

// Some rows through all links.
template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::run_rows(int row) const {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const long long end_stride = static_cast<long long>(p.forward.in.value_heads) * kEnd;
  const long long map_stride = static_cast<long long>(p.forward.in.value_heads) * kMap;
  float* end = end_of(1) + (row / 16 * kWarps + warp()) * kTile + 8 * lane;
  const float* map = map_of(1) + warp() * kSteps * 32 * 4;
  Rows x;
  Link odd, even;
  load_rows(end - end_stride, x);
  load(map, end, lane, odd);
  int left = used - 2;  // links
  if (left > 1) load(map + map_stride, end + end_stride, lane, even);
#pragma unroll 1
  while (true) {
    go(odd, states, lane, end, x);
    if (left > 2) load(map + 2 * map_stride, end + 2 * end_stride, lane, odd);
    if (--left == 0) break;
    map += map_stride, end += end_stride;
    go(even, states + kState, lane, end, x);
    if (left > 2) load(map + 2 * map_stride, end + 2 * end_stride, lane, even);
    if (--left == 0) break;
    map += map_stride, end += end_stride;
  }
  named_barrier_sync<1, 32 * kWarps>();  // nobody reads the state any more
}

// By all warps that walk. They tell of the states once: it takes as long as the way to memory.
template <class Config>
__device__ __forceinline__ void KdaClusterChain<Config>::run() const {
  const int worker = static_cast<int>(cluster_rank()) - (segments - workers());
  if (used <= 2 || worker < 0) return;
  mbarrier_wait_cluster(given, 0);
#pragma unroll 1
  for (int row = kRows * worker; row < kWidth; row += kRows * workers()) run_rows(row);
  __syncwarp();  // all lanes' stores come before a lane's arrival
  const int lane = fresh_lane();
  if (lane >= 1 && lane < used) mbarrier_arrive_cluster(given_state(), lane);
}

// The state before the segment, which is not the first one.
template <class Config>
template <class State>
__device__ __forceinline__ void KdaClusterChain<Config>::take(State& state) const {
  mbarrier_wait_cluster(given_state(), 0);
  const float* const from = end_of(tile.segment - 1) + warp() * kWarps * kTile + 8 * fresh_lane();
#pragma unroll
  for (int c = 0; c < kWarps; ++c) {
    load_tile(from + c * kTile, state.s[2 * c], state.s[2 * c + 1]);
  }
}

}  // namespace lathe
