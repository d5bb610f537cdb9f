// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests hold what is said of two views of one buffer against the list of all their bytes.
#include "ops/overlap.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

namespace {

using namespace lathe;

struct View {
  Slot slot;
  Tensor tensor{};
};

View view_of(char* buffer, int64_t offset, std::vector<int64_t> extents,
             std::vector<int64_t> strides) {
  View out{Slot("x", Dtype::bf16, parse_shape("B,T,H,D"))};
  out.tensor.data = buffer + offset * 2;
  for (size_t d = 0; d < 4; ++d) {
    out.tensor.extent[d] = extents[d], out.tensor.stride[d] = strides[d];
  }
  return out;
}

std::set<int64_t> elements_of(const View& view, const char* buffer) {
  const auto& [extent, stride] = std::pair(view.tensor.extent, view.tensor.stride);
  std::set<int64_t> out;
  for (int64_t i = 0; i < extent[0] * extent[1] * extent[2] * extent[3]; ++i) {
    const int64_t d = i % extent[3], h = i / extent[3] % extent[2];
    const int64_t t = i / extent[3] / extent[2] % extent[1];
    const int64_t b = i / extent[3] / extent[2] / extent[1];
    out.insert((view.tensor.data - buffer) / 2 + b * stride[0] + t * stride[1] + h * stride[2] +
               d * stride[3]);
  }
  return out;
}

bool share_by_list(const View& a, const View& b, const char* buffer) {
  const auto in_a = elements_of(a, buffer), in_b = elements_of(b, buffer);
  return std::ranges::any_of(in_a, [&](int64_t element) { return in_b.contains(element); });
}

bool share(const View& a, const View& b) {
  const bool found = share_elements(a.slot, a.tensor, b.slot, b.tensor);
  CHECK(share_elements(b.slot, b.tensor, a.slot, a.tensor) == found);
  return found;
}

char buffer[1 << 16];

TEST_CASE("overlap: caches and gradients that are views of one buffer") {
  const std::vector<int64_t> pages = {6, 16, 2, 8};  // P, page, H, D
  const auto cache = [&](int64_t offset, std::vector<int64_t> strides) {
    return view_of(buffer, offset, pages, std::move(strides));
  };
  // [P,2,page,H,D].unbind(1), [P,page,2,H,D].unbind(2), and columns of [P,page,H,2 D].
  CHECK(!share(cache(0, {512, 16, 8, 1}), cache(256, {512, 16, 8, 1})));
  CHECK(!share(cache(0, {512, 32, 8, 1}), cache(16, {512, 32, 8, 1})));
  CHECK(!share(cache(0, {512, 32, 16, 1}), cache(8, {512, 32, 16, 1})));
  // Pages K0 V0 K1 V1: two shifted views have all but the outermost in common.
  CHECK(share(cache(0, {256, 16, 8, 1}), cache(256, {256, 16, 8, 1})));
  CHECK(share(cache(0, {512, 16, 8, 1}), cache(255, {512, 16, 8, 1})));
  // q, k and v of one projection, with fewer heads of k.
  const View q = view_of(buffer, 0, {2, 9, 4, 8}, {9 * 64, 64, 8, 1});
  const View k = view_of(buffer, 32, {2, 9, 2, 8}, {9 * 64, 64, 8, 1});
  CHECK(!share(q, k));
  CHECK(share(q, view_of(buffer, 31, {2, 9, 2, 8}, {9 * 64, 64, 8, 1})));
}

TEST_CASE("overlap: drawn views of one buffer are told apart element by element") {
  std::mt19937 random(7);
  const auto below = [&](int count) { return static_cast<int64_t>(random() % count); };
  int shared = 0, apart = 0;
  for (int round = 0; round < 4000; ++round) {
    // A parent of five nested dims; each view takes four, from places and of lengths of its own.
    const int64_t parent[5] = {1 + below(4), 1 + below(4), 1 + below(3), 1 + below(3),
                               1 + below(4)};
    int64_t stride[5] = {0, 0, 0, 0, 1};
    for (int d = 3; d >= 0; --d) stride[d] = stride[d + 1] * parent[d + 1] + below(2);
    const auto draw = [&] {
      const int64_t left_out = below(5);
      std::vector<int64_t> extents, strides;
      int64_t offset = 0;
      for (int64_t d = 0; d < 5; ++d) {
        const int64_t first = below(static_cast<int>(parent[d]));
        offset += first * stride[d];
        if (d == left_out) continue;
        extents.push_back(1 + below(static_cast<int>(parent[d] - first)));
        strides.push_back(stride[d]);
      }
      return view_of(buffer, offset, extents, strides);
    };
    const View a = draw(), b = draw();
    const bool expected = share_by_list(a, b, buffer);
    CHECK(share(a, b) == expected);
    ++(expected ? shared : apart);
  }
  CHECK(shared > 500);
  CHECK(apart > 500);
}

}  // namespace
