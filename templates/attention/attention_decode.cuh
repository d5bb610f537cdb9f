// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_decode: softmax(scores) V of a few query rows over a paged cache of keys and values.
//
//   the equations of attention_forward.cuh, with the keys of sequence b in pages (decode/pages.cuh)
//
// The memory's bandwidth bounds it, so what counts is that k and v are read once, 16 bytes at a
// time, with copies always in flight. Rows of a tile and parts of the keys are those of
// decode/rows.cuh. Few rows leave warps without rows of their own: a warp owns 16 rows and 1 /
// kKeyWarps of each block of kTileN keys, and what the warps of the same rows have summed is merged
// in shared memory at the end.
#pragma once
#include "attention/decode/blocks.cuh"
#include "attention/results.cuh"

namespace lathe {

template <class Config>
struct AttentionDecodeShape {
  static constexpr int kWarps = Config::kThreads / 32, kRowWarps = Config::kTileM / 16;
  static constexpr int kKeyWarps = kWarps / kRowWarps;
  static constexpr int kWarpKeys = Config::kTileN / kKeyWarps;  // of one block of keys
  static constexpr int kKeyTiles = kWarpKeys / 8, kOutTiles = Config::kValueWidth / 8;
  static constexpr int kSteps = Config::kWidth / 16;
  static constexpr bool kKeepQ = kSteps * 4 <= 32;  // in registers
  // The pitch of the merge's rows, in floats: a quad's eight rows fall into different banks.
  static constexpr int kPitch = Config::kValueWidth + 8;
  static_assert(kWarps == kRowWarps * kKeyWarps && kWarpKeys % 16 == 0, "whole blocks of 16");
};

struct alignas(16) KeyRow {
  long long k, v;

  static __device__ __forceinline__ KeyRow of(const AttentionForwardParams& p,
                                              const KeyAddress& at) {
    if (at.page < 0) return {-1, -1};
    return {at.page * p.k_batch_stride + at.row * p.k_token_stride,
            at.page * p.v_batch_stride + at.row * p.v_token_stride};
  }
};

// [Q][kStages of K and V][kStages of rows], then [sums of each warp][its maxima][its denominators].
// Of a cache in 8 bits the stages hold rows as they are; before them there is a tile of K and V,
// and behind the rows their numbers in the cache and their scales.
template <class Config>
struct AttentionDecodeSmem {
  using Shape = AttentionDecodeShape<Config>;
  using Row = KeyRow;
  static constexpr int kScaleLists = 2;  // of keys, and behind it of values
  static constexpr int kQ = 2 * Config::kTileM * Config::kWidth;
  static constexpr int kK = 2 * Config::kTileN * Config::kWidth;
  static constexpr int kV = 2 * Config::kTileN * Config::kValueWidth;
  static constexpr bool kNarrow = NarrowOf<Config>::kValue != kWideRows;
  static constexpr int kStage = kNarrow ? (kK + kV) / 2 : kK + kV;
  static constexpr int kStagesAt = kQ + (kNarrow ? kK + kV : 0);
  static constexpr int kRowsAt = kStagesAt + Config::kStages * kStage;
  static constexpr int kSlotsAt = kRowsAt + Config::kStages * Config::kTileN * 16;
  static constexpr int kScalesAt = kSlotsAt + Config::kStages * Config::kTileN * 4;
  static constexpr int kCopies =
      kNarrow ? kScalesAt + Config::kStages * Config::kTileN * 8 : kSlotsAt;
  static constexpr int kSums = 4 * Shape::kKeyWarps * Config::kTileM * Shape::kPitch;
  static constexpr int kMerge = kSums + 8 * Shape::kKeyWarps * Config::kTileM;
  static constexpr int kBytes = kCopies > kMerge ? kCopies : kMerge;
};

template <class Config>
struct AttentionDecode {
  using Element = typename Config::Element;
  using Shape = AttentionDecodeShape<Config>;
  using Smem = AttentionDecodeSmem<Config>;
  using Pieces = DecodeConfig<Config>;
  using View = DecodeView<Config>;
  using O = float[1][Shape::kOutTiles][4];
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  static constexpr int kStages = Config::kStages;

  const AttentionDecodeParams& decode;
  const AttentionForwardParams& p;
  const QueryTile& tile;
  char* const shared;
  const DecodeBlocks<Config, Smem> blocks;
  const DecodeSplit split;

  // ---- copies

