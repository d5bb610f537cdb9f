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
  // A wide state, or one of two, leaves no room for all of its rounded sums at once, nor for all
  // decays: they come in shares, of which a thread has two.
  static constexpr bool kWide = KdaRoles<Config>::kWide, kTight = KdaRoles<Config>::kTight;
  static constexpr int kShares = kWide || KdaRoles<Config>::kTwo ? kSteps / 2 : 1;
  static constexpr int kShareSteps = kSteps / kShares, kAhead = kShares == 1 ? 1 : 2;
  // Parts of x. Sums over 256 columns have more roundings of the state: x brings fewer then.
  static constexpr int kParts = KdaRoles<Config>::kWide ? 2 : 1;
  static constexpr int kRead = Config::kOutput ? 16 : 8;  // sums of a read

  // What a walker asks of a record before it needs it.
  struct Given {
    KdaValues<Element> v;
    float length[2][2];
    bool cut;
  };
  struct Decays {  // of a share
    float of[kShareSteps][4];
  };
  // What is left of a block once the state has it.
  struct Outputs {
    float o[2][4];
    unsigned vn[2][2];  // as it is stored
    KdaSplit<Element, kParts> x;
    Fragment<Element> square;
  };
  // Where the lane's columns of a block's token g go: of o and of vn.
  struct Places {
    Element *o, *vn;
  };

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
  __device__ __forceinline__ void read_share(const Record& record, int share,
                                             KdaState<Walkers>& state, float (&read)[kRead]) const;
  __device__ __forceinline__ void read_state(const Record& record, const Given& given,
                                             KdaState<Walkers>& state, float (&read)[kRead]) const;
  __device__ __forceinline__ void add_values(const Record& record, KdaState<Walkers>& state,
                                             const KdaSplit<Element, kParts>& x) const;
  __device__ __forceinline__ Given load_given(const Record& record) const;
  static __device__ __forceinline__ void begin_read(const Given& given, float (&read)[kRead]);
  static __device__ __forceinline__ Decays load_decays(const Record& record, int share, int t);
  template <KdaDecayed kWhich>
  static __device__ __forceinline__ void scale(const Decays& decays, int share,
                                               KdaState<Walkers>& state);
  template <KdaDecayed kWhich>
  static __device__ __forceinline__ void scale_state(const Record& record, int t,
                                                     KdaState<Walkers>& state) {
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
      scale<kWhich>(load_decays(record, share, t), share, state);
    }
  }
  static __device__ __forceinline__ void scale_behind_sum(const Record& record, int t, bool cut,
                                                          Decays (&decays)[kAhead],
                                                          KdaState<Walkers>& state);
  __device__ __forceinline__ void leave(const Record& record) const {
    __syncwarp();
    if (this->lane == 0) mbarrier_arrive(record.empty());
  }
  __device__ __forceinline__ void begin_output(const Record& record, Outputs& outputs) const;
  __device__ __forceinline__ void make_values(const Record& record, Outputs& outputs) const;
  static __device__ __forceinline__ void pack_rows(const float (&x)[2][4], unsigned (&to)[2][2]);
  static __device__ __forceinline__ void store_rows(int lane, const unsigned (&x)[2][2],
                                                    Element* to, long long stride, int left);
  __device__ __forceinline__ Places places() const;
  __device__ __forceinline__ long long saved_stride() const {
    return static_cast<long long>(in.value_heads) * in.value_dim;
  }
  __device__ __forceinline__ void save_state(const KdaState<Walkers>& state, int first) const;
  __device__ __forceinline__ void walk_blocks(KdaState<Walkers>& state,
                                              PipelineState<Smem::kSlots>& ring) const;
  __device__ __forceinline__ void walk(KdaState<Walkers>& state,
                                       PipelineState<Smem::kSlots>& ring) const;
  // Runs the whole of kda_forward_warpgroups.
  __device__ __forceinline__ void run(KdaState<Walkers>& state) const;
};

