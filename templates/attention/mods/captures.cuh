// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A kernel hands this to its mods beside their arguments: mod_functions.cuh says how they
// read it.
#pragma once
#include "attention/mods/mods.cuh"
#include "common/types.cuh"

namespace lathe {

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

}  // namespace lathe
