// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_decode_latent: attention_decode with values that are the first columns of the keys, as
// in multi-head latent attention (DeepSeek-AI, DeepSeek-V2, 2024), whose keys are 576 wide.
//
// Each row of the cache is read once and serves as key and as value. Rows of a tile and parts of
// the keys are those of decode/rows.cuh. A row of sums is too wide for the registers of a warp:
// kGroups warps share 16 rows. In q k^T each has a part of the columns, whose sums they exchange,
// so that all know all scores; in the second product each has a part of the columns of the values.
#pragma once
#include "attention/decode/blocks.cuh"
#include "attention/decode/results.cuh"
#include "attention/results.cuh"
#include "attention/shared_columns.cuh"

namespace lathe {

struct LatentRow {
  long long k;

  static __device__ __forceinline__ LatentRow of(const AttentionForwardParams& p,
                                                 const KeyAddress& at) {
    return {at.page >= 0 ? at.page * p.k_batch_stride + at.row * p.k_token_stride : -1};
  }
};

// [q][kStages tiles of keys][partial scores][kStages lists of rows]. Of a cache in 8 bits the
// stages hold rows as they are; before them there is a tile, and behind the lists are the rows'
// numbers in the cache and their scales.
template <class Config>
struct AttentionDecodeLatentSmem {
  using Row = LatentRow;
  static constexpr int kScaleLists = 1;
  static constexpr int kWarps = Config::kThreads / 32, kGroups = kWarps * 16 / Config::kTileM;
  static constexpr int kQ = Tile<Config::kTileM, Config::kWidth>::kBytes;
  static constexpr int kK = Tile<Config::kTileN, Config::kWidth>::kBytes;
  static constexpr bool kNarrow = NarrowOf<Config>::kValue != kWideRows;
  static constexpr int kStage =
      kNarrow ? RawTile<Config, Config::kTileN, Config::kWidth>::kBytes : kK;
  static constexpr int kStagesAt = kQ + (kNarrow ? kK : 0);
  static constexpr int kScoresAt = kStagesAt + Config::kStages * kStage;
  static constexpr int kRowsAt = kScoresAt + kWarps * 16 * Config::kTileN * 4;
  static constexpr int kSlotsAt = kRowsAt + Config::kStages * Config::kTileN * 8;
  static constexpr int kScalesAt = kSlotsAt + Config::kStages * Config::kTileN * 4;
  static constexpr int kBytes =
      kNarrow ? kScalesAt + Config::kStages * Config::kTileN * 4 : kSlotsAt;
};

template <class Config>
struct AttentionDecodeLatent {
  using Element = typename Config::Element;
  using Smem = AttentionDecodeLatentSmem<Config>;
  using Pieces = DecodeConfig<Config>;
  using View = DecodeView<Config>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  static constexpr int kStages = Config::kStages, kGroups = Smem::kGroups;
  static constexpr int kKeyTiles = kTileN / 8;
  static constexpr int kOutTiles = Config::kValueWidth / 8 / kGroups;
  using Scores = float[1][kKeyTiles][4];
  using O = float[1][kOutTiles][4];
  static_assert(Smem::kWarps * 16 == kTileM * kGroups, "kGroups warps for every 16 rows");
  static_assert(4 % kGroups == 0 && kOutTiles % 4 == 0, "warps take turns with blocks of columns");
  static_assert(Config::kWidth % (16 * kGroups) == 0, "whole blocks of 16 columns");

  const AttentionDecodeParams& decode;
  const AttentionForwardParams& p;
  const QueryTile& tile;
  char* const shared;
  const DecodeBlocks<Config, Smem> blocks;
  const DecodeSplit split;
  const int lane, group, row_warp;

  // ---- copies

  __device__ __forceinline__ void copy_narrow(int stage) const {
    const LatentRow* rows = blocks.rows(stage);
    copy_raw<Config, kTileN, Config::kWidth>(
        blocks.raw_at(stage), static_cast<const unsigned char*>(p.k) + tile.head * p.k_head_stride,
        p.head_dim, [&](int r) {
          return TileRow{rows[r].k, rows[r].k >= 0};
        });
    if (NarrowOf<Config>::kValue != kRowScales || threadIdx.x >= kTileN) return;
    const int slot = blocks.slots(stage)[threadIdx.x];
    copy_async_word(shared_address(blocks.scales(stage) + threadIdx.x),
                    static_cast<const float*>(decode.scales.k) + slot, slot >= 0);
  }
  __device__ __forceinline__ void widen_block(int stage, float scale) const {
    const float* scales = blocks.scales(stage);
    widen_rows<Config, kTileN, Config::kWidth>(
        blocks.block_at(stage), blocks.raw_at(stage),
        [&](int r) { return NarrowOf<Config>::kValue == kRowScales ? scales[r] : scale; });
  }
  __device__ __forceinline__ void copy_block(int stage) const {
    if constexpr (Smem::kNarrow) return copy_narrow(stage);
    const LatentRow* rows = blocks.rows(stage);
    copy_rows<kTileN, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        blocks.block_at(stage), static_cast<const Element*>(p.k) + tile.head * p.k_head_stride,
        p.head_dim, [&](int r) {
          return TileRow{rows[r].k, rows[r].k >= 0};
        });
  }

