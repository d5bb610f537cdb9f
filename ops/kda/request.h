// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the KDA operators behind the plan: the request of a problem, and the operators' own
// checks.
#pragma once

#include "ops/executor.h"
#include "ops/infer.h"
#include "ops/kda/chunked_kernels.h"
#include "ops/kda/schema.h"
#include "ops/resolve.h"
#include "ops/slot_values.h"

namespace lathe {

// Holds the properties that select the code, and the numbers that are only passed to the kernels.
struct KdaRequest {
  KdaProblem problem;
  float scale = 0;
  float lower_bound = 0;  // 0: unset
  float beta_factor = 1;  // 2 with negative eigenvalues
  bool initial_state = false, final_state = false;
  int null_slot = -1;
  // Only `kda_recurrent` uses these.
  bool update_state = true, append = true;
  // Only `kda` uses the members below.
  int chunk_size = 64;
  int segments = 0;            // 0: chosen
  KdaChunkedShape declared;    // what is known of every call: kUnknown where it varies
  bool saved_outside = false;  // what the forward leaves has tensors of its own
};

// These functions refuse problems that the tables cannot exclude: wrong widths, groups of heads
// that are not whole, and options without the option or tensor that they need.
Status check_kda(const Resolved& resolved);
Status check_kda_recurrent(const Resolved& resolved);

// Checks extents that a problem may leave to its calls: groups of heads are whole, dt_bias has all
// heads, and each token has a column unless `packed`. kUnknown passes.
Status check_kda_extents(const Extents& extents, bool packed);
// Checks that kda has as many chunks and slots as its tokens make.
Status check_kda_chunks(const Extents& extents, bool packed, int chunk_size);

// Return UNSUPPORTED, by name, for features that no template covers.
Result<KdaRequest> kda_request(const Resolved& resolved);
Result<KdaRequest> kda_recurrent_request(const Resolved& resolved);

// Both operators call these. This one checks widths, heads and transforms.
Status check_kda_inputs(const Resolved& resolved);
// This one reads types, widths, transforms and their numbers.
KdaRequest read_kda_inputs(const Resolved& resolved);

// These functions are parts of those above, for kda_decode too, whose tensors g to dt_bias are
// where kda has them. They check K and V, which tensors of these names have; refuse options that
// mean nothing without another, or without a tensor; and read all but tensors of sequences.
Status check_kda_widths(const char* keys, const char* values, const Resolved& resolved);
Status check_kda_transforms(const Resolved& resolved);
KdaRequest read_kda_transforms(const Resolved& resolved);

// Chooses kernels; compiles nothing.
MadeExecutor make_kda(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_kda_recurrent(const Resolved& resolved, const DeviceFacts& facts);

// Sets the chunks NT and the slots of saved states. For packed sequences NT is the most chunks that
// there can be.
void derive_kda(const lathe_problem& problem, Extents* extents);
// Sets NT to the chunks that the offsets make, and checks the slots of a pool.
Status check_kda_values(const Values& values);
// Checks the slots of kda_recurrent: each is below S, no two sequences use the same, accepted
// tokens are columns, and each token has a column.
Status check_kda_recurrent_values(const Values& values);
// Checks the counts of records, and that each token of a call has one. Passes without rings.
Status check_kda_rings(const Values& values, const PoolTensors& tensors, int ring_count);

}  // namespace lathe
