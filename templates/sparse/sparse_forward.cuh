// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_forward: softmax attention of each row over the keys that its list names.
//
//   x_j = scale (q . k_j + q_rope . k_rope_j)    m = max_j x_j (and the sink)
//   l   = sum_j e^(x_j - m) (+ e^(sink - m))     out = sum_j e^(x_j - m) v_j / l,  lse = m + ln l
//
// A block owns a row and kTileM heads of one key head: they are the rows of the products, for all
// of them read the same keys. Keys come in tiles of kTileN, gathered two tiles ahead (sparse/
// key_list.cuh), each once. kGroups warps share 16 heads: in q k^T each has a part of the columns,
// whose sums they exchange, so that all know all scores and nobody the softmax of another; in the
// second product each has a part of the columns of v. Rotary columns stand behind the others in the
// same tiles. (Portable form of the sparse prefill of DeepSeek-AI, FlashMLA, 2025.)
#pragma once
#include "attention/shared_columns.cuh"
#include "attention/softmax.cuh"
#include "sparse/copies.cuh"

namespace lathe {

// [q][kStages tiles of k][kStages tiles of v][partial scores][the list of keys]. Of rows of bytes
// there is one tile of k, and behind the list there are kStages tiles of the rows as they are.
template <class Config>
struct SparseForwardSmem {
  static constexpr int kTile = Config::kTileN;
  static constexpr int kQ = Tile<Config::kTileM, Config::kWidth>::kBytes;
  static constexpr int kK = Tile<kTile, Config::kWidth>::kBytes;
  static constexpr int kV = Config::kValuesInKeys ? 0 : Tile<kTile, Config::kValueWidth>::kBytes;
  static constexpr bool kBytesOfRows = NarrowOf<Config>::kValue == kByteRows;
  static constexpr int kRaw = kBytesOfRows ? kTile * ByteRow::kBytes : 0;
  static constexpr int kKeysAt = kQ;
  static constexpr int kValuesAt = kKeysAt + (kBytesOfRows ? 1 : Config::kStages) * kK;
  static constexpr int kScoresAt = kValuesAt + Config::kStages * kV;
  static constexpr int kScores = Config::kGroups > 1 ? Config::kThreads / 32 * 16 * kTile * 4 : 0;
  static constexpr int kListAt = kScoresAt + kScores;
  static constexpr int kRawAt = kListAt + KeyListSmem<kTile>::kBytes;
  static constexpr int kBytes = kRawAt + Config::kStages * kRaw;
};

template <class Config>
struct SparseForward {
  using Element = typename Config::Element;
  using Smem = SparseForwardSmem<Config>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN, kGroups = Config::kGroups;
  static constexpr int kWarps = Config::kThreads / 32, kStages = Config::kStages;
  static constexpr int kOutTiles = Config::kValueWidth / 8 / kGroups;
  static constexpr int kKeyTiles = kTileN / 8;
  static_assert(kWarps * 16 == kTileM * kGroups, "kGroups warps for every 16 heads");
  static_assert(kStages == 2 || (kStages == 3 && kTileN >= 32), "the list's ring holds no more");
  static_assert(4 % kGroups == 0 && kOutTiles % 4 == 0, "warps take turns with blocks of columns");

  const SparseForwardParams& p;
  const SparseInputs& in;
  const SparseRow at;
  const int split;
  const unsigned shared;
  const int lane, warp, group, heads_at;  // heads_at: first of the warp's 16

  __device__ __forceinline__ SparseForward(const SparseForwardParams& params, unsigned memory)
      : p(params),
        in(params.in),
        at(sparse_row<Config>(params.in, blockIdx.x / params.splits)),
        split(static_cast<int>(blockIdx.x % params.splits)),
        shared(memory),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        group(warp % kGroups),
        heads_at(warp / kGroups * 16) {}

