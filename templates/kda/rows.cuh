// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of q, k, g and beta on their way from memory to a warp that prepares a block of 16 tokens
// (kda/block.cuh).
#pragma once
#include "common/fresh.cuh"
#include "common/types.cuh"
#include "kda/transforms.cuh"

namespace lathe {

constexpr int kKdaSliceColumns =
    4;  // of a lane in a slice of 16; eight would take 24 registers more

// Global loads of a row's beginning that ask for what follows it in L2: the loads of the rest then
// wait for no memory.
__device__ __forceinline__ void load_row(const void* from, Words<16>& to) {
  asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
               : "l"(from));
}
__device__ __forceinline__ void load_row(const void* from, Words<8>& to) {
  asm volatile("ld.global.nc.L2::256B.v2.u32 {%0, %1}, [%2];"
               : "=r"(to.word[0]), "=r"(to.word[1])
               : "l"(from));
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
  // The same from where `at` points, with columns that the row goes on for.
  __device__ __forceinline__ void load_at(const Element* at, int columns) {
#pragma unroll
    for (int i = 0; i < kCount / kEach; ++i) {
      raw[i] = {};
      if (i * kEach < columns) load_row(at + i * kEach, raw[i]);
    }
  }
  __device__ __forceinline__ float at(int i) const {
    return to_float(element_of<Element>(raw[i / kEach], i % kEach));
  }
};
template <class Element, int kVectorBytes>
using EightColumns = KdaColumns<Element, kVectorBytes, 8>;

// Rows of a sequence and head in global memory.
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
  float gate_factor;     // of exp(A_log), or 1
  const float* dt_bias;  // of the head
  int key_dim;
  float gate_shift = 0;  // of exp(A_log)

  __device__ __forceinline__ void set_rate(float A_log) {
    const KdaRate rate = kda_rate(A_log);
    gate_factor = rate.factor, gate_shift = rate.shift;
  }
};

// A lane holds this of a slice, as it lies in memory: tokens g and g + 8 of the block, some
// columns.
template <class Config>
struct KdaSlice {
  using Element = typename Config::Element;
  using GateElement = typename Config::GateElement;
  static constexpr int kColumns = kKdaSliceColumns;
  KdaColumns<Element, Config::kVectorBytes, kColumns> q[2], k[2];
  KdaColumns<GateElement, Config::kVectorBytes, kColumns> g[2];
};

// A block on its way from memory: the slice that comes next, where the lane will read those behind
// it, and beta. Of tokens that are not there everything is 0.
template <class Config>
struct KdaIncoming {
  using Element = typename Config::Element;
  using GateElement = typename Config::GateElement;
  static constexpr int kColumns = kKdaSliceColumns;
  KdaSlice<Config> slice;
  typename Config::BetaElement beta[2];
  const Element* q;  // of the lane's first token and its columns of the slice
  const Element* k;
  const GateElement* g;
  int tokens, columns;  // from these on that are there

  __device__ __forceinline__ bool there(int h) const { return tokens > 8 * h; }

  // Tokens `first` to first + 15 of `count`.
  __device__ __forceinline__ void begin(const KdaRows<Config>& rows, int first, int count) {
    const int lane = fresh_lane(), column = lane % 4 * kColumns;
    const long long row = first + lane / 4;
    tokens = count - first - lane / 4, columns = rows.key_dim - column;
    q = rows.q + row * rows.q_stride + column;
    k = rows.k + row * rows.k_stride + column;
    g = rows.g + row * rows.g_stride + column;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      beta[h] = {};
      if (there(h)) beta[h] = load_element(rows.beta + (row + 8 * h) * rows.beta_stride);
    }
    load(rows);
  }
  __device__ __forceinline__ void load(const KdaRows<Config>& rows) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int wanted = there(h) ? columns : 0;
      slice.q[h].load_at(q + 8 * h * rows.q_stride, wanted);
      slice.k[h].load_at(k + 8 * h * rows.k_stride, wanted);
      slice.g[h].load_at(g + 8 * h * rows.g_stride, wanted);
    }
  }
  __device__ __forceinline__ void next(const KdaRows<Config>& rows) {
    q += 4 * kColumns, k += 4 * kColumns, g += 4 * kColumns, columns -= 4 * kColumns;
    load(rows);
  }
};

}  // namespace lathe
