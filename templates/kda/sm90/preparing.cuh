// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The way of a block of 16 tokens through the hands of the warp that prepares it.
#pragma once
#include "kda/sm90/cut_columns.cuh"
#include "kda/sm90/squares.cuh"
#include "kda/sm90/squares_back.cuh"

namespace lathe {

// Asks for the rows of a block, once its slot is empty. By a warp: its lanes wait together.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::copy(int block) const {
  const KdaScanTile& tile = scan.tile;
  if (!exists(block)) return;
  const int first = first_of(block);
  const Record record = record_of(block);
  mbarrier_wait(record.empty(), phase_of(block) ^ 1);
  if (fresh_lane() != 0) return;
  const BoxCoordinates<Config> at(tile, first, static_cast<int>(tile.start), tile.count);
  mbarrier_arrive_expect(record.landed(), Smem::kCopied);
#pragma unroll
  for (int panel = 0; panel < Smem::kPanels; ++panel) {
    const unsigned to = record.tile + panel * Smem::kPanel;
    copy_box(to, maps.k, record.landed(), 64 * panel, at.row, tile.q_head, at.sequence);
    if constexpr (Config::kOutput) {
      copy_box(to + Smem::kQ, maps.q, record.landed(), 64 * panel, at.row, tile.q_head,
               at.sequence);
    }
    if constexpr (kCopiedGate) {
      copy_box(to + Smem::kG, maps.g, record.landed(), 64 * panel, at.row, tile.head, at.sequence);
    }
  }
#pragma unroll
  for (int walker = 0; walker < Smem::Roles::kWalkers; ++walker) {
    copy_box(record.values(walker), kBack ? maps.d_o : maps.v, record.landed(),
             tile.value + 64 * walker, at.row, tile.head, at.sequence);
  }
}

// Whether all who walk have left the slot of a block.
template <class Config>
__device__ __forceinline__ bool KdaPreparing<Config>::has_room(int block) const {
  const bool over = mbarrier_is_over(record_of(block).empty(), phase_of(block) ^ 1);
  return __all_sync(0xffffffffu, over) != 0;
}

// The address of the lane's columns of a piece in the row of ke of a token.
template <class Config>
__device__ __forceinline__ unsigned KdaPreparing<Config>::lane_at(const Record& record, int lane,
                                                                  int token, int piece) {
  const int byte = 2 * kEach * lane;
  return record.tile + (piece * kPiece / 64 + byte / 128) * Smem::kPanel +
         swizzled(token, byte % 128 / 16) + byte % 16;
}

// The natural logarithm of a decay. A token that is not there has none.
template <class Config>
__device__ __forceinline__ float KdaPreparing<Config>::logarithm(float raw, float bias,
                                                                 bool there) const {
  if constexpr (Config::kGate == kKdaGateGiven && !Config::kDtBias) return raw;
  const float g = decay_log<Config>(raw, bias, numbers);
  return there ? g : 0.0f;
}

template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::load_bias(int piece,
                                                                float (&bias)[kEach]) const {
  const int column = lane_column(fresh_lane(), piece);
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    bias[e] = 0.0f;
    if constexpr (Config::kDtBias) {
      if (column < numbers.key_dim) bias[e] = load_element(numbers.dt_bias + column + e);
    }
  }
}

// Returns beta, as given, of the lane's token of a block. It is asked for a block ahead.
template <class Config>
__device__ __forceinline__ typename Config::BetaElement KdaPreparing<Config>::load_beta(
    int block) const {
  if (!exists(block)) return Beta{};
  const int token = first_of(block) + (fresh_lane() & 15);
  if (token >= scan.tile.count) return Beta{};
  const auto rows = scan.rows();
  return load_element(rows.beta + token * rows.beta_stride);
}

// 1 / |k|, |k| and scale / |q| of kGroup tokens, from what each lane adds to |k|^2 and |q|^2.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::store_norms(
    const Record& record, int token, float (&squares)[2 * kGroup]) const {
  const int lane = fresh_lane();
#pragma unroll
  for (int half = kGroup; half > 0; half /= 2) {  // lanes with the bit keep the upper half
    const int bit = 16 / kGroup * half;
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float mine = upper ? squares[i + half] : squares[i];
      const float other = upper ? squares[i] : squares[i + half];
      squares[i] = __fadd_rn(mine, __shfl_xor_sync(0xffffffffu, other, bit));
    }
  }
  float sum = sum_over_quad(squares[0]);
