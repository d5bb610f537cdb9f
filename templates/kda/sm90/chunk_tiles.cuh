// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The gradients of a chunk of 64 tokens by warpgroups (sm_90a): shared memory, copies, and the
// products over V. Rows of y are times kda_row_scale(beta): mostly those of dv, where they lie. A
// warpgroup has 32 columns of K, so that all columns are worked on at once; its warp b has the 16
// tokens of block b. A lane holds, of tokens g and g + 8 of its block, columns 8 n + 2 t and the
// next for n from 0 to 3, as accumulators lie.
#pragma once
#include "common/box_coordinates.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "kda/chunk_results.cuh"
#include "kda/sm90/records.cuh"
#include "params/kda_warpgroups.h"

namespace lathe {

// [rows of do and y: panels of 64 columns of V][dh: panels of 64 columns of K, V rows each]
// [rows of vn][h][rows of q, k, g: panels of 64 columns of K][two squares of scores][numbers]
// [barriers]
//
// Rows have 128 bytes, with chunks in the order of the 128-byte swizzle. Once V has been gone
// through, what the blocks read of each other and what threads keep takes the place of do, y, dh:
//
// [rows of queries, of keys, and of keys as columns: as q][numbers of each warp's tokens]
template <class Config>
struct KdaChunkWarpgroupsSmem {
  static constexpr int kParts = Config::kWidth / 32, kWarps = 4 * kParts;
  static constexpr int kKeyPanels = Config::kWidth / 64, kValuePanels = Config::kValueWidth / 64;
  static constexpr int kRows = kKdaChunk * 128, kStates = Config::kValueWidth * 128;  // of a panel
  static constexpr int kDo = 0, kY = kDo + kValuePanels * kRows, kDh = kY + kValuePanels * kRows;
  static constexpr int kValueBytes = kDh + kKeyPanels * kStates;
  static constexpr int kQueryRows = 0, kKeyRows = kQueryRows + kKeyPanels * kRows;
  static constexpr int kKeyColumns = kKeyRows + kKeyPanels * kRows;
  static constexpr int kKept = kKeyColumns + kKeyPanels * kRows;  // [warps][16 tokens][32 columns]
  static constexpr int kKeptTile = 16 * 32 * 4;
  static constexpr int kKeptBytes = kKept + kWarps * kKeptTile;
  static constexpr int kVn = kValueBytes > kKeptBytes ? kValueBytes : kKeptBytes;
  static constexpr int kH = kVn + kValuePanels * kRows, kQ = kH + kKeyPanels * kStates;
  static constexpr int kK = kQ + kKeyPanels * kRows;
  static constexpr int kG = kK + kKeyPanels * kRows;
  static constexpr int kOutScores = kG + kKeyPanels * kRows, kValueScores = kOutScores + kRows;
  static constexpr bool kCopiedGate = sizeof(typename Config::GateElement) == 2;
  static constexpr int kKeyBytes = (kCopiedGate ? 3 : 2) * kKeyPanels * kRows;  // of copies

