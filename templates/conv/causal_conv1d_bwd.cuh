// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_bwd: gradients of causal_conv1d (names and formulas of conv/causal_conv1d.cuh).
//
//   dz[t]     = dy[t] s (1 + z[t] (1 - s)), s = sigmoid(z[t])        or dy[t] without activation
//   dx[t]     = sum_i weight[i] dz[t + (W - 1) - i]  within the sequence,  + dfinal_state of t
//   dweight[i]= sum_t dz[t] hist[t - (W - 1) + i],   dbias = sum_t dz[t]     (partial, per tile)
//   dinitial_state[s] = sum_t weight[s - 1 - t] dz[t]  + dfinal_state of the slots it was copied to
//
// z is recomputed from x. A warp walks its tokens forward with two windows in registers: the last
// W - 1 inputs and the W - 1 gradients dx that later tokens still add to, so dx[t - (W - 1)] leaves
// at token t. It walks up to W - 1 tokens past its run for the gradients of its last ones. The part
// of dx and dinitial_state that tokens of later ranks contribute comes from them (dhalo here).
#pragma once
#include "conv/backward_thread.cuh"
#include "conv/state_gradient.cuh"

namespace lathe {

// dx of the padding [position, stop) is 0. As dx leaves W - 1 tokens late, these rows send off
// those of the sequence before them; nothing here enters the weights' gradient, and dy is not read.
template <class Config>
__device__ __forceinline__ void conv_pad_bwd(int position, const ConvTokens& tokens,
                                             ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth, kVector = ConvShape<Config>::kVector;
  if (!Config::kDx) return;
  for (; position < tokens.last; ++position, thread.dx += thread.dx_stride) {
    store_where(thread.active && position - tokens.first >= kWidth - 1, thread.dx,
                pack<Element, Config::kVectorBytes>(thread.pending[0]));
    const float nothing[kVector] = {};
    shift_in(thread.pending, nothing);
  }
}

// dz[t] reaches dx[t - (W - 1) + i] by weight[i], inside the sequence: t is its token `since`. The
// newest position begins with the gradient of the final state's slot that it was copied to, if any.
// kInside: the window lies in the sequence, and no slot was copied from t.
template <class Config, bool kInside, int kVector>
__device__ __forceinline__ void conv_scatter(ConvBackwardThread<Config>& thread,
                                             const float (&dz)[kVector], int since,
                                             const float* dfinal, int lane,
                                             float (&newest)[kVector]) {
  constexpr int kWidth = Config::kWidth;
#pragma unroll
  for (int i = 0; i < kWidth - 1; ++i) {
    if (kInside || !Config::kPacked || since >= kWidth - 1 - i) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        thread.pending[i][v] = __fmaf_rn(thread.weight[i][v], dz[v], thread.pending[i][v]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) newest[v] = __fmul_rn(thread.weight[kWidth - 1][v], dz[v]);
  if constexpr (Config::kDfinalState && !kInside) {
    if (dfinal != nullptr) {
      float added[kVector];
      read_tap(dfinal, lane * kVector, added);
#pragma unroll
      for (int v = 0; v < kVector; ++v) newest[v] = __fadd_rn(newest[v], added[v]);
    }
  }
}

// This token's share of the weights' gradient.
template <class Config, int kVector>
__device__ __forceinline__ void conv_accumulate(ConvBackwardThread<Config>& thread,
                                                const float (&dz)[kVector],
                                                const float (&x)[kVector]) {
  constexpr int kLast = Config::kWidth - 1;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < kLast; ++i) {
      thread.dweight[i][v] = __fmaf_rn(dz[v], thread.history[i][v], thread.dweight[i][v]);
    }
    thread.dweight[kLast][v] = __fmaf_rn(dz[v], x[v], thread.dweight[kLast][v]);
    thread.dbias[v] = __fadd_rn(thread.dbias[v], dz[v]);
  }
}

