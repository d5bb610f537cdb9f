// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <map>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/kda/request.h"
#include "ops/kda/schema.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

int64_t chunk_size(const lathe_problem& problem) {
  return std::strtoll(problem.option("chunk_size").c_str(), nullptr, 10);
}

// Holds the rows of state_indices: [N] is one column, [N,spec] one for each token.
struct StateSlots {
  explicit StateSlots(const Values& values)
      : entries(values.integers(kda_recurrent::state_indices)) {
    const Declared& declared = values.problem().tensors[kda_recurrent::state_indices];
    sequences = static_cast<size_t>(declared.extents[0]);
    by_token = declared.shape.rank == 2;
    if (by_token) columns = static_cast<size_t>(declared.extents[1]);
    if (values.has(kda_recurrent::num_accepted_tokens)) {
      accepted = values.integers(kda_recurrent::num_accepted_tokens);
    }
  }

  int64_t at(size_t n, size_t column) const { return entries[n * columns + column]; }
  bool is_padding(size_t n) const {
    const auto row = entries.begin() + static_cast<std::ptrdiff_t>(n * columns);
    return std::all_of(row, row + static_cast<std::ptrdiff_t>(columns),
                       [](int64_t slot) { return slot < 0; });
  }
  // Returns the slots that a sequence with tokens reads and writes; none if it is padding.
  std::vector<int64_t> touched(size_t n, int64_t tokens) const {
    if (tokens == 0 || is_padding(n)) return {};
    const size_t first = accepted.empty() ? 0 : static_cast<size_t>(accepted[n] - 1);
    std::vector<int64_t> out = {at(n, first)};
    if (out[0] < 0) return {};
    for (int64_t t = 0; by_token && t < tokens; ++t) out.push_back(at(n, static_cast<size_t>(t)));
    return out;
  }

  std::vector<int64_t> entries, accepted;  // accepted is empty: 1
  size_t sequences = 0, columns = 1;
  bool by_token = false;
};

Status check_range(const StateSlots& slots, int64_t count) {
  for (size_t i = 0; i < slots.entries.size(); ++i) {
    if (slots.entries[i] < count) continue;
    return invalid(text("state_indices holds ", slots.entries[i], " at entry ", i,
                        "; allowed are slots below S = ", count, ", or below 0 for padding"));
  }
  for (size_t n = 0; n < slots.accepted.size(); ++n) {
    const int64_t accepted = slots.accepted[n];
    if (slots.is_padding(n)) continue;
    if (accepted >= 1 && accepted <= static_cast<int64_t>(slots.columns)) continue;
    return invalid(text("num_accepted_tokens holds ", accepted, " at entry ", n,
                        "; allowed are 1 to spec = ", slots.columns));
  }
  return {};
}

Status check_owners(const StateSlots& slots, const std::vector<int64_t>& tokens) {
  std::map<int64_t, size_t> owners;
  for (size_t n = 0; n < slots.sequences; ++n) {
    if (slots.by_token && tokens[n] > static_cast<int64_t>(slots.columns) && !slots.is_padding(n)) {
      return invalid(text("sequence ", n, " has ", tokens[n],
                          " tokens and state_indices has spec = ", slots.columns,
                          " columns; allowed is a column for each token"));
    }
    for (const int64_t slot : slots.touched(n, tokens[n])) {
      if (slot < 0) continue;
      const auto [owner, fresh] = owners.emplace(slot, n);
      if (fresh || owner->second == n) continue;
      return invalid(text("state_indices gives slot ", slot, " to sequences ", owner->second,
                          " and ", n, "; allowed is a slot for each"));
    }
  }
  return {};
}

// Returns the tokens of each sequence; empty if they are not known.
std::vector<int64_t> tokens_of(const Values& values, size_t sequences) {
  if (!values.problem().has(kda_recurrent::cu_seqlens)) {
    return std::vector<int64_t>(sequences, values[Dim::T]);
  }
  if (!values.has(kda_recurrent::cu_seqlens)) return {};
  std::vector<int64_t> offsets = values.integers(kda_recurrent::cu_seqlens);
  for (size_t n = 0; n + 1 < offsets.size(); ++n) offsets[n] = offsets[n + 1] - offsets[n];
  offsets.pop_back();
  return offsets;
}

}  // namespace

void derive_kda(const lathe_problem& problem, Extents* extents) {
  const int64_t tokens = (*extents)[Dim::T], sequences = (*extents)[Dim::N];
  if (tokens == kUnknown || sequences == kUnknown) return;
  const bool packed = problem.has(kda::cu_seqlens);
  const int64_t chunk = chunk_size(problem);
  int64_t& chunks = (*extents)[Dim::NT];
  int64_t& slots = (*extents)[Dim::slots];
  if (chunks == kUnknown) chunks = packed ? tokens / chunk + sequences : ceil_div(tokens, chunk);
  if (slots == kUnknown) slots = kda_slots(packed, sequences, tokens);
}

Status check_kda_values(const Values& values) {
  if (!values.has(kda::cu_seqlens)) return {};
  const std::vector<int64_t> offsets = values.integers(kda::cu_seqlens);
  const int64_t chunk = chunk_size(values.problem());
  int64_t chunks = 0;
  for (size_t n = 1; n < offsets.size(); ++n)
    chunks += ceil_div(offsets[n] - offsets[n - 1], chunk);
  values.set(Dim::NT, chunks);
  return {};
}

Status check_kda_slots(const Values& values) {
  using namespace kda_recurrent;
  if (!values.has(state_indices) || !values.problem().has(state_pool)) return {};
  const StateSlots slots(values);
  if (!slots.by_token && !slots.accepted.empty()) return {};  // resolve() refuses it
  LATHE_TRY(check_range(slots, values[Dim::S]));
  const std::vector<int64_t> tokens = tokens_of(values, slots.sequences);
  return tokens.empty() ? Status() : check_owners(slots, tokens);
}

}  // namespace lathe
