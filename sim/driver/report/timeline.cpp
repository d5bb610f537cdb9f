// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file gives work its place in model time, and writes the lines of LATHE_SIM_TIMELINE.
#include "sim/driver/report/timeline.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "sim/driver/entry.h"
#include "sim/driver/order.h"
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/driver/work.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

constexpr double kMicro = 1e6;             // microseconds in a second
constexpr double kNothing = 0.0005;        // microseconds: a shorter wait is none
constexpr size_t kMostUnsettled = 20'000;  // pieces of work
constexpr int kMostTriesAtExit = 1000;     // a millisecond apart

// This says whose line it is.
struct Who {
  int rank;
  uint64_t context, stream;
};

// A line of the timeline's file, which the picture has too if there is one.
void write(Driver& driver, const Who& who, const char* kind, const std::string& name, double begin,
           double end, const std::function<void(JsonLine&)>& more = {}) {
  JsonLine line;
  line.add("rank", who.rank, "context", who.context, "stream", who.stream, "kind", kind, "name",
           name, "begin", begin, "end", end);
  if (more) more(line);
  report_timeline(line);
  if (driver.options.timeline_picture.empty()) return;
  driver.spans.add({who.rank, who.context, who.stream, kind, name, begin, end, line.text()});
}

void write_wait(Driver& driver, const Who& who, const char* what, double begin, double end) {
  if (end - begin > kNothing) write(driver, who, "wait", what, begin, end);
}

// Writes the messages behind a value: first whoever is late, then the bytes.
void write_arrival(Driver& driver, const Who& who, const Arrival& arrival, double begin,
                   double end) {
  if (arrival.name.empty()) return write_wait(driver, who, "value", begin, end);
  const double start = std::max(begin, arrival.begin);
  write_wait(driver, who, "partner", begin, start);
  write(driver, who, "transfer", arrival.name, start, std::max(start, end), [&](JsonLine& line) {
    line.add("bytes", std::max(arrival.sent, arrival.received), "sent", arrival.sent, "received",
             arrival.received, "peer", arrival.peer);
  });
}

void write_event(Driver& driver, const Who& who, const TimelineEvent& event, const Timed& timed) {
  write(driver, who, event.kind, event.name, timed.begin, timed.end, [&](JsonLine& line) {
    line.add("bytes", event.bytes);
    if (!event.bound.empty()) line.add("bound", event.bound);
    if (event.clocked) line.add("by", "clock");
    const double alone = alone_on_device(timed);
    if (timed.end - timed.begin > alone + kNothing) line.add("alone", alone);
    if (timed.primary_wait > kNothing) line.add("front_wait", timed.primary_wait);
    if (event.sampled > 0) line.add("sampled_blocks", event.sampled);
  });
}

// Writes NAME0.svg, NAME0.json, NAME1.svg ...: one pair for each stretch between restarts.
void draw(Driver& driver) {
  const Spans spans = std::exchange(driver.spans, {});
  if (spans.kept.empty()) return;
  const std::string begin = driver.options.timeline_picture + std::to_string(driver.pictures++);
  std::ofstream svg(begin + ".svg"), trace(begin + ".json");
  svg << timeline_svg(spans);
  trace << timeline_trace(spans);
  if (!svg.flush() || !trace.flush()) {
    report_note("LATHE_SIM_TIMELINE_PICTURE: " + begin + ".svg and .json cannot be written");
  }
}

// Gives all that has run its place in model time, and `more`, which has not.
void settle(Driver& driver, const TimedPtr& more = nullptr) {
  std::vector<Unsettled> all = std::exchange(driver.unsettled, {});
  std::vector<TimedPtr> work;
  for (const Unsettled& each : all) work.push_back(each.timed);
  if (more) work.push_back(more);
  driver.model_time.settle(work);
  std::stable_sort(all.begin(), all.end(), [](const Unsettled& a, const Unsettled& b) {
    return a.timed->begin < b.timed->begin;
  });
  for (const Unsettled& each : all) {
    if (each.write) each.write();
  }
}

void keep(Driver& driver, TimedPtr timed, std::function<void()> write) {
  driver.unsettled.push_back({std::move(timed), std::move(write)});
  if (driver.unsettled.size() >= kMostUnsettled) settle(driver);
}

// Ranks count as devices of their own.
uint64_t device_of(const Stream& stream) {
  if (stream.rank >= 0) return static_cast<uint64_t>(stream.rank);
  return uint64_t{1} << 32 | static_cast<uint64_t>(stream.context->device->ordinal);
}

TimedPtr timed_of(const Driver& driver, const Completion& completion) {
  return completion.age == driver.timeline_age ? completion.timed : nullptr;
}

// A piece of work with what it comes after. A node comes after those before it, not after all of
// its stream.
TimedPtr place(const Driver& driver, Stream& stream, const Operation& operation) {
  auto timed = std::make_shared<Timed>();
  timed->not_before = operation.not_before;
  timed->device = device_of(stream);
  timed->own = stream.tails;
  if (GraphRun* const run = operation.graph.get()) {
    if (run->timed.empty()) {
      run->timed.resize(run->after.size());
      run->tails = stream.tails;
    }
    timed->own = run->tails;
    for (const size_t before : run->after[operation.node]) {
      if (run->timed[before]) timed->own.push_back(run->timed[before]);
    }
  }
  for (const CompletionPtr& other : operation.after) {
    if (TimedPtr each = timed_of(driver, *other)) timed->others.push_back(std::move(each));
  }
  if (!operation.primary) return timed;
  timed->primary = timed_of(driver, *operation.primary_done);
  std::erase(timed->own, timed->primary);
  return timed;
}

