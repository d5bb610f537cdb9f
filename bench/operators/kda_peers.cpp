// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/kda_peers.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "bench/operators/attn_work.h"
#include "bench/operators/kda_call.h"
#include "bench/operators/measure.h"
#include "bench/peers.h"

namespace bench {
namespace {

// Lines of CSV without quoted cells that hold commas, but for the last of their kind.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// Adds what tests/peers/kda_bytes.py tells.
void add_fla(Table* table, const std::string& folder) {
  namespace fs = std::filesystem;
  if (!have_peers(folder)) return;
  const fs::path build = fs::path(folder).parent_path(), peers = peers_of(folder);
  const fs::path script = fs::path(LATHE_SOURCE_DIR) / "tests/peers/kda_bytes.py";
  const std::string sim = (build / "sim").string();
  const std::string command = "LD_LIBRARY_PATH='" + (peers / "standins").string() + ":" + sim +
                              "' TRITON_LIBCUDA_PATH='" + sim + "' '" +
                              (peers / "venv/bin/python").string() + "' '" + script.string() +
                              "' --work '" + peers.string() + "' 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no process for " + script.string());
  std::array<char, 4096> buffer{};
  bool first = true;
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) {
    std::string line = buffer.data();
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (!first) table->add(split(line));
    first = false;
  }
  if (pclose(pipe) != 0 || first) throw std::runtime_error(script.string() + " failed");
}

void add_ours(Table* table, lathe_context* context, const KdaSize& size) {
  const KdaCall call(context, size);
  double memory = 0, asked = 0, tensor = 0;
  size_t launches = 0;
  // Either in one segment, or in as many as the simulated device would be given.
  const std::string options = std::string(size.fused ? "fused" : "plain") +
                              (size.segments == 1 ? ", 1 segment" : ", segments as chosen");
  KdaSize bare = size;
  bare.fused = false, bare.segments = 0;
  const std::string shape = bare.text() + " " + size.dtype_word();
  const auto add = [&](const std::string& what, size_t count, double bytes, double sectors,
                       double ops) {
    table->add({"lathe", shape, options, size.op(), what, std::to_string(count),
                number(bytes / 1e6, 3), number(sectors / 1e6, 3), number(ops / 1e6, 0)});
  };
  for (const std::string& line : call.counted()) {
    const AttnCounts one = attn_counts({line});
    lathe_kernel_info kernel{};
    kernel.size = sizeof kernel;
    API(lathe_plan_kernel(call.plan(), launches++, &kernel));  // all of them run, in this order
    add(kernel.name, 1, one.memory_bytes, one.asked_bytes, one.tensor_ops);
    memory += one.memory_bytes, asked += one.asked_bytes, tensor += one.tensor_ops;
  }
  add("total", launches, memory, asked, tensor);
  table->add({"lathe", shape, options, size.op(), "workspace", "-",
              number(static_cast<double>(call.workspace_bytes()) / 1e6, 3), "-", "-"});
  if (size.segments == 1)
    table->add({"-", shape, size.fused ? "fused" : "plain", size.op(), "least", "-",
                number(size.minimum_bytes() / 1e6, 3), number(size.minimum_bytes() / 1e6, 3),
                number((size.state_ops() + size.block_ops()) / 1e6, 0)});
}

}  // namespace

Table kda_beside_peers(lathe_context* context, const std::string& folder) {
  Table table({"impl", "shape", "options", "pass", "what", "launches", "memory_MB", "asked_MB",
               "tensor_Mop"});
  KdaSize size;
  size.tokens = 2048, size.heads = 4;
  std::vector<KdaSize> sizes(4, size);
  sizes[0].segments = sizes[1].segments = 1;
  sizes[1].fused = sizes[3].fused = true;
  for (const KdaSize& each : with_backward(sizes)) add_ours(&table, context, each);
  add_fla(&table, folder);
  return table;
}

}  // namespace bench
