// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes (sm_90), the state of a ring of stages,
// and named barriers of some warps of a block.
//
//   if (threadIdx.x == 0) lathe::mbarrier_init(full, 1), lathe::fence_mbarrier_init();
//   __syncthreads();
//   if (threadIdx.x == 0) lathe::mbarrier_arrive_expect(full, bytes);  // then a copy that tells it
//   lathe::PipelineState<kStages> state;
//   lathe::mbarrier_wait(full + 8 * state.stage, state.phase);
#pragma once

#include "common/mbarrier.cuh"
