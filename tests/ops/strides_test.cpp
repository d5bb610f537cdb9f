// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every order of strides, gaps, repeats and sizes beyond 2^63, against a count of the elements that
// lie on each other and against sums that do not overflow.
#include "ops/strides.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>

namespace {

using namespace lathe;
using Three = std::array<int64_t, 3>;
using Wide = __int128;

struct View {
  Three extents, strides;
};

Slot slot_of(bool repeats, bool written) {
  Slot slot("x", Dtype::bf16, parse_shape("B,T,D"));
  slot.strided = true;
  slot.repeats = repeats, slot.written = written;
  slot.alignment = 2;
  return slot;
}

struct Read {
  Status status;
  Tensor tensor{};
  int64_t bytes = 0;
};
Read read(const Slot& slot, View view) {
  DLTensor from{};
  from.ndim = 3;
  from.dtype = slot.type;
  from.shape = view.extents.data(), from.strides = view.strides.data();
  Read out{};
  Extents extents;
  out.status = read_layout(slot, from, Extents(), &extents, &out.tensor, &out.bytes);
  return out;
}

bool is_empty(const View& view) { return std::ranges::count(view.extents, 0) > 0; }

// The rule as it is said: each stride steps over all that the smaller ones reach.
bool is_allowed(const View& view, bool repeats) {
  if (is_empty(view)) return true;
  if (view.extents[2] > 1 && view.strides[2] != 1) return false;
  std::vector<std::pair<Wide, Wide>> steps;  // stride, extent
  for (int d = 0; d < 3; ++d) {
    if (view.extents[d] <= 1 || (repeats && view.strides[d] == 0)) continue;
    if (view.strides[d] < 0) return false;
    steps.emplace_back(view.strides[d], view.extents[d]);
  }
  std::ranges::sort(steps);
  Wide reach = 1;
  for (const auto& [stride, extent] : steps) {
    if (stride < reach) return false;
    reach += (extent - 1) * stride;
  }
  return 2 * reach <= INT64_MAX;
}

bool has_overlap(const View& view) {
  std::set<Wide> places;
  Wide count = 1;
  for (const int64_t extent : view.extents) count *= extent;
  for (int64_t a = 0; a < view.extents[0]; ++a) {
    for (int64_t b = 0; b < view.extents[1]; ++b) {
      for (int64_t c = 0; c < view.extents[2]; ++c) {
        const auto at = [&](int64_t index, int d) { return Wide{index} * view.strides[d]; };
        places.insert(at(a, 0) + at(b, 1) + at(c, 2));
      }
    }
  }
  return static_cast<Wide>(places.size()) < count;
}

template <typename Check>
void each_view(Check check) {
  constexpr int64_t kHalf = int64_t{1} << 62;
  constexpr int64_t kExtents[] = {0, 1, 2, 3};
  constexpr int64_t kStrides[] = {
      -1, 0, 1, 2, 3, 4, 6, 9, 12, kHalf / 4, kHalf / 2 - 1, kHalf / 2, kHalf, INT64_MAX};
  for (const int64_t a : kExtents) {
    for (const int64_t b : kExtents) {
      for (const int64_t c : kExtents) {
        for (const int64_t x : kStrides) {
          for (const int64_t y : kStrides) {
            for (const int64_t z : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}}) {
              check(View{{a, b, c}, {x, y, z}});
            }
          }
        }
      }
    }
  }
}

TEST_CASE("strides: what is allowed is what the rule says, and overlaps nowhere") {
  int wrong = 0, allowed = 0, refused = 0;
  each_view([&](const View& view) {
    for (const bool repeats : {false, true}) {
      const bool expected = is_allowed(view, repeats);
      const bool found = read(slot_of(repeats, false), view).status.ok();
      const bool overlaps = found && !repeats && has_overlap(view);
      wrong += found != expected || overlaps ? 1 : 0;
      (found ? allowed : refused) += 1;
    }
    // Whether it is written changes what a refusal says alone.
    wrong += read(slot_of(false, true), view).status.ok() != is_allowed(view, false) ? 1 : 0;
  });
  CHECK(wrong == 0);
  CHECK(allowed > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("strides: those that are read are the caller's, of single elements the dense ones") {
  int wrong = 0;
  each_view([&](const View& view) {
    const Read found = read(slot_of(true, false), view);
    wrong += (found.status.ok() && (found.bytes == 0) != is_empty(view)) ? 1 : 0;
    if (!found.status.ok()) return;
    int64_t dense = 1;
    for (int d = 2; d >= 0; --d) {
      wrong += found.tensor.extent[d] != view.extents[d] ? 1 : 0;
      const bool own = view.extents[d] > 1 && !is_empty(view);
      wrong += found.tensor.stride[d] != (own ? view.strides[d] : dense) ? 1 : 0;
      dense *= std::max<int64_t>(view.extents[d], 1);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("strides: each is a multiple of the alignment, with gaps and without") {
  for (const int64_t width : {7, 8, 16}) {
    for (const int64_t gap : {0, 4, 8}) {
      Slot slot = slot_of(false, false);
      slot.alignment = 16;
      const int64_t row = width + gap;
      for (const int64_t rows : {1, 2}) {
        CAPTURE(width);
        CAPTURE(gap);
        CAPTURE(rows);
        const bool fits = row % 8 == 0 || (rows == 1 && width % 8 == 0);
        // Batches of one row have the strides of dense rows.
        const Three strides = {rows == 1 ? width : rows * row, row, 1};
        CHECK(read(slot, {{2, rows, width}, strides}).status.ok() == fits);
      }
    }
  }
}

TEST_CASE("strides: a dense size beyond 2^63 is refused with strides and without") {
  constexpr int64_t kMost = kMaxExtent;
  Slot slot = slot_of(false, false);
  for (View view : {View{{kMost, kMost, kMost}, {1, 1, 1}}, View{{kMost, kMost, 2}, {1, 1, 1}}}) {
    DLTensor from{};
    from.ndim = 3;
    from.shape = view.extents.data();
    for (int64_t* strides : {static_cast<int64_t*>(nullptr), view.strides.data()}) {
      from.strides = strides;
      Tensor tensor{};
      int64_t bytes = 0;
      Extents extents;
      const Status status = read_layout(slot, from, Extents(), &extents, &tensor, &bytes);
      CHECK(status.code() == Code::invalid_argument);
      CHECK(status.text().find("its size passes 2^63") != std::string::npos);
    }
  }
}

}  // namespace