// read += (ke h)^T and (qg h)^T of a share's columns, 16 columns each. Nothing is waited for.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::read_share(const Record& record, int share,
                                                               KdaState<Walkers>& state,
                                                               float (&read)[kRead]) const {
  unsigned h[kShareSteps][4];
#pragma unroll
  for (int j = 0; j < kShareSteps; ++j) {
    const Fragment<Element> part = state.operand(share * kShareSteps + j);
#pragma unroll
    for (int i = 0; i < 4; ++i) h[j][i] = part.word[0][i];
  }
  const WgmmaTile rows = wgmma_columns(record.tile);
  if (share == 0) wgmma_fence_operands(read);  // later shares find a product under way
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < kShareSteps; ++j) {
    const int step = share * kShareSteps + j;
    Wgmma<2 * kRead, false, Element>::run(read, h[j],
                                          rows.at(step / 4 * Smem::kPanel + step % 4 * 32), 1);
  }
  wgmma_commit();
}

// The sums of a block before it makes values: v, and what the state adds. Nothing is waited for but
// registers of a share before.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::read_state(const Record& record,
                                                               const Given& given,
                                                               KdaState<Walkers>& state,
                                                               float (&read)[kRead]) const {
  begin_read(given, read);
#pragma unroll
  for (int share = 0; share < kShares; ++share) {
    if (share >= 1) wgmma_wait<1>();
    read_share(record, share, state, read);
  }
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

// The block's rows of v, the warp's columns, and what is to be done with them.
template <class Config>
__device__ __forceinline__ typename KdaWalking<Config>::Given KdaWalking<Config>::load_given(
    const Record& record) const {
  const int lane = this->lane_index(), chunk = 2 * (this->warp % 4) + chunk_of_chunks_first(lane);
  Given given;
  load_matrix_transposed(
      given.v.word, record.values(this->warp / 4) + swizzled(row_of_chunks_first(lane), chunk));
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      load_shared(record.small + Smem::kLengthK + 4 * (8 * n + 2 * (lane % 4)), given.length[n][0],
                  given.length[n][1]);
    }
  }
  given.cut = load_shared_word(record.flag()) != 0;
  return given;
}

// The sums begin with v; those of o begin with 0.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::begin_read(const Given& given,
                                                               float (&read)[kRead]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) given.v.pair(n, h, read[4 * n + 2 * h], read[4 * n + 2 * h + 1]);
    if constexpr (Config::kL2Norm) {
#pragma unroll
      for (int i = 0; i < 4; ++i) read[4 * n + i] *= given.length[n][i % 2];
    }
  }
#pragma unroll
  for (int i = 8; i < kRead; ++i) read[i] = 0.0f;
}

template <class Config>
__device__ __forceinline__ typename KdaWalking<Config>::Decays KdaWalking<Config>::load_decays(
    const Record& record, int share, int t) {
  Decays decays;
#pragma unroll
  for (int j = 0; j < kShareSteps; ++j) {
    load_shared(record.decay(2 * (share * kShareSteps + j), t), decays.of[j]);
  }
  return decays;
}

// A share of the state times the block's decay: of all columns, of those where it comes before the
// sum, or of the others.
template <class Config>
template <KdaDecayed kWhich>
__device__ __forceinline__ void KdaWalking<Config>::scale(const Decays& decays, int share,
                                                          KdaState<Walkers>& state) {
#pragma unroll
  for (int j = 0; j < kShareSteps; ++j) {
    const int n = 2 * (share * kShareSteps + j);
    float decay[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      decay[i] = decays.of[j][i];
      const bool before = (bit_cast<unsigned>(decay[i]) >> 31) != 0;
      if (kWhich == kBeforeSum) decay[i] = before ? -decay[i] : 1.0f;
      if (kWhich == kBehindSum) decay[i] = before ? 1.0f : decay[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) state.s[n + i / 4][i % 4] *= decay[i / 4 * 2 + i % 2];
  }
}

// The same of all shares behind the sum. The first ones' decays are there.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::scale_behind_sum(const Record& record, int t,
                                                                     bool cut,
                                                                     Decays (&decays)[kAhead],
                                                                     KdaState<Walkers>& state) {
#pragma unroll
  for (int share = 0; share < kShares; ++share) {
    Decays& of = decays[share % kAhead];
    if (cut) {
      scale<kBehindSum>(of, share, state);
    } else {
      scale<kAllOfState>(of, share, state);
    }
    if (share + kAhead < kShares) of = load_decays(record, share + kAhead, t);
  }
}

