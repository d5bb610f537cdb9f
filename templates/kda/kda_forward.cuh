// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward: Kimi Delta Attention over whole sequences in one launch.
//
//   S = Diag(alpha_t) S;  S += beta_t k_t (v_t - S^T k_t)^T;  o_t = scale S^T q_t
//
// and for a block of 16 tokens at once, with h the state before it and the names of kda/block.cuh,
//
//   vn = M Diag(beta) (v - ke h)      o = scale (qg h + P vn)      S = Diag(decay) h + kg^T vn
//
// (Yang et al., Parallelizing Linear Transformers with the Delta Rule, 2024; Kimi Linear, 2025.)
//
// q, k, g, beta and v are read once by each thread block, o is written once, and nothing else
// touches memory. With kSaved the rows vn and the state at the start of each chunk are kept for the
// backward; without kOutput nothing but they is made. With a pool states are read from slots and
// written to slots. Checkpoints cut a sequence into pieces, with the state in registers from one to
// the next: every piece begins with a block of its own, as a call that starts from its state does.
#pragma once
#include "kda/scan.cuh"
#include "kda/slots.cuh"

namespace lathe {

template <class Config>
struct KdaForward : KdaScan<Config> {
  using Scan = KdaScan<Config>;
  using Scan::in, Scan::lane, Scan::tile;
  using typename Scan::Block;
  using typename Scan::Element;

  const KdaForwardParams& p;

  __device__ __forceinline__ KdaForward(const KdaForwardParams& params, unsigned block,
                                        unsigned shared)
      : Scan(params.in, block, shared), p(params) {}
  __device__ __forceinline__ KdaForward(const KdaForwardParams& params, const KdaScanTile& where,
                                        unsigned shared)
      : Scan(params.in, where, shared), p(params) {}

  __device__ __forceinline__ void advance(KdaState<Config>& state, unsigned block, int step,
                                          int first) const;
  __device__ __forceinline__ void read_state(const KdaState<Config>& state, unsigned block,
                                             float (&x)[2][4], float (&o)[2][4]) const;
  __device__ __forceinline__ void update_state(KdaState<Config>& state, unsigned block,
                                               const KdaSplit<Element>& values) const;
  __device__ __forceinline__ void store_chunk_state(KdaState<Config>& state, int first) const;
  __device__ __forceinline__ void load_initial_state(KdaState<Config>& state) const;
  __device__ __forceinline__ void begin_state(KdaState<Config>& state) const;
  __device__ __forceinline__ void walk(KdaState<Config>& state) const;
  template <class Body>
  __device__ __forceinline__ void each_piece(const Body& body) const;
  __device__ __forceinline__ void store_checkpoints(int token, KdaState<Config>& state) const;
  __device__ __forceinline__ void walk_pieces(KdaState<Config>& state) const;
  __device__ __forceinline__ void store_slot(KdaState<Config>& state, int slot) const;
  __device__ __forceinline__ void store_final_state(KdaState<Config>& state) const;
  __device__ __forceinline__ bool is_padding() const;
  __device__ __forceinline__ void clear_rows(long long from, long long to) const;
  __device__ __forceinline__ void clear_padding() const;
  __device__ __forceinline__ void clear_rest() const;
  __device__ __forceinline__ void run() const;
};

// x = (ke h)^T and o = (qg h)^T.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::read_state(const KdaState<Config>& state,
                                                               unsigned block, float (&x)[2][4],
                                                               float (&o)[2][4]) const {
  constexpr int kPlane = Block::Rows::kBytes;
  const int from = this->lane_index();
  const unsigned at =
      block + Block::Rows::offset(row_of_chunks_first(from), chunk_of_chunks_first(from));
#pragma unroll
  for (int j = 0; j < Scan::kSteps; ++j) {
    const Fragment<Element> h = state.operand(j);
    Fragment<Element> rows;
    load_planes<Element, kPlane>(rows, Block::Rows::at(at, 2 * j) + Block::kKe);
    multiply_add_pair(x[0], x[1], h, rows);
    if constexpr (Config::kOutput) {
      load_planes<Element, kPlane>(rows, Block::Rows::at(at, 2 * j) + Block::kQg);
      multiply_add_pair(o[0], o[1], h, rows);
    }
  }
}

