// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The causal_conv1d kernels share this: how a block finds its work, the history of a position, and
// the filter itself.
//
// Layout of work: lanes lie over channels (kVector neighbouring ones each, so a warp reads one
// contiguous run of a token's row), each warp walks `run` tokens with the window in registers, and
// the warps of a block take consecutive runs of tokens: a tile is kWarps * run tokens of 32 *
// kVector channels. The grid is one-dimensional, channel tiles fastest.
//
// Config: Element, WeightElement, Offset, kWidth, kVectorBytes, kTokens (the most that a run has),
// kThreads, kRing, flags.
#pragma once
#include "common/copy.cuh"
#include "common/math.cuh"
#include "common/types.cuh"
#include "common/varlen.cuh"
#include "conv/ring.cuh"

namespace lathe {

template <class Config>
struct ConvShape {
  static constexpr int kWidth = Config::kWidth;
  static constexpr int kVector = Config::kVectorBytes / sizeof(typename Config::Element);
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kChannels = 32 * kVector;
  // The block's channels of a [D, W] tensor in shared memory as float32, a row for each tap. The
  // filter has one more row for the bias.
  static constexpr int kPitch = tap_pitch(kWidth, kChannels);
  static constexpr int kStateFloats = kWidth * kPitch;
  static constexpr int kFilterFloats = kStateFloats + (Config::kBias ? kPitch : 0);
  static_assert(kWidth >= 2 && kWidth <= 8, "widths 2 to 8");
};

// A thread works on some channels of a token tile. Token tiles come first in the grid, then `state`
// tiles.
struct ConvTile {
  int block_channel;  // first channel of the block
  int channel;        // first channel of this thread
  int warp, lane;
  int row;   // of the batch
  int tile;  // token tile of the row; or, in state blocks, the state tile
  bool state;
};

template <class Config>
__device__ __forceinline__ ConvTile conv_tile(int channels, int batch, int first_tile, int tiles) {
  using Shape = ConvShape<Config>;
  const unsigned channel_tiles = (channels - 1u) / Shape::kChannels + 1u;
  const unsigned item = blockIdx.x / channel_tiles;
  ConvTile at;
  at.warp = threadIdx.x / 32;
  at.lane = threadIdx.x % 32;
  at.block_channel = static_cast<int>(blockIdx.x - item * channel_tiles) * Shape::kChannels;
  at.channel = at.block_channel + at.lane * Shape::kVector;
  const long long token_items = static_cast<long long>(tiles) * batch;
  at.state = item >= token_items;
  at.row = at.state ? 0 : static_cast<int>(item / static_cast<unsigned>(tiles));
  at.tile = at.state ? static_cast<int>(item - token_items)
                     : first_tile + static_cast<int>(item - at.row * tiles);
  return at;
}

// The tokens of this warp: positions [first, last), empty past the end of the part. A warp has
// `run` of them, at least W - 1, so that only the first tile may need the halo.
struct ConvTokens {
  int first, last;
};
template <class Config>
__device__ __forceinline__ ConvTokens conv_tokens(const ConvTile& at, int run, int begin, int end) {
  const int tile_first = begin + at.tile * ConvShape<Config>::kWarps * run;
  const int skip = minimum(at.warp * run, end - tile_first);
  const int count = minimum(run, end - tile_first - skip);
  return {tile_first + skip, tile_first + skip + count};
}

// Whether a token tile is a sequence of at most kConvPieceTokens tokens, whatever lies beside it,
// so that its sums depend on no other.
template <class Config, class = void>
struct ConvByPieces {
  static constexpr bool kValue = false;
};
template <class Config>
struct ConvByPieces<Config, decltype(static_cast<void>(Config::kPieces))> {
  static constexpr bool kValue = true;
};

// The tokens of this warp where a tile is a sequence: the warps take equal runs of it.
template <class Config, class Params>
__device__ __forceinline__ ConvTokens conv_piece_tokens(const Params& p, const ConvTile& at) {
  using Offset = typename Config::Offset;
  if (at.state) return {p.begin, p.begin};
  const int start = offset_at<Offset>(p.cu_seqlens, at.tile, p.length);
  const int end = maximum(start, offset_at<Offset>(p.cu_seqlens, at.tile + 1, p.length));
  const int first = minimum(start + at.warp * p.run, end);
  return {first, minimum(first + p.run, end)};
}

// The sequence of a position of this row. Packed rows from the last offset on are padding: nobody's
// sequence, which has index N and begins where it is asked for, so that nothing reaches into it or
// out of it.
template <class Config, class Params>
__device__ __forceinline__ Sequence conv_sequence(const Params& p, int row, int position) {
  if constexpr (Config::kPacked) {
    if (position >= offset_at<typename Config::Offset>(p.cu_seqlens, p.sequences, p.length)) {
      return {p.sequences, position, p.length};
    }
    return find_sequence<typename Config::Offset>(p.cu_seqlens, p.sequences, p.length, position);
  } else {
    return {row, 0, p.length};
  }
}
template <class Config, class Params>
__device__ __forceinline__ bool conv_is_padding(const Params& p, const Sequence& sequence) {
  return Config::kPacked && sequence.index == p.sequences;
}
// Sequence `index` itself, which may be empty.
template <class Config, class Params>
__device__ __forceinline__ Sequence conv_sequence_at(const Params& p, int index) {
  if constexpr (Config::kPacked) {
    const int start = offset_at<typename Config::Offset>(p.cu_seqlens, index, p.length);
    const int end = offset_at<typename Config::Offset>(p.cu_seqlens, index + 1, p.length);
    return {index, start, maximum(start, end)};
  } else {
    return {index, 0, p.length};
  }
}

// Returns whether the part [begin, end) owns this position; for an empty sequence, where it would
// be.
template <class Params>
__device__ __forceinline__ bool conv_owns(const Params& p, int position) {
  if (p.length == 0) return p.begin == 0;
  const int at = minimum(position, p.length - 1);
  return p.begin <= at && at < p.end;
}

// Rows of the activations and of the halo, at channel 0.
template <class Element, class Params>
__device__ __forceinline__ const Element* conv_x(const Params& p, int row, int position) {
  return static_cast<const Element*>(p.x) + row * p.x_batch_stride +
         (position - p.begin) * p.x_token_stride;
}
template <class Config, class Params>
__device__ __forceinline__ const typename Config::Element* conv_halo(const Params& p, int row,
                                                                     int position) {
  const long long line =
      static_cast<long long>(position - (p.begin - (Config::kWidth - 1))) * p.batch + row;
  return static_cast<const typename Config::Element*>(p.halo) + line * p.channels;
}
// A [N, D, W] tensor at (sequence, channel).
template <int kWidth, class Element>
__device__ __forceinline__ Element* conv_state(Element* states, int channels, int sequence,
                                               int channel) {
  return states + (static_cast<long long>(sequence) * channels + channel) * kWidth;
}

// history[j] = the input at position - (W - 1) + j: a token of this part, a row of the halo, a slot
// of the initial state, or 0. `stage` is this warp's shared tile. With kBefore the tokens were
// brought to shared memory, this lane's from `before` on. Called by whole warps.
template <class Config, bool kBefore, class Params, int kVector>
__device__ __forceinline__ void load_history(const Params& p, const ConvTile& at, int row,
                                             const Sequence& sequence, int position, float* stage,
                                             unsigned before,
                                             float (&history)[Config::kWidth - 1][kVector]) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth;
  const bool active = at.channel < p.channels;
  const bool earlier = Config::kHalo && sequence.start < p.begin;
  bool from_state = false;
  if constexpr (Config::kInitialState) {
    from_state = position - sequence.start < kWidth - 1 && !earlier && sequence.index < p.sequences;
    if (from_state) {
      __syncwarp();  // the lanes may still be reading what was staged before
      stage_by_tap<kWidth, 32 * kVector>(
          stage,
          conv_state<kWidth>(static_cast<const Element*>(p.initial_state), p.channels,
                             sequence.index, at.block_channel),
          p.channels - at.block_channel, at.lane, 32);
      __syncwarp();  // all slots are there
    }
  }
#pragma unroll
  for (int j = 0; j < kWidth - 1; ++j) {
    const int back = kWidth - 1 - j;  // how far before `position`
    const int since = position - sequence.start - back;
#pragma unroll
    for (int v = 0; v < kVector; ++v) history[j][v] = 0.0f;
    if (active && (since >= 0 || earlier)) {
      const bool local = !Config::kHalo || position - back >= p.begin;
      Words<Config::kVectorBytes> raw;
      if (kBefore && local) {
        ring_read(before + j * 32 * Config::kVectorBytes, raw);
      } else {
        const Element* from = local ? conv_x<Element>(p, row, position - back)
                                    : conv_halo<Config>(p, row, position - back);
        load_global(from + at.channel, raw);
      }
      unpack<Element>(raw, history[j]);
    }
    if constexpr (Config::kInitialState) {
      if (active && since < 0 && from_state) {
        read_tap(stage + (kWidth + since) * tap_pitch(kWidth, 32 * kVector), at.lane * kVector,
                 history[j]);
      }
    }
  }
}