  __device__ __forceinline__ void copy_scales(int stage) const {
    const int at = static_cast<int>(threadIdx.x), row = at % kTileN;
    if (at >= 2 * kTileN) return;
    const int slot = blocks.slots(stage)[row];
    const void* scales = at < kTileN ? decode.scales.k : decode.scales.v;
    copy_async_word(
        shared_address(blocks.scales(stage) + at),
        static_cast<const float*>(scales) + (static_cast<long long>(slot) * p.kv_heads + tile.head),
        slot >= 0);
  }
  __device__ __forceinline__ void copy_narrow(int stage) const {
    const KeyRow* rows = blocks.rows(stage);
    const unsigned to = blocks.raw_at(stage);
    const auto base = [&](const void* cache, long long stride) {
      return static_cast<const unsigned char*>(cache) + tile.head * stride;
    };
    copy_raw<Config, kTileN, Config::kWidth>(to, base(p.k, p.k_head_stride), p.head_dim,
                                             [&](int r) {
                                               return TileRow{rows[r].k, rows[r].k >= 0};
                                             });
    copy_raw<Config, kTileN, Config::kValueWidth>(to + Smem::kK / 2, base(p.v, p.v_head_stride),
                                                  p.value_dim, [&](int r) {
                                                    return TileRow{rows[r].v, rows[r].v >= 0};
                                                  });
    if constexpr (NarrowOf<Config>::kValue == kRowScales) copy_scales(stage);
  }
  // The block of a stage becomes the tile. `k` and `v`: the scales of the head.
  __device__ __forceinline__ void widen_block(int stage, float k, float v) const {
    constexpr bool kRows = NarrowOf<Config>::kValue == kRowScales;
    const unsigned raw = blocks.raw_at(stage);
    const unsigned to = blocks.block_at(stage);
    const float* scales = blocks.scales(stage);
    widen_rows<Config, kTileN, Config::kWidth>(to, raw,
                                               [&](int r) { return kRows ? scales[r] : k; });
    widen_rows<Config, kTileN, Config::kValueWidth>(
        to + Smem::kK, raw + Smem::kK / 2, [&](int r) { return kRows ? scales[kTileN + r] : v; });
  }
  __device__ __forceinline__ void copy_block(int stage) const {
    if constexpr (Smem::kNarrow) return copy_narrow(stage);
    const KeyRow* rows = blocks.rows(stage);
    const unsigned to = blocks.block_at(stage);
    copy_rows<kTileN, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        to, static_cast<const Element*>(p.k) + tile.head * p.k_head_stride, p.head_dim, [&](int r) {
          return TileRow{rows[r].k, rows[r].k >= 0};
        });
    copy_rows<kTileN, Config::kValueWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        to + Smem::kK, static_cast<const Element*>(p.v) + tile.head * p.v_head_stride, p.value_dim,
        [&](int r) {
          return TileRow{rows[r].v, rows[r].v >= 0};
        });
  }

  // ---- one block of keys

  template <class Fragments>
  __device__ __forceinline__ void multiply_keys(int stage, const Fragments& q_kept,
                                                float (&s)[1][Shape::kKeyTiles][4]) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row_warp = warp % Shape::kRowWarps, key_warp = warp / Shape::kRowWarps;
    const unsigned k_tile = blocks.block_at(stage);
    const auto q_reader = read_rows_first<kTileM, Config::kWidth>(shared_address(shared), lane);
    const auto k_reader = read_columns_first<kTileN, Config::kWidth>(k_tile, lane);
#pragma unroll
    for (int d = 0; d < Shape::kSteps; ++d) {
      unsigned q[4];
      if constexpr (Shape::kKeepQ) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[i] = q_kept[d][i];
      } else {
        load_matrix(q, q_reader.at(row_warp, d));
      }
