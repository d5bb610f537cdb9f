// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles a graph whose nodes may wait for values: branches are streams.
#include <algorithm>

#include "sim/driver/graph/capture.h"
#include "sim/driver/order.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

// Gone once it has nothing left to do.
std::shared_ptr<Stream> make_branch(Driver& driver, Stream& of, size_t index) {
  Context& context = *of.context;
  auto stream = driver.add(std::make_shared<Stream>());
  stream->context = &context;
  stream->flags = CU_STREAM_NON_BLOCKING;
  stream->destroyed = true;
  stream->rank = of.rank;
  stream->line = branch_line(driver, of, index);
  stream->borrows_line = true;
  context.streams[stream->handle] = stream;
  driver.objects.erase(stream->handle);
  return stream;
}

}  // namespace

std::vector<size_t> branches_of(const std::vector<Node>& nodes, const std::vector<size_t>& order,
                                size_t* count) {
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> branch(nodes.size(), kNone), newest;  // the last node of each branch
  for (const size_t node : order) {
    for (const size_t before : nodes[node].after) {
      if (branch[node] == kNone && newest[branch[before]] == before) branch[node] = branch[before];
    }
    if (branch[node] == kNone) {
      branch[node] = newest.size();
      newest.push_back(node);
    }
    newest[branch[node]] = node;
  }
  *count = newest.size();
  return branch;
}

CUresult launch_branches(Driver& driver, const GraphExec& exec, const std::vector<size_t>& order,
                         Stream& stream) {
  const std::vector<Node>& nodes = exec.nodes;
  std::vector<CompletionPtr> done(nodes.size());
  std::vector<std::shared_ptr<Stream>> branch(nodes.size());
  std::map<Stream*, size_t> newest;  // the last node of each branch
  CompletionPtr start;
  CUresult result = submit(driver, stream, nullptr, {}, &start);
  for (size_t node : order) {
    if (result != CUDA_SUCCESS) return result;
    std::vector<CompletionPtr> after = {start};
    for (size_t before : nodes[node].after) {
      after.push_back(done[before]);
      if (!branch[node] && newest[branch[before].get()] == before) branch[node] = branch[before];
    }
    if (!branch[node]) branch[node] = make_branch(driver, stream, newest.size());
    newest[branch[node].get()] = node;
    result = submit(driver, *branch[node], nodes[node].action, std::move(after), &done[node],
                    nodes[node].ready);
    if (result != CUDA_SUCCESS) break;
    branch[node]->shown_as = nodes[node].stream;
    done[node]->value = nodes[node].value;
    done[node]->writes = nodes[node].writes;
  }
  if (result != CUDA_SUCCESS) return result;
  // User objects outlive the run, even if the graph is destroyed meanwhile.
  auto held = std::make_shared<std::vector<std::shared_ptr<Object>>>(exec.held);
  const auto end = [held] {
    held->clear();
    return CUDA_SUCCESS;
  };
  return submit(driver, stream, end, std::move(done));
}

}  // namespace sim::driver
