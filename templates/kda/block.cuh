// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// KDA needs this of a block of 16 tokens besides the state, made by one warp in one pass over its
// q, k and g. With alpha = exp(g), both products over the rows named, all of them at most 1:
//
//   P[i, j] = q_i . (alpha_{j+1} ... alpha_i .* k_j)  j <= i    R[i, j] the same of k_i, j < i
//   ke_i = k_i .* alpha_0 ... alpha_i     qg_i = q_i .* alpha_0 ... alpha_i
//   kg_j = k_j .* alpha_{j+1} ... alpha_15                     decay = alpha_0 ... alpha_15
//   M = (I + Diag(beta) R)^-1
//
// Any gate: no exponent is ever positive and no quotient is taken. The pairs (i, j) are those whose
// numbers first differ in bit 3, 2, 1 or 0. In each of these levels a token is either a row or a
// column, i in the upper half of a group and j in the lower, and the factor of the pair is that of
// row i, the product from the start of the upper half, times that of column j, the product to the
// end of the lower half. Products of a level are those of the level below and one shuffle.
//
// A gate that is bounded from below by -5, unless float16 elements are too narrow: the products
// alpha_0 ... alpha_i lie within e^80 of each other, and the factor of a pair is that of row i over
// that of column j. They are scaled by 2^57, so that they and their reciprocals lie around 1, and
// so are ke and qg then (kScaling). The anchor is the same for all and before the first row.
//
// Nothing that a later token holds reaches an earlier row, be it NaN.
//
// Lane 4 g + t holds, of tokens g and g + 8, columns 16 s + 4 t .. + 3 of each slice s: a quad
// reads and writes whole sectors, and the same registers serve as rows and as columns of mma.sync,
// whose inner index may be dealt in any order.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"
#include "kda/products.cuh"
#include "kda/rows.cuh"
#include "kda/shared.cuh"
#include "kda/tile.cuh"
#include "kda/transforms.cuh"

namespace lathe {

// One block in shared memory, one part after another. The planes of what becomes an operand
// (common/operand.cuh) lie one after another, kBytes of a tile apart.
template <class Config>
struct KdaBlock {
  using Element = typename Config::Element;
  static constexpr int kPlanes = Operand<Element>::kPlanes;
  static constexpr int kColumns = kKdaSliceColumns;
  using Rows = KdaTile<16, Config::kWidth, kColumns>;
  // Quotients of decays instead of levels; ke and qg are this much too large then.
  static constexpr bool kBounded = Config::kGate == kKdaGateBounded && ElementRange<Element>::kWide;
  static constexpr float kScaling = kBounded ? 0x1p57f : 1.0f, kUnscaling = 1.0f / kScaling;
  static constexpr int kRows = kPlanes * Rows::kBytes, kSquare = kPlanes * KdaSquare::kBytes;
  static constexpr int kKe = 0, kQg = kKe + kRows, kKg = kQg + kRows;
  static constexpr int kInverse = kKg + kRows;               // M
  static constexpr int kScores = kInverse + kSquare;         // scale P
  static constexpr int kDecay = kScores + kSquare;           // float32 [kWidth]
  static constexpr int kBeta = kDecay + 4 * Config::kWidth;  // float32 [16]
  static constexpr int kNormK = kBeta + 64;                  // 1 / |k|, or 1
  static constexpr int kScaleQ = kNormK + 64;                // scale / |q|, or scale
  static constexpr int kLower = kScaleQ + 64;                // Diag(beta) R, float32
  static constexpr int kLowerPitch = 24;  // words; 8-byte writes of four rows hit every bank once
  static constexpr int kBytesOfLower = 16 * 4 * kLowerPitch;
  static constexpr int kBytes = (kLower + kBytesOfLower + 1023) / 1024 * 1024;
};

// The natural logarithm of the decay of a raw gate.
template <class Config>
__device__ __forceinline__ float decay_log(float raw, float bias, const KdaNumbers& numbers) {
  float z = Config::kDtBias ? __fadd_rn(raw, bias) : raw;
  if constexpr (Config::kAlog && Config::kGate == kKdaGateSoftplus) {
    z = __fadd_rn(z, numbers.gate_shift);
  }
  return kda_gate<Config::kGate>(z, numbers.gate_factor, numbers.lower_bound);
}
template <class Config>
__device__ __forceinline__ float step_size(float raw, float factor) {
  return kda_beta<Config::kSigmoid>(raw, factor);
}

// A column of M times `factor` by forward substitution, float32: that of the lane, column j of lane
// j and lane j + 16. What a bad row of R holds comes into its own row of M and those below alone.
template <class Config>
__device__ __forceinline__ void solve_lower(unsigned lower, int lane, float factor,
                                            float (&x)[16]) {
  const int column = lane & 15;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = i == column ? factor : 0.0f;
#pragma unroll
    for (int from = 0; from < i; from += 4) {
      float row[4];
      load_shared(lower + 4 * (i * KdaBlock<Config>::kLowerPitch + from), row);
#pragma unroll
      for (int m = from; m < i && m < from + 4; ++m) x[i] = __fmaf_rn(-row[m - from], x[m], x[i]);
    }
  }
}
// Such columns as a square.
template <class Config>
__device__ __forceinline__ void store_columns(unsigned square, int lane, const float (&x)[16]) {
  const int column = lane & 15, half = lane >> 4;
  constexpr int kPlanes = KdaBlock<Config>::kPlanes;
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    unsigned plane[kPlanes];
    pack_planes<typename Config::Element>(half ? x[i + 1] : x[i], 0.0f, plane);
    const unsigned to = square + KdaSquare::offset(i, column / 8) + half * 32;
#pragma unroll
    for (int n = 0; n < kPlanes; ++n) {
      store_shared_half(to + n * KdaSquare::kBytes + column % 8 * 2, plane[n]);
    }
  }
}

