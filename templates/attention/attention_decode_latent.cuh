// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_decode_latent: attention_decode with values that are the first columns of the keys, as
// in multi-head latent attention (DeepSeek-AI, DeepSeek-V2, 2024), whose keys are 576 wide.
//
// Each row of the cache is read once and serves as key and as value. Rows of a tile and parts of
// the keys are those of decode_rows.cuh. A row of sums is too wide for the registers of a warp:
// kGroups warps share 16 rows. In q k^T each has a part of the columns, whose sums they exchange,
// so that all know all scores; in the second product each has a part of the columns of the values.
#pragma once
#include "attention/decode_results.cuh"
#include "attention/narrow_rows.cuh"
#include "attention/operand.cuh"
#include "attention/results.cuh"
#include "attention/rotary.cuh"
#include "attention/score_sums.cuh"
#include "attention/scores.cuh"

namespace lathe {

// [q][kStages tiles of keys][partial scores][kStages lists of rows]. Of a cache in 8 bits the
// stages hold rows as they are; before them there is a tile, and behind the lists are the rows'
// numbers in the cache and their scales.
template <class Config>
struct AttentionDecodeLatentSmem {
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
  static constexpr int kSteps = Config::kWidth / 16 / kGroups;  // of a warp, in q k^T
  static constexpr int kKeyTiles = kTileN / 8;
  static constexpr int kOutTiles = Config::kValueWidth / 8 / kGroups;
  using Scores = float[1][kKeyTiles][4];
  using O = float[1][kOutTiles][4];
  static_assert(Smem::kWarps * 16 == kTileM * kGroups, "kGroups warps for every 16 rows");
  static_assert(kStages >= 2 && kTileN <= Config::kThreads, "a row for a thread");
  static_assert(4 % kGroups == 0 && kOutTiles % 4 == 0, "warps take turns with blocks of columns");
  static_assert(Config::kWidth % (16 * kGroups) == 0, "whole blocks of 16 columns");

  const AttentionDecodeParams& decode;
  const AttentionForwardParams& p;
  const QueryTile& tile;
  const PageTable& table;
  char* const shared;
  const int split;
  const int lane, group, row_warp;

  __device__ __forceinline__ unsigned keys_at(int stage) const {
    return shared_address(shared) + Smem::kQ + (Smem::kNarrow ? 0 : stage * Smem::kStage);
  }

  // ---- copies