// Of o = scale (qg h + P vn) what needs the record, from o = (qg h)^T. Returns whether the square
// is still to come: with rows that are not finite it is not.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::begin_output(const Record& record,
                                                                 Outputs& outputs) const {
  float(&o)[2][4] = outputs.o;
  const int lane = this->lane_index(), t = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float scale[2] = {in.scale, in.scale};
    if constexpr (Config::kL2Norm) {
      load_shared(record.small + Smem::kScaleQ + 4 * (8 * n + 2 * t), scale[0], scale[1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) o[n][i] *= scale[i % 2];
  }
  const unsigned square = record.small + Smem::kScores;
  load_matrix(outputs.square.word[0],
              square + KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane)));
  if (all_finite(outputs.x)) return;
  this->template multiply_square_by_token<kOfLater>(o, outputs.x, square);
  outputs.square = {};
#pragma unroll
  for (int i = 0; i < 4 * kParts; ++i) outputs.x.part[i / 4].word[0][i % 4] = 0;
}

// vn = M Diag(beta) x.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::make_values(const Record& record,
                                                                Outputs& outputs) const {
  const int lane = this->lane_index();
  const unsigned square = record.small + Smem::kMade;
  float vn[2][4] = {};
  if (all_finite(outputs.x)) {
    Fragment<Element> made;
    load_matrix(made.word[0],
                square + KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane)));
    multiply_add_split(vn[0], vn[1], outputs.x, made);
  } else {
    this->template multiply_square_by_token<kOfLater>(vn, outputs.x, square);
  }
  pack_rows(vn, outputs.vn);
}

template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::pack_rows(const float (&x)[2][4],
                                                              unsigned (&to)[2][2]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) to[n][h] = pack_pair(x[n][2 * h], x[n][2 * h + 1], Element{});
  }
}

// (value; token), to where the lane's columns of token g are.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::store_rows(int lane, const unsigned (&x)[2][2],
                                                               Element* to, long long stride,
                                                               int left) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const unsigned low = transpose_matrix(x[n][0]), high = transpose_matrix(x[n][1]);
    const unsigned other = __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
    const Words<8> four = t & 1 ? Words<8>{{other, high}} : Words<8>{{low, other}};
    if (8 * n + g < left) store_global(to + 8 * n * stride, four);
  }
}

// Of the first block of the segment.
template <class Config>
__device__ __forceinline__ typename KdaWalking<Config>::Places KdaWalking<Config>::places() const {
  const int lane = fresh_lane(), g = lane / 4, t = lane % 4;
  const int column = this->warp_value() + (t & 1) * 8 + (t & 2) * 2;
  Places to = {};
  if constexpr (Config::kOutput) {
    to.o = static_cast<Element*>(p.o) + tile.row * p.o_batch_stride +
           (tile.start + tile.first + g) * p.o_token_stride + tile.head * p.o_head_stride + column;
  }
  if constexpr (Config::kSaved) {
    to.vn = static_cast<Element*>(p.saved_values) +
            (tile.row * in.tokens + tile.start + tile.first + g) * saved_stride() +
            tile.head * in.value_dim + column;
  }
  return to;
}

// Where a chunk begins.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::save_state(const KdaState<Walkers>& state,
                                                               int first) const {
  const auto save = [&](const KdaWalking& of) {
    of.store_rounded(state, static_cast<Element*>(p.saved_states) + of.slot(first),
                     Preparing::kScaling);
  };
  if constexpr (kTight) {
    save(KdaWalking(p, fresh_block(), shared));  // no register holds its place meanwhile
  } else {
    save(*this);
  }
}

