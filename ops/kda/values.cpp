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
    const lathe_problem& problem = values.problem();
    const Declared& declared = problem.tensors[kda_recurrent::state_indices];
    sequences = static_cast<size_t>(declared.extents[0]);
    by_token = declared.shape.rank == 2;
    if (by_token) columns = static_cast<size_t>(declared.extents[1]);
    const auto read = [&values](int tensor, std::vector<int64_t>* to) {
      if (values.has(tensor)) *to = values.integers(tensor);
    };
    read(kda_recurrent::num_accepted_tokens, &accepted);
    read(kda_recurrent::source_indices, &sources);
    read(kda_recurrent::has_initial_state, &has_initial_state);
    null_slot = std::strtoll(problem.option("null_slot").c_str(), nullptr, 10);
    updates = problem.option("update_state") != "0";
  }

  bool is_null(int64_t slot) const { return slot < 0 || slot == null_slot; }
  int64_t at(size_t n, size_t column) const { return entries[n * columns + column]; }
  bool is_padding(size_t n) const { return columns == 0 || is_null(at(n, 0)); }

  // Returns the slot that a sequence reads; -1: none.
  int64_t read_by(size_t n, int64_t tokens) const {
    if (is_padding(n) || (tokens == 0 && by_token)) return -1;
    if (!has_initial_state.empty() && has_initial_state[n] == 0) return -1;
    const size_t first = accepted.empty() ? 0 : static_cast<size_t>(accepted[n] - 1);
    const int64_t slot = sources.empty() ? at(n, first) : sources[n];
    return is_null(slot) ? -1 : slot;
  }
  // Returns the slots that a sequence writes.
  std::vector<int64_t> written_by(size_t n, int64_t tokens) const {
    std::vector<int64_t> out;
    if (!updates || is_padding(n)) return out;
    // A draft's row without the state before it is padding too.
    if (by_token && sources.empty() && read_by(n, tokens) < 0 &&
        (has_initial_state.empty() || has_initial_state[n] != 0)) {
      return out;
    }
    const int64_t count = by_token ? tokens : 1;
    for (int64_t t = 0; t < count; ++t) {
      const int64_t slot = at(n, static_cast<size_t>(t));
      const bool stays = !by_token && tokens == 0 && slot == read_by(n, tokens);
      if (!is_null(slot) && !stays) out.push_back(slot);
    }
    return out;
  }

  std::vector<int64_t> entries;
  std::vector<int64_t> accepted, sources, has_initial_state;  // empty: 1, the entries, 1
  size_t sequences = 0, columns = 1;
  int64_t null_slot = -1;
  bool by_token = false, updates = true;
};

Status check_range(const StateSlots& slots, int64_t count) {
  for (const auto& [name, entries] :
       {std::pair("state_indices", &slots.entries), std::pair("source_indices", &slots.sources)}) {
    for (size_t i = 0; i < entries->size(); ++i) {
      if ((*entries)[i] < count || slots.is_null((*entries)[i])) continue;
      return invalid(text(name, " holds ", (*entries)[i], " at entry ", i,
                          "; allowed are slots below S = ", count, ", or below 0 for padding"));
    }
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

// Every slot is written by one sequence, which alone may read it.
Status check_owners(const StateSlots& slots, const std::vector<int64_t>& tokens) {
  std::map<int64_t, size_t> owners;
  for (size_t n = 0; n < slots.sequences; ++n) {
    if (slots.by_token && tokens[n] > static_cast<int64_t>(slots.columns) && !slots.is_padding(n)) {
      return invalid(text("sequence ", n, " has ", tokens[n],
                          " tokens and state_indices has spec = ", slots.columns,
                          " columns; allowed is a column for each token"));
    }
    for (const int64_t slot : slots.written_by(n, tokens[n])) {
      const auto [owner, fresh] = owners.emplace(slot, n);
      if (fresh || owner->second == n) continue;
      return invalid(text("state_indices gives slot ", slot, " to sequences ", owner->second,
                          " and ", n, "; allowed is a slot for each"));
    }
  }
  for (size_t n = 0; n < slots.sequences; ++n) {
    const auto owner = owners.find(slots.read_by(n, tokens[n]));
    if (owner == owners.end() || owner->second == n) continue;
    return invalid(text(slots.sources.empty() ? "state_indices" : "source_indices", " gives slot ",
                        owner->first, " to sequence ", n, " to read and state_indices to sequence ",
                        owner->second,
                        " to write; allowed is a slot that no other sequence writes"));
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

// A call has no more tokens of a sequence than a slot has records, and no count is past them.
Status check_rings(const Values& values, const StateSlots& slots,
                   const std::vector<int64_t>& tokens) {
  using namespace kda_recurrent;
  if (!values.problem().has(ring_k) || !values.has(ring_count)) return {};
  const int64_t length = values[Dim::L];
  const std::vector<int64_t> counts = values.integers(ring_count);
  for (size_t slot = 0; slot < counts.size(); ++slot) {
    if (counts[slot] >= 0 && counts[slot] <= length) continue;
    return invalid(text("ring_count holds ", counts[slot], " at entry ", slot,
                        "; allowed are 0 to L = ", length));
  }
  for (size_t n = 0; n < tokens.size(); ++n) {
    if (tokens[n] <= length || slots.is_padding(n)) continue;
    return invalid(text("sequence ", n, " has ", tokens[n], " tokens and ring_k has L = ", length,
                        "; allowed are up to L, a record for each token"));
  }
  return {};
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
  LATHE_TRY(check_rings(values, slots, tokens));
  return tokens.empty() ? Status() : check_owners(slots, tokens);
}

}  // namespace lathe