// One block of tokens, number `step` of its round.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::advance(KdaState<Config>& state, unsigned block,
                                                            int step, int first) const {
  const int t = this->lane_index() % 4;
  float x[2][4] = {}, o[2][4] = {};
  read_state(state, block, x, o);
  float norm[2][2];
  const KdaValues<Element> v = this->load_values(step);
#pragma unroll
  for (int n = 0; n < 2; ++n) {  // x = Diag(beta) (v - ke h), q's norm and scale into o
    float beta[2], scale[2];
    const int tokens = 4 * (8 * n + 2 * t);
    load_shared(block + Block::kBeta + tokens, beta[0], beta[1]);
    load_shared(block + Block::kNormK + tokens, norm[n][0], norm[n][1]);
    load_shared(block + Block::kScaleQ + tokens, scale[0], scale[1]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float pair_v[2];
      v.pair(n, h, pair_v[0], pair_v[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float read = Block::kUnscaling * norm[n][i];
        x[n][2 * h + i] = beta[i] * __fmaf_rn(-read, x[n][2 * h + i], pair_v[i]);
        o[n][2 * h + i] *= Block::kUnscaling * scale[i];
      }
    }
  }
  float vn[2][4] = {};
  const KdaSplit<Element> given(x);
  this->template multiply_square<kOfLater>(vn, given, block + Block::kInverse);
  KdaSplit<Element> rows(vn);
  if (all_finite(rows)) {
    if constexpr (Config::kOutput) {
      this->template multiply_square<kOfLater>(o, rows, block + Block::kScores);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) vn[i / 4][i % 4] = 0.0f;
    this->template multiply_square_by_token<kOfLater>(vn, given, block + Block::kInverse);
    rows = KdaSplit<Element>(vn);
    if constexpr (Config::kOutput) {
      this->template multiply_square_by_token<kOfLater>(o, rows, block + Block::kScores);
    }
  }
  if constexpr (Config::kOutput) {
    Element* to = static_cast<Element*>(p.o) + tile.row * p.o_batch_stride +
                  tile.start * p.o_token_stride + tile.head * p.o_head_stride;
    this->store_values(o, to, p.o_token_stride, first);
  }
  if constexpr (Config::kSaved) {
    const long long stride = static_cast<long long>(in.value_heads) * in.value_dim;
    Element* to = static_cast<Element*>(p.saved_values) +
                  (tile.row * in.tokens + tile.start) * stride + tile.head * in.value_dim;
    this->store_values(vn, to, stride, first);
  }
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      vn[i / 4][i % 4] = cut_to<Element>(vn[i / 4][i % 4] * norm[i / 4][i % 2]);
    }
    rows = KdaSplit<Element>(vn);
  }
  update_state(state, block, rows);
}

// S = Diag(decay) h + kg^T vn.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::update_state(
    KdaState<Config>& state, unsigned block, const KdaSplit<Element>& values) const {
  const int from = this->lane_index(), t = from % 4;
  const unsigned at =
      block + Block::Rows::offset(row_of_rows_first(from), chunk_of_rows_first(from));
#pragma unroll
  for (int j = 0; j < Scan::kSteps; ++j) {
    Fragment<Element> kg;
    load_planes_transposed<Element, Block::Rows::kBytes>(kg,
                                                         Block::Rows::at(at, 2 * j) + Block::kKg);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(block + Block::kDecay + 4 * (16 * j + 8 * n + 2 * t), decay[0], decay[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) state.s[2 * j + n][i] *= decay[i % 2];
    }
    multiply_add_split(state.s[2 * j], state.s[2 * j + 1], values, kg);
  }
}

