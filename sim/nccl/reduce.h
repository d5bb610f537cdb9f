// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These reductions run on the host, always in rank order.
#pragma once

#include <cstddef>
#include <vector>

#include "abi/nccl.h"

namespace sim::nccl {

// Computes out[i] = inputs[0][i] op inputs[1][i] op ... ; float16 and bfloat16 are summed in
// float32 and rounded once; avg divides the sum by the number of inputs.
void reduce(const std::vector<const void*>& inputs, void* out, size_t count, ncclDataType_t type,
            ncclRedOp_t op);

// Returns false for float8, which has no arithmetic.
bool can_reduce(ncclDataType_t type);

}  // namespace sim::nccl
