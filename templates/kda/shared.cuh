// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Accesses to shared memory by its 32-bit address, which stay where they are written.
#pragma once
#include "common/types.cuh"

namespace lathe {

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
__device__ __forceinline__ void load_shared(unsigned address, unsigned (&word)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ unsigned load_shared_word(unsigned address) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}
// Raw memory of any width.
__device__ __forceinline__ void load_shared(unsigned address, Words<4>& to) {
  to.word[0] = load_shared_word(address);
}
__device__ __forceinline__ void load_shared(unsigned address, Words<8>& to) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(to.word[0]), "=r"(to.word[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, const Words<4>& from) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(from.word[0]) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned address, const Words<8>& from) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(from.word[0]),
               "r"(from.word[1])
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

}  // namespace lathe