// z = bias + sum over i = 0..W-1 of weight[i] * input[i], in this order, in every kernel.
template <int kWidth, int kVector>
__device__ __forceinline__ void conv_filter(const float (&weight)[kWidth][kVector],
                                            const float (&bias)[kVector],
                                            const float (&history)[kWidth - 1][kVector],
                                            const float (&current)[kVector], float (&z)[kVector]) {
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    z[v] = bias[v];
#pragma unroll
    for (int i = 0; i < kWidth - 1; ++i) z[v] = __fmaf_rn(weight[i][v], history[i][v], z[v]);
    z[v] = __fmaf_rn(weight[kWidth - 1][v], current[v], z[v]);
  }
}

// 1 / (1 + e^-z), 0 where that is below the smallest normal number: e^-z is only added to 1, so it
// may be flushed to 0, and neither step needs its range widened. Nine instructions less.
__device__ __forceinline__ float conv_sigmoid(float z) {
  return rcp_normal(__fadd_rn(1.0f, ex2_normal(__fmul_rn(z, -kLog2E))));
}
__device__ __forceinline__ float conv_silu(float z) { return __fmul_rn(z, conv_sigmoid(z)); }
// s (1 + z (1 - s)): finite for every finite z, 0 or 1 far from 0.
__device__ __forceinline__ float conv_silu_derivative(float z) {
  const float s = conv_sigmoid(z);
  return __fmul_rn(s, __fmaf_rn(z, __fsub_rn(1.0f, s), 1.0f));
}

