// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file gives nodes of graphs other parameters: before a graph is instantiated, or after it.
#include "sim/driver/code/function.h"
#include "sim/driver/entry.h"
#include "sim/driver/graph/nodes.h"

using namespace sim::driver;

namespace {

// make(driver, context, *params, &action): the node's new work. A captured node has no type.
template <typename Params, typename F>
CUresult change(Driver& driver, Context& context, std::vector<Node>& nodes, CUgraphNode handle,
                CUgraphNodeType type, const Params* params, F make) {
  const size_t at = index_of(nodes, handle);
  if (params == nullptr || at == kNoNode) return CUDA_ERROR_INVALID_VALUE;
  if (nodes[at].type < 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (nodes[at].type != type) return CUDA_ERROR_INVALID_VALUE;
  Action action;
  const CUresult result = make(driver, context, *params, &action);
  if (result == CUDA_SUCCESS) nodes[at].action = std::move(action);
  return result;
}

// Graphs instantiated before keep what they had.
template <typename Params, typename F>
CUresult change_in_graph(CUgraphNode handle, CUgraphNodeType type, const Params* params, F make) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    for (const auto& [graph_handle, object] : driver.graphs) {
      const auto graph = std::dynamic_pointer_cast<Graph>(object);
      if (!graph || index_of(graph->nodes, handle) == kNoNode) continue;
      return change(driver, context, graph->nodes, handle, type, params, make);
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

template <typename Params, typename F>
CUresult change_in_exec(CUgraphExec exec_handle, CUgraphNode handle, CUgraphNodeType type,
                        const Params* params, F make) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    const auto exec = driver.find<GraphExec>(exec_handle);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    return change(driver, context, exec->nodes, handle, type, params, make);
  });
}

}  // namespace

SIM_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return change_in_graph(node, CU_GRAPH_NODE_TYPE_KERNEL, params, kernel_action);
}

SIM_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  return change_in_graph(node, CU_GRAPH_NODE_TYPE_MEMCPY, params, copy_node);
}

SIM_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return change_in_graph(node, CU_GRAPH_NODE_TYPE_MEMSET, params, fill_node);
}

SIM_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return change_in_graph(node, CU_GRAPH_NODE_TYPE_HOST, params, host_node);
}

SIM_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                          const CUDA_KERNEL_NODE_PARAMS* params) {
  return change_in_exec(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, params, kernel_action);
}

SIM_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                       const CUDA_MEMCPY3D* params, CUcontext) {
  return change_in_exec(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, params, copy_node);
}

SIM_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                       const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return change_in_exec(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, params, fill_node);
}

SIM_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                     const CUDA_HOST_NODE_PARAMS* params) {
  return change_in_exec(exec, node, CU_GRAPH_NODE_TYPE_HOST, params, host_node);
}
