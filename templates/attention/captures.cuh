// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a snippet may read beside its arguments. A function of a snippet that has one more, last
// parameter `const Captures& captures` is given the problem's captured arrays and scalars:
//
//   captures.get<0>(i)    element i of the tensor capture_0: float for f32, f16 and bf16, int for
//                         i32, long long for i64; 0 where i is outside the array, never a read
//                         there
//   captures.scalar(0)    the option scalar_0
//
// Both are parameters of the kernel: another array, length or value compiles nothing. The types of
// the arrays are constants. No gradient reaches what is captured.
#pragma once
#include "attention/snippets.cuh"
#include "common/types.cuh"

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

// Where a snippet is compiled to be looked at, an element is a number from nowhere: every load that
// is left is the snippet's own.
template <class Constants, class = void>
struct IsProbe {
  static constexpr bool kValue = false;
};
template <class Constants>
struct IsProbe<Constants, typename Exists<decltype(Constants::kProbe)>::Type> {
  static constexpr bool kValue = Constants::kProbe;
};

// The fields of a kernel's parameters, whichever they are. first_head: of all heads the first that
// is here.
struct AttentionCaptures {
  const void* const* array;
  const int* count;
  const float* scalar;
  int first_head;
};
template <class Params>
__device__ __forceinline__ AttentionCaptures captures_of(const Params& p) {
  return {p.capture, p.capture_count, p.scalar, p.first_head};
}

template <class Constants>
class Captures {
 public:
  __device__ __forceinline__ explicit Captures(const AttentionCaptures& from) : from_(from) {}

  template <int kIndex>
  __device__ __forceinline__ auto get(long long i) const {
    static_assert(kIndex >= 0 && kIndex < 4, "the arrays are capture_0 to capture_3");
    using Element = typename CaptureElement<Constants, kIndex>::Type;
    static_assert(!Same<Element, void>::kValue,
                  "an array is asked for that is not among the tensors capture_0 to capture_3");
    if constexpr (Same<Element, int>::kValue || Same<Element, long long>::kValue) {
      return load<kIndex, Element, Element>(i);
    } else {
      return load<kIndex, Element, float>(i);
    }
  }
  __device__ __forceinline__ float scalar(int i) const { return from_.scalar[i & 3]; }

 private:
  template <int kIndex, class Element, class Value>
  __device__ __forceinline__ Value load(long long i) const {
    if constexpr (IsProbe<Constants>::kValue) {
      int opaque;
      asm("mov.b32 %0, %1;" : "=r"(opaque) : "r"(static_cast<int>(i)));
      return static_cast<Value>(opaque);
    } else {
      if (i < 0 || i >= from_.count[kIndex]) return Value(0);
      const Element* at = static_cast<const Element*>(from_.array[kIndex]) + i;
      // Not load_element: the compiler may read once what many scores of a row ask for.
      if constexpr (sizeof(Element) == 2) {
        return to_float(bit_cast<Element>(__ldg(reinterpret_cast<const unsigned short*>(at))));
      } else {
        return __ldg(at);
      }
    }
  }

  const AttentionCaptures from_;
};

}  // namespace lathe
