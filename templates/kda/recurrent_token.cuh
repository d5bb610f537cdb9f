// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tokens of kda_recurrent on their way to the recurrence: raw in the registers of the warp that
// fetches them, then transformed in shared memory, where every warp reads them.
#pragma once
#include "common/aligned.cuh"
#include "common/types.cuh"
#include "kda/slots.cuh"
#include "kda/transforms.cuh"

namespace lathe {

// How a block divides its work. A warp owns 4 kGroups columns of the state and all of K: lane
// (group, key) holds blocks of 4 x 4 elements, rows 4 key + 4 kKeyLanes b. Sums over K are then
// shuffles within the warp, and either layout of a state in memory is read 16 bytes at a time.
template <class Config>
struct KdaRecurrentShape {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kKeyLanes = Config::kKeyLanes;  // 8 or 16
  static constexpr int kGroups = 32 / kKeyLanes;       // of 4 columns
  static constexpr int kTileV = 4 * kGroups * kWarps;  // columns of a block
  static constexpr int kBlocks = (Config::kKeyDim + 4 * kKeyLanes - 1) / (4 * kKeyLanes);
  static constexpr int kWidth = 4 * kKeyLanes * kBlocks;  // K, padded with zeros
  static constexpr int kPasses = (kWidth + 127) / 128;    // of 32 lanes over a row of K
  static constexpr int kTiles = (Config::kValueDim + kTileV - 1) / kTileV;
  // A token in shared memory: q, k and exp(g), then v, then beta, k . q and the slot.
  static constexpr int kQ = 0, kK = kWidth, kAlpha = 2 * kWidth, kV = 3 * kWidth;
  static constexpr int kScalars = kV + kTileV, kToken = kScalars + 4;
};

// Two buffers of one token per warp: one is walked while the other is filled.
template <class Config>
struct KdaRecurrentSmem {
  using Shape = KdaRecurrentShape<Config>;
  static constexpr int kBytes = 4 * 2 * Shape::kWarps * Shape::kToken;
};

// Which sequence, head and columns a block works on.
struct KdaTokenTile {
  int sequence, value_head, head;
  int column;  // the first of the block
  int warp, lane;
  long long batch;  // row of the batch: 0 if packed
  int start;        // the first token, of that row
};

__device__ __forceinline__ float kda_sum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

// A KdaHeadGate has what is the same for all tokens of a value head, for the lane's elements of K.
template <class Config>
struct KdaHeadGate {
  KdaRate rate = {1, 0};
  float bias[KdaRecurrentShape<Config>::kPasses][4];

  __device__ __forceinline__ KdaHeadGate(const KdaRecurrentParams& p, const KdaTokenTile& tile) {
    if constexpr (Config::kAlog) {
      rate = kda_rate(load_element(static_cast<const float*>(p.A_log) + tile.value_head));
    }
#pragma unroll
    for (int pass = 0; pass < KdaRecurrentShape<Config>::kPasses; ++pass) {
      const int d = 4 * tile.lane + 128 * pass;
      Words<16> raw = {};
      if (Config::kDtBias && d < Config::kKeyDim) {
        load_aligned<kAlignmentOf<Config, float>>(
            static_cast<const float*>(p.dt_bias) +
                static_cast<long long>(tile.value_head) * Config::kKeyDim + d,
            raw);
      }
      unpack<f32>(raw, bias[pass]);
    }
  }

  // Returns the logarithm of the decay of the lane's element i of a pass.
  __device__ __forceinline__ float log_decay(const KdaRecurrentParams& p, int pass, int i,
                                             float raw) const {
    float z = raw;
    if constexpr (Config::kDtBias) z = __fadd_rn(z, bias[pass][i]);
    if constexpr (Config::kAlog && Config::kGate == kKdaGateSoftplus) z = __fadd_rn(z, rate.shift);
    return kda_gate<Config::kGate>(z, rate.factor, p.lower_bound);
  }
};

// A token as it lies in memory, in the registers of one warp: loaded while the warp walks others.
template <class Config>
struct KdaRawToken {
  using Shape = KdaRecurrentShape<Config>;
  using Element = typename Config::Element;
  using Gate = typename Config::GateElement;
  using Beta = typename Config::BetaElement;
  Words<4 * sizeof(Element)> q[Shape::kPasses], k[Shape::kPasses], v;
  Words<4 * sizeof(Gate)> g[Shape::kPasses];
  float beta;
  int slot;

