// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What KDA needs of a block of 16 tokens besides the state, made by one warp in one pass over its
// q, k and g. With alpha = exp(g), both products over the rows named, all of them at most 1:
//
//   P[i, j] = q_i . (alpha_{j+1} ... alpha_i .* k_j)  j <= i    R[i, j] the same of k_i, j < i
//   ke_i = k_i .* alpha_0 ... alpha_i     qg_i = q_i .* alpha_0 ... alpha_i
//   kg_j = k_j .* alpha_{j+1} ... alpha_15                     decay = alpha_0 ... alpha_15
//   M = (I + Diag(beta) R)^-1
//
// No exponent is ever positive and no quotient is taken: the pairs (i, j) are those whose numbers
// first differ in bit 3, 2, 1 or 0. In each of these levels a token is either a row or a column, i
// in the upper half of a group and j in the lower, and the factor of the pair is that of row i, the
// product from the start of the upper half, times that of column j, the product to the end of the
// lower half. Products of a level are those of the level below and one shuffle. Nothing that a
// later token holds reaches an earlier row, be it NaN.
//
// Lane 4 g + t holds, of tokens g and g + 8, columns 32 s + 8 t .. + 7 of each slice s, of float32
// 16 s + 4 t .. + 3: 16-byte loads, and the same registers serve as rows and as columns of
// mma.sync, whose inner index may be dealt in any order. Four columns are one product's.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"
#include "kda/products.cuh"
#include "kda/tile.cuh"
#include "kda/transforms.cuh"

namespace lathe {

// Of one block, in shared memory, one part after another. Of what becomes an operand the planes
// (common/operand.cuh) lie one after another, kBytes of a tile apart.
template <class Config>
struct KdaBlock {
  using Element = typename Config::Element;
  static constexpr int kPlanes = Operand<Element>::kPlanes;
  static constexpr int kColumns = 16 / static_cast<int>(sizeof(Element));  // of a lane in a slice
  using Rows = KdaTile<16, Config::kWidth, kColumns>;
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
  static constexpr int kBytes = (kLower + 16 * 4 * kLowerPitch + 1023) / 1024 * 1024;
};

// The rows of a block in global memory: tokens from `first` of the sequence's `count`.
template <class Config>
struct KdaRows {
  const typename Config::Element* q;  // token 0 of the sequence, its head
  const typename Config::Element* k;
  const typename Config::GateElement* g;
  const typename Config::BetaElement* beta;
  long long q_stride, k_stride, g_stride, beta_stride;
  int key_dim;
};

struct KdaNumbers {
  float scale, lower_bound;
  float beta_factor;     // 2 with negative eigenvalues, else 1
  float gate_factor;     // exp(A_log), or 1
  const float* dt_bias;  // of the head
};

__device__ __forceinline__ float load_shared(unsigned address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void load_shared(unsigned address, float& x, float& y) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_shared(unsigned address, float (&x)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, unsigned word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, const unsigned (&word)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, const unsigned (&word)[2]) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(word[0]), "r"(word[1])
               : "memory");
}
__device__ __forceinline__ void store_shared_half(unsigned address, unsigned word) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(static_cast<unsigned short>(word))
               : "memory");
}

// kCount neighbours of a row from column `column` on, 0 from `columns` on, a multiple of 4. They
// stay as they are in memory until they are used: registers are short.
template <class Element, int kVectorBytes, int kCount>
struct KdaColumns {
  static constexpr int kEach = kVectorBytes < kCount * static_cast<int>(sizeof(Element))
                                   ? kVectorBytes / static_cast<int>(sizeof(Element))
                                   : kCount;
  Words<kEach * sizeof(Element)> raw[kCount / kEach];

  __device__ __forceinline__ void load(const Element* row, int column, int columns, bool there) {
#pragma unroll
    for (int i = 0; i < kCount / kEach; ++i) {
      raw[i] = {};
      if (there && column + i * kEach < columns) load_global(row + column + i * kEach, raw[i]);
    }
  }
  __device__ __forceinline__ float at(int i) const {
    return to_float(element_of<Element>(raw[i / kEach], i % kEach));
  }
};
template <class Element, int kVectorBytes>
using EightColumns = KdaColumns<Element, kVectorBytes, 8>;

// The natural logarithm of the decay of a raw gate.
template <class Config>
__device__ __forceinline__ float decay_log(float raw, float bias, const KdaNumbers& numbers) {
  const float z = Config::kDtBias ? __fadd_rn(raw, bias) : raw;
  return kda_gate<Config::kGate>(z, numbers.gate_factor, numbers.lower_bound);
}
template <class Config>
__device__ __forceinline__ float step_size(float raw, float factor) {
  return kda_beta<Config::kSigmoid>(raw, factor);
}

