// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The walks of KDA over a sequence share this, forward and back. A thread block owns kValues
// columns of V of one sequence and value head, 16 of them a warp, and walks in rounds of kWarps
// blocks of 16 tokens: first each warp prepares one block of the round (kda/block.cuh), then all
// warps go through the blocks one after another, each with its part of the state in registers and
// no barrier in between. Meanwhile the beginnings of the next round's rows are on their way to
// registers, and what follows them to L2.
#pragma once
#include "common/varlen.cuh"
#include "kda/state.cuh"
#include "kda/values.cuh"
#include "params/kda_chunked.h"

namespace lathe {

// [blocks of the round][rows of v, or of the gradient of o, of the round]
template <class Config>
struct KdaScanSmem {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kRows = 16 * kWarps, kValues = 16 * kWarps;
  using Values = KdaValueTile<typename Config::Element, kRows, kValues>;
  static constexpr int kBytes = kWarps * KdaBlock<Config>::kBytes + Values::kBytes;
};

// Tokens of a segment of a sequence of `count`: chunks are never cut.
__device__ __forceinline__ int kda_segment_length(int count, int segments) {
  return ceil_div(ceil_div(count, kKdaChunk), segments) * kKdaChunk;
}

// Which tokens of a block a product with one of its squares, lower triangular as they are, reaches:
// later ones than the row's, by the square transposed, or earlier ones, by the square as it is.
enum KdaReach : bool { kOfLater, kOfEarlier };

// A thread block works on some columns of V of a head, in one segment of a sequence.
struct KdaScanTile {
  int sequence, head, q_head, value;  // value: its first column of V
  int segment, first;                 // of the sequence, and its first token
  int count;                          // tokens of the sequence up to the end of the segment
  bool last;                          // no segment behind it has tokens
  long long row, start;               // of the batch; token 0 of the sequence in that row

  bool exists;  // the sequence: a launch may be of one where there is none

  // Segment 0 stands for an empty sequence, the others have nothing to do without tokens.
  __device__ __forceinline__ bool idle() const {
    return !exists || (segment > 0 && first >= count);
  }
};

// The tokens of a sequence that exists, and the row of its first one among packed ones.
struct KdaTokens {
  int start, count;
};
template <class Config>
__device__ __forceinline__ KdaTokens kda_tokens_of(const KdaInputs& in, int sequence) {
  if constexpr (Config::kPacked) {
    using Offset = typename Config::Offset;
    const int start = offset_at<Offset>(in.cu_seqlens, sequence, in.tokens);
    const int end = offset_at<Offset>(in.cu_seqlens, sequence + 1, in.tokens);
    return {start, maximum(end - start, 0)};
  } else {
    return {0, in.tokens};
  }
}

// The tile of a head of a sequence that begins with column `value` of V.
template <class Config>
__device__ __forceinline__ KdaScanTile kda_scan_tile_of(const KdaInputs& in, int sequence,
                                                        int segment, int head, int value) {
  KdaScanTile tile;
  tile.value = value, tile.head = head, tile.segment = segment, tile.sequence = sequence;
  tile.q_head = head / (in.value_heads / in.heads);
  tile.row = Config::kPacked ? 0 : tile.sequence;
  tile.exists = !Config::kPacked || tile.sequence < in.sequences;
  KdaTokens tokens = {};
  if (tile.exists) tokens = kda_tokens_of<Config>(in, tile.sequence);
  tile.start = tokens.start, tile.count = tokens.count;
  const int length = kda_segment_length(tile.count, in.segments);
  tile.first = tile.segment * length;
  tile.last = tile.first + length >= tile.count;
  tile.count = minimum(tile.count, tile.first + length);
  return tile;
}

// `tiles` thread blocks share a head, a sequence and a segment: neighbours read the same rows. The
// divisions take a while, and nothing is asked of memory before: none waits for another.
template <class Config>
__device__ __forceinline__ KdaScanTile kda_scan_tile(const KdaInputs& in, unsigned block, int tiles,
                                                     int values) {
  const unsigned of_segment = tiles * in.value_heads, of_sequence = of_segment * in.segments;
  const unsigned way = block / tiles, run = block / of_segment, sequence = block / of_sequence;
  return kda_scan_tile_of<Config>(
      in, static_cast<int>(sequence), static_cast<int>(run - sequence * in.segments),
      static_cast<int>(way - run * in.value_heads), static_cast<int>(block - way * tiles) * values);
}

template <class Config>
struct KdaScan {
  using Element = typename Config::Element;
  using Block = KdaBlock<Config>;
  using Smem = KdaScanSmem<Config>;
  static constexpr int kWarps = Smem::kWarps, kRows = Smem::kRows;
  static constexpr int kSteps = Config::kWidth / 16;
  // The next round is on its way while the warps walk; the planes of float32 leave no registers.
  static constexpr bool kAhead = sizeof(Element) == 2;
  // Then, and with wide states, what depends on the lane is computed where it is used.
  static constexpr bool kTight = !kAhead || Config::kWidth > 128;

