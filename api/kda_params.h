// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a checked call of `kda` to the parameters of its launches.
#pragma once

#include "api/kda_plan.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

struct KdaCall {
  const KdaRequest& request;
  const KdaChunkedShape& shape;
  const KdaLaunch& launch;
  const KdaWorkspace& workspace;
  const Call& call;
};

KdaSummaryParams kda_summary_params(const KdaCall& of, const KernelSpec& walk);
KdaMergeParams kda_merge_params(const KdaCall& of);
// `walk`: the spec whose tiles cut V.
KdaForwardParams kda_forward_params(const KdaCall& of, const KernelSpec& walk);
KdaBackwardScanParams kda_scan_params(const KdaCall& of, const KernelSpec& walk);
KdaBackwardParams kda_backward_params(const KdaCall& of, const KernelSpec& walk);
KdaBackwardFinishParams kda_finish_params(const KdaCall& of);

}  // namespace lathe