// The state before token `first`, if a chunk begins there. Chunks of packed sequences are counted
// through: those of the sequences before are added up.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::store_chunk_state(KdaState<Config>& state,
                                                                      int first) const {
  if constexpr (Config::kSaved) {
    if (first % kKdaChunk == 0) {
      this->store_rounded(state, static_cast<Element*>(p.saved_states) + this->slot(first));
    }
  }
  if constexpr (Config::kChunkStates) {
    if (first % p.chunk_size != 0) return;
    long long chunk = first / p.chunk_size;
    if constexpr (Config::kPacked) {
      using Offset = typename Config::Offset;
      int before = 0;
      for (int n = lane; n < tile.sequence; n += 32) {
        const int from = offset_at<Offset>(in.cu_seqlens, n, in.tokens);
        const int until = offset_at<Offset>(in.cu_seqlens, n + 1, in.tokens);
        before += ceil_div(maximum(until - from, 0), p.chunk_size);
      }
#pragma unroll
      for (int other = 1; other < 32; other *= 2) {
        before += __shfl_xor_sync(0xffffffffu, before, other);
      }
      chunk += before;
    } else {
      chunk += tile.row * ceil_div(in.tokens, p.chunk_size);
    }
    if (chunk >= p.chunks) return;
    const long long at = (chunk * in.value_heads + tile.head) * this->state_size();
    state.store(static_cast<float*>(p.chunk_states) + at, this->warp_value(), in.key_dim,
                in.value_dim);
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::load_initial_state(
    KdaState<Config>& state) const {
  if constexpr (Config::kRanks) {
    if (tile.sequence < p.carry.carried) {
      state.template load<true>(static_cast<const float*>(p.carry.states) + this->warp_state(),
                                this->warp_value(), in.key_dim, in.value_dim);
      return;
    }
  }
  if constexpr (kPooled<Config>) {
    using PoolElement = typename Config::PoolElement;
    const int slot = kda_pool_slots<typename Config::Index>(p.pool, tile.sequence).from;
    state.clear();
    if (slot < 0) return;
    state.load_pooled(static_cast<const PoolElement*>(p.pool.states) + slot * p.pool.slot_stride +
                          tile.head * p.pool.head_stride,
                      this->warp_value(), in.key_dim, in.value_dim, p.pool.row_stride);
  } else if constexpr (Config::kInitialState) {
    state.load(static_cast<const float*>(p.initial_state) + this->warp_state(), this->warp_value(),
               in.key_dim, in.value_dim);
  } else {
    state.clear();
  }
}

// The state before the tokens of the segment.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::begin_state(KdaState<Config>& state) const {
  if (tile.segment > 0) {  // from behind the segment before
    const long long at = this->summary(tile.segment - 1, in.value_dim);
    state.template load<true>(static_cast<const float*>(p.summaries) + at, this->warp_value(),
                              in.key_dim, in.value_dim);
    return;
  }
  if constexpr (kPooled<Config>) {
    if (!tile.last) {  // the block of the last segment writes the slot
      state.template load<true>(static_cast<const float*>(p.pool.before) + this->warp_state(),
                                this->warp_value(), in.key_dim, in.value_dim);
      return;
    }
  }
  load_initial_state(state);
}

// The state goes through the tokens of the segment.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::walk(KdaState<Config>& state) const {
  const Element* v = static_cast<const Element*>(in.v) + tile.row * in.v_batch_stride +
                     tile.start * in.v_token_stride + tile.head * in.v_head_stride;
  const KdaNumbers head = this->numbers();
  KdaIncoming<Config> incoming;
  if (Scan::kAhead) this->expect(incoming, tile.first);
#pragma unroll 1
  for (int round = tile.first; round < tile.count; round += Scan::kRows) {
    this->copy_values(v, in.v_token_stride, round);
    this->prepare(incoming, head, round, round + Scan::kRows);
    copy_async_wait<0>();
    __syncthreads();  // every warp's block and every thread's rows of v are there
#pragma unroll 1
    for (int block = 0; block < Scan::kWarps && round + 16 * block < tile.count; ++block) {
      if constexpr (Config::kChunkStates || Config::kSaved) {
        store_chunk_state(state, round + 16 * block);
      }
      advance(state, this->blocks + block * Block::kBytes, block, round + 16 * block);
    }
    __syncthreads();  // all have left the blocks that are made anew
  }
}

