// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a checked call of `kda` to the parameters of its launches.
#pragma once

#include "ops/kda/request.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Says where one rank among several stands in the whole. The carried states are in the workspace.
// In a call on one rank nothing is set.
struct KdaPartOf {
  bool ranks = false;
  int64_t first = 0;                 // global number of local sequence 0
  const void* cu_seqlens = nullptr;  // of the local sequences, if packed
  KdaCarry carry = {};
};

// Lays out the data that ranks exchange, behind the workspace of one rank. `rows` is that of the
// batch, or 1 if packed.
struct KdaRankWorkspace {
  int64_t end = 0, map = 0, grad = 0;     // of this part: float32 [rows, HV, V or K, K]
  int64_t ends = 0, end_maps = 0;         // of those before, one after another
  int64_t grads = 0, grad_maps = 0;       // of those behind
  int64_t total = 0;                      // with one rank's
  size_t state_bytes = 0, map_bytes = 0;  // of a message
};

struct KdaCall {
  const KdaRequest& request;
  const KdaChunkedShape& shape;
  const KdaLaunch& launch;
  const KdaWorkspace& workspace;
  const Call& call;
  KdaPartOf part;

  // Returns the address of a caller's state tensor at local sequence 0.
  char* states(int tensor) const;
};

KdaSummaryParams kda_summary_params(const KdaCall& of, const KernelSpec& walk);
KdaMergeParams kda_merge_params(const KdaCall& of);
// `walk` is the spec whose tiles cut V.
KdaForwardParams kda_forward_params(const KdaCall& of, const KernelSpec& walk);
KdaBackwardScanParams kda_scan_params(const KdaCall& of, const KernelSpec& walk);
KdaBackwardParams kda_backward_params(const KdaCall& of, const KernelSpec& walk);
KdaBackwardFinishParams kda_finish_params(const KdaCall& of);

}  // namespace lathe
