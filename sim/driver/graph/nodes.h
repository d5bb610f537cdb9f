// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: how one is found, and what its parameters make it do.
#pragma once

#include <cuda.h>

#include "sim/driver/graph/capture.h"

namespace sim::driver {

constexpr size_t kNoNode = SIZE_MAX;
size_t index_of(const std::vector<Node>& nodes, CUgraphNode node);

// Each answers why there can be no such work; kernel_action (code/function.h) is the fourth.
CUresult copy_node(Driver& driver, Context& context, const CUDA_MEMCPY3D& params, Action* action);
CUresult fill_node(Driver& driver, Context& context, const CUDA_MEMSET_NODE_PARAMS& params,
                   Action* action);
CUresult host_node(Driver& driver, Context& context, const CUDA_HOST_NODE_PARAMS& call,
                   Action* action);

}  // namespace sim::driver
