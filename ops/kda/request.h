// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The KDA operators behind the plan: what a problem asks for, and the checks of their own.
#pragma once

#include "ops/executor.h"
#include "ops/kda/chunked_kernels.h"

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
  KdaChunkedShape promised;    // what is known of every call: kUnknown where it varies
  bool saved_outside = false;  // what the forward leaves has tensors of its own
};

// What letters alone cannot say: widths, whole groups of heads, options that need each other or a
// tensor, and where states live. After the checks by letter.
Status check_kda(const lathe_problem& problem, const Extents& promised);
Status check_kda_recurrent(const lathe_problem& problem, const Extents& promised);

// The part of it that a problem with open extents leaves to its calls: whole groups of heads,
// dt_bias of all of them, and a column for each token unless `packed`. kUnknown passes.
Status check_kda_extents(const Extents& extents, bool packed);
// And of `kda`: as many chunks and slots as there are tokens for.
Status check_kda_chunks(const Extents& extents, bool packed, int chunk_size);

// UNSUPPORTED, by name, for what no template covers. After check_problem.
Result<KdaRequest> kda_request(const lathe_problem& problem, const Extents& promised);
Result<KdaRequest> kda_recurrent_request(const lathe_problem& problem, const Extents& promised);

// What the two share. Fails where a tensor or an option needs another one.
Status check_kda_inputs(const lathe_problem& problem, const Extents& promised);
// An option output_NAME says what declaring the tensor says.
Status check_kda_output(const lathe_problem& problem, const char* option, const char* tensor);
// Types, widths, transforms and their numbers.
Status read_kda_inputs(const lathe_problem& problem, const Extents& promised, KdaRequest* out);

// Chooses kernels; compiles nothing. `group`: null on one rank.
Result<std::unique_ptr<Executor>> make_kda(const KdaRequest& request, const DeviceFacts& facts,
                                           Group* group, bool reduce_parameter_grads);
Result<std::unique_ptr<Executor>> make_kda_recurrent(const KdaRequest& request,
                                                     const DeviceFacts& facts);

}  // namespace lathe
