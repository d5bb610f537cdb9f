// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles clocks of streams, and the lines of LATHE_SIM_TIMELINE.
#include "sim/driver/report/timeline.h"

#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/driver/work.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

constexpr double kMicro = 1e6;       // microseconds in a second
constexpr double kNothing = 0.0005;  // microseconds: a shorter wait is none

double time_of(const Driver& driver, const Completion& completion) {
  return completion.age == driver.timeline_age ? completion.model : 0;
}

// Returns a member of the timeline: who, where, what, when.
JsonLine line_of(const Stream& stream, uint64_t handle, const char* kind, const std::string& name,
                 double begin, double end) {
  JsonLine line;
  line.add("rank", stream.rank, "context", stream.context->handle, "stream", handle, "kind", kind,
           "name", name, "begin", begin, "end", end);
  return line;
}

void write_wait(const Stream& stream, uint64_t handle, const char* what, double begin, double end) {
  if (end - begin > kNothing) {
    report_timeline(line_of(stream, handle, "wait", what, begin, end));
  }
}

// Writes the messages behind a value: first whoever is late, then the bytes. Returns the end.
double write_arrival(const Stream& stream, uint64_t handle, const Arrival& arrival, double begin) {
  if (arrival.name.empty()) {
    write_wait(stream, handle, "value", begin, arrival.end);
    return std::max(begin, arrival.end);
  }
  const double start = std::max(begin, arrival.begin), end = std::max(start, arrival.end);
  write_wait(stream, handle, "partner", begin, start);
  JsonLine line = line_of(stream, handle, "transfer", arrival.name, start, end);
  line.add("bytes", std::max(arrival.sent, arrival.received), "sent", arrival.sent, "received",
           arrival.received, "peer", arrival.peer);
  report_timeline(line);
  return end;
}

void write_deed(const Stream& stream, uint64_t handle, const Deed& deed, double begin, double end) {
  JsonLine line = line_of(stream, handle, deed.kind, deed.name, begin, end);
  line.add("bytes", deed.bytes);
  if (!deed.bound.empty()) line.add("bound", deed.bound);
  if (deed.sampled > 0) line.add("sampled_blocks", deed.sampled);
  report_timeline(line);
}

// Returns the driver with its lock, if there is a timeline to keep; null before cuInit and in a
// forked child, where the lock may be held by a thread that is not here.
Driver* live(Lock* lock) {
  if (forked()) return nullptr;
  Driver& driver = Driver::get();
  *lock = Lock(driver.mutex);
  return driver.initialized && keeps_timeline(driver) ? &driver : nullptr;
}

}  // namespace

bool keeps_timeline(const Driver& driver) { return !driver.options.timeline.empty(); }

void tell(Deed deed) {
  Deed* current = thread_state().deed;
  if (current != nullptr) *current = std::move(deed);
}

void tell_copy(const char* name, uint64_t bytes, Path path) {
  if (thread_state().deed == nullptr) return;
  const Options& options = Driver::get().options;
  const model::Gpu* gpu = model::find_gpu(options.profile.gpu);
  if (gpu == nullptr) return;
  const auto count = static_cast<double>(bytes);
  double seconds = 0;
  switch (path) {
    case Path::fill:
      seconds = count / gpu->dram_bytes;
      break;
    case Path::device:
      seconds = 2 * count / gpu->dram_bytes;
      break;
    case Path::link:
      seconds = options.link_latency + count / options.link_bytes;
      break;
    case Path::host:
      seconds = count / gpu->host_bytes;
      break;
  }
  tell({"copy", name, "", bytes, kMicro * (seconds + gpu->launch_seconds), 0});
}

namespace {

// Without what other streams make it wait for. A node comes after those before it, not after all of
// its stream.
double earliest_of(const Stream& stream, const Operation& operation) {
  const double clock = std::max(stream.model, operation.not_before);
  if (!operation.graph) return clock;
  const GraphRun& run = *operation.graph;
  double begin = run.begun ? run.begin : clock;
  for (const size_t before : run.after[operation.node]) begin = std::max(begin, run.ends[before]);
  return begin;
}

}  // namespace

double begin_of(const Driver& driver, const Stream& stream, const Operation& operation) {
  double begin = earliest_of(stream, operation);
  for (const CompletionPtr& other : operation.after) {
    begin = std::max(begin, time_of(driver, *other));
  }
  return begin;
}