// Calls with each run of the segment's tokens between two checkpoints, and with the block of 16
// tokens of the segment, by its number, that it begins with. States of chunks begin blocks too. The
// segment is found anew for each: no register holds where it ends while a piece is worked on.
template <class Config>
template <class Body>
__device__ __forceinline__ void KdaForward<Config>::each_piece(const Body& body) const {
  int first = tile.first, block = 0;
#pragma unroll 1
  while (true) {
    KdaScanTile piece =
        kda_scan_tile<Config>(in, fresh_block(), in.value_tiles, Scan::Smem::kValues);
    if (first >= piece.count) return;
    const KdaCheckpoints checkpoints(p.pool, piece.sequence);
    piece.first = first;
    piece.count = checkpoints.next(fresh_lane(), first, piece.count);
    if constexpr (Config::kChunkStates) {
      if (piece.first % p.chunk_size != 0) {
        const int chunk_end = (piece.first / p.chunk_size + 1) * p.chunk_size;
        piece.count = minimum(piece.count, chunk_end);
      }
    }
    body(piece, block);
    block += ceil_div(piece.count - first, 16);
    first = piece.count;
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::store_checkpoints(
    int token, KdaState<Config>& state) const {
  KdaCheckpoints(p.pool, tile.sequence).at(this->lane_index(), token, [&](int slot) {
    if (slot >= 0 && slot < p.pool.slots && slot != p.pool.null_slot) store_slot(state, slot);
  });
}

// The walk, with the state of each checkpoint to its slot on the way.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::walk_pieces(KdaState<Config>& state) const {
  if constexpr (kCheckpointed<Config>) {
    if (tile.first == 0) store_checkpoints(0, state);
    each_piece([&](const KdaScanTile& piece, int) {
      KdaForward(p, piece, this->blocks).walk(state);
      store_checkpoints(piece.count, state);
    });
  } else {
    walk(state);
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::store_slot(KdaState<Config>& state,
                                                               int slot) const {
  using PoolElement = typename Config::PoolElement;
  state.store_pooled(static_cast<PoolElement*>(p.pool.states) + slot * p.pool.slot_stride +
                         tile.head * p.pool.head_stride,
                     this->warp_value(), in.key_dim, in.value_dim, p.pool.row_stride);
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::store_final_state(
    KdaState<Config>& state) const {
  if constexpr (kPooled<Config>) {
    if (!tile.last) return;
    const KdaSlots slots = kda_pool_slots<typename Config::Index>(p.pool, tile.sequence);
    // Without tokens the slot's own state stays, to the bit.
    if (tile.count > 0 || slots.from != slots.to) store_slot(state, slots.to);
  } else if constexpr (Config::kFinalState) {
    if (!tile.last) return;
    if constexpr (Config::kRanks) {
      if (tile.sequence >= p.carry.open) return;  // the rank of its last token has it
    }
    state.store(static_cast<float*>(p.final_state) + this->warp_state(), this->warp_value(),
                in.key_dim, in.value_dim);
  }
}

// Whether the sequence has no slot.
template <class Config>
__device__ __forceinline__ bool KdaForward<Config>::is_padding() const {
  if constexpr (!kPooled<Config>) {
    return false;
  } else {
    return kda_pool_slots<typename Config::Index>(p.pool, tile.sequence).padding;
  }
}

// The block's columns of packed rows become 0.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::clear_rows(long long from, long long to) const {
  constexpr int kPieces = Scan::Smem::kValues / 4, kStep = Config::kThreads / kPieces;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = tile.value + thread % kPieces * 4;
  if (column >= in.value_dim) return;
  Element* o = static_cast<Element*>(p.o) + tile.head * p.o_head_stride + column;
#pragma unroll 1
  for (long long row = from + thread / kPieces; row < to; row += kStep) {
    store_global(o + row * p.o_token_stride, Words<4 * sizeof(Element)>{});
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::clear_padding() const {
  if constexpr (Config::kOutput) clear_rows(tile.start + tile.first, tile.start + tile.count);
}

// Packed rows behind the last sequence are nobody's; the blocks of its first segment clear them.
template <class Config>
__device__ __forceinline__ void KdaForward<Config>::clear_rest() const {
  if constexpr (Config::kPacked && Config::kOutput) {
    if (tile.segment > 0 || tile.sequence + 1 < in.sequences) return;
    clear_rows(offset_at<typename Config::Offset>(in.cu_seqlens, in.sequences, in.tokens),
               in.tokens);
  }
}

template <class Config>
__device__ __forceinline__ void KdaForward<Config>::run() const {
  clear_rest();
  if (tile.idle()) return;
  if (is_padding()) {
    clear_padding();
    return;
  }
  KdaState<Config> state;
  begin_state(state);
  walk_pieces(state);
  store_final_state(state);
}

template <class Config>
__device__ void kda_forward(const KdaForwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaForward<Config>(p, blockIdx.x, shared_address(shared)).run();
}

}  // namespace lathe
