// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The KDA operators behind the plan: what a problem asks for, and the checks of their own.
#pragma once

#include "ops/executor.h"
#include "ops/kda/chunked_kernels.h"
#include "ops/kda/schema.h"
#include "ops/resolve.h"
#include "ops/values.h"

namespace lathe {

// What makes the code, and the numbers that are only handed to it.
struct KdaRequest {
  KdaProblem problem;
  float scale = 0;
  float lower_bound = 0;  // 0: unset
  float beta_factor = 1;  // 2 with negative eigenvalues
  bool initial_state = false, final_state = false;
  // Of `kda` alone.
  int chunk_size = 64;
  int segments = 0;            // 0: chosen
  KdaChunkedShape declared;    // what is known of every call: kUnknown where it varies
  bool saved_outside = false;  // what the forward leaves has tensors of its own
};

// Refuse what the tables cannot say: widths, groups of heads that are not whole, and options that
// need each other or a tensor.
Status check_kda(const Resolved& resolved);
Status check_kda_recurrent(const Resolved& resolved);

// Checks of extents that a problem may leave to its calls: whole groups of heads, dt_bias of all of
// them, and a column for each token unless `packed`. kUnknown passes.
Status check_kda_extents(const Extents& extents, bool packed);
// kda has as many chunks and slots as its tokens make.
Status check_kda_chunks(const Extents& extents, bool packed, int chunk_size);

// UNSUPPORTED, by name, for what no template covers.
Result<KdaRequest> kda_request(const Resolved& resolved);
Result<KdaRequest> kda_recurrent_request(const Resolved& resolved);

// Both operators call these. This one checks widths, heads and transforms.
Status check_kda_inputs(const Resolved& resolved);
// This one reads types, widths, transforms and their numbers.
KdaRequest read_kda_inputs(const Resolved& resolved);

// Chooses kernels; compiles nothing.
MadeExecutor make_kda(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_kda_recurrent(const Resolved& resolved, const DeviceFacts& facts);

// Chunks NT and slots of saved states. Of packed sequences as many chunks as there can be.
void derive_kda(const lathe_problem& problem, Extents* extents);
// Sets NT to the chunks that the offsets make.
Status check_kda_values(const Values& values);
// Slots of kda_recurrent: each below S, none in use by two sequences, accepted tokens that are
// columns, and a column for each token.
Status check_kda_slots(const Values& values);

}  // namespace lathe