  // Returns it for tile n of the warp's sums.
  __device__ __forceinline__ int column(int n) const {
    return (n / 2 * kGroups + group) * 16 + n % 2 * 8;
  }

  __device__ __forceinline__ void visit(const typename View::Walk& visits, const DecodePart& part,
                                        const ScoreUnits<Pieces>& units,
                                        const DecodeRows<Config>& rows, RunningSoftmax<1>& softmax,
                                        O& o) const;
  __device__ __forceinline__ void store(float t, const DecodeRows<Config>& rows,
                                        const RunningSoftmax<1>& softmax, const O& o) const;
  __device__ __forceinline__ void run() const;
};

template <class Config>
__device__ __forceinline__ void AttentionDecodeLatent<Config>::visit(
    const typename View::Walk& visits, const DecodePart& part, const ScoreUnits<Pieces>& units,
    const DecodeRows<Config>& rows, RunningSoftmax<1>& softmax, O& o) const {
  using Columns = SharedColumns<Element, kTileM, kTileN, kGroups>;
  blocks.start_q();
  const auto positions = View{decode, tile}.positions();
  float scale = 1.0f;
  const auto start = [&] {
    if constexpr (NarrowOf<Config>::kValue == kHeadScales) {
      scale = head_scale(decode.scales.k, 0, 0);
    }
  };
  const auto multiply = [&](int block, int stage) {
    const Columns columns{lane, group};
    Scores s = {};
    columns.template multiply_keys<Config::kWidth>(shared_address(shared) + row_warp * 16 * 128,
                                                   blocks.block_at(stage), s[0]);
    share_scores<kGroups, kTileN>(
        shared_address(shared) + Smem::kScoresAt + row_warp * (kGroups * 16 * kTileN * 4), group,
        1 + row_warp, s[0]);
    modify_block<Config>(s, units, rows, tile, visits, block, block * kTileN, positions);
    Accumulated<Element, kKeyTiles> p_words[1];
    softmax_step<true>(s, units.t, softmax, o, p_words);
    columns.template multiply_values<Config::kWidth>(blocks.block_at(stage), p_words[0], o[0]);
  };
  blocks.walk(
      part.first, part.last, [&](int stage) { copy_block(stage); }, start,
      [&](int stage) { widen_block(stage, scale); }, multiply);
}

// The warp's columns of out, and by one of the warps that share rows their lse.
template <class Config>
__device__ __forceinline__ void AttentionDecodeLatent<Config>::store(
    float t, const DecodeRows<Config>& rows, const RunningSoftmax<1>& softmax, const O& o) const {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int warp_row = rows.warp_row(0, half, lane);
    const int query = rows.query(tile, warp_row, lane), head = rows.head(tile, warp_row);
    const float sum = quad_sum(softmax.sum[0][half]);
    const RowEnd end = decode_row_end<Config>(decode, query < tile.rows, head, split,
                                              softmax.most[0][half], sum, t);
    store_decoded<Config, kOutTiles>(decode, tile, split, query, head, half, end, group == 0, o,
                                     [&](int n) { return column(n); });
  }
}

template <class Config>
__device__ __forceinline__ void AttentionDecodeLatent<Config>::run() const {
  const auto visits = View{decode, tile}.visits();
  const DecodePart part(visits, split);
  if (part.first >= part.last && split.count > 1) {
    return store_empty_split<Config>(decode, tile, split);
  }
  const DecodeRows<Config> rows(tile, row_warp);
  const ScoreUnits<Pieces> units(p, tile, rows);
  RunningSoftmax<1> softmax;
  start_empty(softmax);
  O o = {};
  if (part.first < part.last) visit(visits, part, units, rows, softmax, o);
  store(units.t, rows, softmax, o);
}

template <class Config>
__device__ void attention_decode_latent(const AttentionDecodeParams& decode) {
  extern __shared__ __align__(1024) float4 shared[];
  const AttentionForwardParams& p = decode.forward;
  char* const memory = reinterpret_cast<char*>(shared);
  DecodeSplit split;
  const QueryTile tile = decode_tile<Config>(decode, memory, split);
  if (IsRagged<Config>::kValue && tile.sequence == kNoSequence) return;
  if (store_padding<Config>(decode, tile)) return;
  const PageTable table(decode.pages, tile.sequence);
  constexpr int kGroups = AttentionDecodeLatentSmem<Config>::kGroups;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  AttentionDecodeLatent<Config>{
      decode, p,    tile,           memory,        {decode, p, tile, table, memory},
      split,  lane, warp % kGroups, warp / kGroups}
      .run();
}

}  // namespace lathe
