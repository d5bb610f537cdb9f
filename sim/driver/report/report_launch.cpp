// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file writes a launch's line in the counters file: all counters flat, and by PTX line where
// they were kept.
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

std::string lines_json(const std::vector<LineCounters>& lines) {
  std::string all = "[";
  for (const LineCounters& each : lines) {
    JsonLine line;
    line.add("ptx_line", each.ptx_line, "source", each.source, "text", each.text, "class", each.cls,
             "executions", each.executions);
    for (const auto& count : kLineCounts) line.add(count.name, each.*count.value);
    line.add("barrier_waits", each.barrier_waits);
    if (all.size() > 1) all += ',';
    all += line.text();
  }
  return all + "]";
}

// Adds the time that the launch would take on the device, by sim/model.
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
  out.add("gpu", name, "clock_hz", gpu->clock_hz, "launch_seconds", gpu->launch_seconds, "cycles",
          static_cast<uint64_t>(prediction.cycles), "seconds", prediction.seconds, "bound",
          prediction.bound, "terms", terms);
  line.add("predicted", out);
}

}  // namespace

void add_counts(JsonLine& line, const Counters& counters) {
  if (counters.sampled_blocks > 0) line.add("sampled_blocks", counters.sampled_blocks);
  if (counters.waits_left_out) line.add("waits_left_out", 1);
  line.add("warp_instructions", counters.warp_instructions, "thread_instructions",
           counters.thread_instructions, "tensor_ops", counters.tensor_ops, "barrier_waits",
           counters.barrier_waits);
  for (const auto& kind : kTrafficKinds) {
    for (const auto& each : kTrafficCounts) {
      const std::string name = std::string(kind.name) + "_" + each.name;
      line.raw(name, std::to_string(counters.*kind.value.*each.value));
    }
  }
  line.add("unique_load_sectors", counters.unique_load_sectors);
  line.add("unique_store_sectors", counters.unique_store_sectors);
  if (counters.unique_prefetch_sectors > 0) {
    line.add("unique_prefetch_sectors", counters.unique_prefetch_sectors);
    line.add("vain_prefetch_sectors", counters.vain_prefetch_sectors);
  }
  JsonLine classes;
  for (const auto& [name, count] : counters.by_class) classes.add(name.c_str(), count);
  line.add("by_class", classes);
}

void add_launch(JsonLine& line, const Grid& grid, const Outcome& outcome, const std::string& gpu) {
  const Counters& counters = outcome.counters;
  line.add("kernel", grid.kernel->name);
  line.add_address("module", grid.image->module->digest());
  line.add("grid", grid.grid, "block", grid.block, "cluster", grid.cluster, "dynamic_shared_bytes",
           uint64_t{grid.dynamic_shared_bytes}, "error", outcome.error, "seconds",
           counters.seconds);
  add_counts(line, counters);
  add_prediction(line, grid, counters, gpu);
  if (!counters.lines.empty()) line.raw("lines", lines_json(counters.lines));
}

}  // namespace sim::driver
