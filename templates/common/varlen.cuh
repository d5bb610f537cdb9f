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

// The last index below `count` with before(index), which holds up to some index and for none behind
// it; 0 if it holds for none. Called by all 32 lanes with the same arguments; each round divides
// the range by 32, so 1000 sequences take two dependent loads.
template <class Before>
__device__ __forceinline__ int last_before(int count, const Before& before) {
  const int lane = threadIdx.x & 31;
  int low = 0, span = count;
  while (span > 1) {
    const int step = (span - 1) / 32 + 1;
    const bool inside = lane * static_cast<long long>(step) < span;
    const unsigned votes = __ballot_sync(0xffffffffu, inside && before(low + lane * step));
    const int last = votes == 0 ? 0 : 31 - __clz(votes);
    low += last * step;
    span = minimum(step, span - last * step);
  }
  return low;
}

// The sequence that holds `position` < length: the last one with start <= position, which skips
// empty ones.
template <class Offset>
__device__ __forceinline__ Sequence find_sequence(const void* cu_seqlens, int count, int length,
                                                  int position) {
  if (count <= 0) return {0, 0, length};
  const int low = last_before(
      count, [&](int index) { return offset_at<Offset>(cu_seqlens, index, length) <= position; });
  const int start = minimum(offset_at<Offset>(cu_seqlens, low, length), position);
  const int end = offset_at<Offset>(cu_seqlens, low + 1, length);
  // Positions past the last offset belong to no sequence; they run on to the end.
  return {low, start, end > position ? end : length};
}

}  // namespace lathe
