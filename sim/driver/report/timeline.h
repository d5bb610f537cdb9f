// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Model time says when work would begin and end on the devices that sim/model and sim/clock
// describe.
//
// A piece of work begins when its stream, the work that it waits for and the host thread that
// enqueued it allow, and lasts what the model says: a launch by its counters or by the clock, a
// copy by its bytes, a message by the link's latency and bytes. Kernels and copies of one device
// that overlap share it (model_time.h). Messages share only their link, and take no
// multiprocessors; ranks that share a simulated device count as devices of their own. The host
// takes no time.
//
// Times are settled when somebody asks: then all that has run so far finds its place, in model
// time, so that they do not depend on the order in which the simulator runs things. The host's
// waits therefore let the device come to rest first.
//
// Everything is guarded by Driver::mutex.
#pragma once

#include "sim/driver/report/model_time.h"
#include "sim/driver/report/timeline_export.h"
#include "sim/driver/state.h"

namespace sim::driver {

// A piece of work describes itself in a TimelineEvent while it runs, on the thread that runs it.
struct TimelineEvent {
  const char* kind = nullptr;  // null: nothing worth a line
  std::string name;
  std::string bound;  // of a launch: the resource that takes longest
  uint64_t bytes = 0;
  std::vector<Phase> phases;
  uint64_t sampled = 0;     // of a launch: the blocks that ran, if not all did
  bool clocked = false;     // of a launch: its time is the clock's, not the model's
  int triggers_after = -1;  // of a launch: see Timed
  int waits_after = 0;
};

// Says whether the environment asked for a timeline. Without one all of the following do nothing.
bool keeps_timeline(const Driver& driver);

// The work itself calls this, without the lock.
void record(TimelineEvent event);
// Bytes take one of these paths from one place to another. Within a device they are read and
// written.
enum class Path { fill, device, link, host };
void record_copy(const char* name, uint64_t bytes, Path path);

// Notes the host's clock and the rank, and what the host has seen, at the submission.
void stamp(Stream& stream, Operation& operation);
// The work is over: it will find its place in model time.
void advance(Driver& driver, Stream& stream, Operation& operation, TimelineEvent event);
// Returns when the work is over, in model time of now; 0 if it is of before a restart.
double time_of(Driver& driver, const Completion& completion);
// Notes that the calling thread has seen that this work is over.
void host_saw(const Completion& completion);
// Returns when the work that the calling thread runs begins.
double begin_of_running(Driver& driver);
// Sets all clocks to 0; nothing may be running.
void restart(Driver& driver);
// Settles what has run so far, at the end of the process.
void settle_at_exit();

}  // namespace sim::driver
