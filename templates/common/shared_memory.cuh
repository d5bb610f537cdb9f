// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Accesses to shared memory by its 32-bit address, which stay where they are written.
#pragma once

namespace lathe {

struct FloatPair {
  float first, second;
};
__device__ __forceinline__ FloatPair load_shared_pair(unsigned address) {
  FloatPair pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.first), "=f"(pair.second)
               : "r"(address)
               : "memory");
  return pair;
}
__device__ __forceinline__ void store_shared(unsigned address, unsigned word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ int load_shared_word(unsigned address) {
  int value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_shared_word(unsigned address, int value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
// 16 bytes, at a multiple of 16.
__device__ __forceinline__ void load_shared_words(unsigned address, unsigned (&word)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_shared_words(unsigned address, const unsigned (&word)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}

}  // namespace lathe
