// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Exact sums of float32: fixed-point numbers as wide as the type's range, so that additions commute
// and associate to the bit. Bit 0 of word 0 is worth 2^-149; word w holds bits 32 w to 32 w + 31
// and a signed carry above them. (After Kulisch's accumulator.)
#pragma once
#include "common/types.cuh"
#include "params/exact_sums.h"

namespace lathe {

constexpr int kExactDigits = kExactWords - 1;  // words of bits; the last word counts infinities

struct ExactSum {
  long long word[kExactWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < kExactWords; ++w) word[w] = 0;
  }
  __device__ __forceinline__ void add(float term) {
    const unsigned bits = bit_cast<unsigned>(term);
    const unsigned exponent = bits >> 23 & 0xffu, fraction = bits & 0x7fffffu;
    const bool negative = bits >> 31 != 0;
    if (exponent == 0xffu) {  // NaN counts as both infinities
      const bool nan = fraction != 0;
      word[kExactDigits] += (nan || !negative ? 1ll : 0ll) + (nan || negative ? 1ll << 31 : 0ll);
      return;
    }
    const unsigned place = exponent == 0 ? 0 : exponent - 1;  // of the fraction's lowest bit
    const unsigned long long wide =
        static_cast<unsigned long long>(exponent == 0 ? fraction : fraction | 0x800000u)
        << (place & 31u);
    long long low = static_cast<long long>(wide & 0xffffffffull);
    long long high = static_cast<long long>(wide >> 32);
    if (negative) low = -low, high = -high;
    // Every word gets its part, or 0: a choice of words would be an index, and words with an index
    // lie in memory.
    const int at = static_cast<int>(place >> 5);
#pragma unroll
    for (int w = 0; w < kExactDigits; ++w) {
      word[w] += w == at ? low : w == at + 1 ? high : 0ll;
    }
  }
  // The nearest float32, to even; a sum of 0 is +0.
  __device__ __forceinline__ float rounded() const;
};

// Carries made good, the magnitude has one digit more than there are words of bits.
struct ExactMagnitude {
  unsigned digit[kExactDigits + 1];
  bool negative;

  __device__ __forceinline__ explicit ExactMagnitude(const ExactSum& sum) {
    long long carry = 0;
#pragma unroll
    for (int w = 0; w < kExactDigits; ++w) {
      const long long total = sum.word[w] + carry;
      digit[w] = static_cast<unsigned>(total);
      carry = total >> 32;
    }
    digit[kExactDigits] = static_cast<unsigned>(carry);
    negative = carry < 0;
    if (!negative) return;
    unsigned long long more = 1;
#pragma unroll
    for (int w = 0; w <= kExactDigits; ++w) {
      more += static_cast<unsigned>(~digit[w]);
      digit[w] = static_cast<unsigned>(more);
      more >>= 32;
    }
  }
  // The leading digit's number; -1: the sum is 0.
  __device__ __forceinline__ int top() const {
    int found = -1;
#pragma unroll
    for (int w = 0; w <= kExactDigits; ++w) found = digit[w] != 0 ? w : found;
    return found;
  }
  __device__ __forceinline__ unsigned at(int w) const {
    unsigned found = 0;
#pragma unroll
    for (int i = 0; i <= kExactDigits; ++i) found = i == w ? digit[i] : found;
    return found;
  }
  __device__ __forceinline__ bool any_below(int w) const {
    bool any = false;
#pragma unroll
    for (int i = 0; i <= kExactDigits; ++i) any = any || (i < w && digit[i] != 0);
    return any;
  }
};

__device__ __forceinline__ float ExactSum::rounded() const {
  constexpr unsigned kInfinity = 0x7f800000u;
  const long long infinities = word[kExactDigits];
  if (infinities != 0) {
    const bool plus = (infinities & 0x7fffffff) != 0, minus = infinities >> 31 != 0;
    return bit_cast<float>(plus && minus ? 0x7fc00000u
                           : minus       ? kInfinity | 0x80000000u
                                         : kInfinity);
  }
  const ExactMagnitude magnitude(*this);
  const int top = magnitude.top();
  if (top < 0) return 0.0f;
  const unsigned sign = magnitude.negative ? 0x80000000u : 0u;
  const int zeros = __clz(static_cast<int>(magnitude.at(top)));
  const int position = 32 * top + 31 - zeros;                         // of the leading bit
  if (position < 24) return bit_cast<float>(sign | magnitude.at(0));  // exact; its own encoding
  // The leading bit comes to the top of 64; what lies below them only breaks ties.
  const unsigned next = magnitude.at(top - 1), last = magnitude.at(top - 2);
  unsigned long long bits = static_cast<unsigned long long>(magnitude.at(top)) << 32 | next;
  bits <<= zeros;
  if (zeros > 0) bits |= last >> (32 - zeros);
  const bool below = last << zeros != 0 || magnitude.any_below(top - 2);
  unsigned fraction = static_cast<unsigned>(bits >> 40);
  const unsigned long long rest = bits & 0xffffffffffull, half = 1ull << 39;
  const bool odd = (fraction & 1u) != 0;
  if (rest > half || (rest == half && (below || odd))) ++fraction;
  // A fraction that has become 2^24 carries into the exponent by itself.
  const unsigned encoded = (static_cast<unsigned>(position - 23) << 23) + fraction;
  return bit_cast<float>(sign | (encoded < kInfinity ? encoded : kInfinity));
}

}  // namespace lathe
