// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How a kernel reads an element of a captured array. The probe of a mod has probe_loads.cuh in
// its place.
#pragma once
#include "attention/mods/captures.cuh"

namespace lathe {

struct CaptureLoads {
  // Element i of `count`; 0 where i is outside, never a read there.
  template <class Element, class Value>
  static __device__ __forceinline__ Value load(const void* array, int count, long long i) {
    if (i < 0 || i >= count) return Value(0);
    const Element* at = static_cast<const Element*>(array) + i;
    // Not load_element: the compiler may read once what many scores of a row ask for.
    if constexpr (sizeof(Element) == 2) {
      return to_float(bit_cast<Element>(__ldg(reinterpret_cast<const unsigned short*>(at))));
    } else {
      return __ldg(at);
    }
  }
};

}  // namespace lathe