// exp(g) of one token, for products of at most 16: what ex2 errs by is below the rounding of 16-bit
// elements by far.
template <class Element>
__device__ __forceinline__ float kda_step_decay(float g) {
  return sizeof(Element) == 2 ? ex2_normal(__fmul_rn(g, kLog2E)) : kda_decay(g);
}

// A slice in float32, every transform of single numbers done.
template <class Config>
struct KdaNumbersOfSlice {
  float q[2][4], k[2][4], alpha[2][4];
  float logarithm[4];  // of the two tokens' decays together

  __device__ __forceinline__ KdaNumbersOfSlice(const KdaSlice<Config>& slice, int column,
                                               const KdaNumbers& numbers, const bool (&there)[2]) {
    KdaColumns<float, Config::kVectorBytes, 4> bias;
    if constexpr (Config::kDtBias) bias.load(numbers.dt_bias, column, numbers.key_dim, true);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        q[h][e] = slice.q[h].at(e), k[h][e] = slice.k[h].at(e);
        const float decay =
            decay_log<Config>(slice.g[h].at(e), Config::kDtBias ? bias.at(e) : 0.0f, numbers);
        // A token that is not there was loaded as 0, which is no decay as it is.
        const bool counts = there[h] || (Config::kGate == kKdaGateGiven && !Config::kDtBias);
        const float counted_decay = counts ? decay : 0.0f;
        alpha[h][e] = kda_step_decay<typename Config::Element>(counted_decay);
        logarithm[e] = h == 0 ? counted_decay : __fadd_rn(logarithm[e], counted_decay);
      }
    }
  }
};

// Rows of ke, qg and kg of one slice as operands: words 0 and 2 are token g, 1 and 3 token g + 8.
template <class Config>
struct KdaOperands {
  using Block = KdaBlock<Config>;
  using Element = typename Config::Element;
  Fragment<Element> ke, qg, kg;

