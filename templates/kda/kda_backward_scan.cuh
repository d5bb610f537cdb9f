// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_scan: the two walks that the backward of Kimi Delta Attention needs, in one launch.
// Neither reads what the other writes. Forward, as kda_forward without its output, the rows vn and
// the state at the start of each chunk; back, with dh the gradient of the state behind a block,
//
//   dvn = scale P^T do + kg dh            y = M^T dvn
//   dh  = Diag(decay) dh + scale qg^T do - ke^T Diag(beta) y
//
// the rows y and the dh at the end of each chunk. y is the gradient of what beta scales, v - S^T k:
// it does not depend on how the sequence was cut, and with vn, h and dh it is all that the other
// gradients need (kda_backward.cuh).
#pragma once
#include "kda/kda_forward.cuh"

namespace lathe {

// Without kStored nothing but the state's gradient is made.
template <class Config, bool kStored = true>
struct KdaReverse : KdaScan<Config> {
  using Scan = KdaScan<Config>;
  using Scan::in, Scan::lane, Scan::tile;
  using typename Scan::Block;
  using typename Scan::Element;

  const KdaBackwardScanParams& p;

  __device__ __forceinline__ KdaReverse(const KdaBackwardScanParams& params, unsigned block,
                                        unsigned shared)
      : Scan(params.in, block, shared), p(params) {}

  __device__ __forceinline__ void go_back(KdaState<Config>& state, unsigned block, int step,
                                          int first) const;
  __device__ __forceinline__ void update(KdaState<Config>& state, unsigned block,
                                         const KdaSplit<Element, 1>& outputs,
                                         const KdaSplit<Element>& rows) const;
  __device__ __forceinline__ void load_final_grad(KdaState<Config>& state) const;
  __device__ __forceinline__ void walk(KdaState<Config>& state) const;
  __device__ __forceinline__ void begin_gradient(KdaState<Config>& state) const;
  __device__ __forceinline__ void store_initial_gradient(KdaState<Config>& state) const;
  __device__ __forceinline__ void run() const;
};

// The block of tokens from `first` on, number `step` of its round; `state` is dh, transposed.
template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::go_back(KdaState<Config>& state,
                                                                     unsigned block, int step,
                                                                     int first) const {
  constexpr int kPlane = Block::Rows::kBytes;
  const int from = this->lane_index(), t = from % 4;
  const int by_chunks = Block::Rows::offset(row_of_chunks_first(from), chunk_of_chunks_first(from));
  float dvn[2][4] = {};
#pragma unroll
  for (int j = 0; j < Scan::kSteps; ++j) {  // dvn = (kg dh)^T
    Fragment<Element> kg;
    load_planes<Element, kPlane>(kg, Block::Rows::at(block + by_chunks, 2 * j) + Block::kKg);
    multiply_add_pair(dvn[0], dvn[1], state.operand(j), kg);
  }
  float norm[2][2], scale[2][2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int tokens = 4 * (8 * n + 2 * t);
    load_shared(block + Block::kNormK + tokens, norm[n][0], norm[n][1]);
    load_shared(block + Block::kScaleQ + tokens, scale[n][0], scale[n][1]);
    if constexpr (Config::kL2Norm) {
#pragma unroll
      for (int i = 0; i < 4; ++i) dvn[n][i] *= norm[n][i % 2];
    }
  }
  const KdaValues<Element> d_o = this->load_values(step);
  float y[2][4] = {}, before[2][4];  // dvn += (scale P^T do)^T and y = (M^T dvn)^T
#pragma unroll
  for (int i = 0; i < 8; ++i) before[i / 4][i % 4] = dvn[i / 4][i % 4];
  this->template multiply_square<kOfEarlier>(dvn, d_o.operand(), block + Block::kScores);
  KdaSplit<Element> rows(dvn);
  if (all_finite(rows)) {
    this->template multiply_square<kOfEarlier>(y, rows, block + Block::kInverse);
  } else {
    this->template multiply_square_by_token<kOfEarlier>(before, d_o.operand(),
                                                        block + Block::kScores);
    rows = KdaSplit<Element>(before);
    this->template multiply_square_by_token<kOfEarlier>(y, rows, block + Block::kInverse);
  }
  if constexpr (kStored) {
    const long long stride = static_cast<long long>(in.value_heads) * in.value_dim;
    Element* to = static_cast<Element*>(p.value_grads) +
                  (tile.row * in.tokens + tile.start) * stride + tile.head * in.value_dim;
    this->store_values(y, to, stride, first);
  }

  float outputs[2][4];  // scale do; y becomes -Diag(beta) y
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float beta[2];
    load_shared(block + Block::kBeta + 4 * (8 * n + 2 * t), beta[0], beta[1]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float pair_do[2];
      d_o.pair(n, h, pair_do[0], pair_do[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // qg and ke are too large by kScaling
        outputs[n][2 * h + i] = cut_to<Element>(pair_do[i] * (Block::kUnscaling * scale[n][i]));
        y[n][2 * h + i] =
            cut_to<Element>(y[n][2 * h + i] * -beta[i] * (Block::kUnscaling * norm[n][i]));
      }
    }
  }
  update(state, block, KdaSplit<Element, 1>(outputs), KdaSplit<Element>(y));
}

// dh = Diag(decay) dh + qg^T outputs + ke^T rows.
template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::update(
    KdaState<Config>& state, unsigned block, const KdaSplit<Element, 1>& outputs,
    const KdaSplit<Element>& rows) const {
  constexpr int kPlane = Block::Rows::kBytes;
  const int from = this->lane_index(), t = from % 4;
  const unsigned at =
      block + Block::Rows::offset(row_of_rows_first(from), chunk_of_rows_first(from));
#pragma unroll
  for (int j = 0; j < Scan::kSteps; ++j) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(block + Block::kDecay + 4 * (16 * j + 8 * n + 2 * t), decay[0], decay[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) state.s[2 * j + n][i] *= decay[i % 2];
    }
    Fragment<Element> b;
    load_planes_transposed<Element, kPlane>(b, Block::Rows::at(at, 2 * j) + Block::kQg);
    multiply_add_split(state.s[2 * j], state.s[2 * j + 1], outputs, b);
    load_planes_transposed<Element, kPlane>(b, Block::Rows::at(at, 2 * j) + Block::kKe);
    multiply_add_split(state.s[2 * j], state.s[2 * j + 1], rows, b);
  }
}