// The window moves on by one token.
template <int kRows, int kVector>
__device__ __forceinline__ void shift_in(float (&window)[kRows][kVector],
                                         const float (&newest)[kVector]) {
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i + 1 < kRows; ++i) window[i][v] = window[i + 1][v];
    window[kRows - 1][v] = newest[v];
  }
}

// Weight and bias of this thread's channels, through shared memory so that every access to them is
// contiguous. Channels past the last are 0. Called by whole blocks.
template <class Config, class Params, int kVector>
__device__ __forceinline__ void load_filter(const Params& p, const ConvTile& at, float* stage,
                                            float (&weight)[Config::kWidth][kVector],
                                            float (&bias)[kVector]) {
  using Element = typename Config::WeightElement;
  using Shape = ConvShape<Config>;
  const int channels = p.channels - at.block_channel;
  stage_by_tap<Shape::kWidth, Shape::kChannels>(
      stage,
      conv_state<Shape::kWidth>(static_cast<const Element*>(p.weight), p.channels, 0,
                                at.block_channel),
      channels, threadIdx.x, Config::kThreads);
  if constexpr (Config::kBias) {
    stage_by_tap<1, Shape::kChannels>(stage + Shape::kStateFloats,
                                      static_cast<const Element*>(p.bias) + at.block_channel,
                                      channels, threadIdx.x, Config::kThreads);
  }
  __syncthreads();  // the filter of the block's channels is staged
#pragma unroll
  for (int i = 0; i < Shape::kWidth; ++i) {
    read_tap(stage + i * Shape::kPitch, at.lane * kVector, weight[i]);
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) bias[v] = 0.0f;
  if constexpr (Config::kBias) {
    read_tap(stage + Shape::kStateFloats, at.lane * kVector, bias);
  }
}

}  // namespace lathe
