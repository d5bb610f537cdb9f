// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles graphs: made by capture, instantiated, launched as work in a stream.
#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/work.h"

using namespace sim::driver;

namespace {

// Some order that respects the dependencies; which one is up to the seed.
std::vector<size_t> order_of(const std::vector<Node>& nodes, std::mt19937_64& random) {
  std::vector<size_t> open(nodes.size()), ready, order;
  std::vector<std::vector<size_t>> next(nodes.size());
  for (size_t node = 0; node < nodes.size(); ++node) {
    open[node] = nodes[node].after.size();
    for (size_t before : nodes[node].after) next[before].push_back(node);
    if (open[node] == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    const size_t at = random() % ready.size();
    const size_t node = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    order.push_back(node);
    for (size_t after : next[node]) {
      if (--open[after] == 0) ready.push_back(after);
    }
  }
  return order;
}

}  // namespace

SIM_API cuGraphCreate(CUgraph* out, unsigned flags) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto graph = driver.add(std::make_shared<Graph>());
    driver.graphs[graph->handle] = graph;
    *out = handle_of<CUgraph>(graph);
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphDestroy(CUgraph handle) {
  std::shared_ptr<Graph> graph;  // dies after the lock, as its user objects call the caller's code
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    graph = driver.find<Graph>(handle);
    if (!graph || driver.graphs.erase(graph->handle) == 0) return CUDA_ERROR_INVALID_VALUE;
    driver.objects.erase(graph->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    auto graph = driver.find<Graph>(handle);
    if (out == nullptr || !graph) return CUDA_ERROR_INVALID_VALUE;
    auto exec = driver.add(std::make_shared<GraphExec>());
    exec->context = &context;
    exec->nodes = graph->nodes;
    exec->held = graph->held;
    driver.graphs[exec->handle] = exec;
    *out = handle_of<CUgraphExec>(exec);
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphExecDestroy(CUgraphExec handle) {
  std::shared_ptr<GraphExec> exec;  // see cuGraphDestroy
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    exec = driver.find<GraphExec>(handle);
    if (!exec || driver.graphs.erase(exec->handle) == 0) return CUDA_ERROR_INVALID_VALUE;
    driver.objects.erase(exec->handle);
    return CUDA_SUCCESS;
  });
}

// The new graph must have the shape of the old one; what its nodes do is taken over.
SIM_API cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle,
                          CUgraphExecUpdateResultInfo* info) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto exec = driver.find<GraphExec>(handle);
    auto graph = driver.find<Graph>(graph_handle);
    if (!exec || !graph || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *info = {};
    const bool same =
        std::equal(exec->nodes.begin(), exec->nodes.end(), graph->nodes.begin(), graph->nodes.end(),
                   [](const Node& a, const Node& b) { return a.after == b.after; });
    if (!same) {
      info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    exec->nodes = graph->nodes;
    exec->held = graph->held;
    info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    auto exec = driver.find<GraphExec>(handle);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Stream> stream;
    CUresult result = resolve_stream(driver, context, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    const std::vector<size_t> order = order_of(exec->nodes, stream->context->device->random);
    const bool waits = std::any_of(exec->nodes.begin(), exec->nodes.end(),
                                   [](const Node& node) { return node.ready != nullptr; });
    if (waits && !stream->capture) return launch_branches(driver, *exec, order, *stream);
    const auto run = std::make_shared<GraphRun>();
    for (const Node& node : exec->nodes) {
      run->after.push_back(node.after);
      run->streams.push_back(node.stream);
    }
    run->branches = branches_of(exec->nodes, order, &run->branch_count);
    for (size_t node : order) {
      result =
          submit(driver, *stream, exec->nodes[node].action, {}, nullptr, exec->nodes[node].ready);
      if (result != CUDA_SUCCESS) return result;
      if (stream->capture) continue;  // nodes of another graph
      stream->queue.back()->completion->value = exec->nodes[node].value;
      stream->queue.back()->completion->writes = exec->nodes[node].writes;
      stream->queue.back()->graph = run;
      stream->queue.back()->node = node;
    }
    return CUDA_SUCCESS;
  });
}
