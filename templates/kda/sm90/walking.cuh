// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The walks of KDA by warpgroups with roles (sm_90a).
//
// Two warpgroups prepare blocks of 16 tokens (kda/sm90/preparing.cuh), up to kSlots of them ahead.
// The others walk: each has 64 values of the state, transposed, as the sums of its products. Of a
// block it reads the state by one product with the rows ke and qg, whose first operand are the
// rounded sums in registers; makes vn and o from that, as the portable kernel does; and adds
// vn^T kd to the sums. (NVIDIA/cudnn-frontend, kda_fused_sm90, keeps the state like this too.)
#pragma once
#include "kda/sm90/preparing.cuh"

namespace lathe {

// Columns of the state that are decayed at once.
enum KdaDecayed { kAllOfState, kBeforeSum, kBehindSum };

template <class Config>
struct KdaWalking : KdaForward<KdaWalkers<Config>> {
  using Walkers = KdaWalkers<Config>;
  using Forward = KdaForward<Walkers>;
  using Forward::in, Forward::tile, Forward::p;
  using typename Forward::Element;
  using Smem = KdaWarpgroupsSmem<Config>;
  using Record = KdaRecord<Config>;
  using Block = KdaBlock<Config>;
  using Preparing = KdaPreparing<Config>;
  static constexpr int kSteps = Config::kWidth / 16;
  static constexpr int kSums = Config::kWidth / 2;
  static constexpr int kParts = 1;                        // of x
  static constexpr int kRead = Config::kOutput ? 16 : 8;  // sums of a read

  const unsigned shared;

  __device__ __forceinline__ KdaWalking(const KdaForwardParams& params, unsigned block,
                                        unsigned address)
      : Forward(params, block, address), shared(address) {}
  __device__ __forceinline__ KdaWalking(const KdaForwardParams& params, const KdaScanTile& where,
                                        unsigned address)
      : Forward(params, where, address), shared(address) {}

  static __device__ __forceinline__ void scale_all(KdaState<Walkers>& state, float factor) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums(state)[i] *= factor;
  }
  // The state's words are the sums of products in their order.
  static __device__ __forceinline__ float (&sums(KdaState<Walkers>& state))[kSums] {
    return reinterpret_cast<float(&)[kSums]>(state.s);
  }
  __device__ __forceinline__ void read_state(const Record& record, const unsigned (&h)[kSteps][4],
                                             float (&read)[kRead]) const;
  __device__ __forceinline__ void add_values(const Record& record, KdaState<Walkers>& state,
                                             const KdaSplit<Element, kParts>& x) const;
  __device__ __forceinline__ void load_values(const Record& record, float (&read)[kRead]) const;
  template <KdaDecayed kWhich>
  __device__ __forceinline__ void scale(const Record& record, KdaState<Walkers>& state) const;
  __device__ __forceinline__ void store_output(const Record& record, float (&o)[2][4],
                                               const KdaSplit<Element, kParts>& x, bool finite,
                                               Element* to, int left) const;
  __device__ __forceinline__ void walk_block(const Record& record, unsigned phase,
                                             KdaState<Walkers>& state, Element* to, int left) const;
  __device__ __forceinline__ void walk(KdaState<Walkers>& state,
                                       PipelineState<Smem::kSlots>& ring) const;
  __device__ __forceinline__ void run() const;  // of kda_forward_warpgroups
};

// read += (ke h)^T and (qg h)^T, 16 columns each. Nothing is waited for.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::read_state(const Record& record,
                                                               const unsigned (&h)[kSteps][4],
                                                               float (&read)[kRead]) const {
  const WgmmaTile rows = wgmma_columns(record.tile);
  wgmma_fence_operands(read);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Wgmma<2 * kRead, false, Element>::run(read, h[step],
                                          rows.at(step / 4 * Smem::kPanel + step % 4 * 32), 1);
  }
  wgmma_commit();
}

// The state += x^T kd, the smaller part of x first. Nothing is waited for.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::add_values(
    const Record& record, KdaState<Walkers>& state, const KdaSplit<Element, kParts>& x) const {
  const WgmmaTile kd = wgmma_rows<Smem::kPanel>(record.tile + Smem::kG);
  wgmma_fence_operands(sums(state));
  wgmma_fence();
#pragma unroll
  for (int i = kParts - 1; i >= 0; --i) {
    Wgmma<Config::kWidth, true, Element>::run(sums(state), x.part[i].word[0], kd.at(0), 1);
  }
  wgmma_commit();
}

// The block's rows of v, the warp's columns, as sums that begin with them; those of o begin with 0.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::load_values(const Record& record,
                                                                float (&read)[kRead]) const {
  const int lane = this->lane_index(), chunk = 2 * (this->warp % 4) + chunk_of_chunks_first(lane);
  KdaValues<Element> v;
  load_matrix_transposed(
      v.word, record.values(this->warp / 4) + swizzled(row_of_chunks_first(lane), chunk));
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) v.pair(n, h, read[4 * n + 2 * h], read[4 * n + 2 * h + 1]);
    if constexpr (Config::kL2Norm) {
      float length[2];
      load_shared(record.small + Smem::kLengthK + 4 * (8 * n + 2 * (lane % 4)), length[0],
                  length[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) read[4 * n + i] *= length[i % 2];
    }
  }
#pragma unroll
  for (int i = 8; i < kRead; ++i) read[i] = 0.0f;
}