#pragma unroll
  for (int other = 4; other < 16 / kGroup; other *= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, other));
  }
  const float norm = kda_norm(sum);
  if (lane % (16 / kGroup) == 0) {
    const unsigned at = record.small + 4 * (token + lane % 16 / (16 / kGroup));
    if (lane & 16) {
      store_shared(at + Smem::kScaleQ, __fmul_rn(numbers.scale, norm));
    } else {
      store_shared(at + Smem::kNormK, norm);
      store_shared(at + Smem::kLengthK, __fmul_rn(__fadd_rn(sum, 1e-6f), norm));
    }
  }
}

// The lane's gates of one token after another, each kGroup tokens ahead of its use.
template <class Config>
struct KdaGatesAhead {
  using Preparing = KdaPreparing<Config>;
  static constexpr int kPieces = Preparing::kPieces, kGroup = Preparing::kGroup;
  const typename Config::GateElement* row;
  int left;
  typename Preparing::Gates gates[kPieces][kGroup];

  __device__ __forceinline__ KdaGatesAhead(const Preparing& of, int first) {
    if constexpr (Preparing::kCopiedGate) return;
    const auto from = of.scan.rows();
    row = from.g + first * from.g_stride + Preparing::kEach * fresh_lane();
    left = of.scan.tile.count - first;
    if (Preparing::kEach * fresh_lane() >= from.key_dim) left = 0;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) next(piece, i, from.g_stride, from.key_dim);
    }
  }
  // Pieces take the same tokens one after another.
  __device__ __forceinline__ void next(int piece, int i, long long stride, int key_dim) {
    const bool inside = piece == 0 || Preparing::lane_column(fresh_lane(), piece) < key_dim;
    gates[piece][i].load(row + piece * Preparing::kPiece, 0, Preparing::kEach, left > 0 && inside);
    row += stride, --left;
    if (i + 1 == kGroup && piece + 1 < kPieces) row -= kGroup * stride, left += kGroup;
  }
};

// All tokens of a block in place, in one part. `prefix` becomes e_15, `sum` its logarithm.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::work(const Record& record, int first,
                                                           KdaGatesAhead<Config>& ahead,
                                                           float (&prefix)[kPieces][kEach],
                                                           float (&sum)[kPieces][kEach]) const {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) prefix[piece][e] = kScaling, sum[piece][e] = 0.0f;
  }
  float bias[kEach];
  if (!kTight) load_bias(0, bias);
  const int left = scan.tile.count - first;
#pragma unroll(kTight ? 1 : 16)
  for (int begin = 0; begin < 16; begin += kGroup) {
    float squares[2 * kGroup] = {};
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      if (kTight) load_bias(piece, bias);
      work_on_group(record, begin, left, piece, bias, ahead, prefix[piece], sum[piece], squares);
    }
    if constexpr (Config::kL2Norm) store_norms(record, begin, squares);
  }
}

// The lane's columns of a piece, of kGroup tokens.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::work_on_group(
    const Record& record, int begin, int left, int piece, const float (&bias)[kEach],
    KdaGatesAhead<Config>& ahead, float (&prefix)[kEach], float (&sum)[kEach],
    float (&squares)[2 * kGroup]) const {
  const int lane = fresh_lane();
  Raw k[kGroup], q[kGroup], g[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const unsigned at = lane_at(record, lane, begin + i, piece);
    load_shared(at, k[i]);
    if constexpr (Config::kOutput) load_shared(at + Smem::kQ, q[i]);
    if constexpr (kCopiedGate) load_shared(at + Smem::kG, g[i]);
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    float x[kEach], y[kEach], decay[kEach], rows[3][kEach];
    unpack<Element>(k[i], x);
    if constexpr (Config::kOutput) unpack<Element>(q[i], y);
    if constexpr (kCopiedGate) unpack<typename Config::GateElement>(g[i], decay);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const float raw = kCopiedGate ? decay[e] : ahead.gates[piece][i].at(e);
      const float log = logarithm(raw, bias[e], begin + i < left);
      sum[e] = __fadd_rn(sum[e], log);
      prefix[e] = __fmul_rn(prefix[e], kda_step_decay<Element>(log));
      rows[0][e] = __fmul_rn(-x[e], prefix[e]);
      if constexpr (Config::kOutput) rows[1][e] = __fmul_rn(y[e], prefix[e]);
      rows[2][e] = __fmul_rn(x[e], rcp_normal(prefix[e]));
      if constexpr (Config::kL2Norm) {
        squares[i] = __fmaf_rn(x[e], x[e], squares[i]);
        if constexpr (Config::kOutput) {
          squares[kGroup + i] = __fmaf_rn(y[e], y[e], squares[kGroup + i]);
        }
      }
    }
    if (!kCopiedGate && begin + kGroup < 16) {
      ahead.next(piece, i, scan.in.g_token_stride, scan.in.key_dim);
    }
    const unsigned at = lane_at(record, lane, begin + i, piece);
    store_shared(at, pack<Element, 2 * kEach>(rows[0]));
    if constexpr (Config::kOutput) {
      store_shared(at + Smem::kQ, pack<Element, 2 * kEach>(rows[1]));
    }
    store_shared(at + Smem::kG, pack<Element, 2 * kEach>(rows[2]));
  }
}

