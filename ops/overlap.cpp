// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/overlap.h"

#include <algorithm>
#include <utility>

namespace lathe {
namespace {

// So many blocks of one tensor are compared with the other where their strides differ.
constexpr int64_t kMostBlocks = 4096;

// A tensor's dimensions from the largest stride down, those of extent 1 left out, in bytes.
struct Box {
  int rank = 0;
  int64_t extent[kMaxRank] = {}, stride[kMaxRank] = {};
  int64_t reach[kMaxRank + 1] = {};  // from dimension d on: first byte to one past the last

  Box(const Slot& slot, const Tensor& tensor) {
    for (int d = 0; d < slot.shape.rank; ++d) {
      // A dimension that repeats its elements adds none.
      if (tensor.extent[d] <= 1 || tensor.stride[d] == 0) continue;
      int at = rank++;
      const int64_t bytes = tensor.stride[d] * slot.element;
      for (; at > 0 && stride[at - 1] < bytes; --at) {
        extent[at] = extent[at - 1], stride[at] = stride[at - 1];
      }
      extent[at] = tensor.extent[d], stride[at] = bytes;
    }
    reach[rank] = slot.element;
    for (int d = rank - 1; d >= 0; --d) reach[d] = reach[d + 1] + (extent[d] - 1) * stride[d];
    // Dimensions without gaps are one run of bytes.
    while (rank > 0 && stride[rank - 1] == reach[rank]) {
      --rank;
    }
  }
};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Returns whether dimensions `da` on of `a` at byte 0 meet dimensions `db` on of `b` at `offset`.
bool meet(const Box& a, int da, const Box& b, int db, int64_t offset) {
  if (offset >= a.reach[da] || offset + b.reach[db] <= 0) return false;
  if (da == a.rank && db == b.rank) return true;
  if (da < a.rank && db < b.rank && a.stride[da] == b.stride[db]) {
    // Block i of `a` and block j of `b` lie offset - (i - j) * stride apart. They only can meet
    // where that is within a stride of 0, unless the blocks are longer than their stride.
    const int64_t stride = a.stride[da];
    const int64_t first = floor_div(offset - a.reach[da + 1], stride) + 1;
    const int64_t last = floor_div(offset + b.reach[db + 1] - 1, stride);
    for (int64_t apart = std::max(first, 1 - b.extent[db]);
         apart <= std::min(last, a.extent[da] - 1); ++apart) {
      if (meet(a, da + 1, b, db + 1, offset - apart * stride)) return true;
    }
    return false;
  }
  if (db < b.rank && (da == a.rank || a.stride[da] < b.stride[db])) {
    return meet(b, db, a, da, -offset);
  }
  // The blocks of `a` that reach into what is left of `b`.
  const int64_t stride = a.stride[da];
  const int64_t first = std::max<int64_t>(floor_div(offset - a.reach[da + 1], stride) + 1, 0);
  const int64_t last = std::min(floor_div(offset + b.reach[db] - 1, stride), a.extent[da] - 1);
  if (last - first >= kMostBlocks) return true;
  for (int64_t i = first; i <= last; ++i) {
    if (meet(a, da + 1, b, db, offset - i * stride)) return true;
  }
  return false;
}

}  // namespace

bool share_elements(const Slot& slot_a, const Tensor& a, const Slot& slot_b, const Tensor& b) {
  return meet(Box(slot_a, a), 0, Box(slot_b, b), 0, b.data - a.data);
}

}  // namespace lathe
