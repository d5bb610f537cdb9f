// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compares the outputs of two runs, element by element.
#include "api/tune/tune_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "codegen/base/half.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

Status differs(std::string what) { return Status(Code::invalid_argument, std::move(what)); }

// Relative to the expected values' rms: of the differences' rms, and of the largest difference.
// Another order of sums moves a float32 result by a few units, and rounding it to 16 bits by one in
// some places.
struct Tolerance {
  double rms = 0, most = 0;
};
// Returns nothing for integers, which must be equal.
std::optional<Tolerance> tolerance_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return Tolerance{2e-4, 2e-2};
    case Dtype::f16:
      return Tolerance{2e-3, 1e-1};
    case Dtype::bf16:
      return Tolerance{1e-2, 2e-1};
    default:
      return {};
  }
}

double value_at(Dtype dtype, const char* at) {
  uint16_t narrow = 0;
  float value = 0;
  if (dtype == Dtype::f32) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::memcpy(&narrow, at, sizeof(narrow));
  return dtype == Dtype::f16 ? half_value(narrow) : std::bit_cast<float>(uint32_t{narrow} << 16);
}

// Calls visit(offset in elements) for every element.
template <typename Visit>
void for_each_element(const OutputLayout& layout, Visit visit) {
  std::vector<int64_t> index(layout.extents.size(), 0);
  for (const int64_t extent : layout.extents) {
    if (extent == 0) return;
  }
  int64_t offset = 0;
  for (;;) {
    visit(offset);
    size_t axis = index.size();
    while (axis-- > 0) {
      offset += layout.strides[axis];
      if (++index[axis] < layout.extents[axis]) break;
      offset -= layout.strides[axis] * layout.extents[axis];
      index[axis] = 0;
    }
    if (axis == static_cast<size_t>(-1)) return;
  }
}

Status compare_values(const OutputLayout& layout, const char* expected, const char* found) {
  const auto bytes = static_cast<size_t>(bytes_of(layout.dtype));
  const std::optional<Tolerance> allowed = tolerance_of(layout.dtype);
  double error = 0, norm = 0, worst = 0;
  int64_t worst_at = 0, broken_at = -1;
  size_t count = 0;
  for_each_element(layout, [&](int64_t offset) {
    const char* a = expected + static_cast<size_t>(offset) * bytes;
    const char* b = found + static_cast<size_t>(offset) * bytes;
    if (!allowed) {
      if (broken_at < 0 && std::memcmp(a, b, bytes) != 0) broken_at = offset;
      return;
    }
    const double x = value_at(layout.dtype, a), y = value_at(layout.dtype, b);
    if (!std::isfinite(x) || !std::isfinite(y)) {
      const bool same = x == y || (std::isnan(x) && std::isnan(y));
      if (!same && broken_at < 0) broken_at = offset;
      return;
    }
    error += (x - y) * (x - y), norm += x * x, ++count;
    if (std::abs(x - y) > worst) worst = std::abs(x - y), worst_at = offset;
  });
  const auto both = [&](int64_t at) {
    const size_t byte = static_cast<size_t>(at) * bytes;
    if (!allowed) return std::string();
    return text(": ", value_at(layout.dtype, found + byte), ", the default's is ",
                value_at(layout.dtype, expected + byte));
  };
  if (broken_at >= 0) {
    return differs(text(layout.name, " is another at element ", broken_at, both(broken_at)));
  }
  if (count == 0 || worst == 0) return {};
  const double size = std::sqrt(norm / static_cast<double>(count));
  const double rms = std::sqrt(error / static_cast<double>(count));
  // Sums that cancel to nothing have no relative error.
  const double least = 1e-6;
  if (rms <= allowed->rms * size + least && worst <= allowed->most * std::max(size, 1.0) + least) {
    return {};
  }
  return differs(text(layout.name, " differs by ", rms, " (rms) of ", size, ", most at element ",
                      worst_at, both(worst_at)));
}

}  // namespace

size_t OutputLayout::inner_bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 0) return 0;
    last += (extents[i] - 1) * strides[i];
  }
  return static_cast<size_t>(last + 1) * static_cast<size_t>(bytes_of(dtype));
}

Status compare_outputs(const OutputLayout& layout, std::string_view filled,
                       std::string_view expected, std::string_view found) {
  const auto bytes = static_cast<size_t>(bytes_of(layout.dtype));
  std::vector<bool> inside(filled.size(), false);
  for_each_element(layout, [&](int64_t offset) {
    const size_t at = layout.guard + static_cast<size_t>(offset) * bytes;
    std::fill_n(inside.begin() + static_cast<std::ptrdiff_t>(at), bytes, true);
  });
  for (size_t i = 0; i < filled.size(); ++i) {
    if (inside[i] || found[i] == filled[i]) continue;
    const auto at = static_cast<int64_t>(i) - static_cast<int64_t>(layout.guard);
    return differs(text("it writes outside of ", layout.name, ", at byte ", at));
  }
  return compare_values(layout, expected.data() + layout.guard, found.data() + layout.guard);
}

}  // namespace lathe
