// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Slots of a pool of states: what the device takes for padding, or for a race, is refused here.
#include <algorithm>
#include <map>

#include "api/cli/problem.h"

namespace lathe::cli {
namespace {

const char* const kIndices = "state_indices";
const char* const kAccepted = "num_accepted_tokens";

// The rows of state_indices: [N] is one column, without one for each token.
struct Slots {
  std::vector<int64_t> values;
  size_t sequences = 0, columns = 1;
  bool by_token = false;
  std::vector<int64_t> accepted;  // empty: 1

  int64_t at(size_t n, size_t column) const { return values[n * columns + column]; }
  bool is_padding(size_t n) const {
    const auto row = values.begin() + static_cast<std::ptrdiff_t>(n * columns);
    return std::all_of(row, row + static_cast<std::ptrdiff_t>(columns),
                       [](int64_t slot) { return slot < 0; });
  }
  size_t first_column(size_t n) const {
    return accepted.empty() ? 0 : static_cast<size_t>(accepted[n] - 1);
  }
};

Slots read_slots(const TensorMap& inputs) {
  const HostTensor& tensor = inputs.at(kIndices);
  Slots slots;
  slots.values = integers(tensor);
  slots.sequences = static_cast<size_t>(tensor.spec.shape[0]);
  slots.by_token = tensor.spec.shape.size() == 2;
  if (slots.by_token) slots.columns = static_cast<size_t>(tensor.spec.shape[1]);
  const auto accepted = inputs.find(kAccepted);
  if (accepted != inputs.end()) slots.accepted = integers(accepted->second);
  return slots;
}

void check_accepted(const Slots& slots) {
  for (size_t n = 0; n < slots.accepted.size(); ++n) {
    const int64_t count = slots.accepted[n];
    if (slots.is_padding(n) || (count >= 1 && count <= static_cast<int64_t>(slots.columns))) {
      continue;
    }
    refuse("tensor " + std::string(kAccepted) + " holds " + std::to_string(count) + " at entry " +
           std::to_string(n) + ", allowed: 1 to spec = " + std::to_string(slots.columns));
  }
}

void check_range(const Slots& slots, int64_t count) {
  for (size_t i = 0; i < slots.values.size(); ++i) {
    if (slots.values[i] < count) continue;
    refuse("tensor " + std::string(kIndices) + " holds " + std::to_string(slots.values[i]) +
           " at entry " + std::to_string(i) + ", allowed: below S = " + std::to_string(count) +
           ", or below 0 for padding");
  }
}

int64_t tokens_of(const Problem& problem, const TensorMap& inputs, size_t n) {
  const auto offsets = inputs.find("cu_seqlens");
  if (offsets == inputs.end()) return problem.extents.at("T");
  const std::vector<int64_t> values = integers(offsets->second);
  return values[n + 1] - values[n];
}

// Slots of a sequence that has tokens and is no padding: where it starts and what it writes.
std::vector<int64_t> touched(const Slots& slots, size_t n, int64_t tokens) {
  if (tokens == 0 || slots.is_padding(n)) return {};
  std::vector<int64_t> out = {slots.at(n, slots.first_column(n))};
  if (out[0] < 0) return {};
  for (int64_t t = 0; slots.by_token && t < tokens; ++t) {
    out.push_back(slots.at(n, static_cast<size_t>(t)));
  }
  return out;
}

}  // namespace

void check_slots(const Problem& problem, const TensorMap& inputs) {
  if (!inputs.contains(kIndices) || !inputs.contains("state_pool")) return;
  const Slots slots = read_slots(inputs);
  if (!slots.by_token && !slots.accepted.empty()) return;  // the library's to refuse
  check_range(slots, problem.extents.at("S"));
  check_accepted(slots);
  std::map<int64_t, size_t> owners;
  for (size_t n = 0; n < slots.sequences; ++n) {
    const int64_t tokens = tokens_of(problem, inputs, n);
    if (slots.by_token && tokens > static_cast<int64_t>(slots.columns) && !slots.is_padding(n)) {
      refuse("sequence " + std::to_string(n) + " has " + std::to_string(tokens) + " tokens and " +
             kIndices + " has spec = " + std::to_string(slots.columns) +
             " columns, allowed: a column for each token");
    }
    for (const int64_t slot : touched(slots, n, tokens)) {
      if (slot < 0) continue;
      const auto [owner, fresh] = owners.emplace(slot, n);
      if (fresh || owner->second == n) continue;
      refuse("tensor " + std::string(kIndices) + " gives slot " + std::to_string(slot) +
             " to sequences " + std::to_string(owner->second) + " and " + std::to_string(n) +
             ", allowed: a slot for each");
    }
  }
}

}  // namespace lathe::cli
