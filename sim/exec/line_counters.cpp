// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles profiles: what each PTX line did. An instruction is charged with what the
// worker's tally grew by while it ran, so whatever counts there needs to know nothing of lines.
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

LineTally totals(const Tally& t) {
  LineTally sum;
  for (const Traffic* c : {&t.global_load, &t.global_store, &t.global_atomic}) {
    sum.global_requests += c->requests;
    sum.global_bytes += c->bytes;
    sum.global_sectors += c->sectors;
  }
  for (const Traffic* c : {&t.shared_load, &t.shared_store}) {
    sum.shared_requests += c->requests;
    sum.shared_bytes += c->bytes;
    sum.shared_wavefronts += c->wavefronts;
  }
  sum.tensor_ops = t.tensor_ops;
  return sum;
}

// Adds what came after `before`.
void add(LineTally* to, const LineTally& now, const LineTally& before = {}) {
  for (const auto& each : kLineCounts) {
    to->*each.value += now.*each.value - before.*each.value;
  }
}

LineCounters start(const Function& f, const InstInfo& info) {
  LineCounters line;
  line.ptx_line = info.ptx_line;
  line.text = info.text;
  line.cls = kClassNames[static_cast<int>(info.cls)];
  const auto file = static_cast<size_t>(info.file);
  if (info.line != 0 && file < f.files.size()) {
    line.source = f.files[file] + ":" + std::to_string(info.line);
  }
  return line;
}

}  // namespace

bool waits(const InstInfo& info) {
  switch (info.form.op) {
    case Op::bar:
      return !info.form.has(kArrive);
    case Op::bar_warp:
    case Op::mbarrier_test_wait:
    case Op::mbarrier_try_wait:
    case Op::cluster_wait:
    case Op::cp_wait:
    case Op::bulk_wait:
    case Op::wgmma_wait:
      return true;
    default:
      return false;
  }
}

void note_line(Worker& worker, uint32_t pc) {
  const LineTally now = totals(worker.tally);
  if (pc != kNoTarget) add(&worker.lines[pc], now, worker.before);
  worker.before = now;
}

std::vector<LineCounters> collect_lines(const Launch& launch,
                                        const std::vector<std::unique_ptr<HostWorker>>& workers) {
  const Function& f = *launch.function;
  std::map<int, LineCounters> lines;
  for (size_t pc = 0; pc < f.code.size(); ++pc) {
    const InstInfo& info = f.infos[f.code[pc].info];
    if (info.cls == Class::pseudo) continue;
    uint64_t executions = 0;
    for (const auto& worker : workers) executions += worker->counts[pc];
    if (executions == 0) continue;
    LineCounters& line = lines.emplace(info.ptx_line, start(f, info)).first->second;
    line.executions += executions;
    if (waits(info)) line.barrier_waits += executions;
    for (const auto& worker : workers) add(&line, worker->line_tallies[pc]);
  }
  std::vector<LineCounters> all;
  for (auto& [number, line] : lines) all.push_back(std::move(line));
  return all;
}

}  // namespace sim
