// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A mod may use this beside the compiler's own functions: namespace lathe::mod, visible in
// it by plain names. With softcap() and alibi() a score_mod equals the options bit for bit. A
// mod meets no type of another namespace of ours, not even that of a private member: with a
// type come the functions of its namespace, and some are declared behind the mod and not in
// every kernel.
//
// A function of a mod that has one more, last parameter `const Captures& captures` is given the
// problem's captured arrays and scalars:
//
//   captures.get<0>(i)    element i of the tensor capture_0: float for f32, f16 and bf16, int for
//                         i32, long long for i64; 0 where i is outside the array, never a read
//                         there
//   captures.scalar(0)    the option scalar_0
//
// Both are parameters of the kernel: another array, length or value compiles nothing. The types of
// the arrays are constants. No gradient reaches what is captured.
//
// The emitted unit has lathe::Constants, with the types, and CaptureLoads before it.
#pragma once
#include "attention/mods/captures.cuh"
#include "attention/softmax.cuh"

namespace lathe {

// The type of the elements of array kIndex; void if it is not among the constants.
template <class Constants, int kIndex, class = void>
struct CaptureElement {
  using Type = void;
};
template <class Constants>
struct CaptureElement<Constants, 0, typename Exists<typename Constants::Capture0>::Type> {
  using Type = typename Constants::Capture0;
};
template <class Constants>
struct CaptureElement<Constants, 1, typename Exists<typename Constants::Capture1>::Type> {
  using Type = typename Constants::Capture1;
};
template <class Constants>
struct CaptureElement<Constants, 2, typename Exists<typename Constants::Capture2>::Type> {
  using Type = typename Constants::Capture2;
};
template <class Constants>
struct CaptureElement<Constants, 3, typename Exists<typename Constants::Capture3>::Type> {
  using Type = typename Constants::Capture3;
};

namespace mod {

class Captures {
 public:
  __device__ __forceinline__ Captures(const void* const* array, const int* count,
                                      const float* scalar)
      : array_(array), count_(count), scalar_(scalar) {}

  template <int kIndex>
  __device__ __forceinline__ auto get(long long i) const {
    static_assert(kIndex >= 0 && kIndex < 4, "the arrays are capture_0 to capture_3");
    using Element = typename CaptureElement<Constants, kIndex>::Type;
    static_assert(!Same<Element, void>::kValue,
                  "an array is asked for that is not among the tensors capture_0 to capture_3");
    if constexpr (Same<Element, int>::kValue || Same<Element, long long>::kValue) {
      return CaptureLoads::load<Element, Element>(array_[kIndex], count_[kIndex], i);
    } else {
      return CaptureLoads::load<Element, float>(array_[kIndex], count_[kIndex], i);
    }
  }
  __device__ __forceinline__ float scalar(int i) const { return scalar_[i & 3]; }

 private:
  const void* const* array_;
  const int* count_;
  const float* scalar_;
};

// Given where a mod leaves out what it may leave out.
struct Absent {};

// A value that binds to a parameter of its own type and no other: signatures are exact.
template <class Type>
struct Exactly {
  template <class Parameter,
            class Bound = typename Exists<char[Same<Parameter, Type>::kValue]>::Type>
  __device__ operator Parameter() const;
};

__device__ __forceinline__ float minus_infinity() { return ::lathe::minus_infinity(); }

// cap * tanh(score / cap), by the exponential that the option softcap uses.
__device__ __forceinline__ float softcap(float score, float cap) {
  return capped_score<bf16>(score, tanh_scale_of(cap), cap);
}
// score - slope * |distance|, rounded once, as alibi_slopes does it.
__device__ __forceinline__ float alibi(float score, float slope, int distance) {
  return biased_score(score, slope, static_cast<float>(distance));
}

// Found by the adapters where the mod has no function of the name.
template <class... Arguments>
__device__ Absent score_mod(Arguments...);
template <class... Arguments>
__device__ Absent score_mod_bwd(Arguments...);
template <class... Arguments>
__device__ Absent mask_mod(Arguments...);
template <class... Arguments>
__device__ Absent mask_tile(Arguments...);

}  // namespace mod
}  // namespace lathe
