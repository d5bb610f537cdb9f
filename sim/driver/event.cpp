// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles events: positions in streams, with times.
#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

using namespace sim::driver;

namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// body(Driver&, Lock&, shared_ptr<Event>)
template <typename F>
CUresult with_event(CUevent handle, F body) {
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    auto event = driver.find<Event>(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (event->context->error != CUDA_SUCCESS) return event->context->error;
    return body(driver, lock, event);
  });
}

CUresult record(CUevent handle, CUstream stream_handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    auto event = driver.find<Event>(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
      if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      event->captured = true;
      event->capture = stream->capture;
      event->frontier = stream->frontier;
      return CUDA_SUCCESS;
    }
    event->captured = false;
    return submit(driver, *stream, nullptr, {}, &event->recorded);
  });
}

// A wait on an event that was recorded in a capture: the stream joins it, or comes back.
CUresult wait_captured(Stream& stream, const std::shared_ptr<Stream>& shared, Event& event) {
  const std::shared_ptr<Capture> capture = event.capture.lock();
  if (!capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream.capture && stream.capture != capture) {
    invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!stream.capture) {
    if (stream.legacy) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    stream.capture = capture;
    stream.frontier.clear();
    capture->streams.push_back(shared);
  }
  for (size_t node : event.frontier) {
    if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end()) {
      stream.frontier.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuEventCreate(CUevent* out, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    const bool ipc = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (out == nullptr || (flags & ~kEventFlags) != 0 ||
        (ipc && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto event = driver.add(std::make_shared<Event>());
    event->context = &context;
    event->flags = flags;
    context.events[event->handle] = event;
    *out = handle_of<CUevent>(event);
    return CUDA_SUCCESS;
  });
}

SIM_API cuEventDestroy(CUevent handle) {
  return with_event(handle, [](Driver& driver, Lock&, const std::shared_ptr<Event>& event) {
    driver.objects.erase(event->handle);
    event->context->events.erase(event->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuEventRecord(CUevent handle, CUstream stream) { return record(handle, stream); }

SIM_API cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return record(handle, stream);
}

SIM_API cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    auto event = driver.find<Event>(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (event->captured) return wait_captured(*stream, stream, *event);
    if (stream->capture && event->recorded) {
      return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (!event->recorded) return CUDA_SUCCESS;
    return submit(driver, *stream, nullptr, {event->recorded});
  });
}

SIM_API cuEventQuery(CUevent handle) {
  return with_event(handle, [](Driver&, Lock&, const std::shared_ptr<Event>& event) {
    if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
    if (event->recorded && !event->recorded->done) return CUDA_ERROR_NOT_READY;
    if (event->recorded) host_saw(*event->recorded);
    return CUDA_SUCCESS;
  });
}

SIM_API cuEventSynchronize(CUevent handle) {
  return with_event(handle, [](Driver& driver, Lock& lock, const std::shared_ptr<Event>& event) {
    if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
    const CompletionPtr completion = event->recorded;
    return wait_for(driver, lock, *event->context, completion);
  });
}

SIM_API cuEventElapsedTime(float* out, CUevent start_handle, CUevent end_handle) {
  return with_event(end_handle, [&](Driver& driver, Lock&, const std::shared_ptr<Event>& end) {
    auto start = driver.find<Event>(start_handle);
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!start || start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
    if (start->captured || end->captured) return CUDA_ERROR_CAPTURED_EVENT;
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || !start->recorded ||
        !end->recorded) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!start->recorded->done || !end->recorded->done) return CUDA_ERROR_NOT_READY;
    if (keeps_timeline(driver)) {
      const double began = time_of(driver, *start->recorded);
      *out = static_cast<float>(1e-3 * (time_of(driver, *end->recorded) - began));
      return CUDA_SUCCESS;
    }
    const std::chrono::duration<float, std::milli> elapsed =
        end->recorded->time - start->recorded->time;
    *out = elapsed.count();
    return CUDA_SUCCESS;
  });
}
