// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what counts as the same outputs, and what as writing where nothing is to be
// written.
#include "api/tune/tune_compare.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

using namespace lathe;

namespace {

// Two rows of three, one element of a gap between them.
OutputLayout layout_of(Dtype dtype) { return {"out", dtype, {2, 3}, {4, 1}, 8}; }

template <typename T>
std::string memory_of(const OutputLayout& layout, const std::vector<T>& values) {
  std::string bytes(layout.inner_bytes() + 2 * layout.guard, '\xff');
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = layout.guard + (i / 3 * 4 + i % 3) * sizeof(T);
    std::memcpy(bytes.data() + at, &values[i], sizeof(T));
  }
  return bytes;
}

uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

const std::vector<float> kValues = {1, -2, 0.5f, 0, 3, -0.25f};

Status compare_floats(const std::vector<float>& found) {
  const OutputLayout layout = layout_of(Dtype::f32);
  return compare_outputs(layout, memory_of<float>(layout, {}), memory_of(layout, kValues),
                         memory_of(layout, found));
}

}  // namespace

TEST_CASE("compare: a layout spans its first to its last element") {
  CHECK(layout_of(Dtype::f32).inner_bytes() == 7 * 4);
  OutputLayout layout = layout_of(Dtype::bf16);
  CHECK(layout.inner_bytes() == 7 * 2);
  layout.extents[0] = 0;
  CHECK(layout.inner_bytes() == 0);
}

TEST_CASE("compare: rounding is allowed, another value is not") {
  CHECK(compare_floats(kValues).ok());
  auto found = kValues;
  for (float& value : found) value *= 1 + 1e-6f;
  CHECK(compare_floats(found).ok());
  found[4] = 3.1f;
  const Status status = compare_floats(found);
  REQUIRE_FALSE(status.ok());
  CHECK(status.text().find("out differs") != std::string::npos);
  CHECK(status.text().find("element 5") != std::string::npos);
}

TEST_CASE("compare: one wrong element among many is found") {
  OutputLayout layout = {"out", Dtype::bf16, {1000000}, {1}, 0};
  std::string values(layout.inner_bytes(), '\0');
  for (size_t i = 0; i < 1000000; ++i) {
    const uint16_t bits = bf16(std::sin(static_cast<float>(i)));
    std::memcpy(values.data() + 2 * i, &bits, 2);
  }
  std::string found = values;
  CHECK(compare_outputs(layout, values, values, found).ok());
  const uint16_t wrong = bf16(0.9f);
  std::memcpy(found.data() + 2 * 22, &wrong, 2);  // sin(22) is -0.009
  CHECK_FALSE(compare_outputs(layout, values, values, found).ok());
}

TEST_CASE("compare: not a number and infinities stand where the default has them") {
  auto expected = kValues;
  expected[1] = NAN, expected[2] = -INFINITY;
  const OutputLayout layout = layout_of(Dtype::f32);
  const auto filled = memory_of<float>(layout, {});
  const auto compare = [&](const std::vector<float>& found) {
    return compare_outputs(layout, filled, memory_of(layout, expected), memory_of(layout, found));
  };
  CHECK(compare(expected).ok());
  for (const float other : {0.0f, INFINITY, -1e30f}) {
    auto found = expected;
    found[2] = other;
    CHECK_FALSE(compare(found).ok());
    found = expected;
    found[1] = other;
    CHECK_FALSE(compare(found).ok());
    found = expected;
    found[0] = NAN;
    CHECK_FALSE(compare(found).ok());
  }
}

TEST_CASE("compare: integers are equal or not") {
  const OutputLayout layout = layout_of(Dtype::i32);
  const auto filled = memory_of<int32_t>(layout, {});
  const std::vector<int32_t> expected = {1, 2, 3, 4, 5, 600000000};
  auto found = expected;
  CHECK(
      compare_outputs(layout, filled, memory_of(layout, expected), memory_of(layout, found)).ok());
  found[5] += 1;
  CHECK_FALSE(
      compare_outputs(layout, filled, memory_of(layout, expected), memory_of(layout, found)).ok());
}

TEST_CASE("compare: not a byte outside of the elements") {
  const OutputLayout layout = layout_of(Dtype::f32);
  const auto filled = memory_of<float>(layout, {}), expected = memory_of(layout, kValues);
  for (const size_t at : {size_t{0}, layout.guard - 1, layout.guard + 13,
                          layout.guard + layout.inner_bytes(), filled.size() - 1}) {
    auto found = expected;
    found[at] = '\0';
    const Status status = compare_outputs(layout, filled, expected, found);
    REQUIRE_FALSE(status.ok());
    CHECK(status.text().find("outside of out") != std::string::npos);
  }
}
