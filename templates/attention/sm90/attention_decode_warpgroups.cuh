// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_decode_warpgroups: attention_decode_latent.cuh's results, by warpgroups with roles
// (sm_90a).
//
// A block has 64 rows and two blocks of 64 keys, "even" and "odd", in shared memory. The sums of a
// row, 512 columns, take two warpgroups' registers: the left one has columns 0 to 255, the right
// one the others. The left one computes the scores of even blocks, the right one of odd blocks, and
// each hands its P to the other through shared memory, so that both multiply all of them with
// their own columns. While one computes a softmax products run (after the "seesaw" of DeepSeek-AI,
// FlashMLA, 2025). The maximum of a row goes from even to odd block and on to the next pair. Two
// warps of a third warpgroup copy keys by tensor maps, a panel of 64 columns at a time: a product
// begins with the first one that has landed.
#pragma once
#include "attention/decode/results.cuh"
#include "attention/operand.cuh"
#include "attention/results.cuh"
#include "attention/scores.cuh"
#include "attention/sm90/decode_buffers.cuh"
#include "attention/sm90/lazy_rescale.cuh"
#include "attention/sm90/register_split.cuh"
#include "attention/sm90/uniform_tile.cuh"
#include "common/shared_memory.cuh"
#include "common/wgmma.cuh"

namespace lathe {

// A consumer: the left one with kOdd 0, the right one with kOdd 1.
template <class Config, int kOdd>
struct DecodeConsumer {
  using Element = typename Config::Element;
  using Smem = AttentionDecodeWarpgroupsSmem<Config>;
  using Pieces = DecodeConfig<Config>;
  using Scores = float[1][8][4];
  using O = float[1][32][4];
  using P = Accumulated<Element, 8>;
  static constexpr int kHalf = Smem::kHalf, kPanels = Smem::kPanels, kPanel = Smem::kPanel;
  enum What { kEvenMaxima, kOddMaxima, kEvenSums, kOddSums };
  // Named barriers of both warpgroups: one arrives, the other waits. Behind kEvenAsked the product
  // of the odd block's scores is asked for, so that the even one's, which more waits for, is first;
  // behind the next two there are a block's P and maxima. kEvenRead is the left one's own.
  enum Barrier { kEvenAsked = 1, kEvenThere, kOddThere, kBoth, kEvenRead };