  // The rows of a block begin at these offsets, in elements from the head's first; a negative one:
  // the row is absent.
  __device__ __forceinline__ long long* row_list(int stage) const {
    return reinterpret_cast<long long*>(shared + Smem::kRowsAt) + stage * kTileN;
  }
  // The table's entry of the thread's own key of a block; -1 where there is none.
  __device__ __forceinline__ int page_entry(int block, int first) const {
    const int key = block * kTileN + static_cast<int>(threadIdx.x);
    const bool wanted = block >= first && threadIdx.x < kTileN && key < tile.keys;
    return wanted && key >= View{decode, tile}.first() ? table.entry(key) : -1;
  }
  __device__ __forceinline__ void list_row(int stage, int block, int entry) const {
    if (threadIdx.x >= kTileN) return;
    const KeyAddress address = table.address(block * kTileN + static_cast<int>(threadIdx.x), entry);
    row_list(stage)[threadIdx.x] =
        address.page >= 0 ? address.page * p.k_batch_stride + address.row * p.k_token_stride : -1;
    if constexpr (NarrowOf<Config>::kValue == kRowScales) {
      slot_list(stage)[threadIdx.x] =
          address.page >= 0 ? address.page * decode.pages.page + address.row : -1;
    }
  }
  __device__ __forceinline__ int* slot_list(int stage) const {
    return reinterpret_cast<int*>(shared + Smem::kSlotsAt) + stage * kTileN;
  }
  __device__ __forceinline__ float* scale_list(int stage) const {
    return reinterpret_cast<float*>(shared + Smem::kScalesAt) + stage * kTileN;
  }
  __device__ __forceinline__ void copy_narrow(int stage) const {
    const long long* rows = row_list(stage);
    copy_raw<Config, kTileN, Config::kWidth>(
        shared_address(shared) + Smem::kStagesAt + stage * Smem::kStage,
        static_cast<const unsigned char*>(p.k) + tile.head * p.k_head_stride, p.head_dim,
        [&](int r) {
          return TileRow{rows[r], rows[r] >= 0};
        });
    if (NarrowOf<Config>::kValue != kRowScales || threadIdx.x >= kTileN) return;
    const int slot = slot_list(stage)[threadIdx.x];
    copy_async_word(shared_address(scale_list(stage) + threadIdx.x),
                    static_cast<const float*>(decode.scales.k) + slot, slot >= 0);
  }
  __device__ __forceinline__ void widen_block(int stage, float scale) const {
    const float* scales = scale_list(stage);
    widen_rows<Config, kTileN, Config::kWidth>(
        keys_at(stage), shared_address(shared) + Smem::kStagesAt + stage * Smem::kStage,
        [&](int r) { return NarrowOf<Config>::kValue == kRowScales ? scales[r] : scale; });
  }
  __device__ __forceinline__ void copy_block(int stage) const {
    if constexpr (Smem::kNarrow) return copy_narrow(stage);
    const long long* rows = row_list(stage);
    copy_rows<kTileN, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        keys_at(stage), static_cast<const Element*>(p.k) + tile.head * p.k_head_stride, p.head_dim,
        [&](int r) {
          return TileRow{rows[r], rows[r] >= 0};
        });
  }
  __device__ __forceinline__ void copy_q() const {
    const Element* q = static_cast<const Element*>(p.q) +
                       decode_offset<Config>(tile, p.q_batch_stride, p.q_token_stride);
    const long long rows = static_cast<long long>(tile.rows) * tile.group;
    copy_tile<kTileM, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        shared_address(shared), q, saturate(rows - tile.first), p.head_dim,
        [&](int r) { return query_offset<Pieces>(tile, r, p.q_token_stride, p.q_head_stride); });
  }

  __device__ __forceinline__ void start_q() const {
    copy_q();
    if constexpr (IsRotary<Config>::kValue) rotate_queries<Config>(decode, tile, table, shared);
  }

  // ---- one block of keys

  // The warp's columns of q k^T: blocks of 16 in turn with the warps that share its rows.
  __device__ __forceinline__ void multiply_keys(int stage, Scores& s) const {
    const TileReader<kTileM, Config::kWidth> q_reader(shared_address(shared) + row_warp * 16 * 128,
                                                      lane & 15, (lane >> 4) + 2 * group);
    const TileReader<kTileN, Config::kWidth> k_reader(keys_at(stage), (lane & 7) + (lane >> 4) * 8,
                                                      ((lane >> 3) & 1) + 2 * group);
#pragma unroll
    for (int d = 0; d < kSteps; ++d) {
      Fragment<Element> q;
      load_fragment(q, q_reader, 0, d * kGroups);
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        Fragment<Element> keys;
        load_fragment(keys, k_reader, n / 2, d * kGroups);
        multiply_add_pair(s[0][n], s[0][n + 1], q, keys);
      }
    }
  }
  __device__ __forceinline__ void multiply_values(int stage,
                                                  const Accumulated<Element, kKeyTiles>& p_words,
                                                  O& o) const {
    const TileReader<kTileN, Config::kWidth> reader(keys_at(stage), lane & 15,
                                                    (lane >> 4) + 2 * group);
#pragma unroll
    for (int j = 0; j < kKeyTiles / 2; ++j) {
      const Fragment<Element> w = p_words.operand(j);
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        Fragment<Element> values;
        load_fragment_transposed(values, reader, j, n / 2 * kGroups);
        multiply_add_pair(o[0][n], o[0][n + 1], w, values);
      }
    }
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