  // Two columns from `e` on of token g + 8 h, of q and k times what they take.
  static __device__ __forceinline__ void put(Fragment<Element>& to, int h, int e,
                                             const float (&x)[4], const float (&factor)[4]) {
    put_pair(to, e + h, __fmul_rn(x[e], factor[e]), __fmul_rn(x[e + 1], factor[e + 1]));
  }
  __device__ __forceinline__ void store(unsigned block, int token, int column) const {
    const unsigned at = block + Block::Rows::offset(token, column / 8) + column % 8 * 2;
    store_rows(at + Block::kKg, kg);
    store_rows(at + Block::kKe, ke);
    store_rows(at + Block::kQg, qg);
  }
  static __device__ __forceinline__ void store_rows(unsigned at, const Fragment<Element>& from) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // the swizzle of row g + 8 is that of row g
#pragma unroll
      for (int n = 0; n < Block::kPlanes; ++n) {
        const unsigned row[2] = {from.word[n][h], from.word[n][2 + h]};
        store_shared(at + h * 8 * 128 + n * Block::Rows::kBytes, row);
      }
    }
  }
};

// Any gate: the slice's part of the scores, level by level, and its operands.
template <class Config>
__device__ __forceinline__ void multiply_slice(const KdaNumbersOfSlice<Config>& x, int token,
                                               KdaLevelScores& scores,
                                               KdaOperands<Config>& operands) {
  using Element = typename Config::Element;
  KdaProducts<4> products(x.alpha);
  add_level<Element>(scores.one, x.q, x.k, products, (token & 1) != 0);
  products.template join<1>(token);
  add_level<Element>(scores.two, x.q, x.k, products, (token & 2) != 0);
  products.template join<2>(token);
  add_level<Element>(scores.four, x.q, x.k, products, (token & 4) != 0);
  products.template join<4>(token);
  add_level_eight<Element>(scores.eight, x.q, x.k, products);
  products.join_eights();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      operands.put(operands.ke, h, e, x.k[h], products.to[h]);
      operands.put(operands.qg, h, e, x.q[h], products.to[h]);
      operands.put(operands.kg, h, e, x.k[h], products.after[h]);
    }
  }
}

// A bounded gate: the same by quotients.
template <class Config>
__device__ __forceinline__ void multiply_slice(const KdaNumbersOfSlice<Config>& x, int token,
                                               KdaQuotientScores& scores,
                                               KdaOperands<Config>& operands) {
  const KdaPrefixes prefixes(x.alpha, token, KdaBlock<Config>::kScaling);
  Fragment<typename Config::Element> columns;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float over[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      over[e] = __fmul_rn(x.k[h][e], rcp_normal(prefixes.to[h][e]));
    }
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      operands.put(operands.ke, h, e, x.k[h], prefixes.to[h]);
      operands.put(operands.qg, h, e, x.q[h], prefixes.to[h]);
      operands.put(operands.kg, h, e, over, prefixes.all);
      put_pair(columns, e + h, over[e], over[e + 1]);
    }
  }
  scores.add(operands.qg, operands.ke, columns);
}

// These are sums of q and k over the columns, besides their products.
struct KdaSquares {
  float q[2] = {}, k[2] = {};
  float diagonal[2] = {};  // q_i . k_i
};

// Columns `column` on of the block, a slice: sums of products, operands and decay.
template <class Config, class Scores>
__device__ __forceinline__ void prepare_slice(const KdaSlice<Config>& slice, int column,
                                              const KdaNumbers& numbers, const bool (&there)[2],
                                              unsigned block, int token, Scores& scores,
                                              KdaSquares& squares) {
  const KdaNumbersOfSlice<Config> x(slice, column, numbers, there);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float q = x.q[h][e], k = x.k[h][e];
      squares.diagonal[h] = __fmaf_rn(q, k, squares.diagonal[h]);
      if constexpr (Config::kL2Norm) {
        squares.q[h] = __fmaf_rn(q, q, squares.q[h]);
        squares.k[h] = __fmaf_rn(k, k, squares.k[h]);
      }
    }
  }
  // The whole decay is one exponential of a sum: its error must not grow with the tokens.
  const float decay = kda_decay(sum_over_rows(x.logarithm, token));
  if (token % 2 == 0) {
    store_shared(block + KdaBlock<Config>::kDecay + 4 * (column + token / 2), decay);
  }
  KdaOperands<Config> operands;
  multiply_slice(x, token, scores, operands);
  operands.store(block, token, column);
}