// Makes the work the one that the next work of its stream comes after.
void set_tail(Stream& stream, const Operation& operation, const TimedPtr& timed) {
  GraphRun* const run = operation.graph.get();
  if (run == nullptr) {
    stream.tails = {timed};
    return;
  }
  if (!std::exchange(run->begun, true)) stream.tails.clear();
  run->timed[operation.node] = timed;
  stream.tails.push_back(timed);
}

}  // namespace

bool keeps_timeline(const Driver& driver) { return !driver.options.timeline.empty(); }

void record(TimelineEvent event) {
  TimelineEvent* current = thread_state().timeline_event;
  if (current != nullptr) *current = std::move(event);
}

void record_copy(const char* name, uint64_t bytes, Path path) {
  if (thread_state().timeline_event == nullptr) return;
  const Options& options = Driver::get().options;
  const model::Gpu* gpu = model::find_gpu(options.profile.gpu);
  if (gpu == nullptr) return;
  const auto count = static_cast<double>(bytes);
  const double dram = kMicro * count / gpu->dram_bytes;
  TimelineEvent event;
  event.kind = "copy";
  event.name = name;
  event.bytes = bytes;
  event.phases = {{kMicro * gpu->launch_seconds, 0, {}}};
  switch (path) {
    case Path::fill:
      event.phases.push_back({dram, 0, {{"DRAM", 1}}});
      break;
    case Path::device:
      event.phases.push_back({2 * dram, 0, {{"DRAM", 1}}});
      break;
    case Path::link:
      event.phases.push_back({kMicro * (options.link_latency + count / options.link_bytes), 0, {}});
      break;
    case Path::host:
      event.phases.push_back({kMicro * count / gpu->host_bytes, 0, {}});
      break;
  }
  record(std::move(event));
}

void stamp(Stream& stream, Operation& operation) {
  const Driver& driver = Driver::get();
  stamp_order(driver, operation);
  if (!keeps_timeline(driver)) return;
  const ThreadState& thread = thread_state();
  if (thread.age == driver.timeline_age) operation.not_before = thread.model;
  if (stream.rank < 0) stream.rank = thread.rank;
}

void advance(Driver& driver, Stream& stream, Operation& operation, TimelineEvent event) {
  if (!keeps_timeline(driver) || stream.hidden) return;
  TimedPtr timed = place(driver, stream, operation);
  timed->phases = event.phases;
  timed->triggers_after = event.triggers_after;
  timed->waits_after = event.waits_after;
  uint64_t handle = operation.graph ? operation.graph->streams[operation.node] : stream.shown_as;
  if (handle == 0) handle = stream.handle;
  const Who who = {stream.rank, stream.context->handle, handle};
  keep(driver, timed, [who, timed = timed.get(), event = std::move(event)] {
    Driver& all = Driver::get();
    write_wait(all, who, "event", timed->earliest, timed->begin);
    if (event.kind != nullptr) write_event(all, who, event, *timed);
  });
  Completion& completion = *operation.completion;
  if (completion.writes) {
    driver.arrivals[completion.value] = {0, 0, "", 0, 0, -1, timed};
  } else if (const auto found = driver.arrivals.find(completion.value);
             completion.value != 0 && found != driver.arrivals.end()) {
    const Arrival arrival = found->second;
    auto arrived = std::make_shared<Timed>();
    arrived->own = {timed};
    arrived->not_before = arrival.end;
    if (arrival.by) arrived->others = {arrival.by};
    keep(driver, arrived, [who, timed, arrived = arrived.get(), arrival] {
      write_arrival(Driver::get(), who, arrival, timed->end, arrived->end);
    });
    timed = arrived;
  }
  set_tail(stream, operation, timed);
  completion.timed = timed;
  completion.age = driver.timeline_age;
}

double time_of(Driver& driver, const Completion& completion) {
  const TimedPtr timed = timed_of(driver, completion);
  if (!timed) return 0;
  if (!timed->settled) settle(driver);
  return timed->end;
}

void host_saw(const Completion& completion) {
  Driver& driver = Driver::get();
  host_learns(driver, completion);
  if (!keeps_timeline(driver) || completion.age != driver.timeline_age) return;
  ThreadState& thread = thread_state();
  if (thread.age != driver.timeline_age) thread.model = 0;
  thread.age = driver.timeline_age;
  thread.model = std::max(thread.model, time_of(driver, completion));
}

double begin_of_running(Driver& driver) {
  const ThreadState& thread = thread_state();
  if (thread.operation == nullptr) return 0;
  const TimedPtr now = place(driver, *thread.stream, *thread.operation);
  settle(driver, now);
  return now->begin;
}

void restart(Driver& driver) {
  for (const auto& [context_handle, context] : driver.contexts) {
    for (auto& [handle, stream] : context->streams) stream->tails.clear();
  }
  settle(driver);
  draw(driver);
  driver.model_time.clear();
  driver.arrivals.clear();
  ++driver.timeline_age;
}

void settle_at_exit() {
  if (forked()) return;
  Driver& driver = Driver::get();
  // A worker that has just ended an operation lets go soon. The end of a process must not wait for
  // who never does, such as a thread that ends it from within a call.
  Lock lock(driver.mutex, std::defer_lock);
  for (int left = kMostTriesAtExit; !lock.try_lock(); --left) {
    if (left == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  settle(driver);
  draw(driver);
}

}  // namespace sim::driver