// A sequence that a warp walks: up to `stop`, which is past tokens.last where later tokens of the
// sequence complete pending gradients. `dfinal` is the staged gradient of its final state, null
// where the sequence does not end in this part.
struct ConvBackwardRun {
  Sequence sequence;
  int stop;
  const float* dfinal;
};

// Token t of a run, row `row` of the group at `offset`. dx is written from tokens.first on; tokens
// from tokens.last on belong to the next warp. kInside: t is before tokens.last, the window lies in
// the sequence, and no slot of a final state was copied from t.
template <class Config, bool kInside>
__device__ __forceinline__ void conv_token_bwd(const ConvTile& at, const ConvTokens& tokens,
                                               const ConvBackwardRun& run, int t, unsigned offset,
                                               int row, ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  using Thread = ConvBackwardThread<Config>;
  constexpr int kWidth = Thread::kWidth, kVector = Thread::kVector;
  float current[kVector], upstream[kVector], dz[kVector], fresh[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) current[v] = 0.0f;
  if constexpr (Thread::kReadsX) {
    // Without activation x is needed for the weights' gradient alone, which ends at `last`.
    if (kInside || Config::kSilu || t < tokens.last) {
      unpack<Element>(thread.x.read(offset, row), current);
    }
  }
  unpack<Element>(thread.dy.read(offset, row), upstream);
  conv_dz<Config>(thread, current, upstream, dz);
  const float* slots = nullptr;
  if constexpr (Config::kDfinalState && !kInside) {
    const int slot = t - (run.sequence.end - kWidth);
    if (slot >= 0 && run.dfinal != nullptr) {
      slots = run.dfinal + slot * ConvShape<Config>::kPitch;
    }
  }
  conv_scatter<Config, kInside>(thread, dz, t - run.sequence.start, slots, at.lane, fresh);
  if constexpr (Config::kDx) {
    store_where(thread.active && t - tokens.first >= kWidth - 1, thread.dx,
                pack<Element, Config::kVectorBytes>(thread.pending[0]));
    thread.dx += thread.dx_stride;
  }
  shift_in(thread.pending, fresh);
  if constexpr (Config::kWeightGrad) {
    if (kInside || t < tokens.last) conv_accumulate<Config>(thread, dz, current);
  }
  if constexpr (Thread::kReadsX) shift_in(thread.history, current);
}

// Whether the rows [group, group + kConvGroup) are tokens of which conv_token_bwd<kInside> holds.
template <class Config>
__device__ __forceinline__ bool conv_inside(const ConvTokens& tokens, const ConvBackwardRun& run,
                                            int group) {
  const int end = group + kConvGroup;
  bool inside = end <= run.stop && end <= tokens.last;
  if constexpr (Config::kPacked) {
    inside = inside && group - run.sequence.start >= Config::kWidth - 1;
  }
  if constexpr (Config::kDfinalState) {
    inside = inside && (run.dfinal == nullptr || end <= run.sequence.end - Config::kWidth);
  }
  return inside;
}

// Adds the warps' sums in their order and writes one row of partials, contiguous over channels.
template <class Config>
__device__ __forceinline__ void conv_write_partials(const ConvBackwardParams& p, const ConvTile& at,
                                                    float* sums,
                                                    const ConvBackwardThread<Config>& thread) {
  using Shape = ConvShape<Config>;
  constexpr int kWidth = Shape::kWidth, kVector = Shape::kVector, kChannels = Shape::kChannels;
  constexpr int kRows = kWidth + (Config::kBias ? 1 : 0);
  __syncthreads();  // filter and staged states have been read by all warps
  float* mine = sums + at.warp * (kWidth + 1) * kChannels + at.lane * kVector;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) mine[i * kChannels + v] = thread.dweight[i][v];
    mine[kWidth * kChannels + v] = thread.dbias[v];
  }
  __syncthreads();  // all warps' sums are there
  const int count = minimum(kChannels, p.channels - at.block_channel);
  float* partials =
      static_cast<float*>(p.partials) +
      (static_cast<long long>(at.row) * p.all_tiles + at.tile) * (kWidth + 1) * p.channels +
      at.block_channel;
  for (int i = threadIdx.x; i < kRows * kChannels; i += Config::kThreads) {
    const int tap = i / kChannels, c = i % kChannels;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) {
      sum = __fadd_rn(sum, sums[(w * (kWidth + 1) + tap) * kChannels + c]);
    }
    if (c < count) store_element(partials + static_cast<long long>(tap) * p.channels + c, sum);
  }
}

