// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulated driver exports these functions beside the driver's own calls, for clients that
// complete or read its timeline (sim/driver/report/timeline.h). A client looks them up by name and
// does without where they are missing: a real driver has no model time. All times are in
// microseconds.
#pragma once

#include <cuda.h>

#include <cstdint>

// A LatheSimTransfer is one rank's part of messages that travel together.
struct LatheSimTransfer {
  const char* name;         // in words, copied
  double begin, end;        // from when all sides are ready
  uint64_t sent, received;  // bytes
  int peer;                 // who sends to this rank; below 0: nobody, or several
};

extern "C" {

// Returns the time that a message of `bytes` takes between two devices; below 0 where no timeline
// is kept.
double lathe_sim_message_time(uint64_t bytes);
// Returns when the work that the event recorded is over; 0 if the event never recorded any.
double lathe_sim_event_time(CUevent event);
// Returns when the host function that the calling thread is in begins.
double lathe_sim_now();
// Notes that a stream's wait for the value at `address` ends with this transfer.
void lathe_sim_arrival(const void* address, const LatheSimTransfer* transfer);
// Sets the rank that a stream's lines name, and that of streams which the calling thread will use.
void lathe_sim_stream_rank(CUstream stream, int rank);
void lathe_sim_thread_rank(int rank);
// Makes the stream's work take no model time and appear in no line.
void lathe_sim_hide_stream(CUstream stream);
// Sets all clocks to 0 once everything is over, and writes a line of kind "restart" with the name.
void lathe_sim_restart_timeline(const char* name);

}  // extern "C"
