// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file has a driver table and an NCCL table that write down their calls, and a replay of these
// calls.
//
// Nothing in an exchange may wait on the host, so one thread can run the host code of all ranks one
// after another. The replay then executes the streams of all ranks, a random enabled action at a
// time: what is not ordered by a stream, an event or a message happens in any order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collective/nccl.h"
#include "device/driver.h"

namespace fakes {

struct Message {
  bool sends = false;
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
  bool done = false;
};

struct Op {
  enum Kind { step, record, wait, hop, reduce } kind = step;
  std::string name;               // of a step
  std::function<void()> effect;   // of a step
  uint64_t record_id = 0;         // record: its own; wait: the one waited for, 0: none
  std::vector<Message> messages;  // of a hop
};

// Returns whether one is a wait for the other, a record.
inline bool waits_for(const Op& one, const Op& other) {
  return one.kind == Op::wait && other.kind == Op::record && one.record_id == other.record_id;
}

// A Behaviour says how the fake communicator behaves when it is made or used.
struct Behaviour {
  int busy_polls = 0;        // ncclInProgress that often, from each call that may take time
  bool never_ready = false;  // ncclInProgress for ever
  ncclResult_t init = ncclSuccess;
  ncclResult_t async = ncclSuccess;
};

struct Rank {
  int rank = 0, world = 1, device = 0;
  Behaviour behaviour;
  int busy = 0;  // polls left
  std::map<CUstream, std::deque<Op>> streams;
  std::map<CUevent, uint64_t> recorded;  // the event's latest record
  int groups = 0, reductions = 0, depth = 0;
  std::vector<Message> open;  // messages of the group that is being built
  CUstream open_stream = nullptr;
  bool agreeing = false;  // what ranks compare before the first hop, which is no part of a schedule
  bool initialised = false, finalized = false, destroyed = false, aborted = false;
  std::vector<std::string> violations;
};

// `current` is the rank whose host code runs now. NCCL's handles are Rank pointers.
inline Rank* current = nullptr;
// While set nothing is written down, which would allocate: for counts of the library's allocations.
inline bool silent = false;
// These count the streams and events that exist, over all ranks.
inline int streams_alive = 0, events_alive = 0;

std::shared_ptr<const lathe::Driver> driver();
std::shared_ptr<const lathe::Nccl> nccl();
std::shared_ptr<const lathe::Device> device();

// Enqueues work of the current rank on a stream.
void enqueue(CUstream stream, const std::string& name, std::function<void()> effect);

// Events say what happened, in order.
struct Event {
  enum Kind { step, transfer } kind;
  int rank;          // transfer: the receiver
  std::string name;  // of a step
};
struct Outcome {
  bool finished = false;  // false: nothing can go on, and something is left
  std::vector<Event> events;
};
// With `lazy_messages`, messages move only when nothing else can.
Outcome replay(std::vector<Rank>& ranks, std::mt19937& random, bool lazy_messages);

}  // namespace fakes
