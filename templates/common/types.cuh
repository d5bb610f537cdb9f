// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Element types of our own (no toolkit header), their conversions, and vector access to memory.
// 16-bit types are storage only: arithmetic is float32.
#pragma once

namespace lathe {

using f32 = float;
struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

// A if kFirst, else B.
template <bool kFirst, class A, class B>
struct Choose {
  using Type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
  using Type = B;
};

template <class To, class From>
__device__ __forceinline__ To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast between types of different size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

__device__ __forceinline__ float to_float(f32 value) { return value; }
__device__ __forceinline__ float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
// A bfloat16 is the upper half of a float32: widening is a shift, exact on every architecture.
__device__ __forceinline__ float to_float(bf16 value) {
  return bit_cast<float>(static_cast<unsigned>(value.bits) << 16);
}

// Rounds to nearest even.
template <class Element>
__device__ __forceinline__ Element from_float(float value);
template <>
__device__ __forceinline__ f32 from_float<f32>(float value) {
  return value;
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float value) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

// Two neighbours in one 32-bit word, the first in the lower half.
__device__ __forceinline__ void unpack_pair(unsigned word, f16, float& first, float& second) {
  first = to_float(f16{static_cast<unsigned short>(word & 0xffffu)});
  second = to_float(f16{static_cast<unsigned short>(word >> 16)});
}
__device__ __forceinline__ void unpack_pair(unsigned word, bf16, float& first, float& second) {
  first = bit_cast<float>(word << 16);
  second = bit_cast<float>(word & 0xffff0000u);
}
__device__ __forceinline__ unsigned pack_pair(float first, float second, f16) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
__device__ __forceinline__ unsigned pack_pair(float first, float second, bf16) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// kBytes of raw memory in registers: 2, 4, 8 or 16, aligned to its size.
template <int kBytes>
struct alignas(kBytes) Words {
  unsigned word[kBytes / 4];
};
template <>
struct alignas(2) Words<2> {
  unsigned short half;
};

// Global loads of data that no thread of the grid writes, and global stores. Volatile keeps them
// where they are written: a prefetch that sinks to its use is none.
__device__ __forceinline__ void load_global(const void* from, Words<16>& to) {
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
               : "l"(from));
}
__device__ __forceinline__ void load_global(const void* from, Words<8>& to) {
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];"
               : "=r"(to.word[0]), "=r"(to.word[1])
               : "l"(from));
}
__device__ __forceinline__ void load_global(const void* from, Words<4>& to) {
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
}
__device__ __forceinline__ void load_global(const void* from, Words<2>& to) {
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(to.half) : "l"(from));
}
__device__ __forceinline__ void store_global(void* to, const Words<16>& from) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from.word[0]),
               "r"(from.word[1]), "r"(from.word[2]), "r"(from.word[3])
               : "memory");
}
__device__ __forceinline__ void store_global(void* to, const Words<8>& from) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from.word[0]), "r"(from.word[1])
               : "memory");
}
__device__ __forceinline__ void store_global(void* to, const Words<4>& from) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(from.word[0]) : "memory");
}
__device__ __forceinline__ void store_global(void* to, const Words<2>& from) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(from.half) : "memory");
}

// 16 bytes of shared memory in one access, which the compiler does not take apart: four words a
// lane, one after another, would meet in the same banks.
__device__ __forceinline__ void load_shared(const void* from, Words<16>& to) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, const Words<16>& from) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from.word[0]),
               "r"(from.word[1]), "r"(from.word[2]), "r"(from.word[3])
               : "memory");
}
__device__ __forceinline__ void store_shared(void* to, const Words<16>& from) {
  store_shared(static_cast<unsigned>(__cvta_generic_to_shared(to)), from);
}
// 32 bytes, aligned to 16, by two accesses.
__device__ __forceinline__ void load_global(const void* from, Words<32>& to) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    Words<16> half;
    load_global(static_cast<const Words<16>*>(from) + i, half);
#pragma unroll
    for (int j = 0; j < 4; ++j) to.word[4 * i + j] = half.word[j];
  }
}
__device__ __forceinline__ void store_global(void* to, const Words<32>& from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    store_global(static_cast<Words<16>*>(to) + i,
                 Words<16>{{from.word[4 * i], from.word[4 * i + 1], from.word[4 * i + 2],
                            from.word[4 * i + 3]}});
  }
}

// One element of read-only global memory.
template <class Element>
__device__ __forceinline__ Element load_element(const Element* from) {
  Words<sizeof(Element)> raw;
  load_global(from, raw);
  return bit_cast<Element>(raw);
}
__device__ __forceinline__ long long load_element(const long long* from) {
  long long value;
  asm volatile("ld.global.nc.u64 %0, [%1];" : "=l"(value) : "l"(from));
  return value;
}
template <class Element>
__device__ __forceinline__ void store_element(Element* to, Element value) {
  store_global(to, bit_cast<Words<sizeof(Element)>>(value));
}

// Element i of raw memory, its bits untouched.
template <class Element, int kBytes>
__device__ __forceinline__ Element element_of(const Words<kBytes>& raw, int i) {
  if constexpr (kBytes == 2) {
    return Element{raw.half};
  } else if constexpr (sizeof(Element) == 2) {
    return Element{static_cast<unsigned short>(raw.word[i / 2] >> (16 * (i % 2)))};
  } else {
    return bit_cast<Element>(raw.word[i]);
  }
}

// Raw memory -> floats, and back with one rounding. kCount elements fill kBytes.
template <class Element, int kCount, int kBytes>
__device__ __forceinline__ void unpack(const Words<kBytes>& raw, float (&value)[kCount]) {
  static_assert(kCount * sizeof(Element) == kBytes, "elements do not fill the words");
  if constexpr (kBytes == 2) {
    value[0] = to_float(Element{raw.half});
  } else if constexpr (sizeof(Element) == 2) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      unpack_pair(raw.word[i / 2], Element{}, value[i], value[i + 1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[i] = bit_cast<float>(raw.word[i]);
  }
}
template <class Element, int kBytes, int kCount>
__device__ __forceinline__ Words<kBytes> pack(const float (&value)[kCount]) {
  static_assert(kCount * sizeof(Element) == kBytes, "elements do not fill the words");
  Words<kBytes> raw;
  if constexpr (kBytes == 2) {
    raw.half = from_float<Element>(value[0]).bits;
  } else if constexpr (sizeof(Element) == 2) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      raw.word[i / 2] = pack_pair(value[i], value[i + 1], Element{});
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) raw.word[i] = bit_cast<unsigned>(value[i]);
  }
  return raw;
}

}  // namespace lathe
