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
// Lane 4 g + t holds, of tokens g and g + 8, columns 32 s + 8 t .. + 7 of each slice s: 16-byte
// loads and stores, and the same registers serve as rows and as columns of mma.sync, whose inner
// index may be dealt in any order. The first four of the eight columns are one product's, the other
// four the next one's.
#pragma once
#include "common/math.cuh"
#include "common/mma.cuh"
#include "common/types.cuh"
#include "kda/tile.cuh"
#include "kda/transforms.cuh"

namespace lathe {

// Of one block, in shared memory, one part after another.
template <class Config>
struct KdaBlock {
  using Rows = KdaTile<16, Config::kWidth>;
  static constexpr int kKe = 0, kQg = kKe + Rows::kBytes, kKg = kQg + Rows::kBytes;
  static constexpr int kInverse = kKg + Rows::kBytes;           // M, 16-bit
  static constexpr int kScores = kInverse + KdaSquare::kBytes;  // scale P, 16-bit
  static constexpr int kDecay = kScores + KdaSquare::kBytes;    // float32 [kWidth]
  static constexpr int kBeta = kDecay + 4 * Config::kWidth;     // float32 [16]
  static constexpr int kNormK = kBeta + 64;                     // 1 / |k|, or 1
  static constexpr int kScaleQ = kNormK + 64;                   // scale / |q|, or scale
  static constexpr int kLower = kScaleQ + 64;                   // Diag(beta) R, float32
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

// Eight neighbours of a row from column `column` on, 0 from `columns` on, a multiple of 4. They
// stay as they are in memory until they are used: registers are short.
template <class Element, int kVectorBytes>
struct EightColumns {
  static constexpr int kEach = kVectorBytes < 8 * static_cast<int>(sizeof(Element))
                                   ? kVectorBytes / static_cast<int>(sizeof(Element))
                                   : 8;
  Words<kEach * sizeof(Element)> raw[8 / kEach];

  __device__ __forceinline__ void load(const Element* row, int column, int columns, bool there) {
#pragma unroll
    for (int i = 0; i < 8 / kEach; ++i) {
      raw[i] = {};
      if (there && column + i * kEach < columns) load_global(row + column + i * kEach, raw[i]);
    }
  }
  __device__ __forceinline__ float at(int i) const {
    return to_float(element_of<Element>(raw[i / kEach], i % kEach));
  }
};

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

// Products of alpha within groups of a lane's tokens, token g and g + 8 of a block by kColumns
// columns: of 1 token first, of 16 in the end. `to` runs from the start of the group up to the
// token and with it, `after` from behind it to the end.
template <int kColumns>
struct KdaProducts {
  float to[2][kColumns], after[2][kColumns], all[2][kColumns];

  __device__ __forceinline__ explicit KdaProducts(const float (&alpha)[2][kColumns]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < kColumns; ++e) to[h][e] = all[h][e] = alpha[h][e], after[h][e] = 1.0f;
    }
  }
  // Pairs of groups of `half` tokens become groups of twice as many; it is 1, 2 or 4.
  __device__ __forceinline__ void join(int half, int token) {
    const bool upper = (token & half) != 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        const float other = __shfl_xor_sync(0xffffffffu, all[h][e], 4 * half);
        // By factors: a choice between two arrays would live in memory.
        to[h][e] = __fmul_rn(to[h][e], upper ? other : 1.0f);
        after[h][e] = __fmul_rn(after[h][e], upper ? 1.0f : other);
        all[h][e] = __fmul_rn(all[h][e], other);
      }
    }
  }
  template <int kHalf>
  __device__ __forceinline__ void join(int token) {
    join(kHalf, token);
  }
  __device__ __forceinline__ void join_eights() {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      to[1][e] = __fmul_rn(to[1][e], all[0][e]);
      after[0][e] = __fmul_rn(after[0][e], all[1][e]);
    }
  }
};

// Sums of products with the factor of their pair, by level: words 0 and 1 are P of row g, words 2
// and 3 R, columns 2t and 2t + 1; rows and columns of the block's half h, or at level 8 rows of the
// upper half and columns of the lower.
struct KdaScores {
  float eight[4] = {}, four[2][4] = {}, two[2][4] = {}, one[2][4] = {};
  float diagonal[2] = {};  // q_i . k_i over the lane's columns

  // Column c < row g of the same half: the level at which they part.
  __device__ __forceinline__ float below(int h, int word, int row, int column) const {
    const int parting = row ^ column;
    return parting >= 4 ? four[h][word] : parting >= 2 ? two[h][word] : one[h][word];
  }
};