// M by forward substitution, float32: lane j and lane j + 16 hold column j. What a bad row of R
// holds comes into its own row of M and those below alone.
template <class Config>
__device__ __forceinline__ void invert_lower(unsigned block, int lane) {
  using Block = KdaBlock<Config>;
  const int column = lane & 15, half = lane >> 4;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int from = 0; from < i; from += 4) {
      float row[4];
      load_shared(block + Block::kLower + 4 * (i * Block::kLowerPitch + from), row);
#pragma unroll
      for (int m = from; m < i && m < from + 4; ++m) x[i] = __fmaf_rn(-row[m - from], x[m], x[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    unsigned plane[Block::kPlanes];
    pack_planes<typename Config::Element>(half ? x[i + 1] : x[i], 0.0f, plane);
    const unsigned to = block + Block::kInverse + KdaSquare::offset(i, column / 8) + half * 32;
#pragma unroll
    for (int n = 0; n < Block::kPlanes; ++n) {
      store_shared_half(to + n * KdaSquare::kBytes + column % 8 * 2, plane[n]);
    }
  }
}

// What a lane holds of a slice, as it lies in memory: tokens g and g + 8 of the block, some
// columns.
template <class Config>
struct KdaSlice {
  using Element = typename Config::Element;
  static constexpr int kColumns = KdaBlock<Config>::kColumns;
  KdaColumns<Element, Config::kVectorBytes, kColumns> q[2], k[2];
  KdaColumns<typename Config::GateElement, Config::kVectorBytes, kColumns> g[2];
  KdaColumns<float, 16, kColumns> bias;

  __device__ __forceinline__ void load(const KdaRows<Config>& rows, const KdaNumbers& numbers,
                                       int token, int column, const bool (&there)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const long long row = token + 8 * h;
      q[h].load(rows.q + row * rows.q_stride, column, rows.key_dim, there[h]);
      k[h].load(rows.k + row * rows.k_stride, column, rows.key_dim, there[h]);
      g[h].load(rows.g + row * rows.g_stride, column, rows.key_dim, there[h]);
    }
    if constexpr (Config::kDtBias) bias.load(numbers.dt_bias, column, rows.key_dim, true);
  }
};

// exp(g) of one token, for products of at most 16: what ex2 errs by is below the rounding of 16-bit
// elements by far.
template <class Element>
__device__ __forceinline__ float kda_step_decay(float g) {
  return sizeof(Element) == 2 ? ex2(__fmul_rn(g, kLog2E)) : kda_decay(g);
}

// Four columns of a slice.
template <class Config>
struct KdaPart {
  float q[2][4], k[2][4], alpha[2][4];

  // Returns the logarithms of the two tokens' decays, added up, in `logarithm`.
  __device__ __forceinline__ KdaPart(const KdaSlice<Config>& slice, int part,
                                     const KdaNumbers& numbers, const bool (&there)[2],
                                     float (&logarithm)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = 4 * part + e;
      logarithm[e] = 0.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        q[h][e] = slice.q[h].at(at), k[h][e] = slice.k[h].at(at);
        const float own = decay_log<Config>(slice.g[h].at(at),
                                            Config::kDtBias ? slice.bias.at(at) : 0.0f, numbers);
        // What is not there was loaded as 0, which is no decay as it is.
        const bool any = there[h] || (Config::kGate == kKdaGateGiven && !Config::kDtBias);
        alpha[h][e] = any ? kda_step_decay<typename Config::Element>(own) : 1.0f;
        logarithm[e] += any ? own : 0.0f;
      }
    }
  }
};

// Rows of ke, qg and kg of one slice, as they will lie in the planes of a block.
template <class Config>
struct KdaOperands {
  using Block = KdaBlock<Config>;
  static constexpr int kWords = Block::kColumns / 2;
  unsigned word[3][2][Block::kPlanes][kWords];

  __device__ __forceinline__ void put(const KdaPart<Config>& part, int index,
                                      const KdaProducts<4>& products) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float(&q)[4] = part.q[h];
      const float(&k)[4] = part.k[h];
      const float(&to)[4] = products.to[h];
      const float(&after)[4] = products.after[h];
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int at = 2 * index + e / 2;
        put_word(0, h, at, k[e] * to[e], k[e + 1] * to[e + 1]);
        put_word(1, h, at, q[e] * to[e], q[e + 1] * to[e + 1]);
        put_word(2, h, at, k[e] * after[e], k[e + 1] * after[e + 1]);
      }
    }
  }
  __device__ __forceinline__ void put_word(int which, int h, int at, float first, float second) {
    unsigned plane[Block::kPlanes];
    pack_planes<typename Config::Element>(first, second, plane);
#pragma unroll
    for (int n = 0; n < Block::kPlanes; ++n) word[which][h][n][at] = plane[n];
  }
  __device__ __forceinline__ void store(unsigned block, int token, int column) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned at = block + Block::Rows::offset(token + 8 * h, column / 8) + column % 8 * 2;
#pragma unroll
      for (int which = 0; which < 3; ++which) {
#pragma unroll
        for (int n = 0; n < Block::kPlanes; ++n) {
          store_shared(at + which * Block::kRows + n * Block::Rows::kBytes, word[which][h][n]);
        }
      }
    }
  }
};

