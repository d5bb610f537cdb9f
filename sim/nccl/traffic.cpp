// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file sums up a hop and writes the sums as a line.
#include "sim/nccl/traffic.h"

#include <cstdio>

#include "sim/driver/environment.h"
#include "sim/driver/report/line_file.h"

namespace sim::nccl {
namespace {

struct Sums {
  uint64_t sends = 0, receives = 0, collectives = 0;
  uint64_t sent = 0, received = 0, gathered = 0;  // bytes
};

void add(const Call& call, Sums* sums) {
  const uint64_t bytes = call.count * bytes_of(call.type);
  if (call.kind == Kind::send) {
    ++sums->sends;
    sums->sent += bytes;
  } else if (call.kind == Kind::recv) {
    ++sums->receives;
    sums->received += bytes;
  } else {
    ++sums->collectives;
    sums->gathered += bytes;
  }
}

std::string line_of(const ncclComm& comm, uint64_t hop, const Sums& sums) {
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  char text[400];
  std::snprintf(text, sizeof text,
                "{\"rank\":%d,\"world\":%d,\"hop\":%llu,\"sends\":%llu,\"receives\":%llu,"
                "\"bytes_sent\":%llu,\"bytes_received\":%llu,\"collectives\":%llu,"
                "\"collective_bytes\":%llu}",
                comm.rank, comm.size, number(hop), number(sums.sends), number(sums.receives),
                number(sums.sent), number(sums.received), number(sums.collectives),
                number(sums.gathered));
  return text;
}

// Never destroyed: threads may outlive static destructors.
LineFile& counters() {
  static LineFile* file = new LineFile("LATHE_SIM_NCCL_COUNTERS");
  return *file;
}

}  // namespace

void note_traffic(const std::vector<Queued>& calls) {
  std::map<std::pair<ncclComm*, CUstream>, Sums> hops;
  for (const Queued& each : calls) add(each.call, &hops[{each.comm, each.stream}]);
  // Looked up each time: a process may count one part of its work alone.
  counters().set(environment_text("LATHE_SIM_NCCL_COUNTERS"));
  for (const auto& [key, sums] : hops) {
    const uint64_t hop = key.first->hops++;
    if (counters().wanted()) counters().write(line_of(*key.first, hop, sums));
  }
  counters().close();
}

}  // namespace sim::nccl
