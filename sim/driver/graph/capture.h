// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// In a stream capture, work becomes nodes of a graph instead of running.
#pragma once

#include <thread>

#include "sim/driver/state.h"

namespace sim::driver {

struct Node {
  Action action;
  std::function<bool()> ready;  // null: no condition beyond `after`
  std::vector<size_t> after;    // indices of others
  int type = -1;                // a CUgraphNodeType; captured nodes have none
  uint64_t stream = 0;          // where it was captured, for the timeline
  uint64_t value = 0;           // as in Completion
  bool writes = false;
  uint64_t handle = 0;  // given when somebody asks for the node; 0: none yet
};

struct Graph : Object {
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<Object>> held;  // user objects, once for each reference
};

struct GraphExec : Object {
  Context* context = nullptr;
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<Object>> held;
};

struct Capture {
  uint64_t id = 0;
  Context* context = nullptr;
  uint64_t origin = 0;  // the stream where it began
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool invalid = false;
  std::vector<std::weak_ptr<Stream>> streams;  // the origin and those that joined
  std::vector<size_t> left;                    // the last nodes of destroyed streams
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};

// Adds a node after the stream's frontier. Returns 901 if the capture was spoilt before.
CUresult capture_node(Stream& stream, Action action, std::function<bool()> ready);
// Runs a graph with its branches side by side, in streams of their own that end with them: a node
// that waits for a value must hold up nothing but what comes after it. `order` respects the
// dependencies.
CUresult launch_branches(Driver& driver, const GraphExec& exec, const std::vector<size_t>& order,
                         Stream& stream);
// Returns which branch each node is part of: a node goes on with the branch of one of those before
// it, if it is the first to do so. `order` respects the dependencies.
std::vector<size_t> branches_of(const std::vector<Node>& nodes, const std::vector<size_t>& order,
                                size_t* count);
// Spoils the capture and returns `error`.
CUresult invalidate(Capture& capture, CUresult error);
// Returns 906 if work in this stream would be ordered, through the legacy stream, against a
// capture.
CUresult check_implicit_capture(Context& context, Stream& stream);
// Returns 900 if a call that must not happen during a capture is made while one is open (by this
// thread, or by any in the global mode), and spoils that capture.
CUresult check_unsafe_in_capture(Driver& driver);
// Returns 900 if any stream of the context captures; for calls that wait for the whole context.
CUresult check_no_capture(Context& context);

}  // namespace sim::driver