template <class Element>
__device__ __forceinline__ void add_level(float (&sum)[2][4], const float (&q)[2][4],
                                          const float (&k)[2][4], const KdaProducts<4>& products,
                                          bool upper) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float x[4], y[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float factor = upper ? products.to[h][e] : products.after[h][e];
      x[e] = __fmul_rn(q[h][e], factor), y[e] = __fmul_rn(k[h][e], factor);
    }
    const unsigned rows[4] = {pack_pair(x[0], x[1], Element{}), pack_pair(y[0], y[1], Element{}),
                              pack_pair(x[2], x[3], Element{}), pack_pair(y[2], y[3], Element{})};
    multiply_add(sum[h], rows, rows[1], rows[3], Element{});
  }
}
template <class Element>
__device__ __forceinline__ void add_level_eight(float (&sum)[4], const float (&q)[2][4],
                                                const float (&k)[2][4],
                                                const KdaProducts<4>& products) {
  float x[4], y[4], columns[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    x[e] = __fmul_rn(q[1][e], products.to[1][e]), y[e] = __fmul_rn(k[1][e], products.to[1][e]);
    columns[e] = __fmul_rn(k[0][e], products.after[0][e]);
  }
  const unsigned rows[4] = {pack_pair(x[0], x[1], Element{}), pack_pair(y[0], y[1], Element{}),
                            pack_pair(x[2], x[3], Element{}), pack_pair(y[2], y[3], Element{})};
  multiply_add(sum, rows, pack_pair(columns[0], columns[1], Element{}),
               pack_pair(columns[2], columns[3], Element{}), Element{});
}

__device__ __forceinline__ float sum_over_quad(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// M by forward substitution, float32: lane j and lane j + 16 hold column j.
template <class Config>
__device__ __forceinline__ void invert_lower(unsigned block, int lane) {
  using Block = KdaBlock<Config>;
  const int column = lane & 15;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int from = 0; from < i; from += 4) {
      float row[4];
      load_shared(block + Block::kLower + 4 * (i * Block::kLowerPitch + from), row);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        // Above the diagonal of M is 0, whatever a later row of R holds.
        if (from + m < i) x[i] = from + m < column ? x[i] : __fmaf_rn(-row[m], x[from + m], x[i]);
      }
    }
    const float next = __shfl_down_sync(0xffffffffu, x[i], 1);
    if (lane < 16 && lane % 2 == 0) {
      store_shared(block + Block::kInverse + KdaSquare::offset(i, lane / 8) + lane % 8 * 2,
                   pack_pair(x[i], next, typename Config::Element{}));
    }
  }
}

