// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles primary and created contexts, and each host thread's stack of them.
#include "sim/driver/context.h"

#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/report/report.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

std::shared_ptr<Stream> add_stream(Driver& driver, Context& context, unsigned flags) {
  auto stream = driver.add(std::make_shared<Stream>());
  stream->context = &context;
  stream->flags = flags;
  context.streams[stream->handle] = stream;
  return stream;
}

}  // namespace

void start_context(Driver& driver, Device& device, Context& context) {
  context.device = &device;
  context.alive = true;
  context.error = CUDA_SUCCESS;
  context.limits = {{CU_LIMIT_STACK_SIZE, 1024},
                    {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                    {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                    {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
                    {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                    {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                    {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
  context.legacy = add_stream(driver, context, CU_STREAM_DEFAULT);
  context.legacy->legacy = true;
  context.janitor = add_stream(driver, context, CU_STREAM_NON_BLOCKING);
  device.contexts.push_back(&context);
}

void end_context(Driver& driver, Lock& lock, Context& context, bool tell_leaks) {
  Device& device = *context.device;
  const std::vector<CompletionPtr> all = everything(context);
  driver.wait(lock, [&] {
    return device.stalled || std::all_of(all.begin(), all.end(),
                                         [](const CompletionPtr& work) { return work->done; });
  });
  tell_leaks = tell_leaks && context.error == CUDA_SUCCESS;
  context.alive = false;
  if (context.error == CUDA_SUCCESS) context.error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  drop_work(driver, lock, context);
  while (!context.modules.empty()) {
    const std::shared_ptr<Module> module = context.modules.begin()->second;
    unload_module(driver, lock, module, true);
  }
  context.heap = nullptr;
  for (auto& [handle, library] : driver.libraries) library->modules.erase(context.handle);
  std::vector<uint64_t> bases;
  for (const auto& [base, block] : driver.blocks) {
    // A mapped range belongs to no context.
    if (block.context != &context || block.kind == MemoryKind::mapped) continue;
    bases.push_back(base);
    if (tell_leaks && block.kind == MemoryKind::device) {
      report_leak(base, block.bytes, device.ordinal);
    }
  }
  for (uint64_t base : bases) forget_block(driver, base)();
  for (auto& [handle, stream] : context.streams) driver.objects.erase(handle);
  for (auto& [handle, event] : context.events) driver.objects.erase(handle);
  context.streams.clear();
  context.events.clear();
  context.legacy.reset();
  context.janitor.reset();
  std::erase(device.contexts, &context);
  forget_peers(driver, context);
  driver.changed.notify_all();
}

std::shared_ptr<Context> find_context(Driver& driver, CUcontext handle) {
  auto context = driver.find<Context>(handle);
  return context && context->alive ? context : nullptr;
}

namespace {

CUresult set_current(CUcontext handle, bool push) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    std::vector<uint64_t>& stack = thread_state().stack;
    if (handle == nullptr && !push) {
      if (!stack.empty()) stack.pop_back();
      return CUDA_SUCCESS;
    }
    auto context = find_context(driver, handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (push || stack.empty()) {
      stack.push_back(context->handle);
    } else {
      stack.back() = context->handle;
    }
    return CUDA_SUCCESS;
  });
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device& device) -> CUresult {
    if (out == nullptr || (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto context = driver.add(std::make_shared<Context>());
    context->flags = flags;
    driver.contexts[context->handle] = context;
    start_context(driver, device, *context);
    thread_state().stack.push_back(context->handle);
    *out = handle_of<CUcontext>(context);
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuCtxCreate(CUcontext* out, CUctxCreateParams* params, unsigned flags, CUdevice device) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr)) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  return create_context(out, flags, device);
}

SIM_API cuCtxDestroy(CUcontext handle) {
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    auto context = find_context(driver, handle);
    if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    std::vector<uint64_t>& stack = thread_state().stack;
    if (!stack.empty() && stack.back() == context->handle) stack.pop_back();
    end_context(driver, lock, *context, true);
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxPushCurrent(CUcontext handle) { return set_current(handle, true); }

SIM_API cuCtxSetCurrent(CUcontext handle) { return set_current(handle, false); }

SIM_API cuCtxPopCurrent(CUcontext* out) {
  return with_driver([&](Driver&, Lock&) -> CUresult {
    std::vector<uint64_t>& stack = thread_state().stack;
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (out != nullptr) *out = reinterpret_cast<CUcontext>(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxGetCurrent(CUcontext* out) {
  return with_driver([&](Driver&, Lock&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<uint64_t>& stack = thread_state().stack;
    *out = stack.empty() ? nullptr : reinterpret_cast<CUcontext>(stack.back());
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxGetDevice(CUdevice* out) { return cuCtxGetDevice_v2(out, nullptr); }

SIM_API cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  return ask_context(handle, out, [](const Context& context) { return context.device->ordinal; });
}

SIM_API cuCtxSynchronize_v2(CUcontext handle) {
  if (handle == nullptr) return cuCtxSynchronize();
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    auto context = find_context(driver, handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->error != CUDA_SUCCESS) return context->error;
    const CUresult result = check_no_capture(*context);
    return result != CUDA_SUCCESS ? result : synchronize(driver, lock, *context);
  });
}

SIM_API cuCtxSynchronize(void) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    const CUresult result = check_no_capture(context);
    return result != CUDA_SUCCESS ? result : synchronize(driver, lock, context);
  });
}

SIM_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](Driver&, Lock&, Context&) -> CUresult {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    auto it = context.limits.find(limit);
    if (it == context.limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    it->second = value;
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxGetLimit(size_t* out, CUlimit limit) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    auto it = context.limits.find(limit);
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (it == context.limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *out = it->second;
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxGetId(CUcontext handle, unsigned long long* out) {
  return ask_context(handle, out, [](const Context& context) { return context.handle; });
}

SIM_API cuCtxGetFlags(unsigned* out) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = context.flags;
    return CUDA_SUCCESS;
  });
}