void stamp(Stream& stream, Operation& operation) {
  const ThreadState& thread = thread_state();
  if (thread.age == Driver::get().timeline_age) operation.not_before = thread.model;
  if (stream.rank < 0) stream.rank = thread.rank;
}

void advance(Driver& driver, Stream& stream, Operation& operation, const Deed& deed) {
  if (!keeps_timeline(driver) || stream.hidden) return;
  const bool node = operation.graph != nullptr;
  const double earliest = earliest_of(stream, operation);
  const double begin = begin_of(driver, stream, operation);
  if (node && !operation.graph->begun) {
    operation.graph->begin = operation.graph->latest = earliest;
    operation.graph->begun = true;
  }
  uint64_t handle = node ? operation.graph->streams[operation.node] : stream.shown_as;
  if (handle == 0) handle = stream.handle;
  write_wait(stream, handle, "event", earliest, begin);
  double end = begin + deed.microseconds;
  if (deed.kind != nullptr) write_deed(stream, handle, deed, begin, end);
  const uint64_t value = operation.completion->value;
  if (operation.completion->writes) {
    driver.arrivals[value] = {end, end, "", 0, 0, -1};
  } else if (const auto arrival = driver.arrivals.find(value); arrival != driver.arrivals.end()) {
    end = write_arrival(stream, handle, arrival->second, begin);
  }
  if (node) {
    operation.graph->ends[operation.node] = end;
    operation.graph->latest = end = std::max(operation.graph->latest, end);
  }
  stream.model = end;
  operation.completion->model = end;
  operation.completion->age = driver.timeline_age;
}

void host_saw(const Completion& completion) {
  const Driver& driver = Driver::get();
  if (!keeps_timeline(driver) || completion.age != driver.timeline_age) return;
  ThreadState& thread = thread_state();
  if (thread.age != driver.timeline_age) thread.model = 0;
  thread.age = driver.timeline_age;
  thread.model = std::max(thread.model, completion.model);
}

}  // namespace sim::driver

using namespace sim::driver;

SIM_EXTRA double lathe_sim_message_time(uint64_t bytes) {
  Lock lock;
  const Driver* driver = live(&lock);
  if (driver == nullptr) return -1;
  const Options& options = driver->options;
  return kMicro * (options.link_latency + static_cast<double>(bytes) / options.link_bytes);
}

SIM_EXTRA double lathe_sim_event_time(CUevent handle) {
  Lock lock;
  Driver* driver = live(&lock);
  const auto event = driver == nullptr ? nullptr : driver->find<Event>(handle);
  return event && event->recorded ? time_of(*driver, *event->recorded) : 0;
}

SIM_EXTRA double lathe_sim_now() { return thread_state().begin; }

SIM_EXTRA void lathe_sim_arrival(const void* address, const LatheSimTransfer* transfer) {
  Lock lock;
  Driver* driver = live(&lock);
  if (driver == nullptr || transfer == nullptr) return;
  driver->arrivals[reinterpret_cast<uint64_t>(address)] = {
      transfer->end,  transfer->begin,    transfer->name == nullptr ? "" : transfer->name,
      transfer->sent, transfer->received, transfer->peer};
}

SIM_EXTRA void lathe_sim_stream_rank(CUstream handle, int rank) {
  Lock lock;
  Driver* driver = live(&lock);
  const auto stream = driver == nullptr ? nullptr : driver->find<Stream>(handle);
  if (stream) stream->rank = rank;
}

SIM_EXTRA void lathe_sim_thread_rank(int rank) {
  if (thread_state().rank < 0) thread_state().rank = rank;
}

SIM_EXTRA void lathe_sim_hide_stream(CUstream handle) {
  Lock lock;
  Driver* driver = live(&lock);
  const auto stream = driver == nullptr ? nullptr : driver->find<Stream>(handle);
  if (stream) stream->hidden = true;
}

SIM_EXTRA void lathe_sim_restart_timeline(const char* name) {
  Lock lock;
  Driver* driver = live(&lock);
  if (driver == nullptr) return;
  const auto contexts = driver->contexts;  // more may come during a wait
  for (const auto& [context_handle, context] : contexts) {
    synchronize(*driver, lock, *context);
    for (auto& [handle, stream] : context->streams) stream->model = 0;
  }
  driver->arrivals.clear();
  ++driver->timeline_age;
  JsonLine line;
  line.add("kind", "restart");
  line.add("name", name == nullptr ? "" : name);
  report_timeline(line);
}
