// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch, from inside a grid: it tells when the next one may start, and
// waits for those in front.
#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

void tell(Warp& w) {
  Block& block = *w.block;
  Dependence* const dependence = w.worker->launch->grid->dependence.get();
  const bool first = block.told.warp == nullptr;
  if (first) block.told = {&w, w.executed};
  if (!dependence) return;
  dependence->told = true;
  if (w.race && !race_has_waited(w)) dependence->told_unwaited = true;
  if (first) --dependence->blocks;
}

}  // namespace

// The first try ends the turn of the warp, so that what it has executed is counted.
bool grid_control(Warp& w, const Inst& inst) {
  if (!w.at_grid_control) {
    w.at_grid_control = true;
    return false;
  }
  const Launch& launch = *w.worker->launch;
  const bool waits = form_of(w, inst).has(kWaitMod);
  if (waits && launch.settings->primary_over && !launch.settings->primary_over()) {
    w.block->cluster->awaits_primary = true;
    return false;
  }
  w.at_grid_control = false;
  if (!waits) {
    tell(w);
    return true;
  }
  if (!w.block->waited.warp) w.block->waited = {&w, w.executed};
  if (launch.grid->dependence) launch.grid->dependence->waited = true;
  race_grid_wait(w);
  return true;
}

void end_dependence(Worker& worker, const Block& block) {
  const auto share = [](const Milestone& m) {
    return static_cast<double>(m.executed) /
           static_cast<double>(std::max<uint64_t>(1, m.warp->executed));
  };
  if (block.told.warp) {
    worker.told += share(block.told);
    ++worker.told_blocks;
  } else if (Dependence* const dependence = worker.launch->grid->dependence.get()) {
    --dependence->blocks;
  }
  if (!block.waited.warp) return;
  worker.waited += share(block.waited);
  ++worker.waited_blocks;
}

}  // namespace sim