  static constexpr int kColumn = 4 * Config::kWidth;            // float32 numbers of columns of K
  static constexpr int kRow = 4 * kKdaChunk;                    // and of rows
  static constexpr int kDecay = kValueScores + kRows;           // [4 blocks]
  static constexpr int kTotals = kDecay + 4 * kColumn;          // [4]: what a block adds to dg
  static constexpr int kBehind = kTotals + 4 * kColumn;         // [4]: k . vn dh, as the block ends
  static constexpr int kBiasSums = kBehind + 4 * kColumn;       // [4]
  static constexpr int kStateDots = kBiasSums + 4 * kColumn;    // of h with dh
  static constexpr int kStateParts = kStateDots + kColumn;      // [warps]: their parts
  static constexpr int kBeta = kStateParts + kWarps * kColumn;  // what y is still multiplied by
  static constexpr int kSteps = kBeta + kRow;                   // beta itself
  static constexpr int kValueDots = kSteps + kRow;              // y . v
  static constexpr int kDiagonal = kValueDots + kRow;           // do . vn
  static constexpr int kNorms = kDiagonal + kRow;               // [2: q, k]
  static constexpr int kSquares = kNorms + 2 * kRow;  // [2: q, k][parts]: what they are of
  static constexpr int kNormDots = kSquares + 2 * kParts * kRow;   // [2: q . dq, k . dk][parts]
  static constexpr int kBetaDots = kNormDots + 2 * kParts * kRow;  // [parts]: k . r
  static constexpr int kRateSums = kBetaDots + kParts * kRow;      // [warps]
  static constexpr int kCut = kRateSums + 4 * kWarps;              // [warps]: whether its block is
  static constexpr int kBarriers = kCut + 4 * kWarps;              // of KdaChunkTiles::Landing
  static constexpr int kBytes = kBarriers + 4 * 8;
};

template <class Config>
struct KdaChunkTiles {
  using Element = typename Config::Element;
  using Gate = typename Config::GateElement;
  using Beta = typename Config::BetaElement;
  using Smem = KdaChunkWarpgroupsSmem<Config>;
  static constexpr int kParts = Smem::kParts;
  static constexpr int kScoreColumns = 128 / kParts;  // of a warpgroup
  static constexpr int kEach = 16;                    // numbers of a lane of a row's 32 columns

  // A row of values is shared out to kLanes threads, in chunks of eight.
  static constexpr int kLanes = Config::kWidth / 16;
  static constexpr int kTurns = Config::kValueWidth / 8 / kLanes;
  struct Values {
    EightColumns<Element, 16> v[kTurns];
    Beta beta;
  };

  const KdaChunkMaps& maps;
  const KdaBackwardParams& p;
  const KdaInputs& in;
  KdaChunkTile tile;
  const unsigned shared;
  const int head;
  unsigned phase = 0;  // of the barriers
  int thread, lane, warp, g, t, block, part;

  __device__ __forceinline__ KdaChunkTiles(const KdaBackwardWarpgroupsParams& params,
                                           unsigned memory)
      : maps(params.maps),
        p(params.backward),
        in(params.backward.in),
        tile(kda_chunk_tile<Config>(in, static_cast<int>(blockIdx.x / in.heads), p.run)),
        shared(memory),
        head(static_cast<int>(blockIdx.x % in.heads)) {
    find_thread();
  }
  // Reads anew which thread this is: addresses are then made in the phase that needs them.
  __device__ __forceinline__ void find_thread() {
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    warp = __shfl_sync(0xffffffffu, thread >> 5, 0);
    lane = thread & 31, g = lane >> 2, t = lane & 3, block = warp & 3, part = warp >> 2;
  }

  __device__ __forceinline__ int row(int h) const { return 16 * block + g + 8 * h; }
  __device__ __forceinline__ bool there(int h) const { return tile.first + row(h) < tile.count; }
  // Column c of 4 that the lane holds of the 16 columns m of its part.
  __device__ __forceinline__ int column(int m, int c) const {
    return 32 * part + 16 * m + (c >> 1) * 8 + 2 * t + (c & 1);
  }
  // The lane's word of tokens row(h), columns 8 n + 2 t and the next, of a tile of q, k or g.
  __device__ __forceinline__ unsigned word(int tile_at, int h, int n) const {
    return shared + tile_at + part / 2 * Smem::kRows + swizzled(row(h), part % 2 * 4 + n) + 4 * t;
  }
  // The thread's chunk of a row in turn. Neighbouring rows begin with different halves of a panel:
  // they are read from different banks.
  __device__ __forceinline__ int value_chunk(int i, int row) const {
    return thread % kLanes + kLanes * (kLanes == 4 && kTurns > 1 ? i ^ (row & 1) : i);
  }
  // The byte of a column in a warp's part of the sums over V. Fours are dealt so that lanes with
  // eight columns each write to different banks.
  static __device__ __forceinline__ int state_part(int column) {
    return 4 * (column ^ (column >> 5 & 1) << 2);
  }
  // The same numbers among a lane's accumulators.
  static __device__ __forceinline__ constexpr int place(int m, int h, int c) {
    return 4 * (2 * m + (c >> 1)) + 2 * h + (c & 1);
  }
  template <class T>
  __device__ __forceinline__ T* row_of(const void* tensor, long long batch_stride,
                                       long long token_stride, int token) const {
    T* const base = const_cast<T*>(static_cast<const T*>(tensor));
    if constexpr (Config::kPacked) return base + (tile.start + token) * token_stride;
    return base + tile.row * batch_stride + token * token_stride;
  }

