// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cuStreamBeginCapture and its kin.
#include "sim/driver/graph/capture.h"

#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/work.h"

namespace sim::driver {

CUresult capture_node(Stream& stream, Action action, std::function<bool()> ready) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Node node;
  node.action = std::move(action);
  node.ready = std::move(ready);
  node.after = stream.frontier;
  node.stream = stream.handle;
  capture.graph->nodes.push_back(std::move(node));
  stream.frontier = {capture.graph->nodes.size() - 1};
  return CUDA_SUCCESS;
}

CUresult invalidate(Capture& capture, CUresult error) {
  capture.invalid = true;
  return error;
}

CUresult check_implicit_capture(Context& context, Stream& stream) {
  if (!stream.legacy) return CUDA_SUCCESS;
  for (auto& [handle, other] : context.streams) {
    if (other->capture && other->blocking()) {
      return invalidate(*other->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  return CUDA_SUCCESS;
}

CUresult check_unsafe_in_capture(Driver& driver) {
  const CUstreamCaptureMode own_mode = thread_state().capture_mode;
  if (own_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (const auto& weak : driver.captures) {
    const std::shared_ptr<Capture> capture = weak.lock();
    if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool global =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || global) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return CUDA_SUCCESS;
}

CUresult check_no_capture(Context& context) {
  for (auto& [handle, stream] : context.streams) {
    if (stream->capture) return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return CUDA_SUCCESS;
}

namespace {

// Returns true if every joined stream's last node is among the ancestors of the origin's frontier.
bool is_joined(const Capture& capture, const Stream& origin) {
  const std::vector<Node>& nodes = capture.graph->nodes;
  std::vector<bool> reached(nodes.size(), false);
  std::vector<size_t> pending = origin.frontier;
  while (!pending.empty()) {
    const size_t node = pending.back();
    pending.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    pending.insert(pending.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  for (size_t node : capture.left) {
    if (!reached[node]) return false;
  }
  for (const auto& weak : capture.streams) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (!stream || stream->capture.get() != &capture) continue;
    for (size_t node : stream->frontier) {
      if (!reached[node]) return false;
    }
  }
  return true;
}

void leave(Capture& capture) {
  for (const auto& weak : capture.streams) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (!stream || stream->capture.get() != &capture) continue;
    stream->frontier.clear();
    stream->capture.reset();
  }
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream.capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    driver.add(capture->graph);
    capture->id = capture->graph->handle;
    capture->context = stream.context;
    capture->origin = stream.handle;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.push_back(stream.context->streams.at(stream.handle));
    stream.capture = capture;
    stream.frontier.clear();
    std::erase_if(driver.captures, [](const auto& weak) { return weak.expired(); });
    driver.captures.push_back(capture);
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    const std::shared_ptr<Capture> capture = stream.capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream.handle) {
      return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id()) {
      return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    const bool joined = is_joined(*capture, stream);
    leave(*capture);
    if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    driver.graphs[capture->graph->handle] = capture->graph;
    *out = handle_of<CUgraph>(capture->graph);
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return with_stream(handle, [&](Driver&, Lock&, Stream& stream) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream.legacy) {
      const CUresult result = check_implicit_capture(*stream.context, stream);
      if (result != CUDA_SUCCESS) return result;
    }
    *status = !stream.capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

namespace {

// Nodes have no handles here, so a caller that asks for them is told so.
CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, bool wants_nodes) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuStreamIsCapturing(handle, status);
  if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  if (wants_nodes) return CUDA_ERROR_NOT_SUPPORTED;
  return with_stream(handle, [&](Driver&, Lock&, Stream& stream) -> CUresult {
    if (!stream.capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (id != nullptr) *id = stream.capture->id;
    if (graph != nullptr) *graph = handle_of<CUgraph>(stream.capture->graph);
    return CUDA_SUCCESS;
  });
}

}  // namespace

SIM_API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                  CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
  return capture_info(handle, status, id, graph, nodes != nullptr || count != nullptr);
}

SIM_API cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                  CUgraph* graph, const CUgraphNode** nodes,
                                  const CUgraphEdgeData** edges, size_t* count) {
  return capture_info(handle, status, id, graph,
                      nodes != nullptr || edges != nullptr || count != nullptr);
}

SIM_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver([&](Driver&, Lock&) -> CUresult {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(thread_state().capture_mode, *mode);
    return CUDA_SUCCESS;
  });
}
