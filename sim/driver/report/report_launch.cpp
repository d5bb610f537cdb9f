// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A launch's line in the counters file: all counters flat, and by PTX line where they were kept.
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

void add_traffic(JsonLine& line, const std::string& name, const Counters::Traffic& traffic) {
  line.raw(name + "_requests", std::to_string(traffic.requests));
  line.raw(name + "_bytes", std::to_string(traffic.bytes));
  line.raw(name + "_sectors", std::to_string(traffic.sectors));
  line.raw(name + "_minimum_sectors", std::to_string(traffic.minimum_sectors));
  line.raw(name + "_conflicts", std::to_string(traffic.conflicts));
  line.raw(name + "_wavefronts", std::to_string(traffic.wavefronts));
}

std::string lines_json(const std::vector<LineCounters>& lines) {
  std::string all = "[";
  for (const LineCounters& each : lines) {
    JsonLine line;
    line.add("ptx_line", each.ptx_line);
    line.add("source", each.source);
    line.add("text", each.text);
    line.add("class", each.cls);
    line.add("executions", each.executions);
    line.add("thread_instructions", each.thread_instructions);
    line.add("global_requests", each.global_requests);
    line.add("global_bytes", each.global_bytes);
    line.add("global_sectors", each.global_sectors);
    line.add("shared_requests", each.shared_requests);
    line.add("shared_bytes", each.shared_bytes);
    line.add("shared_wavefronts", each.shared_wavefronts);
    line.add("tensor_ops", each.tensor_ops);
    line.add("barrier_waits", each.barrier_waits);
    if (all.size() > 1) all += ',';
    all += line.text();
  }
  return all + "]";
}

// What the launch would take on the device, by sim/model.
void add_prediction(JsonLine& line, const Grid& grid, const Counters& counters,
                    const std::string& name) {
  const model::Gpu* gpu = model::find_gpu(name);
  if (gpu == nullptr) return;
  const uint64_t blocks = uint64_t{grid.grid[0]} * grid.grid[1] * grid.grid[2];
  const model::Prediction prediction = model::predict(counters, blocks, *gpu);
  JsonLine terms;
  for (const model::Term& term : prediction.terms) {
    terms.add(term.resource, static_cast<uint64_t>(term.cycles));
  }
  JsonLine out;
  out.add("gpu", name);
  out.add("clock_hz", gpu->clock_hz);
  out.add("launch_seconds", gpu->launch_seconds);
  out.add("cycles", static_cast<uint64_t>(prediction.cycles));
  out.add("seconds", prediction.seconds);
  out.add("bound", prediction.bound);
  out.add("terms", terms);
  line.add("predicted", out);
}

}  // namespace

void add_launch(JsonLine& line, const Grid& grid, const Outcome& outcome, const std::string& gpu) {
  const Counters& counters = outcome.counters;
  line.add("kernel", grid.kernel->name);
  line.add_address("module", grid.image->module->digest());
  line.add("grid", grid.grid);
  line.add("block", grid.block);
  line.add("cluster", grid.cluster);
  line.add("dynamic_shared_bytes", uint64_t{grid.dynamic_shared_bytes});
  line.add("error", outcome.error);
  line.add("seconds", counters.seconds);
  if (counters.sampled_blocks > 0) line.add("sampled_blocks", counters.sampled_blocks);
  line.add("warp_instructions", counters.warp_instructions);
  line.add("thread_instructions", counters.thread_instructions);
  line.add("tensor_ops", counters.tensor_ops);
  line.add("barrier_waits", counters.barrier_waits);
  add_traffic(line, "global_load", counters.global_load);
  add_traffic(line, "global_store", counters.global_store);
  add_traffic(line, "global_atomic", counters.global_atomic);
  add_traffic(line, "shared_load", counters.shared_load);
  add_traffic(line, "shared_store", counters.shared_store);
  add_traffic(line, "local_load", counters.local_load);
  add_traffic(line, "local_store", counters.local_store);
  add_traffic(line, "const_load", counters.const_load);
  line.add("unique_load_sectors", counters.unique_load_sectors);
  line.add("unique_store_sectors", counters.unique_store_sectors);
  JsonLine classes;
  for (const auto& [name, count] : counters.by_class) classes.add(name.c_str(), count);
  line.add("by_class", classes);
  add_prediction(line, grid, counters, gpu);
  if (!counters.lines.empty()) line.raw("lines", lines_json(counters.lines));
}

}  // namespace sim::driver