template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::load_final_grad(
    KdaState<Config>& state) const {
  if constexpr (Config::kRanks) {
    if (tile.sequence >= p.carry.open) {
      const long long before = p.carry.open * static_cast<long long>(in.value_heads);
      const float* from = static_cast<const float*>(p.carry.grads) + this->warp_state() -
                          before * this->state_size();
      state.template load<true>(from, this->warp_value(), in.key_dim, in.value_dim);
      return;
    }
  }
  if constexpr (Config::kFinalStateGrad) {
    state.load(static_cast<const float*>(p.dht) + this->warp_state(), this->warp_value(),
               in.key_dim, in.value_dim);
  } else {
    state.clear();
  }
}

// The gradient of the state goes back through the tokens of the segment.
template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::walk(KdaState<Config>& state) const {
  const Element* d_o = static_cast<const Element*>(p.d_o) + tile.row * p.do_batch_stride +
                       tile.start * p.do_token_stride + tile.head * p.do_head_stride;
  const int rounds = ceil_div(tile.count - tile.first, Scan::kRows);
  const KdaNumbers head = this->numbers();
  KdaIncoming<Config> incoming;
  if (Scan::kAhead) this->expect(incoming, tile.first + (rounds - 1) * Scan::kRows);
#pragma unroll 1
  for (int turn = rounds - 1; turn >= 0; --turn) {
    const int round = tile.first + turn * Scan::kRows;
    this->copy_values(d_o, p.do_token_stride, round);
    this->prepare(incoming, head, round, round - Scan::kRows);
    copy_async_wait<0>();
    __syncthreads();  // every warp's block and every thread's rows of the gradient are there
    const int most = ceil_div(minimum(tile.count - round, Scan::kRows), 16);
#pragma unroll 1
    for (int block = most - 1; block >= 0; --block) {
      const int first = round + 16 * block, behind = first + 16;
      if constexpr (kStored) {
        if (behind >= tile.count || behind % kKdaChunk == 0) {
          this->store_rounded(state, static_cast<Element*>(p.state_grads) + this->slot(first));
        }
      }
      go_back(state, this->blocks + block * Block::kBytes, block, first);
    }
    __syncthreads();  // all have left the blocks that are made anew
  }
}

// The gradient behind the tokens of the segment.
template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::begin_gradient(
    KdaState<Config>& state) const {
  if (tile.last) {
    load_final_grad(state);
  } else {  // from before the segment behind
    const long long at = this->summary(tile.segment + 1, in.value_dim);
    state.template load<true>(static_cast<const float*>(p.grad_ends) + at, this->warp_value(),
                              in.key_dim, in.value_dim);
  }
}

template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::store_initial_gradient(
    KdaState<Config>& state) const {
  if constexpr (Config::kInitialStateGrad) {
    if (tile.segment > 0) return;
    if constexpr (Config::kRanks) {
      if (tile.sequence < p.carry.carried) return;  // the rank of its first token has it
    }
    state.store(static_cast<float*>(p.dinitial_state) + this->warp_state(), this->warp_value(),
                in.key_dim, in.value_dim);
  }
}

template <class Config, bool kStored>
__device__ __forceinline__ void KdaReverse<Config, kStored>::run() const {
  if (tile.idle()) return;
  KdaState<Config> state;
  begin_gradient(state);
  walk(state);
  store_initial_gradient(state);
}

template <class Config>
__device__ void kda_backward_scan(const KdaBackwardScanParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  if (static_cast<int>(blockIdx.x) >= p.forward_blocks) {
    KdaReverse<Config>(p, blockIdx.x - p.forward_blocks, shared_address(shared)).run();
    return;
  }
  if constexpr (!Config::kSaved) return;  // an earlier walk has left it
  KdaForwardParams forward = {};
  forward.in = p.in, forward.carry = p.carry;
  forward.initial_state = p.initial_state, forward.summaries = p.summaries;
  forward.saved_values = p.saved_values, forward.saved_states = p.saved_states;
  KdaForward<Config>(forward, blockIdx.x, shared_address(shared)).run();
}

}  // namespace lathe