  const AttentionDecodeParams& decode;
  const QueryTile& tile;
  const DecodeBuffers<Config> buffers;
  const DecodeSplit split;
  const int warp;  // of the warpgroup

  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }
  __device__ __forceinline__ unsigned block_row(int half) const {
    return warp * 16 + 8 * half + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ void put_row(What what, int half, float value) const {
    if (threadIdx.x % 4 == 0) {
      store_shared(buffers.of_row(what, block_row(half)), bit_cast<unsigned>(value));
    }
  }
  __device__ __forceinline__ float get_row(What what, int half) const {
    return bit_cast<float>(load_shared_word(buffers.of_row(what, block_row(half))));
  }

  // ---- products

  // s += q k^T over some panels of the keys.
  template <int kBegin, int kEnd>
  __device__ __forceinline__ void start_qk(unsigned phase, bool add, Scores& s) const {
    const WgmmaTile q = warp_uniform(wgmma_columns(buffers.q()));
    const WgmmaTile k = warp_uniform(wgmma_columns(buffers.keys(kOdd)));
    auto& d = reinterpret_cast<float(&)[32]>(s);
#pragma unroll
    for (int panel = kBegin; panel < kEnd; ++panel) {
      mbarrier_wait(buffers.full(kOdd, panel), phase);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const unsigned at = panel * kPanel + step * 32;
        Wgmma<64, false, Element>::run(d, q.at(at), k.at(at), add || panel > kBegin || step > 0);
      }
    }
    wgmma_commit();
  }
  // The warpgroup's columns of the even or odd block as values.
  __device__ __forceinline__ WgmmaTile values(unsigned odd) const {
    return warp_uniform(wgmma_rows<kPanel>(buffers.keys(odd) + kOdd * kHalf * kPanel));
  }
  // o += P v, with P of this warpgroup, or that of the other one.
  __device__ __forceinline__ void start_pv(const P& p_words, O& o) const {
    const WgmmaTile v = values(kOdd);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Wgmma<256, true, Element>::run(reinterpret_cast<float(&)[128]>(o), p_words.word[step],
                                     v.at(step * 16 * 128), 1);
    }
    wgmma_commit();
  }
  // All four steps of the product, or some.
  template <int kBegin = 0, int kEnd = 4>
  __device__ __forceinline__ void start_other_pv(O& o) const {
    const WgmmaTile w = warp_uniform(wgmma_columns(buffers.p(1 - kOdd))), v = values(1 - kOdd);
    wgmma_fence();
#pragma unroll
    for (int step = kBegin; step < kEnd; ++step) {
      Wgmma<256, true, Element>::run(reinterpret_cast<float(&)[128]>(o), w.at(step * 32),
                                     v.at(step * 16 * 128), 1);
    }
    wgmma_commit();
  }
  static __device__ __forceinline__ void fence_operands(Scores& s) {
    wgmma_fence_operands(reinterpret_cast<float(&)[32]>(s));
  }
  static __device__ __forceinline__ void fence_operands(O& o) {
    wgmma_fence_operands(reinterpret_cast<float(&)[128]>(o));
  }

  // ---- softmax

  __device__ __forceinline__ void modify(Scores& s, const ScoreUnits<Pieces>& units,
                                         const DecodeRows<Config>& rows,
                                         const Visits<Pieces>& visits, int block) const {
    const int key = block * 64;
    if (uniform(block >= visits.right || block < visits.left)) {
      modify_scores<Pieces, AttentionMask::both>(s, units, rows, tile, visits.window, key);
    } else {
      modify_scores<Pieces, AttentionMask::none>(s, units, rows, tile, visits.window, key);
    }
  }
  static __device__ __forceinline__ float row_maximum(const Scores& s, int half) {
    float most = minus_infinity();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      most = fmaxf(most, fmaxf(s[0][n][2 * half], s[0][n][2 * half + 1]));
    }
    return quad_max(most);
  }
  // S of a row becomes P, whose sum is returned.
  static __device__ __forceinline__ float exponentiate(Scores& s, int half, float base, float t) {
    const float shift = __fmul_rn(base, t);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& y = s[0][n][2 * half + c];
        y = weight<Element>(y, base, t, shift);
        sum += y;
      }
    }
    return sum;
  }
  static __device__ __forceinline__ void pack(const Scores& s, P& p_words) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      p_words.put(n, 0, s[0][n][0], s[0][n][1]);
      p_words.put(n, 1, s[0][n][2], s[0][n][3]);
    }
  }
  // Stores P where the other warpgroup multiplies it.
  __device__ __forceinline__ void hand_over(const P& p_words) const {
    const int lane = threadIdx.x % 32, row = warp * 16 + (lane & 15);
    const unsigned to = buffers.p(kOdd) + panel_offset(row, lane >> 4);
#pragma unroll
    for (int step = 0; step < 4; ++step) store_matrix(to ^ (step * 32), p_words.word[step]);
    fence_shared_writes();
  }
  static __device__ __forceinline__ void rescale(O& o, const float (&scale)[2]) {
    if (!uniform(scale[0] != 1.0f || scale[1] != 1.0f)) return;
#pragma unroll
    for (int n = 0; n < 32; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o[0][n][c] *= scale[c / 2];
    }
  }

  // Maxima go up to those of the own block, or to those that the other warpgroup has put. `scale`:
  // what all sums so far are multiplied by.
  static __device__ __forceinline__ void raise(float most, int half, float t,
                                               RunningSoftmax<1>& softmax, float (&scale)[2]) {
    const float before = softmax.most[0][half];
    scale[half] = ex2_flushed(__fmul_rn(__fsub_rn(before, finite_base(most)), t));
    softmax.most[0][half] = most;
    softmax.sum[0][half] *= scale[half];
  }
  __device__ __forceinline__ void put_maxima(const Scores& s, float t, RunningSoftmax<1>& softmax,
                                             float (&scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float most = lazy_maximum(softmax.most[0][half], row_maximum(s, half), t);
      put_row(kOdd ? kOddMaxima : kEvenMaxima, half, most);
      raise(most, half, t, softmax, scale);
    }
  }
  __device__ __forceinline__ void take_maxima(float t, RunningSoftmax<1>& softmax,
                                              float (&scale)[2]) const {
    named_barrier_sync<kOdd ? kEvenThere : kOddThere, 256>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      raise(get_row(kOdd ? kEvenMaxima : kOddMaxima, half), half, t, softmax, scale);
    }
  }
  // S becomes P, which the other warpgroup gets with the maxima.
  __device__ __forceinline__ void make_p(Scores& s, float t, RunningSoftmax<1>& softmax,
                                         P& p_words) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      softmax.sum[0][half] += exponentiate(s, half, finite_base(softmax.most[0][half]), t);
    }
    pack(s, p_words);
    // The even block's P replaces keys that other warps' products of scores may still read.
    if constexpr (kOdd == 0) named_barrier_sync<kEvenRead, 128>();
    hand_over(p_words);
    named_barrier_arrive<kOdd ? kOddThere : kEvenThere, 256>();
  }

  // S of this warpgroup's block becomes P, and that multiplies the block's values.
  __device__ __forceinline__ void softmax_and_pv(Scores& s, float t, const float (&scale)[2],
                                                 RunningSoftmax<1>& softmax, O& o) const {
    P p_words;
    make_p(s, t, softmax, p_words);
    rescale(o, scale);
    start_pv(p_words, o);
    wgmma_wait<0>();
    fence_operands(o);
    arrive(kOdd ? buffers.free_right(1) : buffers.free_left(0));
  }

  // ---- a pair of blocks, of which the odd one may be missing: its number is then below `first`
  //
  // In time, where "v" are products with a block's values:
  //
  //   tensor cores   even scores | odd scores, left even v | right even v | odd v | even scores
  //   left                       | even softmax            |              |       |
  //   right                      |                         | odd softmax  |       |
  //
  // So a block's memory is free, and its successor on the way, one step before it is needed.

  // `s`: the scores of the even block, and at the end those of the next one. No product is under
  // way at either end, which is what the compiler can follow around a loop.
  __device__ __forceinline__ void left_pair(int block, int first, unsigned phase,
                                            const ScoreUnits<Pieces>& units,
                                            const DecodeRows<Config>& rows,
                                            const Visits<Pieces>& visits,
                                            RunningSoftmax<1>& softmax, Scores& s, O& o) const {
    float scale[2];
    modify(s, units, rows, visits, block);
    put_maxima(s, units.t, softmax, scale);
    softmax_and_pv(s, units.t, scale, softmax, o);
    if (!uniform(block > first)) return;
    take_maxima(units.t, softmax, scale);
    rescale(o, scale);
    start_other_pv(o);
    if (uniform(block > first + 1)) {
      start_qk<0, kHalf>(phase ^ 1, false, s);
      wgmma_wait<1>();
      fence_operands(o);
      arrive(buffers.free_left(1));
      start_qk<kHalf, kPanels>(phase ^ 1, true, s);
      named_barrier_arrive<kEvenAsked, 256>();
      wgmma_wait<0>();
      fence_operands(s);
    } else {
      wgmma_wait<0>();
      fence_operands(o);
    }
  }

  // While the first half of the even block's product runs, the maxima of the odd one are found.
  __device__ __forceinline__ void right_pair(int block, unsigned phase,
                                             const ScoreUnits<Pieces>& units,
                                             const DecodeRows<Config>& rows,
                                             const Visits<Pieces>& visits,
                                             RunningSoftmax<1>& softmax, O& o) const {
    Scores s;
    float scale[2];
    named_barrier_sync<kEvenAsked, 256>();
    start_qk<kHalf, kPanels>(phase, false, s);
    start_qk<0, kHalf>(phase, true, s);
    take_maxima(units.t, softmax, scale);
    wgmma_wait<0>();
    fence_operands(s);
    rescale(o, scale);
    start_other_pv<0, 2>(o);
    modify(s, units, rows, visits, block);
    put_maxima(s, units.t, softmax, scale);
    start_other_pv<2, 4>(o);
    wgmma_wait<0>();
    fence_operands(o);
    arrive(buffers.free_right(0));
    softmax_and_pv(s, units.t, scale, softmax, o);
  }
  // The last even block, without an odd one.
  __device__ __forceinline__ void right_last(float t, RunningSoftmax<1>& softmax, O& o) const {
    float scale[2];
    named_barrier_sync<kEvenAsked, 256>();
    take_maxima(t, softmax, scale);
    rescale(o, scale);
    start_other_pv(o);
    wgmma_wait<0>();
    fence_operands(o);
  }

  // ---- the whole part

  __device__ __forceinline__ void copy_q() const {
    const AttentionForwardParams& p = decode.forward;
    const Element* q = static_cast<const Element*>(p.q) +
                       decode_offset<Config>(tile, p.q_batch_stride, p.q_token_stride);
    const long long rows = static_cast<long long>(tile.rows) * tile.group;
    copy_tile<64, Config::kWidth, 256>(
        buffers.q(), q, saturate(rows - tile.first), p.head_dim,
        [&](int r) { return query_offset<Pieces>(tile, r, p.q_token_stride, p.q_head_stride); });
    copy_async_commit();
    copy_async_wait<0>();
  }
  // Rows of a page behind the last key hold anything, and a weight of 0 times that may be NaN.
  __device__ __forceinline__ void clear_tail(int block) const {
    const int keys = tile.keys - block * 64;
    if (keys >= 64) return;
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) mbarrier_wait(buffers.full(0, panel), 0);
    for (int i = static_cast<int>(threadIdx.x); i < (64 - keys) * kPanels * 8; i += 256) {
      const int row = keys + i / 8 % (64 - keys), panel = i / 8 / (64 - keys);
      const unsigned to = buffers.keys(0) + panel * kPanel + row * 128 + i % 8 * 16;
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
  }
  __device__ __forceinline__ void store(float t, const DecodeRows<Config>& rows,
                                        const RunningSoftmax<1>& softmax, const O& o) const {
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = quad_sum(softmax.sum[0][half]);
      put_row(kOdd ? kOddSums : kEvenSums, half, sum[half]);
    }
    named_barrier_sync<kBoth, 256>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float other = get_row(kOdd ? kEvenSums : kOddSums, half);
      const int warp_row = rows.warp_row(0, half, threadIdx.x);
      const int query = rows.query(tile, warp_row, threadIdx.x), head = rows.head(tile, warp_row);
      const RowEnd end = decode_row_end<Config>(decode, query < tile.rows, head, split,
                                                softmax.most[0][half], sum[half] + other, t);
      store_decoded<Config, 32>(decode, tile, split, query, head, half, end, kOdd == 0, o,
                                [](int n) { return kOdd * 256 + n * 8; });
    }
  }
  __device__ __forceinline__ void run(const Visits<Pieces>& visits, const DecodePart& part) const {
    const DecodeRows<Config> rows(tile, warp);
    const ScoreUnits<Pieces> units(decode.forward, tile, rows);
    RunningSoftmax<1> softmax;
    start_empty(softmax);
    O o = {};
    if (part.first < part.last) {
      copy_q();
      clear_tail(part.last - 1);
      fence_shared_writes();
      named_barrier_sync<kBoth, 256>();
      unsigned phase = 0;
      Scores s;
      if constexpr (kOdd == 0) {
        start_qk<0, kPanels>(0, false, s);
        named_barrier_arrive<kEvenAsked, 256>();
        wgmma_wait<0>();
        fence_operands(s);
      }
#pragma unroll 1
      for (int block = part.last - 1; block >= part.first; block -= 2) {
        if constexpr (kOdd == 0) {
          left_pair(block, part.first, phase, units, rows, visits, softmax, s, o);
        } else {
          if (uniform(block > part.first)) {
            right_pair(block - 1, phase, units, rows, visits, softmax, o);
          } else {
            right_last(units.t, softmax, o);
          }
        }
        phase ^= 1;
      }
    }
    store(units.t, rows, softmax, o);
  }
};

