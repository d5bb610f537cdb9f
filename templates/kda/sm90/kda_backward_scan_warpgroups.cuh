// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_scan_warpgroups: the walk back of kda_backward_scan.cuh, by warpgroups with roles
// (sm_90a). A walker has 64 values of the state's gradient, transposed, as the sums of its
// products, 2^57 times as large (kda/sm90/squares_back.cuh has the formulas).
#pragma once
#include "kda/sm90/walking.cuh"

namespace lathe {

// Without kStored nothing but the state's gradient is made.
template <class Of, bool kStored = true>
struct KdaWalkingBack : KdaReverse<KdaWalkers<KdaBack<Of>>, kStored> {
  using Config = KdaBack<Of>;
  using Walkers = KdaWalkers<Config>;
  using Reverse = KdaReverse<Walkers, kStored>;
  using Reverse::in, Reverse::p, Reverse::tile;
  using typename Reverse::Element;
  using Walking = KdaWalking<Config>;
  using Smem = KdaWarpgroupsSmem<Config>;
  using Record = KdaRecord<Config>;
  using Preparing = KdaPreparing<Config>;
  using Rows = KdaSplit<Element, 1>;
  static constexpr int kSteps = Walking::kSteps;

  const unsigned shared;

  __device__ __forceinline__ KdaWalkingBack(const KdaBackwardScanParams& params, unsigned block,
                                            unsigned address)
      : Reverse(params, block, address), shared(address) {}

  __device__ __forceinline__ Rows load_gradients(const Record& record) const;
  __device__ __forceinline__ void read_keys(const Record& record, const unsigned (&h)[kSteps][4],
                                            float (&read)[8]) const;
  __device__ __forceinline__ void add_rows(unsigned tile_at, const Rows& rows,
                                           KdaState<Walkers>& state) const;
  __device__ __forceinline__ void make_gradients(const Record& record, const Rows& d_o,
                                                 const Rows& read, unsigned (&to)[2][2]) const;
  __device__ __forceinline__ void walk_blocks(KdaState<Walkers>& state) const;
  __device__ __forceinline__ void walk(KdaState<Walkers>& state) const;
  __device__ __forceinline__ void run() const;
};

// The block's rows of do, the warp's columns.
template <class Of, bool kStored>
__device__ __forceinline__ typename KdaWalkingBack<Of, kStored>::Rows
KdaWalkingBack<Of, kStored>::load_gradients(const Record& record) const {
  const int lane = this->lane_index(), chunk = 2 * (this->warp % 4) + chunk_of_chunks_first(lane);
  Rows rows;
  load_matrix_transposed(rows.part[0].word[0], record.values(this->warp / 4) +
                                                   swizzled(row_of_chunks_first(lane), chunk));
  return rows;
}

// read = (kd dh)^T. Nothing is waited for.
template <class Of, bool kStored>
__device__ __forceinline__ void KdaWalkingBack<Of, kStored>::read_keys(
    const Record& record, const unsigned (&h)[kSteps][4], float (&read)[8]) const {
  const WgmmaTile kd = wgmma_columns(record.tile + Smem::kG);
  wgmma_fence_operands(read);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Wgmma<16, false, Element>::run(read, h[step], kd.at(step / 4 * Smem::kPanel + step % 4 * 32),
                                   step > 0);
  }
  wgmma_commit();
}

// The state += rows^T B, of a tile of queries or keys. Nothing is waited for.
template <class Of, bool kStored>
__device__ __forceinline__ void KdaWalkingBack<Of, kStored>::add_rows(
    unsigned tile_at, const Rows& rows, KdaState<Walkers>& state) const {
  wgmma_fence();
  Wgmma<Config::kWidth, true, Element>::run(Walking::sums(state), rows.part[0].word[0],
                                            wgmma_rows<Smem::kPanel>(tile_at).at(0), 1);
  wgmma_commit();
}

// y = (scale P M)^T do + M^T read.
template <class Of, bool kStored>
__device__ __forceinline__ void KdaWalkingBack<Of, kStored>::make_gradients(
    const Record& record, const Rows& d_o, const Rows& read, unsigned (&to)[2][2]) const {
  const unsigned scores = record.small + Smem::kScores, inverse = record.small + Smem::kInverse;
  float y[2][4] = {};
  if (all_finite(read) && all_finite(d_o)) {
    this->template multiply_square<kOfEarlier>(y, d_o, scores);
    this->template multiply_square<kOfEarlier>(y, read, inverse);
  } else {
    this->template multiply_square_by_token<kOfEarlier>(y, d_o, scores);
    this->template multiply_square_by_token<kOfEarlier>(y, read, inverse);
  }
  Walking::pack_rows(y, to);
}