  __device__ __forceinline__ unsigned k_tile(int tile) const {
    return shared + Smem::kKeysAt + (Smem::kBytesOfRows ? 0 : tile % kStages * Smem::kK);
  }
  __device__ __forceinline__ unsigned raw_tile(int tile) const {
    return shared + Smem::kRawAt + tile % kStages * Smem::kRaw;
  }
  __device__ __forceinline__ unsigned v_tile(int tile) const {
    return Config::kValuesInKeys ? k_tile(tile)
                                 : shared + Smem::kValuesAt + tile % kStages * Smem::kV;
  }
  __device__ __forceinline__ void copy_keys(int tile, int count) const;
  __device__ __forceinline__ void store(const RunningSoftmax<1>& softmax,
                                        const float (&o)[kOutTiles][4]) const;
  __device__ __forceinline__ void run() const;
};

// The `count` keys of a tile, and their values.
template <class Config>
__device__ __forceinline__ void SparseForward<Config>::copy_keys(int tile, int count) const {
  const unsigned list = shared + Smem::kListAt;
  if constexpr (Smem::kBytesOfRows) {
    return copy_listed_bytes<Config>(in, at, list, tile * kTileN, count, raw_tile(tile));
  }
  copy_listed_keys<Config>(in, at, list, tile * kTileN, count, k_tile(tile));
  if constexpr (!Config::kValuesInKeys) {
    copy_listed_values<Config>(in, at, list, tile * kTileN, count, v_tile(tile));
  }
}

// out, the statistics and lse of the warp's heads and columns; padding gets those of an empty row.
template <class Config>
__device__ __forceinline__ void SparseForward<Config>::store(const RunningSoftmax<1>& softmax,
                                                             const float (&o)[kOutTiles][4]) const {
  const int g = lane / 4, t = lane % 4, all_heads = at.kv_head * (in.heads / in.kv_heads);
  const long long part =
      static_cast<long long>(split) * (gridDim.x / p.splits / in.kv_heads / in.head_tiles) + at.row;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int tile_row = heads_at + g + 8 * half, head = at.first_head + tile_row;
    const bool there = tile_row < at.heads;
    float most = softmax.most[0][half], sum = quad_sum(softmax.sum[0][half]), factor = 1.0f;
    most = most == minus_infinity() ? most : __fmul_rn(most, in.scale);
    const float own_most = most, own_sum = sum;  // without the sink
    if constexpr (Config::kSinks) {
      if (p.splits == 1 && at.inside && there) {
        const float sink = load_element(static_cast<const float*>(in.sinks) + all_heads + head);
        const float larger = fmaxf(most, sink), base = larger == minus_infinity() ? 0.0f : larger;
        factor = ex2_flushed(__fmul_rn(__fsub_rn(most, base), kLog2E));
        // A sink of +inf takes all weight.
        const float added =
            sink == base ? 1.0f : ex2_flushed(__fmul_rn(__fsub_rn(sink, base), kLog2E));
        sum = __fmaf_rn(sum, factor, added);
        most = larger;
      }
    }
    const float scale = sum == 0.0f ? 0.0f : factor * rcp(sum);
    if (there && t == 0 && group == 0) {
      if (p.splits > 1) {
        const long long to = part * in.heads + all_heads + head;
        store_element(static_cast<float*>(p.partial_max) + to, most);
        store_element(static_cast<float*>(p.partial_sum) + to, at.inside ? sum : -1.0f);
      } else {
        if (p.sinks_apart) most = own_most, sum = own_sum;
        const long long to = at.statistic(in, head);
        if (p.softmax_max != nullptr) store_element(static_cast<float*>(p.softmax_max) + to, most);
        if (p.softmax_sum != nullptr) store_element(static_cast<float*>(p.softmax_sum) + to, sum);
        if (p.lse != nullptr) {
          store_element(static_cast<float*>(p.lse) + at.lse(in, head),
                        sum == 0.0f ? minus_infinity() : __fmaf_rn(lg2(sum), kLn2, most));
        }
      }
    }
    const long long offset =
        at.offset(p.out_batch_stride, p.out_token_stride) + (all_heads + head) * p.out_head_stride;
    if (sizeof(typename Config::Out) == sizeof(float) || p.splits > 1) {
      float* to = p.splits > 1 ? static_cast<float*>(p.partial_out) +
                                     (part * in.heads + all_heads + head) * in.value_dim
                               : static_cast<float*>(p.out) + offset;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        const int column = (n / 2 * kGroups + group) * 16 + n % 2 * 8 + 2 * t;
        const float pair[2] = {o[n][2 * half] * scale, o[n][2 * half + 1] * scale};
        if (there && column < in.value_dim) store_global(to + column, pack<f32, 8>(pair));
      }
    } else {
      Element* to = static_cast<Element*>(p.out) + offset;
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 4) {
        unsigned word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          word[i] =
              pack_pair(o[n + i][2 * half] * scale, o[n + i][2 * half + 1] * scale, Element{});
        }
        const Words<16> columns = turn_in_quad(word);
        const int column = ((n + t) / 2 * kGroups + group) * 16 + (n + t) % 2 * 8;
        if (there && column < in.value_dim) store_global(to + column, columns);
      }
    }
  }
}

