// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes CUDA graphs for tests of the C API, with the driver that a context has opened.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "tests/harness/session.h"

namespace apitest {

// Holds a graph of the launches that `work` puts into `stream`. One thread makes, launches and
// destroys it.
class CapturedGraph {
 public:
  CapturedGraph(lathe_context* context, void* stream, const std::function<void()>& work)
      : stream_(static_cast<CUstream>(stream)) {
    lathe_context_info info{};
    info.size = sizeof info;
    API(lathe_context_get_info(context, &info));
    library_ = dlopen(info.driver_path, RTLD_NOW | RTLD_NOLOAD);
    if (library_ == nullptr) throw std::runtime_error("the driver is not open");
    retain();
    call<decltype(&cuStreamBeginCapture)>("cuStreamBeginCapture_v2", stream_,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    work();
    CUgraph graph = nullptr;
    call<decltype(&cuStreamEndCapture)>("cuStreamEndCapture", stream_, &graph);
    call<decltype(&cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags", &exec_, graph, 0);
    call<decltype(&cuGraphDestroy)>("cuGraphDestroy", graph);
  }
  ~CapturedGraph() {
    find<decltype(&cuGraphExecDestroy)>("cuGraphExecDestroy")(exec_);
    CUcontext popped = nullptr;
    find<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent_v2")(&popped);
    find<decltype(&cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease_v2")(0);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void launch() const { call<decltype(&cuGraphLaunch)>("cuGraphLaunch", exec_, stream_); }
  // Returns the memory that is free once the context's work is over and what was freed is given
  // back.
  size_t free_bytes() const {
    call<decltype(&cuCtxSynchronize)>("cuCtxSynchronize");
    size_t free = 0, total = 0;
    call<decltype(&cuMemGetInfo)>("cuMemGetInfo_v2", &free, &total);
    return free;
  }

 private:
  template <typename Function>
  Function find(const char* name) const {
    const auto found = reinterpret_cast<Function>(dlsym(library_, name));
    if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
    return found;
  }
  template <typename Function, typename... Args>
  void call(const char* name, Args... args) const {
    const CUresult result = find<Function>(name)(args...);
    if (result == CUDA_SUCCESS) return;
    throw std::runtime_error(std::string(name) + " answers " + std::to_string(result));
  }
  void retain() {
    CUcontext context = nullptr;
    call<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain", &context, 0);
    call<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent_v2", context);
  }

  CUstream stream_;
  void* library_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace apitest
