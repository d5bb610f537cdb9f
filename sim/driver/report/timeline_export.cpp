// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are the bodies of what the driver exports for clients that complete or read its timeline.
#include "sim/driver/entry.h"
#include "sim/driver/report/json_line.h"
#include "sim/driver/report/report.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

// Returns the driver with its lock, if there is a timeline to keep; null before cuInit and in a
// forked child, where the lock may be held by a thread that is not here.
Driver* live(Lock* lock) {
  if (forked()) return nullptr;
  Driver& driver = Driver::get();
  *lock = Lock(driver.mutex);
  return driver.initialized && keeps_timeline(driver) ? &driver : nullptr;
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_EXTRA double lathe_sim_message_time(uint64_t bytes) {
  Lock lock;
  const Driver* driver = live(&lock);
  if (driver == nullptr) return -1;
  const Options& options = driver->options;
  return 1e6 * (options.link_latency + static_cast<double>(bytes) / options.link_bytes);
}

SIM_EXTRA double lathe_sim_event_time(CUevent handle) {
  Lock lock;
  Driver* driver = live(&lock);
  const auto event = driver == nullptr ? nullptr : driver->find<Event>(handle);
  return event && event->recorded ? time_of(*driver, *event->recorded) : 0;
}

SIM_EXTRA double lathe_sim_now() {
  Lock lock;
  Driver* driver = live(&lock);
  return driver == nullptr ? 0 : begin_of_running(*driver);
}

SIM_EXTRA void lathe_sim_arrival(const void* address, const LatheSimTransfer* transfer) {
  Lock lock;
  Driver* driver = live(&lock);
  if (driver == nullptr || transfer == nullptr) return;
  driver->arrivals[reinterpret_cast<uint64_t>(address)] = {
      transfer->end,  transfer->begin,    transfer->name == nullptr ? "" : transfer->name,
      transfer->sent, transfer->received, transfer->peer,
      nullptr};
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
  for (const auto& [handle, context] : contexts) synchronize(*driver, lock, *context);
  restart(*driver);
  JsonLine line;
  line.add("kind", "restart");
  line.add("name", name == nullptr ? "" : name);
  report_timeline(line);
}
