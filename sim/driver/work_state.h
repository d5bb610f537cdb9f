// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds work and what it is queued in: completions, operations, streams and events.
// state.h says who guards it.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/driver/report/model_time.h"
#include "sim/exec/launch.h"

namespace sim::driver {

using Clock = std::chrono::steady_clock;

struct Context;

// The work of each line (LaunchOrder) that something comes after: up to which number.
using OrderClocks = std::map<uint32_t, uint64_t>;

// Says when a piece of work is over. The work, those who wait for the work, and events share a
// Completion.
struct Completion {
  bool done = false;
  CUresult error = CUDA_SUCCESS;
  Clock::time_point time;
  TimedPtr timed;      // the same in model time (timeline.h); null: not there
  uint64_t value = 0;  // the address that the work writes or waits for a value at; 0: none
  bool writes = false;
  uint64_t age = 0;   // Driver::timeline_age when it ended: times of another age are 0
  LaunchOrder order;  // order.h
};
using CompletionPtr = std::shared_ptr<Completion>;

// An action does a piece of work. It runs without the lock, and more than once if it is part of a
// graph.
using Action = std::function<CUresult()>;

// A GraphRun is one launch of a graph while its nodes run. It holds when each node is over, in
// model time, and what the first of them come after.
struct GraphRun {
  std::vector<std::vector<size_t>> after;
  std::vector<uint64_t> streams;  // where each was captured; 0: nowhere
  std::vector<TimedPtr> timed, tails;
  bool begun = false;
  std::vector<size_t> branches;  // of each node: which branch it is part of
  size_t branch_count = 1;
  OrderClocks start;                // what the graph comes after
  std::vector<OrderClocks> clocks;  // what comes after each node
};

struct Operation {
  Action run;                        // null: nothing to do (events, waits)
  std::function<bool()> ready;       // null: no condition beyond `after`; called with the lock
  std::vector<CompletionPtr> after;  // other streams' work this one waits for
  CompletionPtr completion = std::make_shared<Completion>();
  bool running = false;
  double not_before = 0;            // model time of the host thread that enqueued it
  std::shared_ptr<GraphRun> graph;  // null: no node of a graph
  size_t node = 0;
  OrderClocks host_clocks;  // what the host had seen then (order.h)
  // The launch in front, if this one may start before its end: programmatic dependent launch.
  std::shared_ptr<const Dependence> primary;
  CompletionPtr primary_done;
};

struct Object {
  uint64_t handle = 0;
  virtual ~Object() = default;
};

struct Capture;

struct Stream : Object {
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool destroyed = false;       // gone once its queue is empty
  bool hidden = false;          // from the timeline
  int rank = -1;                // whose it is, for the timeline; below 0: unknown
  uint64_t shown_as = 0;        // a branch of a graph: the stream where it was captured; 0: itself
  std::vector<TimedPtr> tails;  // what the next work comes after, in model time
  std::deque<std::shared_ptr<Operation>> queue;
  CompletionPtr last;                            // of the newest work; null: none ever
  std::shared_ptr<const Dependence> dependence;  // of the newest launch
  CompletionPtr dependence_of;
  uint32_t line = 0;                 // order.h; 0: none yet
  bool borrows_line = false;         // of the stream that launched the graph of this branch
  std::vector<uint32_t> branches;    // lines of the branches of graphs
  OrderClocks known;                 // what the next work comes after
  std::shared_ptr<Capture> capture;  // null: not capturing
  std::vector<size_t> frontier;      // capture: the nodes the next one depends on
  std::map<int, CUlaunchAttributeValue> attributes;  // hints, kept for those who ask
  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event : Object {
  Context* context = nullptr;
  unsigned flags = 0;
  CompletionPtr recorded;          // null: never
  std::weak_ptr<Capture> capture;  // recorded inside a capture
  bool captured = false;
  std::vector<size_t> frontier;
};

}  // namespace sim::driver
