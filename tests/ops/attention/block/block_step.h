// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the tensors of a step of ring attention, of all rows of a batch or of one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/harness/caller.h"
#include "tests/numbers.h"

namespace apitest {

constexpr int64_t kRows = 2, kQueries = 150, kKeys = 170, kHeads = 4, kKeyHeads = 2, kWidth = 64;

inline Values part(const Values& all, int64_t index, int64_t parts) {
  const auto size = static_cast<int64_t>(all.size()) / parts;
  return {all.begin() + index * size, all.begin() + (index + 1) * size};
}
inline Values joined(Values first, const Values& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
inline Values rounded(lathe_dtype dtype, Values values) {
  for (double& value : values) value = numbers::rounded(dtype, value);
  return values;
}

// These ranges leave some rows and keys out.
inline const Values kRanges = {0, 70, 5, 100, 20, 30, 0, 80, 140, 0, 160, 10, 200, 100};

// A Step has the tensors of a step, of all rows of the batch or, packed, of one.
class Step {
 public:
  explicit Step(lathe_dtype dtype) {
    const auto draw = [&](const char* name, lathe_dtype type, int64_t tokens, int64_t heads,
                          uint32_t seed) {
      values_[name] = {type, tokens, heads,
                       random_values(type, kRows * tokens * heads * kWidth, seed)};
    };
    draw("q", dtype, kQueries, kHeads, 1), draw("dout", dtype, kQueries, kHeads, 2);
    draw("k", dtype, kKeys, kKeyHeads, 3), draw("v", dtype, kKeys, kKeyHeads, 4);
    draw("out", LATHE_F32, kQueries, kHeads, 5), draw("dq", LATHE_F32, kQueries, kHeads, 6);
    draw("dk", LATHE_F32, kKeys, kKeyHeads, 7), draw("dv", LATHE_F32, kKeys, kKeyHeads, 8);
    for (const char* name : {"lse", "delta"}) {
      rows_[name] = random_values(LATHE_F32, kRows * kHeads * kQueries, 9);
    }
    caller.put("ranges", LATHE_I32, {2, 7}, kRanges);
    caller.put("alibi_slopes", LATHE_F32, {kHeads}, {0.5, 0.25, 0.125, 0.0625});
    Values rows, keys;
    for (int64_t i = 0; i < kQueries; ++i) rows.push_back(static_cast<double>(i * 3 % 200));
    for (int64_t j = 0; j < kKeys; ++j) keys.push_back(static_cast<double>(j * 5 % 200));
    caller.put("q_pos", LATHE_I32, {kQueries}, rows);
    caller.put("k_pos", LATHE_I32, {kKeys}, keys);
    bring(-1);
  }
  // Brings row `row` of the batch, packed; with -1 all rows.
  void bring(int64_t row) {
    for (const auto& [name, of] : values_) {
      std::vector<int64_t> shape = {of.tokens, of.heads, kWidth};
      if (row < 0) shape.insert(shape.begin(), kRows);
      caller.put(name, of.dtype, shape, row < 0 ? of.values : part(of.values, row, kRows));
    }
    for (const auto& [name, values] : rows_) {
      std::vector<int64_t> shape = {kHeads, kQueries};
      if (row < 0) shape.insert(shape.begin(), kRows);
      caller.put(name, LATHE_F32, shape, row < 0 ? values : part(values, row, kRows));
    }
  }
  void run(const std::string& op, const std::vector<std::string>& tensors,
           const std::map<std::string, std::string>& options) {
    caller.run(op, tensors, options);
  }

  Caller caller;

 private:
  struct Drawn {
    lathe_dtype dtype;
    int64_t tokens, heads;
    Values values;
  };
  std::map<std::string, Drawn> values_;
  std::map<std::string, Values> rows_;
};

using Names = std::vector<std::string>;
inline Names with(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}
inline const Names kForward = {"q", "k", "v", "out", "lse"};
inline const Names kBackward = {"q", "k", "v", "dout", "lse", "delta", "dq", "dk", "dv"};

}  // namespace apitest
