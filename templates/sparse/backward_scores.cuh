// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A block of the backward of sparse attention does this up to p and dx: where its rows, keys and
// sums lie in shared memory, and the two products over columns, which the warps that share 16 heads
// divide among themselves.
#pragma once
#include "attention/softmax.cuh"
#include "common/shared_memory.cuh"
#include "sparse/copies.cuh"
#include "sparse/key_rows.cuh"
#include "sparse/score_shares.cuh"

namespace lathe {

// [q][dout][kStages tiles of k][and of v][p][dx][partial scores][the list of keys][lse2][delta]
template <class Config>
struct SparseBackwardSmem {
  static constexpr int kTile = Config::kTileN;
  static constexpr int kQ = Tile<Config::kTileM, Config::kWidth>::kBytes;
  static constexpr int kDout = Tile<Config::kTileM, Config::kValueWidth>::kBytes;
  static constexpr int kK = Tile<kTile, Config::kWidth>::kBytes;
  static constexpr int kV = Config::kValuesInKeys ? 0 : Tile<kTile, Config::kValueWidth>::kBytes;
  static constexpr int kScores = Tile<Config::kTileM, kTile>::kBytes;
  static constexpr int kDoutAt = kQ, kKeysAt = kDoutAt + kDout;
  static constexpr int kValuesAt = kKeysAt + Config::kStages * kK;
  static constexpr int kPAt = kValuesAt + Config::kStages * kV;
  static constexpr int kGradientsAt = kPAt + kScores;
  static constexpr int kSharedAt = kGradientsAt + kScores;
  static constexpr int kShared = Config::kThreads / 32 * 16 * kTile * 4;
  static constexpr int kListAt = kSharedAt + kShared;
  static constexpr int kRowsAt = kListAt + KeyListSmem<kTile>::kBytes;
  static constexpr int kBytes = kRowsAt + 8 * Config::kTileM;
};

template <class Config>
struct SparseScores {
  using Element = typename Config::Element;
  using Smem = SparseBackwardSmem<Config>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  static constexpr int kStages = Config::kStages, kWarps = Config::kThreads / 32;
  static constexpr int kGroups = kWarps * 16 / kTileM;  // warps that share 16 heads
  static constexpr int kHeadBlocks = kTileM / 16, kKeyBlocks = kTileN / 16;
  static constexpr int kKeyTiles = kTileN / 8;
  using Shares = ScoreShares<kGroups, kKeyTiles>;
  static constexpr int kShare = Shares::kShare;      // scores of a lane, summed up
  static constexpr int kRows = kShare >= 4 ? 2 : 1;  // that they are of
  static_assert(kGroups == 2 || kGroups == 4, "scores are exchanged, blocks of columns in turn");
  // A tile's keys are in the list until its rows have been added.
  static_assert(kStages == 1 || (kStages == 2 && kTileN >= 32), "the list holds four tiles");
  static_assert(!Config::kValuesInKeys || Config::kValueWidth <= Config::kWidth, "columns of k");

  struct WarpTile {
    int lane, warp;
    int group, heads;  // among those that share 16 heads, and the first of these

    // The head of row r of the lane's share, counted in the tile, and its tile of 8 keys.
    __device__ __forceinline__ int share_row(int r) const {
      return heads + lane / 4 + 8 * (kRows == 2 ? r : group % 2);
    }
    __device__ __forceinline__ int share_tile(int i) const { return (group * kShare + i) / 4; }
  };
  using Scores = float[kKeyTiles][4];
  using Share = float[kShare];

  const SparseBackwardParams& p;
  const SparseInputs& in;
  const SparseRow at;
  const unsigned shared;

  __device__ __forceinline__ SparseScores(const SparseBackwardParams& params, unsigned memory)
      : p(params),
        in(params.in),
        at(sparse_row<Config>(params.in,
                              blockIdx.x + static_cast<unsigned>(params.first_row) *
                                               (params.in.kv_heads * params.in.head_tiles))),
        shared(memory) {}

  // Made again where they are used rather than held all the while: dq leaves few registers.
  static __device__ __forceinline__ WarpTile warp_tile() {
    const int thread = thread_index(), warp = thread / 32;
    return {thread % 32, warp, warp % kGroups, warp / kGroups * 16};
  }
  __device__ __forceinline__ unsigned list() const { return shared + Smem::kListAt; }
  __device__ __forceinline__ unsigned k_tile(int tile) const {
    return shared + Smem::kKeysAt + tile % kStages * Smem::kK;
  }
  __device__ __forceinline__ unsigned v_tile(int tile) const {
    return Config::kValuesInKeys ? k_tile(tile)
                                 : shared + Smem::kValuesAt + tile % kStages * Smem::kV;
  }
  // The `count` keys of a tile, and their values.
  __device__ __forceinline__ void copy_keys(int tile, int count) const {
    copy_listed_keys<Config>(in, at, list(), tile * kTileN, count, k_tile(tile));
    if constexpr (!Config::kValuesInKeys) {
      copy_listed_values<Config>(in, at, list(), tile * kTileN, count, v_tile(tile));
    }
  }
  // Waits for the warps with the same heads alone.
  __device__ __forceinline__ void group_barrier() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warp_tile().warp / kGroups), "n"(32 * kGroups)
                 : "memory");
  }

  __device__ __forceinline__ void note_rows() const;
  __device__ __forceinline__ void multiply_scores(int tile, Scores& s, Scores& dp) const;
  __device__ __forceinline__ void share_out(const Scores& s, Share& share) const;
  __device__ __forceinline__ void make_p_and_ds(const Share& s, const Share& dp, int count) const;
};