// The blocks of a part, right to left. Stage i % kStages holds block last - 1 - i; its rows are
// looked up two steps ahead, once by a load into a register and once by a store to the list, so
// that no copy waits for the table.
template <class Config>
__device__ __forceinline__ void AttentionDecodeLatent<Config>::visit(
    const typename View::Walk& visits, const DecodePart& part, const ScoreUnits<Pieces>& units,
    const DecodeRows<Config>& rows, RunningSoftmax<1>& softmax, O& o) const {
  const int first = part.first, last = part.last;
  start_q();
  const auto positions = View{decode, tile}.positions();
  int entries[kStages];
#pragma unroll
  for (int i = 0; i < kStages; ++i) entries[i] = page_entry(last - 1 - i, first);
#pragma unroll
  for (int i = 0; i < kStages; ++i) list_row(i, last - 1 - i, entries[i]);
  int entry = page_entry(last - 1 - kStages, first);
  __syncthreads();  // the lists are there for all
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (last - 1 - i >= first) copy_block(i);
    copy_async_commit();
  }
  float scale = 1.0f;
  if constexpr (NarrowOf<Config>::kValue == kHeadScales) {
    scale = head_scale(decode.scales.k, 0, 0);
  }
  int stage = 0, behind = kStages - 1;  // of the block at hand, and of the last one
#pragma unroll 1
  for (int block = last - 1; block >= first; --block) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // the block is there for all; all have left the stage that is refilled now
    if constexpr (Smem::kNarrow) widen_block(stage, scale);
    if (block - (kStages - 1) >= first) copy_block(behind);
    copy_async_commit();
    if constexpr (Smem::kNarrow) __syncthreads();  // the tile is there for all
    list_row(stage, block - kStages, entry);       // read last before this barrier
    entry = page_entry(block - kStages - 1, first);

    Scores s = {};
    multiply_keys(stage, s);
    share_scores<kGroups, kTileN>(
        shared_address(shared) + Smem::kScoresAt + row_warp * (kGroups * 16 * kTileN * 4), group,
        1 + row_warp, s[0]);
    const int key = block * kTileN;
    if (block >= visits.right || block < visits.left) {
      modify_scores<Pieces, AttentionMask::both>(s, units, rows, tile, visits.window, key,
                                                 positions);
    } else {
      modify_scores<Pieces, AttentionMask::none>(s, units, rows, tile, visits.window, key,
                                                 positions);
    }
    Accumulated<Element, kKeyTiles> p_words[1];
    softmax_step<true>(s, units.t, softmax, o, p_words);
    multiply_values(stage, p_words[0], o);
    behind = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  copy_async_wait<0>();
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
    const RowEnd end =
        decode_row_end<Config>(decode, query < tile.rows, head, softmax.most[0][half], sum, t);
    store_decoded<Config, kOutTiles>(decode, tile, split, query, head, half, end, group == 0, o,
                                     [&](int n) { return column(n); });
  }
}

template <class Config>
__device__ __forceinline__ void AttentionDecodeLatent<Config>::run() const {
  const auto visits = View{decode, tile}.visits();
  const DecodePart part(visits, decode.splits, split);
  if (part.first >= part.last && decode.splits > 1) {
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
  int split;
  const QueryTile tile = decode_tile<Config>(decode, split);
  if (IsRagged<Config>::kValue && !has_rows(tile)) return;
  if (store_padding<Config>(decode, tile, split)) return;
  const PageTable table(decode.pages, tile.sequence);
  constexpr int kGroups = AttentionDecodeLatentSmem<Config>::kGroups;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  AttentionDecodeLatent<Config>{
      decode, p,    tile,           table,         reinterpret_cast<char*>(shared),
      split,  lane, warp % kGroups, warp / kGroups}
      .run();
}

}  // namespace lathe
