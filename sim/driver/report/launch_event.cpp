// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says what a launch does in model time: how long, in how many places for blocks, with
// which resources.
#include <algorithm>
#include <cmath>

#include "sim/driver/code/function.h"
#include "sim/driver/report/report.h"
#include "sim/driver/report/timeline.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

uint64_t product(const uint32_t (&size)[3]) { return uint64_t{size[0]} * size[1] * size[2]; }

// This is the time of a launch that has the device to itself, by the model or the clock.
struct Alone {
  double start = 0, microseconds = 0;  // to start the kernel; its work
  double waves = 0, tail = 0;          // as in clock::KernelTime
  Uses uses;
};

Alone by_model(const Grid& grid, const Profile& profile, const model::Prediction& prediction,
               const model::Gpu& gpu) {
  Alone out;
  out.start = 1e6 * gpu.launch_seconds;
  out.microseconds = std::max(0.0, 1e6 * prediction.seconds - out.start);
  const auto blocks = static_cast<double>(product(grid.grid));
  const int resident = std::max(1, most_blocks_per_multiprocessor(
                                       *grid.kernel, profile, static_cast<int>(product(grid.block)),
                                       grid.dynamic_shared_bytes));
  out.waves = blocks / (static_cast<double>(resident) * gpu.multiprocessors);
  const double busy = std::min(1.0, blocks / gpu.multiprocessors);
  for (const model::Term& term : prediction.terms) {
    const std::string name = term.resource;
    const bool of_device = name == "DRAM" || name == "L2";
    if (term.cycles > 0) out.uses[name] = term.cycles / prediction.cycles * (of_device ? 1 : busy);
  }
  return out;
}

// Cuts the work where it triggers its secondary launch, where it waits for its primary one, and
// where the last blocks leave places empty. With several rounds of blocks the first round waits,
// and the last one triggers.
void cut(const Alone& alone, const Outcome& outcome, TimelineEvent* event) {
  const double rounds = std::max(1.0, alone.waves);
  const double tells = 1 - (1 - outcome.told) / rounds;
  const double waits = std::max(0.0, outcome.waited) / rounds;
  const double full = alone.waves > 1 ? 1 - alone.tail : 1;
  const double rest = alone.waves - std::floor(alone.waves);
  double edges[] = {waits, tells, full, 1};
  std::sort(std::begin(edges), std::end(edges));
  event->phases = {{alone.start, 0, {}}};
  event->triggers_after = -1;
  event->waits_after = 0;
  double from = 0;
  for (const double to : edges) {
    if (to > from) {
      const bool emptying = from >= full;
      const double room = emptying ? (rest > 0 ? rest : 0.5) : std::min(1.0, alone.waves);
      event->phases.push_back({(to - from) * alone.microseconds, room, alone.uses});
      from = to;
    }
    const int last = static_cast<int>(event->phases.size()) - 1;
    if (to == tells && outcome.told < 1) event->triggers_after = last;
    if (to == waits && outcome.waited >= 0) event->waits_after = last;
  }
  // A launch that never waits is held up only at its end.
  if (outcome.waited < 0) event->waits_after = static_cast<int>(event->phases.size());
}

}  // namespace

void record_launch(const Grid& grid, const Outcome& outcome, const Profile& profile,
                   const ClockTime& clock) {
  const model::Gpu* gpu = model::find_gpu(profile.gpu);
  if (gpu == nullptr || thread_state().timeline_event == nullptr) return;
  const model::Prediction prediction = model::predict(outcome.counters, product(grid.grid), *gpu);
  const bool clocked = clock.microseconds > 0;
  TimelineEvent event;
  event.kind = "launch";
  event.name = grid.kernel->name;
  event.bound = clocked ? clock.bound : prediction.bound;
  event.bytes = 32 * (outcome.counters.unique_load_sectors + outcome.counters.unique_store_sectors);
  event.sampled = outcome.counters.sampled_blocks;
  event.clocked = clocked;
  cut(clocked ? Alone{clock.launch_microseconds, clock.microseconds, clock.waves, clock.tail,
                      clock.uses}
              : by_model(grid, profile, prediction, *gpu),
      outcome, &event);
  record(std::move(event));
}

}  // namespace sim::driver