// One block after another, from the last one on.
template <class Of, bool kStored>
__device__ __forceinline__ void KdaWalkingBack<Of, kStored>::walk_blocks(
    KdaState<Walkers>& state) const {
  const int lane = fresh_lane(), g = lane / 4, t = lane % 4;
  const int column = this->warp_value() + (t & 1) * 8 + (t & 2) * 2;
  const bool inside = column < in.value_dim;
  const long long stride = KdaRowsByBeta<Config>::kThere
                               ? p.value_grads_token_stride
                               : static_cast<long long>(in.value_heads) * in.value_dim;
  int first = tile.first + (tile.count - 1 - tile.first) / 16 * 16;
  // Where the lane's columns of the block's token g go.
  Element* to = nullptr;
  if constexpr (kStored) {
    to = static_cast<Element*>(p.value_grads) + (tile.start + first + g) * stride + column;
    if constexpr (KdaRowsByBeta<Config>::kThere) {
      to += tile.row * p.value_grads_batch_stride + tile.head * p.value_grads_head_stride;
    } else {
      to += tile.row * in.tokens * stride + tile.head * in.value_dim;
    }
  }
  PipelineState<Smem::kSlots> ring;
#pragma unroll 1
  for (; first >= tile.first; first -= 16) {
    const Record record(shared, ring.stage);
    const int behind = first + 16;
    if (kStored && (behind >= tile.count || behind % kKdaChunk == 0)) {
      this->store_rounded(state, static_cast<Element*>(p.state_grads) + this->slot(first),
                          Preparing::kUnscaling);
    }
    record.wait_prepared(ring.phase);
    const bool cut = load_shared_word(record.flag()) != 0;
    if (cut) {
      Walking::template scale_state<kBehindSum>(record, t, state);
    } else {
      Walking::template scale_state<kAllOfState>(record, t, state);
    }
    unsigned h[kSteps][4];
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      const Fragment<Element> part = state.operand(j);
#pragma unroll
      for (int i = 0; i < 4; ++i) h[j][i] = part.word[0][i];
    }
    if (cut) Walking::template scale_state<kBeforeSum>(record, t, state);
    float sums[8] = {};
    wgmma_fence_operands(Walking::sums(state));
#pragma unroll
    for (int j = 0; j < kSteps; ++j) wgmma_fence_operands(h[j]);
    read_keys(record, h, sums);
    Rows d_o = load_gradients(record);
    wgmma_fence_operands(d_o.part[0].word[0]);
    add_rows(record.tile + Smem::kQ, d_o, state);
    wgmma_wait<1>();
    wgmma_fence_operands(sums);
    float values[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i / 4][i % 4] = sums[i];
    Rows read(values);
    wgmma_fence_operands(read.part[0].word[0]);
    add_rows(record.tile, read, state);
    if constexpr (kStored) {
      unsigned y[2][2];
      make_gradients(record, d_o, read, y);
      Walking::store_rows(lane, y, to, stride, inside ? tile.count - first : 0);
      to -= 16 * stride;
    }
    wgmma_wait<0>();
    wgmma_fence_operands(Walking::sums(state));
    __syncwarp();
    if (this->lane == 0) mbarrier_arrive(record.empty());
    ring.next();
  }
}

// The gradient of the state goes back through the tokens of the segment.
template <class Of, bool kStored>
__device__ __forceinline__ void KdaWalkingBack<Of, kStored>::walk(KdaState<Walkers>& state) const {
  Walking::scale_all(state, Preparing::kScaling);
  if (tile.first < tile.count) walk_blocks(state);
  Walking::scale_all(state, Preparing::kUnscaling);
}

template <class Of, bool kStored>
__device__ __forceinline__ void KdaWalkingBack<Of, kStored>::run() const {
  KdaState<Walkers> state;
  this->begin_gradient(state);
  walk(state);
  this->store_initial_gradient(state);
}

template <class Config>
using KdaBackSmem = KdaWarpgroupsSmem<KdaBack<Config>>;

template <class Config>
__device__ void kda_backward_scan_warpgroups(const KdaBackwardScanWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const KdaWalkingBack<Config> walking(p.scan, blockIdx.x, shared_address(shared));
  if (walking.tile.idle()) return;
  kda_roles<KdaBack<Config>>(
      p.maps, walking, [&]() -> const auto& { return walking; }, [&] { walking.run(); });
}

}  // namespace lathe