// The decay of the whole block. It is one exponential of a sum: its error must not grow with the
// tokens.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::store_decays(
    const Record& record, const float (&sum)[kPieces][kEach]) const {
  const int lane = fresh_lane();
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      store_shared(decay_at(record, lane, piece, e), kda_decay(sum[piece][e]),
                   kda_decay(sum[piece][e + 1]));
    }
  }
}

// Makes it less than zero where it comes before the sum, and not a number where M has one that is
// not finite.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::mark_decays(const Record& record,
                                                                  unsigned cut, bool finite) const {
  const int lane = fresh_lane();
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      const unsigned at = decay_at(record, lane, piece, e);
      const unsigned mine = cut >> (piece * kEach + e);
      float left, right;
      load_shared(at, left, right);
      if (!finite) left = right = bit_cast<float>(0x7fffffffu);
      store_shared(at, mine & 1 ? -left : left, mine & 2 ? -right : right);
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::prepare(int block, Beta beta) const {
  const int lane = fresh_lane();
  const Record record = record_of(block);
  const int first = first_of(block);
  KdaGatesAhead<Config> ahead(*this, first);
  if (lane < 16) {  // to where the warp's triangle will be; 0 of tokens that are not there
    const bool there = first + lane < scan.tile.count;
    store_shared(triangle() + 4 * lane,
                 there ? step_size<Config>(to_float(beta), numbers.beta_factor) : 0.0f);
  }
  mbarrier_wait(record.landed(), phase_of(block));
  float prefix[kPieces][kEach], sum[kPieces][kEach];
  work(record, first, ahead, prefix, sum);
  store_decays(record, sum);
  // The next block is on its way while this one's squares are made, if its slot is empty by now. To
  // wait for the walkers here would hold up a block that they may be waiting for. (Walks that keep
  // what a backward reads do wait: they have no register for the answer.)
  const bool copied = Config::kSaved || has_room(block + kWarps);
  if (copied) copy(block + kWarps);
  unsigned cut = 0;  // the lane's columns, a bit for each
  bool low = false;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) low = low || prefix[piece][e] < kLeast;
  }
  const bool parts = __any_sync(0xffffffffu, low) != 0;
  int part = 0;
  if (parts) {
    part = pass(record, first, 16, cut);
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      part = maximum(part, __shfl_xor_sync(0xffffffffu, part, other));
    }
  }
  KdaBlockScores scores;
#pragma unroll 1
  for (; part >= 0; --part) {
    if (parts) {
      __syncwarp();  // every lane has read the rows of the part before
      pass(record, first, part, cut);
    }
    __syncwarp();  // every lane's columns are there
    multiply(record, scores);
  }
  if (parts) {
    __syncwarp();
    end_columns(record, first, cut);
  }
  bool finite;
  if constexpr (kBack) {
    finite = finish_back(record, scores);
  } else {
    finite = finish(record, scores);
  }
  if (parts || !finite) mark_decays(record, cut, finite);
  if (lane == 0) store_shared(record.flag(), parts ? 1u : 0u);
  fence_shared_writes();
  __syncwarp();
  if (lane == 0) mbarrier_arrive(record.ready());
  if (!copied) copy(block + kWarps);
  __syncwarp();  // the next block's barriers are in the phases that all lanes wait for
}

template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::run() const {
  Beta beta = load_beta(warp);
  // One warp asks for the first blocks, in their order: memory then brings the first one, where the
  // walkers' way begins, as a whole before the next one. It is the warp whose block is the last.
  // Where slots have been used before, each warp asks for its own block: only behind its slot's
  // last reader can it tell a copy that has landed from the one before.
  if constexpr (kFollows) {
    copy(warp);
  } else if (warp == kWarps - 1) {
#pragma unroll 1
    for (int block = 0; block < kWarps; ++block) copy(block);
  }
  __syncwarp();
#pragma unroll 1
  for (int block = warp; exists(block); block += kWarps) {
    const Beta next = load_beta(block + kWarps);
    prepare(block, beta);
    beta = next;
  }
}

}  // namespace lathe