  // Tiles land in this order, each group with a barrier of its own, and products begin with those
  // that are there: do, and h of a run's first chunk; y and vn; dh; q, k and g.
  enum Landing { kOfOutputs, kOfValues, kOfEnds, kOfKeys };
  __device__ __forceinline__ unsigned landed(Landing which) const {
    return shared + Smem::kBarriers + 8 * which;
  }
  // The next chunk of the run, and whether there is one.
  __device__ __forceinline__ KdaChunkTile next_tile() const {
    KdaChunkTile next = tile;
    next.first += kKdaChunk, ++next.slot;
    return next;
  }
  __device__ __forceinline__ void wait_for_values() const {
#pragma unroll
    for (int i = kOfOutputs; i <= kOfEnds; ++i) {
      mbarrier_wait(landed(static_cast<Landing>(i)), phase);
    }
  }
  __device__ __forceinline__ void copy_values(const KdaChunkTile& of, bool begins) const;
  __device__ __forceinline__ void copy_keys(const KdaChunkTile& of) const;
  __device__ __forceinline__ void prefetch(bool more, int ahead) const;
  template <bool kAhead>
  static __device__ __forceinline__ void ask_box(unsigned to, const TensorMap& map,
                                                 unsigned barrier, int column, int row, int of_head,
                                                 int last);
  template <bool kAhead>
  __device__ __forceinline__ void ask_rows(const BoxCoordinates<Config>& at, int of_head, int to,
                                           const TensorMap& map, Landing barrier, int panels) const;
  template <bool kAhead>
  __device__ __forceinline__ void ask_values(const KdaChunkTile& of, int of_head,
                                             bool begins) const;
  template <bool kAhead>
  __device__ __forceinline__ void ask_keys(const KdaChunkTile& of, int of_head) const;
  __device__ __forceinline__ void start_products(float (&queries)[kEach], float (&rows)[kEach],
                                                 float (&columns)[kEach],
                                                 float (&scores)[kScoreColumns / 2]) const;
  __device__ __forceinline__ void add_squares() const;
  __device__ __forceinline__ void multiply_states() const;
  __device__ __forceinline__ void load_values(Values& values) const;
  __device__ __forceinline__ void finish_values(const Values& values) const;
  __device__ __forceinline__ void store_scores(const float (&scores)[kScoreColumns / 2]) const;
};

// Asks for the tiles of a chunk that have to do with V, the state with them if the chunk begins a
// run. By one thread.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::copy_values(const KdaChunkTile& of,
                                                                   bool begins) const {
  constexpr int kRows = Smem::kValuePanels * Smem::kRows;
  constexpr int kState = Smem::kKeyPanels * Smem::kStates;
  mbarrier_arrive_expect(landed(kOfOutputs), begins ? kRows + kState : kRows);
  mbarrier_arrive_expect(landed(kOfValues), 2 * kRows);
  mbarrier_arrive_expect(landed(kOfEnds), kState);
  ask_values<false>(of, head, begins);
}
// And for its rows of q, k and g.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::copy_keys(const KdaChunkTile& of) const {
  mbarrier_arrive_expect(landed(kOfKeys), Smem::kKeyBytes);
  ask_keys<false>(of, head);
}