// The rows of this warp's tokens and of those that complete their gradients, the first kGroups
// groups of them on their way. Lanes without channels bring the last ones, and store nothing.
template <class Config>
__device__ __forceinline__ void conv_start_bwd(const ConvBackwardParams& p, const ConvTile& at,
                                               const ConvTokens& tokens, char* ring,
                                               ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  using Ring = ConvRing<Config>;
  constexpr int kBefore = Config::kWidth - 1;
  const long long offset = tokens.first - p.begin;
  thread.active = at.channel < p.channels;
  const int from = minimum(at.channel, p.channels - ConvShape<Config>::kVector);
  const int rows = tokens.last - tokens.first;
  const int more =
      Config::kDx && rows > 0 ? minimum(p.end, tokens.last + kBefore) - tokens.last : 0;
  const unsigned shared =
      static_cast<unsigned>(__cvta_generic_to_shared(ring)) + at.lane * Config::kVectorBytes;
  thread.dy = {static_cast<const Element*>(p.dy) + at.row * p.dy_batch_stride +
                   offset * p.dy_token_stride + from,
               p.dy_token_stride, rows + more, shared};
  if constexpr (ConvBackwardThread<Config>::kReadsX) {
    thread.x = {conv_x<Element>(p, at.row, tokens.first) + from, p.x_token_stride,
                rows + (Config::kSilu ? more : 0), shared + Ring::kBytes};
    thread.before = shared + ConvBackwardSmem<Config>::kOfWarp - Ring::kBeforeBytes;
    if (rows > 0) {
      fetch_before<Config>(thread.before, thread.x.next, p.x_token_stride, tokens.first - p.begin);
    }
  }
  thread.dx = static_cast<Element*>(p.dx) + at.row * p.dx_batch_stride +
              (offset - kBefore) * p.dx_token_stride + at.channel;
  thread.dx_stride = p.dx_token_stride;
#pragma unroll 1
  for (int g = 0; g < Ring::kGroups; ++g) thread.fetch(g * Ring::kGroupBytes);
}

// The run of the sequence that has tokens from `position` on.
template <class Config>
__device__ __forceinline__ ConvBackwardRun conv_run_bwd(const ConvBackwardParams& p,
                                                        const ConvTile& at,
                                                        const Sequence& sequence, int position,
                                                        const ConvTokens& tokens, float* stage,
                                                        ConvBackwardThread<Config>& thread) {
  constexpr int kWidth = Config::kWidth;
  ConvBackwardRun run{sequence, minimum(sequence.end, tokens.last), nullptr};
  if (Config::kDx && sequence.end > tokens.last) {
    run.stop += minimum(kWidth - 1, minimum(sequence.end, p.end) - tokens.last);
  }
  if constexpr (ConvBackwardThread<Config>::kReadsX) {
    load_history<Config, true>(p, at, at.row, sequence, position, stage, thread.before,
                               thread.history);
  }
  if constexpr (Config::kDfinalState) {
    if (run.stop > sequence.end - kWidth && sequence.end <= p.end && sequence.index < p.sequences) {
      stage_dfinal<Config>(p, at, sequence.index, stage);
      run.dfinal = stage;
    }
  }
  return run;
}

