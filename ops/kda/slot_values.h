// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the checks of slots that operators over pools of states share.
#pragma once

#include "ops/infer.h"

namespace lathe {

// Says where an operator's table has the tensors of a pool; -1: it has no such tensor.
struct KdaPoolTensors {
  int state_pool = -1, state_indices = -1, source_indices = -1, has_initial_state = -1;
  int cu_seqlens = -1;
  int num_accepted_tokens = -1;
  int ring_k = -1, ring_count = -1;
  int cu_checkpoints = -1, checkpoint_tokens = -1, checkpoint_slots = -1;
};

// Checks that each slot is in the pool and written once, that nobody else reads a slot that is
// written, that accepted tokens are columns, that each token has a column and a record, and that
// checkpoints are tokens of their sequence. Passes where the slots are not available.
Status check_kda_pool_values(const Values& values, const KdaPoolTensors& tensors);

}  // namespace lathe