#pragma unroll
      for (int n = 0; n < Shape::kKeyTiles; n += 2) {
        unsigned keys[4];
        load_matrix(keys, k_reader.at(key_warp * (Shape::kWarpKeys / 16) + n / 2, d));
        multiply_add(s[0][n], q, keys[0], keys[1], Element{});
        multiply_add(s[0][n + 1], q, keys[2], keys[3], Element{});
      }
    }
  }
  __device__ __forceinline__ void multiply_values(
      int stage, const Accumulated<Element, Shape::kKeyTiles> (&p_words)[1], O& o) const {
    const int lane = threadIdx.x % 32, key_warp = threadIdx.x / 32 / Shape::kRowWarps;
    const auto v_reader =
        read_rows_first<kTileN, Config::kValueWidth>(blocks.block_at(stage) + Smem::kK, lane);
#pragma unroll
    for (int j = 0; j < Shape::kKeyTiles / 2; ++j) {
      const Fragment<Element> w = p_words[0].operand(j);
#pragma unroll
      for (int n = 0; n < Shape::kOutTiles; n += 2) {
        unsigned values[4];
        load_matrix_transposed(values, v_reader.at(key_warp * (Shape::kWarpKeys / 16) + j, n / 2));
        multiply_add(o[0][n], w.word[0], values[0], values[1], Element{});
        multiply_add(o[0][n + 1], w.word[0], values[2], values[3], Element{});
      }
    }
  }

  __device__ __forceinline__ void visit(const typename View::Walk& visits, int first, int last,
                                        const ScoreUnits<Pieces>& units,
                                        const DecodeRows<Config>& rows, RunningSoftmax<1>& softmax,
                                        O& o) const;
  __device__ __forceinline__ void store(float t, const RunningSoftmax<1>& softmax,
                                        const O& o) const;
  __device__ __forceinline__ void store_row(int row, int column, const float (&o)[4],
                                            const RowEnd& end) const;
  __device__ __forceinline__ void run() const;
};

template <class Config>
__device__ __forceinline__ void AttentionDecode<Config>::visit(
    const typename View::Walk& visits, int first, int last, const ScoreUnits<Pieces>& units,
    const DecodeRows<Config>& rows, RunningSoftmax<1>& softmax, O& o) const {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_warp = warp % Shape::kRowWarps, key_warp = warp / Shape::kRowWarps;
  blocks.start_q();
  const auto positions = View{decode, tile}.positions();
  unsigned q[Shape::kKeepQ ? Shape::kSteps : 1][4];
  float k_scale = 1.0f, v_scale = 1.0f;
  const auto start = [&] {
    if constexpr (Shape::kKeepQ) {
      copy_async_wait<kStages - 2>();
      __syncthreads();  // Q, of the first group, is there for all
      const auto reader = read_rows_first<kTileM, Config::kWidth>(shared_address(shared), lane);
#pragma unroll
      for (int d = 0; d < Shape::kSteps; ++d) load_matrix(q[d], reader.at(row_warp, d));
    }
    if constexpr (NarrowOf<Config>::kValue == kHeadScales) {
      k_scale = head_scale(decode.scales.k, decode.scales.k_stride, tile.head);
      v_scale = head_scale(decode.scales.v, decode.scales.v_stride, tile.head);
    }
  };
  const auto multiply = [&](int block, int stage) {
    float s[1][Shape::kKeyTiles][4] = {};
    multiply_keys(stage, q, s);
    modify_block<Config>(s, units, rows, tile, visits, block,
                         block * kTileN + key_warp * Shape::kWarpKeys, positions);
    Accumulated<Element, Shape::kKeyTiles> p_words[1];
    softmax_step<true>(s, units.t, softmax, o, p_words);
    multiply_values(stage, p_words, o);
  };
  blocks.walk(
      first, last, [&](int stage) { copy_block(stage); }, start,
      [&](int stage) { widen_block(stage, k_scale, v_scale); }, multiply);
}

template <class Config>
__device__ __forceinline__ void AttentionDecode<Config>::store_row(int row, int column,
                                                                   const float (&o)[4],
                                                                   const RowEnd& end) const {
  const unsigned group = tile.group, at = tile.first + row;
  const int query = at / group, head = tile.head * group + at % group;
  if (query >= tile.rows || column >= p.value_dim) return;
  float scaled[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) scaled[c] = o[c] * end.scale;
  const long long lse_row = decode_row<Config>(p, tile, query, head);
  if (split.count > 1) {
    const long long partial = decode_partial<Config>(p, tile, split, query, head);
    store_global(static_cast<float*>(decode.partial_out) + partial * p.value_dim + column,
                 pack<float, 16>(scaled));
    if (column == 0) store_element(static_cast<float*>(decode.partial_lse) + partial, end.lse);
  } else {
    Element* to = static_cast<Element*>(p.out) +
                  decode_offset<Config>(tile, p.out_batch_stride, p.out_token_stride) +
                  query * p.out_token_stride + head * p.out_head_stride + column;
    store_aligned<kAlignmentOf<Config, Element>>(to, pack<Element, 8>(scaled));
    if (column == 0) store_element(static_cast<float*>(p.lse) + lse_row, end.lse);
  }
}

