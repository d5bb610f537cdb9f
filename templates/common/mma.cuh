// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One wrapper per matrix instruction of sm_80. With g = lane / 4 and t = lane % 4, a lane holds of
//   A 16x16: a0 = (g; 2t, 2t+1)  a1 = (g+8; same)  a2 = (g; 2t+8, 2t+9)  a3 = (g+8; same)
//   B 16x8:  b0 = (2t, 2t+1; g)  b1 = (2t+8, 2t+9; g)
//   C 16x8:  c0, c1 = (g; 2t, 2t+1)  c2, c3 = (g+8; same)
// with (rows; columns), two 16-bit elements to a word, the first in the lower half.
#pragma once
#include "common/types.cuh"

namespace lathe {

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Four 8x8 matrices of 16-bit elements; lane 8i + r gives the address of row r of matrix i, and
// word i of a lane is (g; 2t, 2t+1) of matrix i.
__device__ __forceinline__ void load_matrix(unsigned (&word)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}
// The same, each matrix transposed: word i is (2t, 2t+1; g).
__device__ __forceinline__ void load_matrix_transposed(unsigned (&word)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}

// Stores four matrices as load_matrix reads them (sm_90).
__device__ __forceinline__ void store_matrix(unsigned address, const unsigned (&word)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}

// c += A B, float32 sums.
__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1, f16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1, bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of float32 numbers whose last 13 bits are zeros, over 8 of the summed index: (g; t),
// (g + 8; t), (g; t + 4), (g + 8; t + 4) of A, (t; g), (t + 4; g) of B.
__device__ __forceinline__ void multiply_add_tf32(float (&c)[4], const float (&a)[4], float b0,
                                                  float b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(bit_cast<unsigned>(a[0])), "r"(bit_cast<unsigned>(a[1])), "r"(bit_cast<unsigned>(a[2])),
        "r"(bit_cast<unsigned>(a[3])), "r"(bit_cast<unsigned>(b0)), "r"(bit_cast<unsigned>(b1)));
}

}  // namespace lathe
