// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a snippet may call beside the compiler's own functions: namespace lathe::snippet, visible in
// it by plain names. With softcap() and alibi() a score_mod equals the options bit for bit.
#pragma once
#include "attention/captures.cuh"
#include "attention/softmax.cuh"

namespace lathe {

// Given where a snippet leaves out what it may leave out.
struct Absent {};

// A value that binds to a parameter of its own type and no other: signatures are exact.
template <class Type>
struct Exactly {
  template <class Parameter,
            class Bound = typename Exists<char[Same<Parameter, Type>::kValue]>::Type>
  __device__ operator Parameter() const;
};

namespace snippet {

__device__ __forceinline__ float minus_infinity() { return ::lathe::minus_infinity(); }

// cap * tanh(score / cap), by the exponential that the option softcap uses.
__device__ __forceinline__ float softcap(float score, float cap) {
  return capped_score<bf16>(score, tanh_scale_of(cap), cap);
}
// score - slope * |distance|, rounded once, as alibi_slopes does it.
__device__ __forceinline__ float alibi(float score, float slope, int distance) {
  return biased_score(score, slope, static_cast<float>(distance));
}

// Found by the adapters where the snippet has no function of the name.
template <class... Arguments>
__device__ Absent score_mod(Arguments...);
template <class... Arguments>
__device__ Absent score_mod_bwd(Arguments...);
template <class... Arguments>
__device__ Absent mask_mod(Arguments...);
template <class... Arguments>
__device__ Absent mask_tile(Arguments...);

}  // namespace snippet
}  // namespace lathe
