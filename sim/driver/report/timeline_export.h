// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the simulated driver exports beside the driver's own calls, for those who keep its timeline
// (sim/driver/report/timeline.h) whole or read it. A client looks these up by name and does without
// where they are missing: on a real driver there is no model time. All times are in microseconds.
#pragma once

#include <cuda.h>

#include <cstdint>

// One rank's part of messages that travel together.
struct LatheSimTransfer {
  const char* name;         // in words, copied
  double begin, end;        // from when all sides are ready
  uint64_t sent, received;  // bytes
  int peer;                 // who sends to this rank; below 0: nobody, or several
};

extern "C" {

// What messages of so many bytes take between two devices; below 0 where no timeline is kept.
double lathe_sim_message_time(uint64_t bytes);
// When the work that the event recorded is over; 0 if it never recorded any.
double lathe_sim_event_time(CUevent event);
// When the host function that the calling thread is in begins.
double lathe_sim_now();
// A stream's wait for the value at `address` to reach what it waits for ends with this transfer.
void lathe_sim_arrival(const void* address, const LatheSimTransfer* transfer);
// The rank that a stream's lines name, and that of streams which the calling thread will use.
void lathe_sim_stream_rank(CUstream stream, int rank);
void lathe_sim_thread_rank(int rank);
// Its work takes no model time and is in no line.
void lathe_sim_hide_stream(CUstream stream);
// All clocks to 0, once everything is over, and a line of kind "restart" with the name.
void lathe_sim_restart_timeline(const char* name);

}  // extern "C"