// The warps of the same rows merge what they have, in their order: with M the largest maximum,
// sums and denominators are scaled by 2^((m - M) t) and added.
template <class Config>
__device__ __forceinline__ void AttentionDecode<Config>::store(float t,
                                                               const RunningSoftmax<1>& softmax,
                                                               const O& o) const {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_warp = warp % Shape::kRowWarps, key_warp = warp / Shape::kRowWarps;
  float* const sums = reinterpret_cast<float*>(shared);
  float* const most = reinterpret_cast<float*>(shared + Smem::kSums);
  float* const denominator = most + Shape::kKeyWarps * kTileM;
  __syncthreads();  // all have left the tiles
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = key_warp * kTileM + row_warp * 16 + 8 * half + lane / 4;
    const float sum = quad_sum(softmax.sum[0][half]);
    if (lane % 4 == 0) most[row] = softmax.most[0][half], denominator[row] = sum;
#pragma unroll
    for (int n = 0; n < Shape::kOutTiles; ++n) {
      *reinterpret_cast<float2*>(sums + row * Shape::kPitch + 8 * n + lane % 4 * 2) = {
          o[0][n][2 * half], o[0][n][2 * half + 1]};
    }
  }
  __syncthreads();  // the sums are there for all
  constexpr int kChunks = Config::kValueWidth / 4;
#pragma unroll 1
  for (int i = threadIdx.x; i < kTileM * kChunks; i += Config::kThreads) {
    const int row = i / kChunks, column = i % kChunks * 4;
    float largest = minus_infinity();
#pragma unroll
    for (int w = 0; w < Shape::kKeyWarps; ++w) largest = fmaxf(largest, most[w * kTileM + row]);
    const float base = largest == minus_infinity() ? 0.0f : largest;
    float all[4] = {}, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < Shape::kKeyWarps; ++w) {
      const int at = w * kTileM + row;
      const float factor = ex2_flushed(__fmul_rn(__fsub_rn(most[at], base), t));
      sum = __fmaf_rn(factor, denominator[at], sum);
      const float4 part = *reinterpret_cast<const float4*>(sums + at * Shape::kPitch + column);
      all[0] = __fmaf_rn(factor, part.x, all[0]), all[1] = __fmaf_rn(factor, part.y, all[1]);
      all[2] = __fmaf_rn(factor, part.z, all[2]), all[3] = __fmaf_rn(factor, part.w, all[3]);
    }
    RowEnd end;
    if (Config::kSinks && split.count <= 1) {
      const int head = tile.head * tile.group + (tile.first + row) % tile.group;
      const float sink = load_element(static_cast<const float*>(p.sinks) + head);
      end = softmax_end<true>(largest, sum, t, sink);
    } else {
      end = softmax_end<false>(largest, sum, t, 0.0f);
    }
    store_row(row, column, all, end);
  }
}

template <class Config>
__device__ __forceinline__ void AttentionDecode<Config>::run() const {
  const auto visits = View{decode, tile}.visits();
  const DecodePart part(visits, split);
  if (part.first >= part.last && split.count > 1) {
    return store_empty_split<Config>(decode, tile, split);
  }

  const DecodeRows<Config> rows(tile, static_cast<int>(threadIdx.x / 32) % Shape::kRowWarps);
  const ScoreUnits<Pieces> units(p, tile, rows);
  RunningSoftmax<1> softmax;
  start_empty(softmax);
  O o = {};
  if (part.first < part.last) visit(visits, part.first, part.last, units, rows, softmax, o);
  store(units.t, softmax, o);
}

template <class Config>
__device__ void attention_decode(const AttentionDecodeParams& decode) {
  extern __shared__ __align__(1024) float4 shared[];
  const AttentionForwardParams& p = decode.forward;
  char* const memory = reinterpret_cast<char*>(shared);
  DecodeSplit split;
  const QueryTile tile = decode_tile<Config>(decode, memory, split);
  if (IsRagged<Config>::kValue && tile.sequence == kNoSequence) return;
  if (store_padding<Config>(decode, tile)) return;
  const PageTable table(decode.pages, tile.sequence);
  AttentionDecode<Config>{decode, p, tile, memory, {decode, p, tile, table, memory}, split}.run();
}

}  // namespace lathe