// P and Diag(beta) R of the block.
template <class Config, class Scores>
__device__ __forceinline__ void store_scores(const Scores& scores, const float (&diagonal)[2],
                                             const float (&beta)[2], const float (&q_scale)[2],
                                             const float (&k_norm)[2], unsigned block, int lane) {
  using Block = KdaBlock<Config>;
  const int token = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // rows
#pragma unroll
    for (int c = 0; c < 2; ++c) {  // halves of the columns
      float p[2], l[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 2 * t + i;
        const float norm = Config::kL2Norm ? __shfl_sync(0xffffffffu, k_norm[c], 4 * column) : 1.0f;
        const bool above = c > h || (c == h && column > token);
        const bool equal = c == h && column == token;
        const float both = equal ? diagonal[h] : scores.queries(h, c, i, token, column);
        p[i] = above ? 0.0f : q_scale[h] * norm * both;
        l[i] = above || equal ? 0.0f
                              : beta[h] * k_norm[h] * norm * scores.keys(h, c, i, token, column);
      }
      unsigned plane[Block::kPlanes];
      pack_planes<typename Config::Element>(p[0], p[1], plane);
      const unsigned to = block + Block::kScores + KdaSquare::offset(token + 8 * h, c) + 4 * t;
#pragma unroll
      for (int n = 0; n < Block::kPlanes; ++n) store_shared(to + n * KdaSquare::kBytes, plane[n]);
      store_shared(
          block + Block::kLower + 4 * ((token + 8 * h) * Block::kLowerPitch + 8 * c + 2 * t), l[0],
          l[1]);
    }
  }
}

// All of a block, by one warp, from what is on its way of it. Tokens past the end are as if q, k, g
// and beta were 0.
template <class Config>
__device__ __forceinline__ void prepare_block(KdaIncoming<Config>& incoming,
                                              const KdaRows<Config>& rows,
                                              const KdaNumbers& numbers, unsigned block) {
  using Block = KdaBlock<Config>;
  constexpr int kSlices = Config::kWidth / (4 * kKdaSliceColumns);
  const int lane = fresh_lane(), token = lane / 4, t = lane % 4;
  typename Choose<Block::kBounded, KdaQuotientScores, KdaLevelScores>::Type scores;
  KdaSquares squares;
  const bool there[2] = {incoming.there(0), incoming.there(1)};
#pragma unroll 1
  for (int index = 0; index < kSlices; ++index) {
    const int column = (4 * index + t) * kKdaSliceColumns;
    prepare_slice(incoming.slice, column, numbers, there, block, token, scores, squares);
    if (index + 1 < kSlices) incoming.next(rows);
  }

  float beta[2], q_scale[2], k_norm[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    beta[h] = there[h] ? step_size<Config>(to_float(incoming.beta[h]), numbers.beta_factor) : 0.0f;
    q_scale[h] = numbers.scale, k_norm[h] = 1.0f;
    if constexpr (Config::kL2Norm) {
      q_scale[h] *= kda_norm(sum_over_quad(squares.q[h]));
      k_norm[h] = kda_norm(sum_over_quad(squares.k[h]));
    }
    squares.diagonal[h] = sum_over_quad(squares.diagonal[h]);
    if (t == 0) {
      store_shared(block + Block::kBeta + 4 * (token + 8 * h), beta[h]);
      store_shared(block + Block::kNormK + 4 * (token + 8 * h), k_norm[h]);
      store_shared(block + Block::kScaleQ + 4 * (token + 8 * h), q_scale[h]);
    }
  }
  store_scores<Config>(scores, squares.diagonal, beta, q_scale, k_norm, block, lane);
  __syncwarp();  // the rows of R are there for every lane
  float inverse[16];
  solve_lower<Config>(block + Block::kLower, lane, 1.0f, inverse);
  store_columns<Config>(block + Block::kInverse, lane, inverse);
}

}  // namespace lathe
