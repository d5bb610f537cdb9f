// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes and launches the walk of chunked KDA by warpgroups with roles (sm_90a): a kernel that
// competes with the portable one for the same step, with the same results within tolerance.
#pragma once

#include <string>

#include "ops/kda/segments.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Says why the kernel does not cover a problem or a device; empty if it does.
std::string kda_forward_warpgroups_refusal(const KdaProblem& problem, const DeviceFacts& facts);

// Returns the kernel for a problem that is covered; `portable` is the portable kernel for it.
KernelSpec kda_forward_warpgroups_spec(const KdaProblem& problem, const KernelSpec& portable);

// These describe the summaries of the forward direction by warpgroups; `portable` is the portable
// kernel for them.
std::string kda_summary_warpgroups_refusal(const KdaProblem& problem, const KdaSummaryParts& parts,
                                           const DeviceFacts& facts);
KernelSpec kda_summary_warpgroups_spec(const KdaProblem& problem, const KernelSpec& portable);

// Returns the tensor operations of a thread block for 16 tokens.
int64_t kda_warpgroups_tensor_ops(int64_t width, int64_t values, bool outputs);

// Launch a walk of either family, with tensor maps where it has some.
Status launch_kda_forward(const KernelSlot& kernel, bool packed, int64_t blocks,
                          const KdaForwardParams& forward, CUstream_st* stream);
Status launch_kda_summary(const KernelSlot& kernel, bool packed, int64_t blocks,
                          const KdaSummaryParams& summary, CUstream_st* stream);

}  // namespace lathe