// One block after another. A block's way from state to state is all that the next one waits for:
// its output is made while the next block reads the state, and what the next block reads of its
// record has been asked for by then.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::walk_blocks(
    KdaState<Walkers>& state, PipelineState<Smem::kSlots>& ring) const {
  const int entered = fresh_lane();
  const auto lane = [&] { return kTight ? fresh_lane() : entered; };
  const int column = this->warp_value() + (entered & 1) * 8 + (entered & 2) * 2;
  Places to = places();
  // Tokens that are there from the block's first one on; 0 of columns that are not.
  int left = column < in.value_dim ? tile.count - tile.first : 0;
  Record(shared, ring.stage).wait_prepared(ring.phase);
  Given given = load_given(Record(shared, ring.stage));
  Outputs outputs;
  const auto finish_values = [&] {
    store_rows(lane(), outputs.vn, to.vn, saved_stride(), left);
    to.vn += 16 * saved_stride();
  };
  const auto finish_output = [&] {
    unsigned o[2][2];
    multiply_add_split(outputs.o[0], outputs.o[1], outputs.x, outputs.square);
    pack_rows(outputs.o, o);
    store_rows(lane(), o, to.o, p.o_token_stride, left);
    to.o += 16 * p.o_token_stride;
  };
  const auto finish = [&] {
    if constexpr (Config::kOutput) finish_output();
    if constexpr (Config::kSaved) finish_values();
    left -= 16;
  };
  bool behind = false;  // another block
#pragma unroll 1
  for (int first = tile.first; first < tile.count; first += 16) {
    const Record record(shared, ring.stage);
    if constexpr (Config::kSaved) {
      if ((first & (p.kept_tokens - 1)) == 0) save_state(state, first);
    }
    float read[kRead];
    read_state(record, given, state, read);
    if (!kWide && behind) finish();
    behind = true;
    wgmma_wait<0>();
    wgmma_fence_operands(read);
    float values[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i / 4][i % 4] = read[i];
      if constexpr (Config::kOutput) outputs.o[i / 4][i % 4] = read[8 + i];
    }
    outputs.x = KdaSplit<Element, kParts>(values);
    const KdaSplit<Element, kParts> x = outputs.x;
    const bool cut = given.cut;
    if (cut) scale_state<kBeforeSum>(record, lane() % 4, state);
    add_values(record, state, x);
    Decays decays[kAhead];
    if (!kWide) decays[0] = load_decays(record, 0, lane() % 4);
    if constexpr (Config::kSaved) make_values(record, outputs);
    if constexpr (kWide && Config::kSaved) finish_values();
    if constexpr (Config::kOutput) begin_output(record, outputs);
    if constexpr (kWide && Config::kOutput) finish_output();
    if (kWide) {  // no earlier: they take the registers of the output
      left -= 16;
#pragma unroll
      for (int share = 0; share < kAhead; ++share) {
        decays[share] = load_decays(record, share, lane() % 4);
      }
    }
    wgmma_wait<0>();
    wgmma_fence_operands(sums(state));
    if (kShares == kAhead) leave(record);
    scale_behind_sum(record, lane() % 4, cut, decays, state);
    if (kShares > kAhead) leave(record);
    ring.next();
    if (first + 16 < tile.count) {
      Record(shared, ring.stage).wait_prepared(ring.phase);
      given = load_given(Record(shared, ring.stage));
    }
  }
  if (!kWide) finish();
}

// The state goes through the tokens of the segment, from record `ring` on.
template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::walk(KdaState<Walkers>& state,
                                                         PipelineState<Smem::kSlots>& ring) const {
  scale_all(state, Preparing::kUnscaling);
  if (tile.first < tile.count) walk_blocks(state, ring);
  scale_all(state, Preparing::kScaling);
}

// The roles of a block's threads: those who walk do so, with the rows that the others prepare, who
// find their place by `place`.
template <class Config, class Walking, class Place, class Walk>
__device__ __forceinline__ void kda_roles(const KdaMaps& maps, const Walking& walking,
                                          const Place& place, const Walk& walk) {
  using Roles = KdaRoles<Config>;
  constexpr unsigned kWalkers = 32 * Roles::kWalking;
  if (threadIdx.x / 32 == kWalkers / 32) {
    if (threadIdx.x == kWalkers && walking.tile.first < walking.tile.count) {  // else: no maps
      prefetch_tensor_map(maps.k);
      prefetch_tensor_map(KdaDirection<Config>::kBack ? maps.d_o : maps.v);
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
    const auto& here = place();
    if constexpr (kCheckpointed<Config>) {
      here.each_piece([&](const KdaScanTile& piece, int block) {
        const typename KdaPreparing<Config>::Scan scan(here.in, piece, here.shared);
        KdaPreparing<Config>(maps, scan, here.shared, block).run();
      });
    } else {
      KdaPreparing<Config>(maps, here, here.shared).run();
    }
  }
}

}  // namespace lathe
