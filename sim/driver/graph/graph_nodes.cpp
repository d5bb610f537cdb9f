// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles graphs made by hand: nodes of kernels, copies, fills and host functions, and
// their dependencies.
#include <algorithm>

#include "sim/driver/code/function.h"
#include "sim/driver/context.h"
#include "sim/driver/entry.h"
#include "sim/driver/graph/nodes.h"
#include "sim/driver/memory/transfer.h"
#include "sim/driver/work.h"

#undef cuGraphAddDependencies

namespace sim::driver {

size_t index_of(const std::vector<Node>& nodes, CUgraphNode node) {
  for (size_t at = 0; at < nodes.size(); ++at) {
    if (node != nullptr && nodes[at].handle == reinterpret_cast<uint64_t>(node)) return at;
  }
  return kNoNode;
}

CUresult copy_node(Driver& driver, Context&, const CUDA_MEMCPY3D& params, Action* action) {
  Copy what;
  const CUresult result = read_copy(params, &what);
  return result != CUDA_SUCCESS ? result : copy_action(driver, what, action);
}

CUresult fill_node(Driver& driver, Context&, const CUDA_MEMSET_NODE_PARAMS& params,
                   Action* action) {
  const Fill what = {.to = params.dst,
                     .value = params.value,
                     .element = params.elementSize,
                     .columns = params.width,
                     .rows = params.height,
                     .pitch = params.height > 1 ? params.pitch : 0};
  return fill_action(driver, what, action);
}

CUresult host_node(Driver&, Context&, const CUDA_HOST_NODE_PARAMS& call, Action* action) {
  if (call.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *action = [call] { return run_host_function(call.fn, call.userData); };
  return CUDA_SUCCESS;
}

}  // namespace sim::driver

using namespace sim::driver;

namespace {

// Captured nodes get a handle when somebody asks for one.
uint64_t handle_for(Driver& driver, Node& node) {
  if (node.handle == 0) {
    node.handle = driver.next_handle;
    driver.next_handle += 16;
  }
  return node.handle;
}

// Returns true if `node` comes, by way of others, after `before`.
bool comes_after(const Graph& graph, size_t node, size_t before) {
  std::vector<bool> seen(graph.nodes.size(), false);
  std::vector<size_t> pending = {node};
  while (!pending.empty()) {
    const size_t at = pending.back();
    pending.pop_back();
    if (at == before) return true;
    if (seen[at]) continue;
    seen[at] = true;
    pending.insert(pending.end(), graph.nodes[at].after.begin(), graph.nodes[at].after.end());
  }
  return false;
}

// make(driver, context, *params, &action): the node's work, or why it cannot be.
template <typename Params, typename F>
CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                  CUgraphNodeType type, const Params* params, F make) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    auto graph = driver.find<Graph>(handle);
    if (!graph || out == nullptr || (count > 0 && after == nullptr)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Node node;
    node.type = type;
    for (size_t at = 0; at < count; ++at) {
      const size_t index = index_of(graph->nodes, after[at]);
      const bool twice = std::find(node.after.begin(), node.after.end(), index) != node.after.end();
      if (index == kNoNode || twice) return CUDA_ERROR_INVALID_VALUE;
      node.after.push_back(index);
    }
    const CUresult result = make(driver, context, *params, &node.action);
    if (result != CUDA_SUCCESS) return result;
    *out = reinterpret_cast<CUgraphNode>(handle_for(driver, node));
    graph->nodes.push_back(std::move(node));
    return CUDA_SUCCESS;
  });
}

// Fills `out` with the handles of the nodes that `wanted` picks; without `out`, counts them.
template <typename F>
CUresult list_nodes(CUgraph handle, CUgraphNode* out, size_t* count, F wanted) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto graph = driver.find<Graph>(handle);
    if (!graph || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    for (Node& node : graph->nodes) {
      if (!wanted(node)) continue;
      if (out != nullptr && found < *count) {
        out[found] = reinterpret_cast<CUgraphNode>(handle_for(driver, node));
      }
      ++found;
    }
    for (size_t at = found; out != nullptr && at < *count; ++at) out[at] = nullptr;
    *count = out == nullptr ? found : std::min(found, *count);
    return CUDA_SUCCESS;
  });
}

CUresult add_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                          size_t count) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto graph = driver.find<Graph>(handle);
    if (!graph || (count > 0 && (from == nullptr || to == nullptr))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<Node> before = graph->nodes;  // all or nothing
    for (size_t at = 0; at < count; ++at) {
      const size_t first = index_of(graph->nodes, from[at]),
                   second = index_of(graph->nodes, to[at]);
      const bool known = first != kNoNode && second != kNoNode;
      std::vector<size_t>* list = known ? &graph->nodes[second].after : nullptr;
      if (!known || std::find(list->begin(), list->end(), first) != list->end() ||
          comes_after(*graph, first, second)) {
        graph->nodes = std::move(before);
        return CUDA_ERROR_INVALID_VALUE;
      }
      list->push_back(first);
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

SIM_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  return add_node(out, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, params, kernel_action);
}

SIM_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                             size_t count, const CUDA_MEMCPY3D* params, CUcontext) {
  return add_node(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, params, copy_node);
}

SIM_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                             size_t count, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return add_node(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMSET, params, fill_node);
}

SIM_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                           const CUDA_HOST_NODE_PARAMS* params) {
  return add_node(out, graph, after, count, CU_GRAPH_NODE_TYPE_HOST, params, host_node);
}

SIM_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                            size_t count) {
  return add_node(out, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, "",
                  [](Driver&, Context&, char, Action*) { return CUDA_SUCCESS; });
}

SIM_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                               size_t count) {
  return add_dependencies(graph, from, to, count);
}

// Edges are full dependencies, whatever else their data would allow.
SIM_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  const CUgraphEdgeData*, size_t count) {
  return add_dependencies(graph, from, to, count);
}

SIM_API cuGraphGetNodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  return list_nodes(graph, out, count, [](const Node&) { return true; });
}

SIM_API cuGraphGetRootNodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  return list_nodes(graph, out, count, [](const Node& node) { return node.after.empty(); });
}

SIM_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* out) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& [graph_handle, object] : driver.graphs) {
      const auto graph = std::dynamic_pointer_cast<Graph>(object);
      const size_t at = graph ? index_of(graph->nodes, handle) : kNoNode;
      if (at == kNoNode) continue;
      if (graph->nodes[at].type < 0) return CUDA_ERROR_NOT_SUPPORTED;
      *out = static_cast<CUgraphNodeType>(graph->nodes[at].type);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuGraphClone(CUgraph* out, CUgraph handle) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto graph = driver.find<Graph>(handle);
    if (out == nullptr || !graph) return CUDA_ERROR_INVALID_VALUE;
    auto copy = driver.add(std::make_shared<Graph>());
    copy->nodes = graph->nodes;
    for (Node& node : copy->nodes) node.handle = 0;  // nodes of their own
    driver.graphs[copy->handle] = copy;
    *out = handle_of<CUgraph>(copy);
    return CUDA_SUCCESS;
  });
}