// Has L2 ask memory for the chunk that comes next on this multiprocessor, while this one is worked
// on: there is no room for the tiles of two. It is the next one of the run, or that of a later
// block. By one warp.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::prefetch(bool more, int ahead) const {
  KdaChunkTile later = next_tile();
  int of_head = head;
  if (!more) {
    const unsigned next = blockIdx.x + static_cast<unsigned>(ahead);
    if (next >= gridDim.x) return;
    const auto heads = static_cast<unsigned>(in.heads);
    later = kda_chunk_tile<Config>(in, static_cast<int>(next / heads), p.run);
    of_head = static_cast<int>(next % heads);
  }
  if (lane != 0 || later.first >= later.count) return;
  ask_values<true>(later, of_head, !more);
  ask_keys<true>(later, of_head);
}

template <class Config>
template <bool kAhead>
__device__ __forceinline__ void KdaChunkTiles<Config>::ask_box(unsigned to, const TensorMap& map,
                                                               unsigned barrier, int column,
                                                               int row, int of_head, int last) {
  if constexpr (kAhead) {
    prefetch_box(map, column, row, of_head, last);
  } else {
    copy_box(to, map, barrier, column, row, of_head, last);
  }
}
template <class Config>
template <bool kAhead>
__device__ __forceinline__ void KdaChunkTiles<Config>::ask_rows(const BoxCoordinates<Config>& at,
                                                                int of_head, int to,
                                                                const TensorMap& map,
                                                                Landing barrier, int panels) const {
#pragma unroll
  for (int panel = 0; panel < panels; ++panel) {
    ask_box<kAhead>(shared + to + panel * Smem::kRows, map, landed(barrier), 64 * panel, at.row,
                    of_head, at.sequence);
  }
}

// The tiles of a chunk that have to do with V; ahead also v, which is read without copies.
template <class Config>
template <bool kAhead>
__device__ __forceinline__ void KdaChunkTiles<Config>::ask_values(const KdaChunkTile& of,
                                                                  int of_head, bool begins) const {
  const BoxCoordinates<Config> at(of, of.first, of.start, of.count);
  const auto states = [&](int to, const TensorMap& map, Landing barrier) {
#pragma unroll
    for (int panel = 0; panel < Smem::kKeyPanels; ++panel) {
      ask_box<kAhead>(shared + to + panel * Smem::kStates, map, landed(barrier), 64 * panel, 0,
                      of_head, of.slot);
    }
  };
  ask_rows<kAhead>(at, of_head, Smem::kDo, maps.d_o, kOfOutputs, Smem::kValuePanels);
  if (begins) states(Smem::kH, maps.saved_states, kOfOutputs);
  ask_rows<kAhead>(at, of_head, Smem::kY, maps.value_grads, kOfValues, Smem::kValuePanels);
  ask_rows<kAhead>(at, of_head, Smem::kVn, maps.saved_values, kOfValues, Smem::kValuePanels);
  states(Smem::kDh, maps.state_grads, kOfEnds);
  if constexpr (kAhead) {
    ask_rows<true>(at, of_head, 0, maps.v, kOfKeys, Smem::kValuePanels);
  }
}

// Its rows of q, k and g; ahead also gates of 32 bits, which are read without copies.
template <class Config>
template <bool kAhead>
__device__ __forceinline__ void KdaChunkTiles<Config>::ask_keys(const KdaChunkTile& of,
                                                                int of_head) const {
  const BoxCoordinates<Config> at(of, of.first, of.start, of.count);
  ask_rows<kAhead>(at, of_head, Smem::kQ, maps.q, kOfKeys, Smem::kKeyPanels);
  ask_rows<kAhead>(at, of_head, Smem::kK, maps.k, kOfKeys, Smem::kKeyPanels);
  if constexpr (Smem::kCopiedGate) {
    ask_rows<kAhead>(at, of_head, Smem::kG, maps.g, kOfKeys, Smem::kKeyPanels);
  } else if constexpr (kAhead) {
    ask_rows<true>(at, of_head, 0, maps.g, kOfKeys, 2 * Smem::kKeyPanels);
  }
}

