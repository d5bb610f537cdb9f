// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks the slots that a call over a pool of states names: each is in the pool, and whoever reads
// a slot is the only one that writes it.
#pragma once

#include "ops/infer.h"

namespace lathe {

// Says where an operator's table has the tensors of a pool; -1: it has no such tensor.
struct PoolTensors {
  int state_pool = -1, state_indices = -1, source_indices = -1, has_initial_state = -1;
  int cu_seqlens = -1;
  int num_accepted_tokens = -1;  // which column of [N,spec] indices holds the slot that is read
  int cu_checkpoints = -1, checkpoint_tokens = -1, checkpoint_slots = -1;
};

// Holds the rows of state_indices: [N] is one column, [N,spec] one for each token.
struct SlotValues {
  SlotValues(const Values& values, const PoolTensors& tensors);

  bool is_null(int64_t slot) const { return slot < 0 || slot == null_slot; }
  bool is_padding(size_t n) const { return columns == 0 || is_null(at(n, 0)); }
  int64_t at(size_t n, size_t column) const { return entries[n * columns + column]; }
  // Returns the slot that a sequence reads; -1: none.
  int64_t read_by(size_t n, int64_t tokens) const;
  // Returns the slots that a sequence writes.
  std::vector<int64_t> written_by(size_t n, int64_t tokens) const;

  std::vector<int64_t> entries;
  std::vector<int64_t> accepted, sources, has_initial_state;  // empty: 1, the entries, 1
  std::vector<int64_t> cu_checkpoints, checkpoint_tokens, checkpoint_slots;  // empty: none
  size_t sequences = 0, columns = 1;
  int64_t null_slot = -1;
  bool by_token = false, updates = true;
};

// Returns the tokens of each sequence; empty if they are not known.
std::vector<int64_t> sequence_lengths(const Values& values, int cu_seqlens, size_t sequences);

// Checks that each slot is in the pool and written once, that nobody else reads a slot that is
// written, that accepted tokens are columns, that each token has a column, and that checkpoints are
// tokens of their sequence. Passes where the slots are not available.
Status check_pool_values(const Values& values, const PoolTensors& tensors);

}  // namespace lathe
