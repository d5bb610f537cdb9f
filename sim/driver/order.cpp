// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/driver/order.h"

#include <algorithm>

#include "sim/check/race_world.h"
#include "sim/driver/report/report.h"

namespace sim::driver {
namespace {

constexpr size_t kMostShadow = size_t{2} << 30;  // bytes; then earlier launches are forgotten

void join(OrderClocks* to, const OrderClocks& from) {
  for (const auto& [line, number] : from) {
    uint64_t& known = (*to)[line];
    known = std::max(known, number);
  }
}

void join(OrderClocks* to, const LaunchOrder& order) {
  join(to, order.before);
  uint64_t& known = (*to)[order.line];
  known = std::max(known, order.number);
}

uint32_t new_line(Driver& driver) {
  if (driver.free_lines.empty()) return ++driver.lines;
  const uint32_t line = driver.free_lines.back();
  driver.free_lines.pop_back();
  return line;
}

uint32_t line_of(Driver& driver, Stream& stream) {
  if (stream.line == 0) stream.line = new_line(driver);
  return stream.line;
}

// Streams with work, or made to have some.
size_t streams_of(const Device& device) {
  size_t count = 0;
  for (const Context* context : device.contexts) {
    for (const auto& [handle, stream] : context->streams) {
      const bool used = stream->last != nullptr || !stream->legacy;
      count += stream != context->janitor && used ? 1 : 0;
    }
  }
  return count;
}

size_t queued(const Device& device) {
  size_t count = 0;
  for (const Context* context : device.contexts) {
    for (const auto& [handle, stream] : context->streams) count += stream->queue.size();
  }
  return count;
}

// Nothing that the world holds can race any more: all that is still to come comes after it.
bool is_over(const Driver& driver, const Device& device, const LaunchOrder& order) {
  if (device.running > 1) return false;
  if (device.world->bytes() > kMostShadow) return true;
  if (!device.shares) return device.world->over_for(order);
  LaunchOrder seen;
  seen.before = driver.host_clocks;
  return queued(device) == 1 && device.world->over_for(seen);
}

}  // namespace

bool tracks_order(const Driver& driver) { return (driver.options.check & kRacecheck) != 0; }

uint32_t branch_line(Driver& driver, Stream& stream, size_t index) {
  while (stream.branches.size() <= index) stream.branches.push_back(new_line(driver));
  return stream.branches[index];
}

void give_line(Driver& driver, const Stream& stream) {
  std::vector<uint32_t> lines = stream.branches;
  if (!stream.borrows_line && stream.line != 0) lines.push_back(stream.line);
  for (const uint32_t line : lines) {
    const auto seen = driver.host_clocks.find(line);
    const bool over = seen != driver.host_clocks.end() && seen->second >= driver.numbers[line];
    if (over) driver.free_lines.push_back(line);
  }
}

void stamp_order(const Driver& driver, Operation& operation) {
  if (tracks_order(driver)) operation.host_clocks = driver.host_clocks;
}

void begin_order(Driver& driver, Stream& stream, Operation& operation) {
  if (!tracks_order(driver)) return;
  LaunchOrder& order = operation.completion->order;
  order = {};
  order.before = std::move(operation.host_clocks);
  GraphRun* const run = operation.graph.get();
  if (run == nullptr) {
    order.line = line_of(driver, stream);
    join(&order.before, stream.known);
  } else {
    if (run->clocks.empty()) {
      run->clocks.resize(run->after.size());
      run->start = stream.known;
    }
    join(&order.before, run->start);
    for (const size_t node : run->after[operation.node]) join(&order.before, run->clocks[node]);
    order.line = branch_line(driver, stream, run->branches[operation.node]);
  }
  for (const CompletionPtr& other : operation.after) join(&order.before, other->order);
  if (operation.primary) {
    order.early = operation.primary->early_for_next(operation.primary_done->order);
  }
  order.number = ++driver.numbers[order.line];
  join(&stream.known, order);
  if (run != nullptr) join(&run->clocks[operation.node], order);
}

void end_order(Driver& driver, Stream& stream, const Operation& operation) {
  if (!tracks_order(driver)) return;
  Completion& completion = *operation.completion;
  if (operation.ready) {  // for what comes after it in its stream, and elsewhere
    join(&stream.known, driver.over_clocks);
    join(&completion.order.before, driver.over_clocks);
  }
  if (completion.value != 0 && completion.writes) host_learns(driver, completion);
  join(&driver.over_clocks, completion.order);
}

void host_learns(Driver& driver, const Completion& completion, bool begins) {
  if (!tracks_order(driver) || completion.order.number == 0) return;
  if (begins) {
    join(&driver.host_clocks, completion.order.before);
  } else {
    join(&driver.host_clocks, completion.order);
  }
}

std::shared_ptr<RaceWorld> world_for(Driver& driver, Device& device, const Operation& operation,
                                     bool tells_dependents) {
  if (!tracks_order(driver)) return nullptr;
  const bool branches = operation.graph && operation.graph->branch_count > 1;
  device.shares = device.shares || branches || streams_of(device) > 1;
  if (device.world && is_over(driver, device, operation.completion->order)) device.world = nullptr;
  if (!device.shares && !tells_dependents && !operation.primary && !device.world) {
    device.memory->take_released();
    return nullptr;
  }
  if (!device.world) device.world = std::make_shared<RaceWorld>();
  for (const auto& [base, bytes] : device.memory->take_released()) {
    device.world->forget(base, bytes);
  }
  return device.world;
}

void check_move(const char* name, Memory* memory, uint64_t to, uint64_t from, uint64_t bytes) {
  const Operation* const operation = thread_state().operation;
  if (operation == nullptr || bytes == 0) return;
  Driver& driver = Driver::get();
  std::shared_ptr<RaceWorld> world;
  {
    const Lock lock(driver.mutex);
    const auto device =
        std::find_if(driver.devices.begin(), driver.devices.end(),
                     [&](const auto& each) { return each->memory.get() == memory; });
    // Another device's launches may be running.
    if (device == driver.devices.end() || device->get() != thread_state().device) return;
    world = world_for(driver, **device, *operation, false);
  }
  if (!world) return;
  const std::vector<Finding> findings =
      race_move(*world, {name, operation->completion->order, to, from, bytes});
  for (const Finding& finding : findings) report_finding(finding);
}

}  // namespace sim::driver