// queries = do h^T, rows = y h^T and columns = vn dh^T, of the part's columns of K; and of do vn^T
// and y vn^T as many columns as the warpgroup makes of them. Tiles are waited for, products not.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::start_products(
    float (&queries)[kEach], float (&rows)[kEach], float (&columns)[kEach],
    float (&scores)[kScoreColumns / 2]) const {
  constexpr int kShares = kParts / 2;
  const WgmmaTile d_o = wgmma_columns(shared + Smem::kDo), y = wgmma_columns(shared + Smem::kY);
  const WgmmaTile vn = wgmma_columns(shared + Smem::kVn);
  const unsigned panel = part / 2 * Smem::kStates + part % 2 * 64;
  const WgmmaTile h = wgmma_rows<Smem::kStates>(shared + Smem::kH + panel);
  const WgmmaTile dh = wgmma_rows<Smem::kStates>(shared + Smem::kDh + panel);
  const WgmmaTile score_rows = part / kShares == 0 ? d_o : y;
  const WgmmaTile score_columns =
      wgmma_columns(shared + Smem::kVn + part % kShares * kScoreColumns * 128);
  constexpr int kSteps = Config::kValueWidth / 16;
  const auto along = [](int step) { return step / 4 * Smem::kRows + step % 4 * 32; };
  mbarrier_wait(landed(kOfOutputs), phase);
  wgmma_fence_operands(scores);
  wgmma_fence_operands(queries);
  wgmma_fence_operands(rows);
  wgmma_fence_operands(columns);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    Wgmma<32, true, Element>::run(queries, d_o.at(along(i)), h.at(2048 * i), i > 0);
  }
  wgmma_commit();
  mbarrier_wait(landed(kOfValues), phase);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    Wgmma<kScoreColumns, false, Element>::run(scores, score_rows.at(along(i)),
                                              score_columns.at(along(i)), i > 0);
    Wgmma<32, true, Element>::run(rows, y.at(along(i)), h.at(2048 * i), i > 0);
  }
  wgmma_commit();
  mbarrier_wait(landed(kOfEnds), phase);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    Wgmma<32, true, Element>::run(columns, vn.at(along(i)), dh.at(2048 * i), i > 0);
  }
  wgmma_commit();
}

// What the part's columns add to |q|^2 and |k|^2.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::add_squares() const {
#pragma unroll
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float x, y;
        unpack_pair(load_shared_word(word(which == 0 ? Smem::kQ : Smem::kK, h, n)), Element{}, x,
                    y);
        sum = __fmaf_rn(y, y, __fmaf_rn(x, x, sum));
      }
      sum = sum_over_quad(sum);
      const unsigned to = shared + Smem::kSquares + (which * kParts + part) * Smem::kRow;
      if (t == 0) store_shared(to + 4 * row(h), sum);
    }
  }
}

// The dot products over V of h with dh, each warp's part of them: a thread has eight columns of K.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::multiply_states() const {
  constexpr int kChunks = Config::kWidth / 8;
  const int chunk = thread % kChunks;
  const unsigned from = shared + chunk / 8 * Smem::kStates;
  float dots[8] = {};
#pragma unroll
  for (int i = 0; i < Config::kValueWidth / 32; ++i) {
    const unsigned at = from + swizzled(thread / kChunks + 32 * i, chunk % 8);
    float h[4], dh[4];
    load_shared(at + Smem::kH, h);
    load_shared(at + Smem::kDh, dh);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float x[2], y[2];
      unpack_pair(bit_cast<unsigned>(h[j]), Element{}, x[0], x[1]);
      unpack_pair(bit_cast<unsigned>(dh[j]), Element{}, y[0], y[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) dots[2 * j + e] = __fmaf_rn(x[e], y[e], dots[2 * j + e]);
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int other = kChunks; other < 32; other *= 2) {
      dots[j] += __shfl_xor_sync(0xffffffffu, dots[j], other);
    }
  }
  if (lane >= kChunks) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = bit_cast<unsigned>(dots[4 * half + j]);
    store_shared(
        shared + Smem::kStateParts + warp * Smem::kColumn + state_part(8 * chunk + 4 * half), four);
  }
}