  const KdaInputs& in;
  const KdaScanTile tile;
  const unsigned blocks, values;  // shared memory
  const int lane, warp;

  __device__ __forceinline__ KdaScan(const KdaInputs& inputs, unsigned block, unsigned shared)
      : KdaScan(inputs, kda_scan_tile<Config>(inputs, block, inputs.value_tiles, Smem::kValues),
                shared) {}
  __device__ __forceinline__ KdaScan(const KdaInputs& inputs, const KdaScanTile& where,
                                     unsigned shared)
      : in(inputs),
        tile(where),
        blocks(shared),
        values(shared + kWarps * Block::kBytes),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)) {}

  __device__ __forceinline__ int lane_index() const { return kTight ? fresh_lane() : lane; }
  // Column of V where the warp's part begins.
  __device__ __forceinline__ int warp_value() const { return tile.value + 16 * warp; }
  __device__ __forceinline__ long long state_size() const {
    return static_cast<long long>(in.key_dim) * in.value_dim;
  }
  // Returns the offset of a sequence's state in [N, HV, ...].
  __device__ __forceinline__ long long warp_state() const {
    return (static_cast<long long>(tile.sequence) * in.value_heads + tile.head) * state_size();
  }
  // Returns the offset of one of `rows` rows of K numbers, of the block's head and of segment
  // `segment`, in [N, segments, HV, rows, K].
  __device__ __forceinline__ long long summary(int segment, int rows) const {
    const long long run = static_cast<long long>(tile.sequence) * in.segments + segment;
    return (run * in.value_heads + tile.head) * rows * in.key_dim;
  }
  // Returns the offset of the state of the chunk of token `first` in [slots, HV, ...]: every
  // sequence has slots of its own, at most one of them idle.
  __device__ __forceinline__ long long slot(int first) const {
    const long long before = Config::kPacked ? tile.start / kKdaChunk + tile.sequence
                                             : tile.row * ceil_div(in.tokens, kKdaChunk);
    return ((before + first / kKdaChunk) * in.value_heads + tile.head) * state_size();
  }

  __device__ __forceinline__ void copy_values(const Element* row, long long token_stride,
                                              int first) const;
  __device__ __forceinline__ KdaRows<Config> rows() const;
  __device__ __forceinline__ KdaNumbers numbers() const;
  __device__ __forceinline__ void expect(KdaIncoming<Config>& incoming, int round) const;
  __device__ __forceinline__ void prepare(KdaIncoming<Config>& incoming, const KdaNumbers& head,
                                          int round, int next) const;
  __device__ __forceinline__ KdaValues<Element> load_values(int step) const;
  template <KdaReach kReach, int kParts>
  __device__ __forceinline__ void multiply_square(float (&to)[2][4],
                                                  const KdaSplit<Element, kParts>& rows,
                                                  unsigned square) const;
  template <KdaReach kReach, int kParts>
  __device__ __forceinline__ void multiply_square_by_token(float (&to)[2][4],
                                                           const KdaSplit<Element, kParts>& rows,
                                                           unsigned square) const;
  __device__ __forceinline__ void store_values(const float (&x)[2][4], Element* row,
                                               long long token_stride, int first) const;
  __device__ __forceinline__ void store_rounded(const KdaState<Config>& state, void* to,
                                                float scale = 1.0f) const;
};

// Rows of v, or of something of its shape, of the round that begins at token `first`: they are on
// their way while q, k and g are worked on. `row` is token 0 of the sequence.
template <class Config>
__device__ __forceinline__ void KdaScan<Config>::copy_values(const Element* row,
                                                             long long token_stride,
                                                             int first) const {
  constexpr int kEach = Config::kVectorBytes / static_cast<int>(sizeof(Element));  // 2, 4 or 8
  constexpr int kPieces = Smem::kValues / kEach, kStep = Config::kThreads / kPieces;
  static_assert(kStep * kPieces == Config::kThreads && kRows % kStep == 0, "whole turns");
  const int thread = static_cast<int>(threadIdx.x);
  const int at = thread / kPieces, column = thread % kPieces * kEach;
  const int count = tile.value + column < in.value_dim ? tile.count : 0;
  const Element* from = row + (first + at) * token_stride + tile.value + column;
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    const bool inside = first + at + i < count;
    copy_async_some<Config::kVectorBytes>(values + Smem::Values::offset(at + i, column),
                                          inside ? from : row, inside);
    from += kStep * token_stride;
  }
  copy_async_commit();
}

