// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/pairs.h"

#include <algorithm>
#include <array>
#include <vector>

#include "api/cli/failure.h"

namespace lathe::cli {
namespace {

constexpr size_t kWords = 7;
constexpr int64_t kFarthest = (int64_t{1} << 30) - 1;

using Pair = std::array<int64_t, kWords>;  // qa, qb, ka, kb, shift, q0, k0

std::string name_of(size_t index) { return "tensor pairs, row " + std::to_string(index) + ": "; }

void check_interval(const Pair& pair, size_t index, size_t word, const char* names,
                    const std::string& letter, int64_t length) {
  const int64_t begin = pair[word], end = pair[word + 1];
  if (0 <= begin && begin <= end && end <= length) return;
  refuse(name_of(index) + names + " is " + std::to_string(begin) + ", " + std::to_string(end) +
         "; allowed are 0 <= first <= second <= " + letter + " = " + std::to_string(length));
}

bool overlap(const Pair& a, const Pair& b, size_t word) {
  return std::max(a[word], b[word]) < std::min(a[word + 1], b[word + 1]);
}

void check_order(const std::vector<Pair>& pairs, size_t index) {
  if (index > 0 && pairs[index][0] < pairs[index - 1][0]) {
    refuse(name_of(index) + "qa is " + std::to_string(pairs[index][0]) + " after " +
           std::to_string(pairs[index - 1][0]) + "; pairs ascend by qa");
  }
  for (size_t other = 0; other < index; ++other) {
    if (!overlap(pairs[index], pairs[other], 0) || !overlap(pairs[index], pairs[other], 2))
      continue;
    refuse(name_of(index) + "it shares rows and keys with row " + std::to_string(other) +
           "; a row may see a key in one pair only");
  }
}

void check_positions(const std::string& name, const HostTensor& tensor) {
  const std::vector<int64_t> positions = integers(tensor);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (-kFarthest <= positions[i] && positions[i] <= kFarthest) continue;
    refuse("tensor " + name + " holds " + std::to_string(positions[i]) + " at " +
           std::to_string(i) + "; allowed are positions from -" + std::to_string(kFarthest) +
           " to " + std::to_string(kFarthest));
  }
}

}  // namespace

void check_pairs(const Problem& problem, const TensorMap& inputs) {
  for (const char* name : {"q_pos", "k_pos"}) {
    const auto found = inputs.find(name);
    if (found != inputs.end()) check_positions(name, found->second);
  }
  const auto found = inputs.find("pairs");
  if (found == inputs.end()) return;
  const std::vector<int64_t> words = integers(found->second);
  const bool batch = problem.extents.contains("Sq");
  const std::string rows = batch ? "Sq" : "Tq", keys = batch ? "Sk" : "Tk";
  std::vector<Pair> pairs(words.size() / kWords);
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::copy_n(words.begin() + static_cast<int64_t>(i * kWords), kWords, pairs[i].begin());
    check_interval(pairs[i], i, 0, "qa, qb", rows, problem.extents.at(rows));
    check_interval(pairs[i], i, 2, "ka, kb", keys, problem.extents.at(keys));
    check_order(pairs, i);
  }
}

}  // namespace lathe::cli