template <class Config>
__device__ __forceinline__ void SparseForward<Config>::run() const {
  const unsigned list = shared + Smem::kListAt;
  KeyListMaker<kTileN, HasExtra<Config>::kValue> maker(in, at, list, split, p.splits);
  if (warp == 0) {
#pragma unroll 1
    for (int tile = 0; tile < kStages; ++tile) maker.make(tile);
  }
  __syncthreads();  // the keys of as many tiles are named as there is room for, and of the next one
  int count = listed_keys<kTileN>(list, 0);
  float o[1][kOutTiles][4] = {};
  RunningSoftmax<1> softmax = {{{minus_infinity(), minus_infinity()}}, {{0.0f, 0.0f}}};
  if (count > 0) copy_query_heads<Config>(in, at, shared), copy_keys(0, count);
  copy_async_commit();
  if constexpr (kStages == 3) {
    const int next = listed_keys<kTileN>(list, 1);
    if (next > 0) copy_keys(1, next);
    copy_async_commit();
  }
  const float t = in.scale * kLog2E;
#pragma unroll 1
  for (int tile = 0; count > 0; ++tile) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // the tile is there for all; all have left the last one, and the list goes on
    const int ahead = listed_keys<kTileN>(list, tile + kStages - 1);
    const int more = kStages == 2 ? ahead : listed_keys<kTileN>(list, tile + 1);
    if constexpr (Smem::kBytesOfRows) {
      widen_rows<Config, kTileN, Config::kWidth>(k_tile(tile), raw_tile(tile),
                                                 [](int) { return 1.0f; });
    }
    if (ahead > 0) copy_keys(tile + kStages - 1, ahead);
    copy_async_commit();
    if constexpr (Smem::kBytesOfRows) __syncthreads();  // the tile is there for all
    if (warp == 0) maker.make(tile + kStages);

    const SharedColumns<Element, kTileM, kTileN, kGroups> columns{lane, group};
    float s[1][kKeyTiles][4] = {};
    columns.template multiply_keys<Config::kWidth>(shared + heads_at * 128, k_tile(tile), s[0]);
    share_scores<kGroups, kTileN>(shared + Smem::kScoresAt + (warp - group) * (16 * kTileN * 4),
                                  group, 1 + warp / kGroups, s[0]);
    if (count < kTileN) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * n + lane % 4 * 2 + i % 2 >= count) s[0][n][i] = minus_infinity();
        }
      }
    }
    Accumulated<Element, kKeyTiles> p_words[1];
    softmax_step<false>(s, t, softmax, o, p_words);  // every tile has a key, which all heads see
    columns.template multiply_values<Config::kValueWidth>(v_tile(tile), p_words[0], o[0]);
    count = more;
  }
  store(softmax, o[0]);
}

template <class Config>
__device__ void sparse_forward(const SparseForwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  SparseForward<Config>(p, shared_address(shared)).run();
}

}  // namespace lathe