template <class Config>
__device__ void attention_decode_warpgroups(const AttentionDecodeWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  using Pieces = DecodeConfig<Config>;
  const AttentionDecodeParams& decode = p.decode;
  const DecodeBuffers<Config> buffers = {shared_address(shared)};
  DecodeSplit split;
  const QueryTile tile = decode_tile<Config>(decode, reinterpret_cast<char*>(shared), split);
  if (IsRagged<Config>::kValue && tile.sequence == kNoSequence) return;
  if (store_padding<Config>(decode, tile)) return;
  const PageTable table(decode.pages, tile.sequence);
  const Visits<Pieces> visits(decode.forward, tile);
  const DecodePart part(visits, split);
  if (part.first >= part.last && split.count > 1) {
    return store_empty_split<Config>(decode, tile, split);
  }
  if (threadIdx.x == 256) {
    prefetch_tensor_map(p.k);
    buffers.init();
  }
  __syncthreads();  // the barriers are there for all
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp >= 8) {
    setmaxnreg_dec<kTwoConsumers.producer>();
    if (warp < 10) copy_keys<Config>(p, buffers, tile, table, part, warp - 8);
  } else {
    setmaxnreg_inc<kTwoConsumers.consumer>();
    if (warp < 4) {
      DecodeConsumer<Config, 0>{decode, tile, buffers, split, warp}.run(visits, part);
    } else {
      DecodeConsumer<Config, 1>{decode, tile, buffers, split, warp - 4}.run(visits, part);
    }
  }
}

}  // namespace lathe