// All of a block, by one warp. Tokens first .. first + 15 of `count`; those past the end are as if
// q, k, g and beta were 0.
template <class Config>
__device__ __forceinline__ void prepare_block(const KdaRows<Config>& rows,
                                              const KdaNumbers& numbers, int first, int count,
                                              unsigned block) {
  using Element = typename Config::Element;
  using Block = KdaBlock<Config>;
  const int lane = static_cast<int>(threadIdx.x % 32), token = lane / 4, t = lane % 4;
  KdaScores scores;
  float q_square[2] = {}, k_square[2] = {};
  const bool there[2] = {first + token < count, first + token + 8 < count};

#pragma unroll 1
  for (int slice = 0; slice < Config::kWidth / 32; ++slice) {
    const int column = 32 * slice + 8 * t;
    EightColumns<Element, Config::kVectorBytes> q_all[2], k_all[2];
    EightColumns<typename Config::GateElement, Config::kVectorBytes> g_all[2];
    EightColumns<float, 16> bias;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const long long row = first + token + 8 * h;
      q_all[h].load(rows.q + row * rows.q_stride, column, rows.key_dim, there[h]);
      k_all[h].load(rows.k + row * rows.k_stride, column, rows.key_dim, there[h]);
      g_all[h].load(rows.g + row * rows.g_stride, column, rows.key_dim, there[h]);
    }
    if constexpr (Config::kDtBias) {
      bias.load(numbers.dt_bias, column, rows.key_dim, true);
    }
    unsigned ke[2][4], qg[2][4], kg[2][4];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float q[2][4], k[2][4], alpha[2][4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool inside = column + 4 * part < rows.key_dim;
        float logarithm = 0.0f;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int at = 4 * part + e;
          q[h][e] = q_all[h].at(at), k[h][e] = k_all[h].at(at);
          const float own =
              decay_log<Config>(g_all[h].at(at), Config::kDtBias ? bias.at(at) : 0.0f, numbers);
          alpha[h][e] = inside && there[h] ? kda_decay(own) : 1.0f;
          logarithm += inside && there[h] ? own : 0.0f;
          scores.diagonal[h] = __fmaf_rn(q[h][e], k[h][e], scores.diagonal[h]);
          if constexpr (Config::kL2Norm) {
            q_square[h] = __fmaf_rn(q[h][e], q[h][e], q_square[h]);
            k_square[h] = __fmaf_rn(k[h][e], k[h][e], k_square[h]);
          }
        }
        // The whole decay is one exponential of a sum: its error must not grow with the tokens.
#pragma unroll
        for (int other = 4; other < 32; other *= 2) {
          logarithm += __shfl_xor_sync(0xffffffffu, logarithm, other);
        }
        if (token == 0) {
          store_shared(block + Block::kDecay + 4 * (column + 4 * part + e), kda_decay(logarithm));
        }
      }
      KdaProducts<4> products(alpha);
      add_level<Element>(scores.one, q, k, products, (token & 1) != 0);
      products.template join<1>(token);
      add_level<Element>(scores.two, q, k, products, (token & 2) != 0);
      products.template join<2>(token);
      add_level<Element>(scores.four, q, k, products, (token & 4) != 0);
      products.template join<4>(token);
      add_level_eight<Element>(scores.eight, q, k, products);
      products.join_eights();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const float(&to)[4] = products.to[h];
          const float(&after)[4] = products.after[h];
          ke[h][2 * part + e / 2] = pack_pair(k[h][e] * to[e], k[h][e + 1] * to[e + 1], Element{});
          qg[h][2 * part + e / 2] = pack_pair(q[h][e] * to[e], q[h][e + 1] * to[e + 1], Element{});
          kg[h][2 * part + e / 2] =
              pack_pair(k[h][e] * after[e], k[h][e + 1] * after[e + 1], Element{});
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = Block::Rows::offset(token + 8 * h, column / 8);
      store_shared(block + Block::kKe + at, ke[h]);
      store_shared(block + Block::kQg + at, qg[h]);
      store_shared(block + Block::kKg + at, kg[h]);
    }
  }

  float beta[2], q_scale[2], k_norm[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    beta[h] = 0.0f;
    const long long row = first + token + 8 * h;
    if (there[h]) {
      beta[h] = step_size<Config>(to_float(load_element(rows.beta + row * rows.beta_stride)),
                                  numbers.beta_factor);
    }
    q_scale[h] = numbers.scale, k_norm[h] = 1.0f;
    if constexpr (Config::kL2Norm) {
      q_scale[h] *= kda_norm(sum_over_quad(q_square[h]));
      k_norm[h] = kda_norm(sum_over_quad(k_square[h]));
    }
    scores.diagonal[h] = sum_over_quad(scores.diagonal[h]);
    if (t == 0) {
      store_shared(block + Block::kBeta + 4 * (token + 8 * h), beta[h]);
      store_shared(block + Block::kNormK + 4 * (token + 8 * h), k_norm[h]);
      store_shared(block + Block::kScaleQ + 4 * (token + 8 * h), q_scale[h]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // rows
#pragma unroll
    for (int c = 0; c < 2; ++c) {  // halves of the columns
      float p[2], l[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 2 * t + i;
        const float norm = __shfl_sync(0xffffffffu, k_norm[c], 4 * column);
        const bool above = c > h || (c == h && column > token);
        const bool equal = c == h && column == token;
        const bool apart = c < h;
        const float both = apart ? scores.eight[i] : scores.below(h, i, token, column);
        const float keys = apart ? scores.eight[2 + i] : scores.below(h, 2 + i, token, column);
        p[i] = above ? 0.0f : q_scale[h] * norm * (equal ? scores.diagonal[h] : both);
        l[i] = above || equal ? 0.0f : beta[h] * k_norm[h] * norm * keys;
      }
      store_shared(block + Block::kScores + KdaSquare::offset(token + 8 * h, c) + 4 * t,
                   pack_pair(p[0], p[1], Element{}));
      store_shared(
          block + Block::kLower + 4 * ((token + 8 * h) * Block::kLowerPitch + 8 * c + 2 * t), l[0],
          l[1]);
    }
  }
  __syncwarp();  // the rows of R are there for every lane
  invert_lower<Config>(block, lane);
}

}  // namespace lathe
