// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles streams and host functions in them.
#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/order.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

namespace sim::driver {

CUresult resolve_stream(Driver& driver, Context& context, CUstream handle,
                        std::shared_ptr<Stream>* out) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    *out = context.legacy;
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    uint64_t& own = thread_state().own_streams[context.handle];
    auto it = context.streams.find(own);
    if (it == context.streams.end()) {
      auto stream = driver.add(std::make_shared<Stream>());
      stream->context = &context;
      own = stream->handle;
      it = context.streams.emplace(own, stream).first;
    }
    *out = it->second;
    return CUDA_SUCCESS;
  }
  *out = driver.find<Stream>(handle);
  if (!*out || (*out)->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  return (*out)->context->error;
}

namespace {

// Runs code of the host as the work of a stream: what comes before it there is over for the host.
template <typename F>
CUresult run_on_host(F function) {
  ThreadState& thread = thread_state();
  if (thread.operation != nullptr) {
    Driver& driver = Driver::get();
    const Lock lock(driver.mutex);
    host_learns(driver, *thread.operation->completion, true);
  }
  thread.in_host_function = true;
  function();
  thread.in_host_function = false;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_host_function(CUhostFn function, void* data) {
  return run_on_host([&] { function(data); });
}

namespace {

// Writes what `value` says of the stream to `out`.
template <typename Out, typename F>
CUresult ask_stream(CUstream handle, Out* out, F value) {
  return with_stream(handle, [&](Driver&, Lock&, const Stream& stream) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = value(stream);
    return CUDA_SUCCESS;
  });
}

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    auto stream = driver.add(std::make_shared<Stream>());
    stream->context = &context;
    stream->flags = flags;
    stream->priority = std::min(0, std::max(priority, -5));
    context.streams[stream->handle] = stream;
    *out = handle_of<CUstream>(stream);
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuStreamCreate(CUstream* out, unsigned flags) { return create_stream(out, flags, 0); }

SIM_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return create_stream(out, flags, priority);
}

SIM_API cuStreamDestroy(CUstream handle) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    auto stream = driver.find<Stream>(handle);
    if (!stream || stream->destroyed) return CUDA_ERROR_INVALID_HANDLE;
    if (Capture* capture = stream->capture.get()) {
      // One that joined may go; its nodes have to be joined all the same.
      if (capture->origin == stream->handle) {
        invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      }
      capture->left.insert(capture->left.end(), stream->frontier.begin(), stream->frontier.end());
    }
    stream->destroyed = true;  // its work goes on
    driver.objects.erase(stream->handle);
    driver.changed.notify_all();
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamSynchronize(CUstream handle) {
  return with_stream(handle, [](Driver& driver, Lock& lock, Stream& stream) -> CUresult {
    if (stream.capture) {
      return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (!stream.legacy) return wait_for(driver, lock, *stream.context, stream.last);
    const CUresult result = check_implicit_capture(*stream.context, stream);
    if (result != CUDA_SUCCESS) return result;
    CompletionPtr completion;  // an empty piece of legacy work comes after all blocking streams
    submit(driver, stream, nullptr, {}, &completion);
    return wait_for(driver, lock, *stream.context, completion);
  });
}

SIM_API cuStreamQuery(CUstream handle) {
  return with_stream(handle, [](Driver&, Lock&, Stream& stream) -> CUresult {
    if (stream.capture) {
      return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (stream.legacy) {
      for (auto& [other_handle, other] : stream.context->streams) {
        if (other->blocking() && other->last && !other->last->done) return CUDA_ERROR_NOT_READY;
      }
      return CUDA_SUCCESS;
    }
    if (stream.last && !stream.last->done) return CUDA_ERROR_NOT_READY;
    if (stream.last) host_saw(*stream.last);
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return ask_stream(handle, out, [](const Stream& stream) {
    return reinterpret_cast<CUcontext>(stream.context->handle);
  });
}

SIM_API cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, out);
}

SIM_API cuStreamGetFlags(CUstream handle, unsigned* out) {
  return ask_stream(handle, out, [](const Stream& stream) { return stream.flags; });
}

SIM_API cuStreamGetPriority(CUstream handle, int* out) {
  return ask_stream(handle, out, [](const Stream& stream) { return stream.priority; });
}

SIM_API cuStreamGetId(CUstream handle, unsigned long long* out) {
  return ask_stream(handle, out, [](const Stream& stream) { return stream.handle; });
}

SIM_API cuStreamGetDevice(CUstream handle, CUdevice* out) {
  return ask_stream(handle, out,
                    [](const Stream& stream) { return stream.context->device->ordinal; });
}

SIM_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return submit(driver, stream, [function, data] { return run_host_function(function, data); });
  });
}

SIM_API cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data,
                            unsigned flags) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream.capture) {
      return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return submit(driver, stream, [handle, function, data] {
      return run_on_host([&] { function(handle, CUDA_SUCCESS, data); });
    });
  });
}
