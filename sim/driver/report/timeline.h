// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Model time says when work would begin and end on the devices that sim/model describes.
//
// Every stream has a clock. A piece of work begins when its stream's clock, the work that it waits
// for and the host thread that enqueued it allow, and lasts what the model says: a launch by its
// counters, a copy by its bytes, a message by the link's latency and bytes. So model time is the
// longest path through what the streams and events order, and does not depend on the order in which
// the simulator runs things. Streams share nothing: kernels of two streams, and kernels and
// messages, run beside each other at full rate, ranks that share a simulated device count as
// devices of their own, and messages take no multiprocessors. The host takes no time.
//
// Everything is guarded by Driver::mutex.
#pragma once

#include "sim/driver/report/timeline_export.h"
#include "sim/driver/state.h"

namespace sim::driver {

// A piece of work describes itself in a Deed while it runs, on the thread that runs it.
struct Deed {
  const char* kind = nullptr;  // null: nothing worth a line
  std::string name;
  std::string bound;  // of a launch: the resource that takes longest
  uint64_t bytes = 0;
  double microseconds = 0;
  uint64_t sampled = 0;  // of a launch: the blocks that ran, if not all did
};

// Says whether the environment asked for a timeline. Without one all of the following do nothing.
bool keeps_timeline(const Driver& driver);

// The work itself calls this, without the lock.
void tell(Deed deed);
// Bytes take one of these paths from one place to another. Within a device they are read and
// written.
enum class Path { fill, device, link, host };
void tell_copy(const char* name, uint64_t bytes, Path path);

// Notes the host's clock and the rank, at the submission.
void stamp(Stream& stream, Operation& operation);
// Returns when the work, which is about to run, begins.
double begin_of(const Driver& driver, const Stream& stream, const Operation& operation);
// Moves the stream's clock and the completion's time once the work is over, and writes lines.
void advance(Driver& driver, Stream& stream, Operation& operation, const Deed& deed);
// Notes that the calling thread has seen that this work is over.
void host_saw(const Completion& completion);

}  // namespace sim::driver
