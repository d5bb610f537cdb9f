// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares kda_decode behind the plan: the request of a problem, and the operator's own checks.
#pragma once

#include "ops/infer.h"
#include "ops/kda/decode/kernels.h"
#include "ops/kda/decode/schema.h"
#include "ops/kda/request.h"

namespace lathe {

struct KdaDecodeRequest {
  KdaDecodeProblem problem;
  KdaRequest numbers;  // what is only passed to the kernel
  float norm_eps = 0;
};

Status check_kda_decode(const Resolved& resolved);
Result<KdaDecodeRequest> kda_decode_request(const Resolved& resolved);
MadeExecutor make_kda_decode(const Resolved& resolved, const DeviceFacts& facts);

// Returns the query heads of qkv's channels, or why there is no whole number of them that divides
// the value heads. kUnknown: not known.
Result<int64_t> kda_decode_heads(const Extents& extents);
// Sets the query heads, where they follow.
// Checks extents that a problem may leave to its calls. kUnknown passes.
Status check_kda_decode_extents(const Extents& extents);
void derive_kda_decode(const lathe_problem& problem, Extents* extents);
Status check_kda_decode_values(const Values& values);

}  // namespace lathe
