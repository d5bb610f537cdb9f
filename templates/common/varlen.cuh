// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Packed sequences: position -> sequence. Offsets live in device memory and nobody has checked
// them: every value is clamped to [0, length], so wrong ones give wrong results and never a wild
// access.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"

namespace lathe {

struct Sequence {
  int index;
  int start, end;  // positions; start <= the position asked for < end
};

template <class Offset>
__device__ __forceinline__ int offset_at(const void* cu_seqlens, int index, int length) {
  const Offset value = load_element(static_cast<const Offset*>(cu_seqlens) + index);
  if (value < 0) return 0;
  return value > length ? length : static_cast<int>(value);
}

// The sequence that holds `position` < length: the last one with start <= position, which skips
// empty ones. Called by all 32 lanes with the same arguments; each round divides the range by 32,
// so 1000 sequences take two dependent loads.
template <class Offset>
__device__ __forceinline__ Sequence find_sequence(const void* cu_seqlens, int count, int length,
                                                  int position) {
  if (count <= 0) return {0, 0, length};
  const int lane = threadIdx.x & 31;
  int low = 0, span = count;
  while (span > 1) {
    const int step = (span - 1) / 32 + 1;
    const bool inside = lane * static_cast<long long>(step) < span;
    const bool before =
        inside && offset_at<Offset>(cu_seqlens, low + lane * step, length) <= position;
    const unsigned votes = __ballot_sync(0xffffffffu, before);
    const int last = votes == 0 ? 0 : 31 - __clz(votes);
    low += last * step;
    span = minimum(step, span - last * step);
  }
  const int start = minimum(offset_at<Offset>(cu_seqlens, low, length), position);
  const int end = offset_at<Offset>(cu_seqlens, low + 1, length);
  // Positions past the last offset belong to no sequence; they run on to the end.
  return {low, start, end > position ? end : length};
}

}  // namespace lathe
