// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions keep track of what streams, events, graphs and the host put in order, for the
// race check between launches: two pieces of work that touch the same memory race unless one comes
// after the other by these means, however they were run here. Host threads count as one: what one
// of them has seen to be over is over for all that any of them enqueues later.
//
// Everything is guarded by Driver::mutex.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

// Says whether races are looked for. Without that all of the following do nothing.
bool tracks_order(const Driver& driver);

// Notes what the host has seen, at the submission.
void stamp_order(const Driver& driver, Operation& operation);
// The work begins: it comes after what is before it in its stream or graph and what it waited for.
void begin_order(Driver& driver, Stream& stream, Operation& operation);
// The work is over. Whoever sees a value that it wrote, or waited for one, may have learned of all
// that is over.
void end_order(Driver& driver, Stream& stream, const Operation& operation);
// The host sees that the work is over; or, with `begins`, runs as the work.
void host_learns(Driver& driver, const Completion& completion, bool begins = false);

// Returns the line of a branch of the graphs that the stream launches, one after the other.
uint32_t branch_line(Driver& driver, Stream& stream, size_t index);
// The stream is gone: another one may go on with its line, if all work in it is over for the host.
void give_line(Driver& driver, const Stream& stream);

// Returns the shadow that the work shares with other launches of its device; null if none can run
// beside another.
std::shared_ptr<RaceWorld> world_for(Driver& driver, Device& device, const Operation& operation,
                                     bool tells_dependents);
// Looks for races of a copy or a fill, which is the work that this thread runs, and reports them.
void check_move(const char* name, Memory* memory, uint64_t to, uint64_t from, uint64_t bytes);

}  // namespace sim::driver