  // Loads what a record of the token has.
  __device__ __forceinline__ void load_key(const KdaRecurrentParams& p, const KdaTokenTile& tile,
                                           int token) {
    const long long row = tile.start + token;
    const Element* k_row = static_cast<const Element*>(p.k) + tile.batch * p.k_batch_stride +
                           row * p.k_token_stride + tile.head * p.k_head_stride;
    const Gate* g_row = static_cast<const Gate*>(p.g) + tile.batch * p.g_batch_stride +
                        row * p.g_token_stride + tile.value_head * p.g_head_stride;
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      const int d = 4 * tile.lane + 128 * pass;
      k[pass] = {};
      g[pass] = {};
      if (d < Config::kKeyDim) {
        load_aligned<kAlignmentOf<Config, Element>>(k_row + d, k[pass]);
        load_aligned<kAlignmentOf<Config, Gate>>(g_row + d, g[pass]);
      }
    }
  }
  __device__ __forceinline__ void load(const KdaRecurrentParams& p, const KdaTokenTile& tile,
                                       int token) {
    const long long row = tile.start + token;
    const Element* q_row = static_cast<const Element*>(p.q) + tile.batch * p.q_batch_stride +
                           row * p.q_token_stride + tile.head * p.q_head_stride;
    const Element* v_row = static_cast<const Element*>(p.v) + tile.batch * p.v_batch_stride +
                           row * p.v_token_stride + tile.value_head * p.v_head_stride;
    load_key(p, tile, token);
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      const int d = 4 * tile.lane + 128 * pass;
      q[pass] = {};
      if (d < Config::kKeyDim) load_aligned<kAlignmentOf<Config, Element>>(q_row + d, q[pass]);
    }
    const int column = 4 * tile.lane;
    v = {};
    if (column < Shape::kTileV && tile.column + column < Config::kValueDim) {
      load_aligned<kAlignmentOf<Config, Element>>(v_row + tile.column + column, v);
    }
    beta =
        to_float(load_element(static_cast<const Beta*>(p.beta) + tile.batch * p.beta_batch_stride +
                              row * p.beta_token_stride + tile.value_head));
    if constexpr (Config::kStates == kKdaStatesColumns) {
      slot = -1;
      if (token < p.columns) {
        slot = kda_slot<typename Config::Index>(
            p, p.state_indices, static_cast<long long>(tile.sequence) * p.columns + token);
      }
    }
  }

  // Section by section into shared memory: q normalised and scaled, k normalised, exp(g), v.
  __device__ __forceinline__ void prepare(const KdaRecurrentParams& p,
                                          const KdaHeadGate<Config>& gate, int lane,
                                          float* token) const {
    float query[Shape::kPasses][4], key[Shape::kPasses][4];
    float qq = 0, kk = 0, qk = 0;
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      unpack<Element>(q[pass], query[pass]);
      unpack<Element>(k[pass], key[pass]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        qq = __fmaf_rn(query[pass][i], query[pass][i], qq);
        kk = __fmaf_rn(key[pass][i], key[pass][i], kk);
        qk = __fmaf_rn(query[pass][i], key[pass][i], qk);
      }
    }
    float of_q = p.scale, of_k = 1;
    if constexpr (Config::kL2Norm) {
      of_q = __fmul_rn(of_q, kda_norm(kda_sum(qq)));
      of_k = kda_norm(kda_sum(kk));
    }
    const float product = __fmul_rn(__fmul_rn(kda_sum(qk), of_q), of_k);
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      const int d = 4 * lane + 128 * pass;
      if (d >= Shape::kWidth) continue;
      float alpha[4];
      unpack<Gate>(g[pass], alpha);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        alpha[i] = kda_decay(gate.log_decay(p, pass, i, alpha[i]));
        query[pass][i] = __fmul_rn(query[pass][i], of_q);
        key[pass][i] = __fmul_rn(key[pass][i], of_k);
      }
      store_shared(token + Shape::kQ + d, pack<f32, 16>(query[pass]));
      store_shared(token + Shape::kK + d, pack<f32, 16>(key[pass]));
      store_shared(token + Shape::kAlpha + d, pack<f32, 16>(alpha));
    }
    if (4 * lane < Shape::kTileV) {
      float value[4];
      unpack<Element>(v, value);
      store_shared(token + Shape::kV + 4 * lane, pack<f32, 16>(value));
    }
    if (lane == 0) {
      float* scalars = token + Shape::kScalars;
      scalars[0] = kda_beta<Config::kSigmoid>(beta, p.beta_factor);
      scalars[1] = product;
      if constexpr (Config::kStates == kKdaStatesColumns) scalars[2] = __int_as_float(slot);
    }
  }

  // Writes the token's record but for its update: the key as the recurrence uses it, if ring_k is
  // not null, and the logarithm of the decay.
  __device__ __forceinline__ void record(const KdaRecurrentParams& p,
                                         const KdaHeadGate<Config>& gate, int lane, Element* ring_k,
                                         float* ring_g) const {
    float key[Shape::kPasses][4];
    float kk = 0;
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      unpack<Element>(k[pass], key[pass]);
#pragma unroll
      for (int i = 0; i < 4; ++i) kk = __fmaf_rn(key[pass][i], key[pass][i], kk);
    }
    float of_k = 1;
    if constexpr (Config::kL2Norm) of_k = kda_norm(kda_sum(kk));
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      const int d = 4 * lane + 128 * pass;
      if (d >= Config::kKeyDim) continue;
      float decay[4];
      unpack<Gate>(g[pass], decay);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        decay[i] = gate.log_decay(p, pass, i, decay[i]);
        key[pass][i] = __fmul_rn(key[pass][i], of_k);
      }
      store_global(ring_g + d, pack<f32, 16>(decay));
      if (ring_k != nullptr) {
        store_global(ring_k + d, pack<Element, 4 * sizeof(Element)>(key[pass]));
      }
    }
  }
};

// Returns how many records of a slot count, and the place of a call's first one: at the front where
// the others would leave no room for them.
struct KdaRing {
  int count, first;
};
__device__ __forceinline__ KdaRing kda_ring(const KdaRecurrentParams& p, int slot, int tokens) {
  // A plain load: kda_ring_append writes the counts that it reads.
  const int held = static_cast<const int*>(p.ring_count)[slot];
  const int count = minimum(maximum(held, 0), p.ring_length);
  return {count, count + tokens > p.ring_length ? 0 : count};
}

}  // namespace lathe
