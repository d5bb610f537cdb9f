// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/slot_values.h"

#include <cstdlib>
#include <map>

#include "codegen/base/invalid.h"

namespace lathe {

SlotValues::SlotValues(const Values& values, const PoolTensors& tensors)
    : entries(values.integers(tensors.state_indices)) {
  const lathe_problem& problem = values.problem();
  const Declared& declared = problem.tensors[tensors.state_indices];
  sequences = static_cast<size_t>(declared.extents[0]);
  by_token = declared.shape.rank == 2;
  if (by_token) columns = static_cast<size_t>(declared.extents[1]);
  const auto read = [&values](int tensor, std::vector<int64_t>* to) {
    if (tensor >= 0 && values.has(tensor)) *to = values.integers(tensor);
  };
  read(tensors.num_accepted_tokens, &accepted);
  read(tensors.source_indices, &sources);
  read(tensors.has_initial_state, &has_initial_state);
  read(tensors.cu_checkpoints, &cu_checkpoints);
  read(tensors.checkpoint_tokens, &checkpoint_tokens);
  read(tensors.checkpoint_slots, &checkpoint_slots);
  null_slot = std::strtoll(problem.option("null_slot").c_str(), nullptr, 10);
  updates = find_option(*problem.op, "update_state") < 0 || problem.option("update_state") != "0";
}

int64_t SlotValues::read_by(size_t n, int64_t tokens) const {
  if (is_padding(n) || (tokens == 0 && by_token)) return -1;
  if (!has_initial_state.empty() && has_initial_state[n] == 0) return -1;
  const size_t first = accepted.empty() ? 0 : static_cast<size_t>(accepted[n] - 1);
  const int64_t slot = sources.empty() ? at(n, first) : sources[n];
  return is_null(slot) ? -1 : slot;
}

std::vector<int64_t> SlotValues::written_by(size_t n, int64_t tokens) const {
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

namespace {

Status check_range(const SlotValues& slots, int64_t count) {
  for (const auto& [name, entries] :
       {std::pair("state_indices", &slots.entries), std::pair("source_indices", &slots.sources),
        std::pair("checkpoint_slots", &slots.checkpoint_slots)}) {
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

// A checkpoint is one of its sequence's tokens, and has a slot that nobody else writes.
Status add_checkpoints(const SlotValues& slots, const std::vector<int64_t>& tokens,
                       std::map<int64_t, size_t>* owners) {
  for (size_t n = 0; n + 1 < slots.cu_checkpoints.size(); ++n) {
    if (slots.is_padding(n)) continue;
    for (int64_t c = slots.cu_checkpoints[n]; c < slots.cu_checkpoints[n + 1]; ++c) {
      const auto i = static_cast<size_t>(c);
      if (slots.is_null(slots.checkpoint_slots[i])) continue;
      const int64_t token = slots.checkpoint_tokens[i];
      if (token < 0 || token > tokens[n]) {
        return invalid(text("checkpoint_tokens holds ", token, " at entry ", c, " for sequence ", n,
                            "; allowed are 0 to its length, ", tokens[n]));
      }
      if (owners->emplace(slots.checkpoint_slots[i], n).second) continue;
      return invalid(text("checkpoint_slots gives slot ", slots.checkpoint_slots[i], " at entry ",
                          c, " to a second state; allowed is a slot for each"));
    }
  }
  return {};
}

// Every slot is written by one sequence, which alone may read it.
Status check_owners(const SlotValues& slots, const std::vector<int64_t>& tokens) {
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
  LATHE_TRY(add_checkpoints(slots, tokens, &owners));
  for (size_t n = 0; n < slots.sequences; ++n) {
    const auto owner = owners.find(slots.read_by(n, tokens[n]));
    if (owner == owners.end() || owner->second == n) continue;
    return invalid(text(slots.sources.empty() ? "state_indices" : "source_indices", " gives slot ",
                        owner->first, " to sequence ", n, " to read and to sequence ",
                        owner->second,
                        " to write; allowed is a slot that no other sequence writes"));
  }
  return {};
}

}  // namespace

std::vector<int64_t> sequence_lengths(const Values& values, int cu_seqlens, size_t sequences) {
  if (cu_seqlens < 0 || !values.problem().has(cu_seqlens)) {
    const int64_t tokens = values[Dim::T];  // a decoding step of one token has no such dim
    return std::vector<int64_t>(sequences, tokens == kUnknown ? 1 : tokens);
  }
  if (!values.has(cu_seqlens)) return {};
  std::vector<int64_t> offsets = values.integers(cu_seqlens);
  for (size_t n = 0; n + 1 < offsets.size(); ++n) offsets[n] = offsets[n + 1] - offsets[n];
  offsets.pop_back();
  return offsets;
}

Status check_pool_values(const Values& values, const PoolTensors& tensors) {
  if (!values.has(tensors.state_indices) || !values.problem().has(tensors.state_pool)) return {};
  const SlotValues slots(values, tensors);
  if (!slots.by_token && !slots.accepted.empty()) return {};  // resolve() refuses it
  LATHE_TRY(check_range(slots, values[Dim::S]));
  const std::vector<int64_t> tokens = sequence_lengths(values, tensors.cu_seqlens, slots.sequences);
  return tokens.empty() ? Status() : check_owners(slots, tokens);
}

}  // namespace lathe
