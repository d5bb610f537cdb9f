// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks the values of attention ranges and of positions.
#include <algorithm>
#include <array>

#include "codegen/base/invalid.h"
#include "ops/attention/block/run.h"

namespace lathe {
namespace {

// Rows qa to qb see keys ka to kb.
struct Range {
  int64_t qa, qb, ka, kb, shift, q0, k0;
};

Status check_interval(size_t row, const char* names, int64_t begin, int64_t end, const char* dim,
                      int64_t length) {
  if (0 <= begin && begin <= end && end <= length) return {};
  return invalid(text("ranges, row ", row, ": ", names, " is ", begin, ", ", end,
                      "; allowed are 0 <= first <= second <= ", dim, " = ", length));
}

Status check_order(const std::vector<Range>& ranges, size_t row) {
  const Range& range = ranges[row];
  if (row > 0 && range.qa < ranges[row - 1].qa) {
    return invalid(text("ranges, row ", row, ": qa is ", range.qa, " after ", ranges[row - 1].qa,
                        "; allowed are ranges that ascend by qa"));
  }
  const auto overlap = [](int64_t a, int64_t b, int64_t c, int64_t d) {
    return std::max(a, c) < std::min(b, d);
  };
  for (size_t other = 0; other < row; ++other) {
    const Range& before = ranges[other];
    if (!overlap(range.qa, range.qb, before.qa, before.qb)) continue;
    if (!overlap(range.ka, range.kb, before.ka, before.kb)) continue;
    return invalid(text("ranges, row ", row, ": it shares rows and keys with row ", other,
                        "; allowed is that a row sees a key in one range"));
  }
  return {};
}

Status check_ranges(const Values& values) {
  constexpr size_t kWords = 7;
  const bool batch = values[Dim::Sq] != kUnknown;
  const Dim rows = batch ? Dim::Sq : Dim::Tq, keys = batch ? Dim::Sk : Dim::Tk;
  const std::vector<int64_t> words = values.integers(attention_block::ranges);
  std::vector<Range> ranges;
  for (size_t i = 0; i + kWords <= words.size(); i += kWords) {
    const int64_t* w = words.data() + i;
    const size_t row = ranges.size();
    ranges.push_back({w[0], w[1], w[2], w[3], w[4], w[5], w[6]});
    LATHE_TRY(check_interval(row, "qa, qb", w[0], w[1], name_of(rows), values[rows]));
    LATHE_TRY(check_interval(row, "ka, kb", w[2], w[3], name_of(keys), values[keys]));
    LATHE_TRY(check_order(ranges, row));
  }
  return {};
}

Status check_positions(const Values& values, int tensor) {
  constexpr int64_t kFarthest = (int64_t{1} << 30) - 1;
  if (!values.has(tensor)) return {};
  const std::vector<int64_t> positions = values.integers(tensor);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (-kFarthest <= positions[i] && positions[i] <= kFarthest) continue;
    return invalid(text(values.problem().op->tensors[tensor].name, " holds ", positions[i],
                        " at entry ", i, "; allowed are positions from -", kFarthest, " to ",
                        kFarthest));
  }
  return {};
}

}  // namespace

Status check_block_values(const Values& values) {
  LATHE_TRY(check_positions(values, attention_block::q_pos));
  LATHE_TRY(check_positions(values, attention_block::k_pos));
  return values.has(attention_block::ranges) ? check_ranges(values) : Status();
}

}  // namespace lathe