// The thread's part of v and beta of its token, ahead of everything else.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::load_values(Values& values) const {
  const int at = thread / kLanes, token = tile.first + at;
  const bool inside = token < tile.count;
  const Element* v =
      row_of<Element>(in.v, in.v_batch_stride, in.v_token_stride, token) + head * in.v_head_stride;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    values.v[i].load(v, 8 * value_chunk(i, at), in.value_dim, inside);
  }
  values.beta = {};
  if (!inside) return;
  values.beta =
      load_element(row_of<Beta>(in.beta, in.beta_batch_stride, in.beta_token_stride, token) +
                   head * in.beta_head_stride);
}

// beta of the tokens, dv = beta y where y is not that already, and y . v.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::finish_values(const Values& values) const {
  const int at = thread / kLanes, token = tile.first + at;
  const bool inside = token < tile.count;
  Element* dv =
      row_of<Element>(p.dv, p.dv_batch_stride, p.dv_token_stride, token) + head * p.dv_head_stride;
  const float beta = inside ? step_size<Config>(to_float(values.beta), in.beta_factor) : 0.0f;
  const bool scaled = kda_row_scale(beta) == beta;
  float dot = 0.0f;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int chunk = value_chunk(i, at);
    float word[4], d[8];
    load_shared(shared + Smem::kY + chunk / 8 * Smem::kRows + swizzled(at, chunk % 8), word);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float y[2];
      unpack_pair(bit_cast<unsigned>(word[j]), Element{}, y[0], y[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        dot = __fmaf_rn(y[e], values.v[i].at(2 * j + e), dot);
        d[2 * j + e] = y[e] * beta;
      }
    }
    if (p.dv != nullptr && inside && !scaled && 8 * chunk < in.value_dim) {
      store_global(dv + 8 * chunk, pack<Element, 16>(d));
    }
  }
#pragma unroll
  for (int other = 1; other < kLanes; other *= 2) {
    dot += __shfl_xor_sync(0xffffffffu, dot, other);
  }
  if (thread % kLanes != 0) return;
  store_shared(shared + Smem::kBeta + 4 * at, scaled ? 1.0f : beta);
  store_shared(shared + Smem::kSteps + 4 * at, beta);
  store_shared(shared + Smem::kValueDots + 4 * at, dot);
}

// Columns before their row as operands, those of do vn^T with the scale, and its diagonal as it is.
template <class Config>
__device__ __forceinline__ void KdaChunkTiles<Config>::store_scores(
    const float (&scores)[kScoreColumns / 2]) const {
  constexpr int kShares = kParts / 2;
  const bool outputs = part / kShares == 0;
  const unsigned to = shared + (outputs ? Smem::kOutScores : Smem::kValueScores);
  const float scale = outputs ? in.scale : 1.0f;
#pragma unroll
  for (int n = 0; n < kScoreColumns / 8; ++n) {
    const int first = part % kShares * kScoreColumns + 8 * n + 2 * t;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float x = scale * scores[4 * n + 2 * h], y = scale * scores[4 * n + 2 * h + 1];
      if (outputs && row(h) / 2 == first / 2) {
        store_shared(shared + Smem::kDiagonal + 4 * row(h), row(h) == first ? x : y);
      }
      store_shared(to + swizzled(row(h), first / 8) + 4 * t,
                   pack_pair(first < row(h) ? x : 0.0f, first + 1 < row(h) ? y : 0.0f, Element{}));
    }
  }
}

}  // namespace lathe