template <class Config>
__device__ __forceinline__ KdaRows<Config> KdaScan<Config>::rows() const {
  using GateElement = typename Config::GateElement;
  using BetaElement = typename Config::BetaElement;
  KdaRows<Config> rows;
  rows.q = static_cast<const Element*>(in.q) + tile.row * in.q_batch_stride +
           tile.start * in.q_token_stride + tile.q_head * in.q_head_stride;
  rows.k = static_cast<const Element*>(in.k) + tile.row * in.k_batch_stride +
           tile.start * in.k_token_stride + tile.q_head * in.k_head_stride;
  rows.g = static_cast<const GateElement*>(in.g) + tile.row * in.g_batch_stride +
           tile.start * in.g_token_stride + tile.head * in.g_head_stride;
  rows.beta = static_cast<const BetaElement*>(in.beta) + tile.row * in.beta_batch_stride +
              tile.start * in.beta_token_stride + tile.head * in.beta_head_stride;
  rows.q_stride = in.q_token_stride, rows.k_stride = in.k_token_stride;
  rows.g_stride = in.g_token_stride, rows.beta_stride = in.beta_token_stride;
  rows.key_dim = in.key_dim;
  return rows;
}

// The warp's block of the round that begins at token `round` is on its way, if it has tokens.
template <class Config>
__device__ __forceinline__ void KdaScan<Config>::expect(KdaIncoming<Config>& incoming,
                                                        int round) const {
  incoming.begin(rows(), round + 16 * warp, round >= tile.first ? tile.count : round);
}

// Returns what the inputs of the head are made of.
template <class Config>
__device__ __forceinline__ KdaNumbers KdaScan<Config>::numbers() const {
  KdaNumbers numbers = {in.scale, in.lower_bound, in.beta_factor, 1.0f, nullptr, in.key_dim};
  if constexpr (Config::kAlog) {
    numbers.set_rate(load_element(static_cast<const float*>(in.A_log) + tile.head));
  }
  if constexpr (Config::kDtBias) {
    numbers.dt_bias =
        static_cast<const float*>(in.dt_bias) + static_cast<long long>(tile.head) * in.key_dim;
  }
  return numbers;
}

// The warp's block of the round that begins at token `round`; the one of round `next` is on its way
// then.
template <class Config>
__device__ __forceinline__ void KdaScan<Config>::prepare(KdaIncoming<Config>& incoming,
                                                         const KdaNumbers& head, int round,
                                                         int next) const {
  if (!kAhead) expect(incoming, round);
  if (round + 16 * warp < tile.count) {
    prepare_block(incoming, rows(), head, blocks + warp * Block::kBytes);
  }
  if (kAhead) expect(incoming, next);
}

// The rows of the round's block `step`, the warp's columns.
template <class Config>
__device__ __forceinline__ KdaValues<typename Config::Element> KdaScan<Config>::load_values(
    int step) const {
  KdaValues<Element> to;
  if constexpr (sizeof(Element) == 2) {
    using Tile = typename Smem::Values::Tile;
    load_matrix_transposed(to.word,
                           Tile::at(values + Tile::offset(16 * step + row_of_chunks_first(lane),
                                                          chunk_of_chunks_first(lane)),
                                    2 * warp));
  } else {
    const int lane_at = lane_index(), g = lane_at / 4, t = lane_at % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * step + 8 * n + 2 * t + i % 2, column = 16 * warp + g + i / 2 * 8;
        to.value[n][i] = load_shared(values + Smem::Values::offset(row, column));
      }
    }
  }
  return to;
}

// to += rows square^T over the 16 tokens of a block, or rows square.
template <class Config>
template <KdaReach kReach, int kParts>
__device__ __forceinline__ void KdaScan<Config>::multiply_square(
    float (&to)[2][4], const KdaSplit<Element, kParts>& rows, unsigned square) const {
  Fragment<Element> b;
  const int from = lane_index();
  if constexpr (kReach == kOfLater) {
    load_planes<Element, KdaSquare::kBytes>(
        b, square + KdaSquare::offset(row_of_chunks_first(from), chunk_of_chunks_first(from)));
  } else {
    load_planes_transposed<Element, KdaSquare::kBytes>(
        b, square + KdaSquare::offset(row_of_rows_first(from), chunk_of_rows_first(from)));
  }
  multiply_add_split(to[0], to[1], rows, b);
}