// lse log2 e and delta of the heads: +inf and 0 for those that are not there or see no key.
template <class Config>
__device__ __forceinline__ void SparseScores<Config>::note_rows() const {
  const int head = static_cast<int>(threadIdx.x);
  if (head >= kTileM) return;
  float lse2 = -minus_infinity(), delta = 0.0f;
  if (head < at.heads && at.limit > 0) {
    const float lse =
        load_element(static_cast<const float*>(p.lse) + at.lse(in, at.first_head + head));
    if (lse != minus_infinity()) lse2 = __fmul_rn(lse, kLog2E);
    delta = load_element(static_cast<const float*>(p.delta) + at.row * in.heads +
                         first_head_of(in, at) + head);
  }
  store_shared(shared + Smem::kRowsAt + 4 * head, bit_cast<unsigned>(lse2));
  store_shared(shared + Smem::kRowsAt + 4 * (kTileM + head), bit_cast<unsigned>(delta));
}

// The warp's columns of q k^T and dout v^T: blocks of 16 in turn with the warps that share its
// heads. Values in keys are read once for both.
template <class Config>
__device__ __forceinline__ void SparseScores<Config>::multiply_scores(int tile, Scores& s,
                                                                      Scores& dp) const {
  constexpr int kSteps = Config::kWidth / 16 / kGroups;
  constexpr int kValueSteps = Config::kValueWidth / 16 / kGroups;
  constexpr int kBoth = kSteps < kValueSteps ? kSteps : kValueSteps;
  const auto [lane, warp, group, heads] = warp_tile();
  const int row = lane & 15, chunk = (lane >> 4) + 2 * group;
  const int key = (lane & 7) + (lane >> 4) * 8, key_chunk = ((lane >> 3) & 1) + 2 * group;
  const TileReader<kTileM, Config::kWidth> q_reader(shared + heads * 128, row, chunk);
  const TileReader<kTileM, Config::kValueWidth> dout_reader(shared + Smem::kDoutAt + heads * 128,
                                                            row, chunk);
  const TileReader<kTileN, Config::kWidth> k_reader(k_tile(tile), key, key_chunk);
  const TileReader<kTileN, Config::kValueWidth> v_reader(v_tile(tile), key, key_chunk);
  const auto step = [&](int d, bool scores, bool values) {
    Fragment<Element> q, dout;
    if (scores) load_fragment(q, q_reader, 0, d * kGroups);
    if (values) load_fragment(dout, dout_reader, 0, d * kGroups);
#pragma unroll
    for (int n = 0; n < kKeyTiles; n += 2) {
      Fragment<Element> keys;
      if (scores) {
        load_fragment(keys, k_reader, n / 2, d * kGroups);
        multiply_add_pair(s[n], s[n + 1], q, keys);
      }
      if (values) {
        if (!scores || !Config::kValuesInKeys) load_fragment(keys, v_reader, n / 2, d * kGroups);
        multiply_add_pair(dp[n], dp[n + 1], dout, keys);
      }
    }
  };
  // A panel or two at a time: unrolled further, the compiler reads so far ahead that it spills.
#pragma unroll 4
  for (int d = 0; d < kBoth; ++d) step(d, true, true);
#pragma unroll 4
  for (int d = kBoth; d < kSteps; ++d) step(d, true, false);
#pragma unroll 4
  for (int d = kBoth; d < kValueSteps; ++d) step(d, false, true);
}

// Each warp's part of the sums over all columns.
template <class Config>
__device__ __forceinline__ void SparseScores<Config>::share_out(const Scores& s,
                                                                Share& share) const {
  const WarpTile at_warp = warp_tile();
  const unsigned memory = shared + Smem::kSharedAt + at_warp.heads / 16 * Shares::kBytes;
  Shares::put(memory, at_warp.lane, at_warp.group, s);
  group_barrier();  // the others' sums are there
  Shares::sum(memory, at_warp.lane, at_warp.group, share);
}

// p and dx of the lane's share, into their tiles: 0 for keys that are not there.
template <class Config>
__device__ __forceinline__ void SparseScores<Config>::make_p_and_ds(const Share& s, const Share& dp,
                                                                    int count) const {
  const float t = in.scale * kLog2E;
  const WarpTile warp = warp_tile();
  float lse2[kRows], delta[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const unsigned row = shared + Smem::kRowsAt + 4 * warp.share_row(r);
    lse2[r] = bit_cast<float>(load_shared_word(row));
    delta[r] = bit_cast<float>(load_shared_word(row + 4 * kTileM));
  }
#pragma unroll
  for (int i = 0; i < kShare; i += 2) {
    const int r = kRows == 2 ? i / 2 % 2 : 0, key = warp.lane % 4 * 2, tile = warp.share_tile(i);
    float weight[2], gradient[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const bool there = 8 * tile + key + c < count;
      weight[c] = there ? ex2_flushed(__fmaf_rn(s[i + c], t, -lse2[r])) : 0.0f;
      gradient[c] = there ? __fmul_rn(weight[c], __fsub_rn(dp[i + c], delta[r])) : 0.0f;
    }
    const unsigned to = shared + chunk_offset<kTileM, kTileN>(warp.share_row(r), tile) + 2 * key;
    store_shared(to + Smem::kPAt, pack_pair(weight[0], weight[1], Element{}));
    store_shared(to + Smem::kGradientsAt, pack_pair(gradient[0], gradient[1], Element{}));
  }
}

}  // namespace lathe
