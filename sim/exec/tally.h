// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds counts of memory traffic, as host threads tally them and as a launch reports
// them. Each list of fields stands here once, with the names that the reports use.
#pragma once

#include <cstdint>

namespace sim {

// Pairs a member of Owner with its name in reports.
template <class Owner, class Value>
struct Field {
  const char* name;
  Value Owner::*value;
};

// Counts requests of one kind. Bytes are those the lanes asked for.
struct Traffic {
  uint64_t requests = 0;
  uint64_t bytes = 0;
  uint64_t sectors = 0;          // global only
  uint64_t minimum_sectors = 0;  // the least sectors a request of these bytes could touch
  uint64_t conflicts = 0;        // shared only: extra passes beyond the first
  uint64_t wavefronts = 0;       // shared only: passes of at most 128 bytes
};
constexpr Field<Traffic, uint64_t> kTrafficCounts[] = {
    {"requests", &Traffic::requests},   {"bytes", &Traffic::bytes},
    {"sectors", &Traffic::sectors},     {"minimum_sectors", &Traffic::minimum_sectors},
    {"conflicts", &Traffic::conflicts}, {"wavefronts", &Traffic::wavefronts}};

struct AllTraffic {
  Traffic global_load, global_store, global_atomic, shared_load, shared_store, local_load,
      local_store, const_load;
};
constexpr Field<AllTraffic, Traffic> kTrafficKinds[] = {
    {"global_load", &AllTraffic::global_load},     {"global_store", &AllTraffic::global_store},
    {"global_atomic", &AllTraffic::global_atomic}, {"shared_load", &AllTraffic::shared_load},
    {"shared_store", &AllTraffic::shared_store},   {"local_load", &AllTraffic::local_load},
    {"local_store", &AllTraffic::local_store},     {"const_load", &AllTraffic::const_load}};

// Counts the same for one instruction or one PTX line, for profiles.
struct LineTally {
  uint64_t thread_instructions = 0;
  uint64_t global_requests = 0, global_bytes = 0, global_sectors = 0;
  uint64_t shared_requests = 0, shared_bytes = 0, shared_wavefronts = 0;
  uint64_t tensor_ops = 0;
};
constexpr Field<LineTally, uint64_t> kLineCounts[] = {
    {"thread_instructions", &LineTally::thread_instructions},
    {"global_requests", &LineTally::global_requests},
    {"global_bytes", &LineTally::global_bytes},
    {"global_sectors", &LineTally::global_sectors},
    {"shared_requests", &LineTally::shared_requests},
    {"shared_bytes", &LineTally::shared_bytes},
    {"shared_wavefronts", &LineTally::shared_wavefronts},
    {"tensor_ops", &LineTally::tensor_ops}};

}  // namespace sim