// dx and the sums of this warp's tokens. Returns the position up to which it has walked.
template <class Config>
__device__ __forceinline__ int conv_walk_bwd(const ConvBackwardParams& p, const ConvTile& at,
                                             const ConvTokens& tokens, float* stage,
                                             ConvBackwardThread<Config>& thread) {
  ConvBackwardRun run{{0, 0, 0}, tokens.first, nullptr};
  unsigned offset = 0;
#pragma unroll 1
  for (int group = tokens.first; group < tokens.last || group < run.stop; group += kConvGroup) {
    copy_async_wait<ConvRing<Config>::kGroups - 1>();
#pragma unroll 1
    for (int row = 0; row < kConvGroup;) {
      const int t = group + row;
      if (t == run.stop) {  // once per sequence that has tokens here
        if (t >= tokens.last) return t;
        const Sequence sequence = conv_sequence<Config>(p, at.row, t);
        if (conv_is_padding<Config>(p, sequence)) {
          conv_pad_bwd<Config>(t, tokens, thread);
          return tokens.last;
        }
        run = conv_run_bwd<Config>(p, at, sequence, t, tokens, stage, thread);
      }
      if (row == 0 && conv_inside<Config>(tokens, run, group)) {
#pragma unroll
        for (int g = 0; g < kConvGroup; ++g) {
          conv_token_bwd<Config, true>(at, tokens, run, group + g, offset, g, thread);
        }
        row = kConvGroup;
      } else {
        conv_token_bwd<Config, false>(at, tokens, run, t, offset, row++, thread);
      }
    }
    thread.fetch(offset);
    offset = ring_next<Config>(offset);
  }
  return run.stop;
}

// The last W - 1 gradients: pending[i] belongs to position - (W - 1) + i.
template <class Config>
__device__ __forceinline__ void conv_flush_bwd(int position, const ConvTokens& tokens,
                                               ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  constexpr int kBefore = Config::kWidth - 1;
  if constexpr (Config::kDx) {
#pragma unroll
    for (int i = 0; i < kBefore; ++i, thread.dx += thread.dx_stride) {
      const int t = position - kBefore + i;
      store_where(thread.active && t >= tokens.first && t < tokens.last, thread.dx,
                  pack<Element, Config::kVectorBytes>(thread.pending[i]));
    }
  }
}

template <class Config>
__device__ void causal_conv1d_bwd(const ConvBackwardParams& p) {
  using Shape = ConvShape<Config>;
  using Smem = ConvBackwardSmem<Config>;
  constexpr int kWidth = Shape::kWidth, kVector = Shape::kVector;
  extern __shared__ float4 shared[];
  float* filter = reinterpret_cast<float*>(shared);
  const ConvTile at = conv_tile<Config>(p.channels, p.batch, p.first_tile, p.tiles);
  float* stage = filter + Shape::kFilterFloats + at.warp * Shape::kStateFloats;
  ConvBackwardThread<Config> thread;
  ConvTokens tokens;
  if constexpr (ConvByPieces<Config>::kValue) {
    tokens = conv_piece_tokens<Config>(p, at);
  } else {
    tokens = conv_tokens<Config>(at, p.run, p.begin, p.end);
  }
  if (!at.state) {  // rows are on their way before anything is waited for
    conv_start_bwd<Config>(p, at, tokens,
                           reinterpret_cast<char*>(shared) + Smem::kRings + at.warp * Smem::kOfWarp,
                           thread);
  }
  load_filter<Config>(p, at, filter, thread.weight, thread.bias);

  if (at.state) {
    if constexpr (Config::kDinitialState || Config::kHalo) {
      const int item = at.tile * Shape::kWarps + at.warp;
      conv_state_gradient<Config>(p, at, item, stage, thread);
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth - 1; ++i) thread.history[i][v] = thread.pending[i][v] = 0.0f;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) thread.dweight[i][v] = 0.0f;
    thread.dbias[v] = 0.0f;
  }
  const int position = conv_walk_bwd<Config>(p, at, tokens, stage, thread);
  conv_flush_bwd<Config>(position, tokens, thread);
  copy_async_wait<0>();
  if constexpr (Config::kWeightGrad) conv_write_partials<Config>(p, at, filter, thread);
}

}  // namespace lathe