// What the sums over columns need of rows of q and k besides their products.
struct KdaSquares {
  float q[2] = {}, k[2] = {};
};

// Columns `column` on of the block, a slice: sums of products, operands and decay.
template <class Config>
__device__ __forceinline__ void prepare_slice(const KdaSlice<Config>& slice, int column,
                                              const KdaNumbers& numbers, const bool (&there)[2],
                                              unsigned block, KdaScores& scores,
                                              KdaSquares& squares) {
  using Element = typename Config::Element;
  using Block = KdaBlock<Config>;
  const int token = static_cast<int>(threadIdx.x % 32) / 4;
  KdaOperands<Config> operands;
#pragma unroll
  for (int index = 0; index < Block::kColumns / 4; ++index) {
    float logarithm[4];
    const KdaPart<Config> part(slice, index, numbers, there, logarithm);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float q = part.q[h][e], k = part.k[h][e];
        scores.diagonal[h] = __fmaf_rn(q, k, scores.diagonal[h]);
        if constexpr (Config::kL2Norm) {
          squares.q[h] = __fmaf_rn(q, q, squares.q[h]);
          squares.k[h] = __fmaf_rn(k, k, squares.k[h]);
        }
      }
    }
    // The whole decay is one exponential of a sum: its error must not grow with the tokens.
    const float decay = kda_decay(sum_over_rows(logarithm, token));
    if (token % 2 == 0) {
      store_shared(block + Block::kDecay + 4 * (column + 4 * index + token / 2), decay);
    }
    KdaProducts<4> products(part.alpha);
    add_level<Element>(scores.one, part.q, part.k, products, (token & 1) != 0);
    products.template join<1>(token);
    add_level<Element>(scores.two, part.q, part.k, products, (token & 2) != 0);
    products.template join<2>(token);
    add_level<Element>(scores.four, part.q, part.k, products, (token & 4) != 0);
    products.template join<4>(token);
    add_level_eight<Element>(scores.eight, part.q, part.k, products);
    products.join_eights();
    operands.put(part, index, products);
  }
  operands.store(block, token, column);
}

// P and Diag(beta) R of the block.
template <class Config>
__device__ __forceinline__ void store_scores(const KdaScores& scores, const float (&beta)[2],
                                             const float (&q_scale)[2], const float (&k_norm)[2],
                                             unsigned block, int lane) {
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
        const bool apart = c < h;
        const float both = apart ? scores.eight[i] : scores.below(h, i, token, column);
        const float keys = apart ? scores.eight[2 + i] : scores.below(h, 2 + i, token, column);
        p[i] = above ? 0.0f : q_scale[h] * norm * (equal ? scores.diagonal[h] : both);
        l[i] = above || equal ? 0.0f : beta[h] * k_norm[h] * norm * keys;
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

// All of a block, by one warp. Tokens first .. first + 15 of `count`; those past the end are as if
// q, k, g and beta were 0.
template <class Config>
__device__ __forceinline__ void prepare_block(const KdaRows<Config>& rows,
                                              const KdaNumbers& numbers, int first, int count,
                                              unsigned block) {
  using Block = KdaBlock<Config>;
  const int lane = static_cast<int>(threadIdx.x % 32), token = lane / 4, t = lane % 4;
  KdaScores scores;
  KdaSquares squares;
  const bool there[2] = {first + token < count, first + token + 8 < count};
  typename Config::BetaElement raw_beta[2] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const long long row = first + token + 8 * h;
    if (there[h]) raw_beta[h] = load_element(rows.beta + row * rows.beta_stride);
  }
#pragma unroll 1
  for (int index = 0; index < Config::kWidth / (4 * Block::kColumns); ++index) {
    const int column = (4 * index + t) * Block::kColumns;
    KdaSlice<Config> slice;
    slice.load(rows, numbers, first + token, column, there);
    prepare_slice(slice, column, numbers, there, block, scores, squares);
  }

  float beta[2], q_scale[2], k_norm[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    beta[h] = there[h] ? step_size<Config>(to_float(raw_beta[h]), numbers.beta_factor) : 0.0f;
    q_scale[h] = numbers.scale, k_norm[h] = 1.0f;
    if constexpr (Config::kL2Norm) {
      q_scale[h] *= kda_norm(sum_over_quad(squares.q[h]));
      k_norm[h] = kda_norm(sum_over_quad(squares.k[h]));
    }
    scores.diagonal[h] = sum_over_quad(scores.diagonal[h]);
    if (t == 0) {
      store_shared(block + Block::kBeta + 4 * (token + 8 * h), beta[h]);
      store_shared(block + Block::kNormK + 4 * (token + 8 * h), k_norm[h]);
      store_shared(block + Block::kScaleQ + 4 * (token + 8 * h), q_scale[h]);
    }
  }
  store_scores<Config>(scores, beta, q_scale, k_norm, block, lane);
  __syncwarp();  // the rows of R are there for every lane
  invert_lower<Config>(block, lane);
}

}  // namespace lathe