// The state times the block's decay: of all columns, of those where it comes before the sum, or of
// the others.
template <class Config>
template <KdaDecayed kWhich>
__device__ __forceinline__ void KdaWalking<Config>::scale(const Record& record,
                                                          KdaState<Walkers>& state) const {
  const int t = this->lane_index() % 4;
#pragma unroll
  for (int n = 0; n < KdaState<Walkers>::kTiles; n += 2) {
    float decay[4];
    load_shared(record.decay(n, t), decay);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool before = (bit_cast<unsigned>(decay[i]) >> 31) != 0;
      if (kWhich == kBeforeSum) decay[i] = before ? -decay[i] : 1.0f;
      if (kWhich == kBehindSum) decay[i] = before ? 1.0f : decay[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) state.s[n + i / 4][i % 4] *= decay[i / 4 * 2 + i % 2];
  }
}

// o = scale (qg h + P vn) from o = (qg h)^T, to where the lane's columns of token g are.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::store_output(const Record& record,
                                                                 float (&o)[2][4],
                                                                 const KdaSplit<Element, kParts>& x,
                                                                 bool finite, Element* to,
                                                                 int left) const {
  const int lane = this->lane_index(), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float scale[2] = {in.scale, in.scale};
    if constexpr (Config::kL2Norm) {
      load_shared(record.small + Smem::kScaleQ + 4 * (8 * n + 2 * t), scale[0], scale[1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) o[n][i] *= scale[i % 2];
  }
  if (finite) {
    this->template multiply_square<kOfLater>(o, x, record.small + Smem::kScores);
  } else {
    this->template multiply_square_by_token<kOfLater>(o, x, record.small + Smem::kScores);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const unsigned low = transpose_matrix(pack_pair(o[n][0], o[n][1], Element{}));
    const unsigned high = transpose_matrix(pack_pair(o[n][2], o[n][3], Element{}));
    const unsigned other = __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
    const Words<8> four = t & 1 ? Words<8>{{other, high}} : Words<8>{{low, other}};
    if (8 * n + g < left) store_global(to + 8 * n * p.o_token_stride, four);
  }
}

// `to`: where the lane's columns of the block's token g go; `left`: tokens that are there, 0 of
// columns that are not.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::walk_block(const Record& record, unsigned phase,
                                                               KdaState<Walkers>& state,
                                                               Element* to, int left) const {
  unsigned h[kSteps][4];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const Fragment<Element> part = state.operand(j);
#pragma unroll
    for (int i = 0; i < 4; ++i) h[j][i] = part.word[0][i];
  }
  mbarrier_wait(record.landed(), phase);  // v; what else has landed is prepared by then
  mbarrier_wait(record.ready(), phase);
  float read[kRead];
  load_values(record, read);
  read_state(record, h, read);
  const bool cut = load_shared_word(record.flag()) != 0;
  wgmma_wait<0>();
  wgmma_fence_operands(read);
  float given[2][4], o[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    given[i / 4][i % 4] = read[i];
    if constexpr (Config::kOutput) o[i / 4][i % 4] = read[8 + i];
  }
  const KdaSplit<Element, kParts> x(given);
  if (cut) scale<kBeforeSum>(record, state);
  add_values(record, state, x);
  if constexpr (Config::kOutput) store_output(record, o, x, all_finite(x), to, left);
  wgmma_wait<0>();
  wgmma_fence_operands(sums(state));
  if (cut) {
    scale<kBehindSum>(record, state);
  } else {
    scale<kAllOfState>(record, state);
  }
  __syncwarp();
  if (this->lane == 0) mbarrier_arrive(record.empty());
}

// The state goes through the tokens of the segment, from record `ring` on.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::walk(KdaState<Walkers>& state,
                                                         PipelineState<Smem::kSlots>& ring) const {
  scale_all(state, Preparing::kUnscaling);
  const int lane = this->lane_index(), g = lane / 4, t = lane % 4;
  const int column = this->warp_value() + (t & 1) * 8 + (t & 2) * 2;
  Element* to = static_cast<Element*>(p.o) + tile.row * p.o_batch_stride +
                (tile.start + tile.first + g) * p.o_token_stride + tile.head * p.o_head_stride +
                column;
  int left = column < in.value_dim ? tile.count - tile.first : 0;
#pragma unroll 1
  for (int first = tile.first; first < tile.count; first += 16) {
    walk_block(Record(shared, ring.stage), ring.phase, state, to, left);
    to += 16 * p.o_token_stride, left -= 16;
    ring.next();
  }
  scale_all(state, Preparing::kScaling);
}

// The roles of a block's threads: those who walk do so, with the rows that the others prepare.
template <class Config, class Walk>
__device__ __forceinline__ void kda_roles(const KdaMaps& maps, const KdaWalking<Config>& walking,
                                          const Walk& walk) {
  using Roles = KdaRoles<Config>;
  constexpr unsigned kWalkers = 32 * Roles::kWalking;
  if (threadIdx.x == kWalkers) {
    if (walking.tile.first < walking.tile.count) {  // without tokens there are no maps
      prefetch_tensor_map(maps.k);
      prefetch_tensor_map(maps.v);
      if (Config::kOutput) prefetch_tensor_map(maps.q);
      if (KdaWarpgroupsSmem<Config>::kCopiedGate) prefetch_tensor_map(maps.g);
    }
    KdaRecord<Config>::init(walking.shared);
  }
  __syncthreads();  // the barriers are there for all
  if (threadIdx.x < kWalkers) {
    setmaxnreg_inc<Roles::kWalkingRegisters>();
    walk();
  } else {
    setmaxnreg_dec<Roles::kPreparingRegisters>();
    if constexpr (kCheckpointed<Config>) {
      walking.each_piece([&](const KdaScanTile& piece, int block) {
        const typename KdaPreparing<Config>::Forward forward(walking.p, piece, walking.shared);
        KdaPreparing<Config>(maps, forward, walking.shared, block).run();
      });
    } else {
      KdaPreparing<Config>(maps, walking, walking.shared).run();
    }
  }
}

}  // namespace lathe