// The same, to the bit, where rows are not finite: zero times them is not zero. Every token is
// summed on its own, from those alone that reach it.
template <class Config>
template <KdaReach kReach, int kParts>
__device__ __forceinline__ void KdaScan<Config>::multiply_square_by_token(
    float (&to)[2][4], const KdaSplit<Element, kParts>& rows, unsigned square) const {
  const int t = lane % 4;
  const auto reaches = [](int from, int token) {
    return kReach == kOfLater ? from <= token : from >= token;
  };
#pragma unroll 1
  for (int token = 0; token < 16; ++token) {
    KdaSplit<Element, kParts> cut;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int from = 2 * t + i / 2 * 8;  // tokens from, from + 1 in the halves of the word
      const unsigned kept =
          (reaches(from, token) ? 0xffffu : 0u) | (reaches(from + 1, token) ? 0xffff0000u : 0u);
#pragma unroll
      for (int j = 0; j < kParts; ++j) {
#pragma unroll
        for (int n = 0; n < Block::kPlanes; ++n) {
          cut.part[j].word[n][i] = rows.part[j].word[n][i] & kept;
        }
      }
    }
    float sum[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i / 4][i % 4] = to[i / 4][i % 4];
    multiply_square<kReach>(sum, cut, square);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * n + 2 * t + i % 2 == token) to[n][i] = sum[n][i];
      }
    }
  }
}

// x arrives as (value; token): a quad then writes 32 bytes of a token's row, of float32 the eight
// lanes of a token do. `row` is token 0 of the sequence, `first` the block's first token.
template <class Config>
__device__ __forceinline__ void KdaScan<Config>::store_values(const float (&x)[2][4], Element* row,
                                                              long long token_stride,
                                                              int first) const {
  const int lane_at = lane_index(), g = lane_at / 4, t = lane_at % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if constexpr (sizeof(Element) == 2) {
      const unsigned low = transpose_matrix(pack_pair(x[n][0], x[n][1], Element{}));
      const unsigned high = transpose_matrix(pack_pair(x[n][2], x[n][3], Element{}));
      const unsigned other = __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
      const Words<8> four = t & 1 ? Words<8>{{other, high}} : Words<8>{{low, other}};
      const int column = warp_value() + (t & 1) * 8 + (t & 2) * 2;
      const int token = first + 8 * n + g;
      if (token < tile.count && column < in.value_dim) {
        store_global(row + token * token_stride + column, four);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = warp_value() + g + i / 2 * 8, token = first + 8 * n + 2 * t + i % 2;
        if (token < tile.count && column < in.value_dim) {
          store_element(row + token * token_stride + column, x[n][i]);
        }
      }
    }
  }
}

// The warp's part of a state, `scale` times as large, as an element, into [V, K].
template <class Config>
__device__ __forceinline__ void KdaScan<Config>::store_rounded(const KdaState<Config>& state,
                                                               void* to, float scale) const {
  const int lane_at = lane_index(), g = lane_at / 4, t = lane_at % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int value = warp_value() + g + 8 * h;
    Element* row = static_cast<Element*>(to) + static_cast<long long>(value) * in.key_dim;
#pragma unroll
    for (int n = 0; n < KdaState<Config>::kTiles; n += 2) {
      if constexpr (sizeof(Element) == 4) {
#pragma unroll
        for (int m = n; m < n + 2; ++m) {
          const int key = 8 * m + 2 * t;
          if (value < in.value_dim && key < in.key_dim) {
            store_global(row + key, Words<8>{{bit_cast<unsigned>(state.s[m][2 * h] * scale),
                                              bit_cast<unsigned>(state.s[m][2 * h + 1] * scale)}});
          }
        }
      } else {
        const unsigned low =
            pack_pair(state.s[n][2 * h] * scale, state.s[n][2 * h + 1] * scale, Element{});
        const unsigned high =
            pack_pair(state.s[n + 1][2 * h] * scale, state.s[n + 1][2 * h + 1] * scale, Element{});
        const unsigned other = __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
        const Words<8> four = t & 1 ? Words<8>{{other, high}} : Words<8>{{low, other}};
        const int key = 8 * n + (t & 1) * 8 + (t & 2) * 2;
        if (value < in.value_dim && key < in.key_dim) store_global(row + key, four);
      }
    }
  }
}

}  // namespace lathe
