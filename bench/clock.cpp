// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/clock.h"

#include <dlfcn.h>

#include <stdexcept>

namespace bench {
namespace {

constexpr int kUntimed = 3;  // first samples, while clocks rise

template <typename Function>
void get(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("no entry point ") + name);
}

void done(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("driver error " + std::to_string(result));
}

CUdeviceptr address(const apitest::Memory& memory) {
  return reinterpret_cast<CUdeviceptr>(memory.data());
}

}  // namespace

Clock::Clock(const char* driver_path) {
  void* library = dlopen(driver_path, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  CUresult (*create)(CUevent*, unsigned) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*push)(CUcontext) = nullptr;
  get(library, "cuEventCreate", create);
  get(library, "cuEventRecord", record_);
  get(library, "cuEventSynchronize", synchronize_);
  get(library, "cuEventElapsedTime", elapsed_);
  get(library, "cuMemcpyDtoDAsync_v2", copy_);
  get(library, "cuMemsetD8Async", fill_);
  get(library, "cuDevicePrimaryCtxRetain", retain);
  get(library, "cuCtxPushCurrent_v2", push);
  CUcontext context = nullptr;
  done(retain(&context, 0));
  done(push(context));
  done(create(&begin_, CU_EVENT_DEFAULT));
  done(create(&end_, CU_EVENT_DEFAULT));
}

double Clock::between(const std::function<void()>& work) const {
  done(record_(begin_, nullptr));
  work();
  done(record_(end_, nullptr));
  done(synchronize_(end_));
  float ms = 0;
  done(elapsed_(&ms, begin_, end_));
  return ms;
}

Spread Clock::time(int samples, int batch, const std::function<void()>& work) const {
  std::vector<double> times;
  for (int i = 0; i < samples + kUntimed; ++i) {
    const double ms = between([&] {
      for (int call = 0; call < batch; ++call) work();
    });
    if (i >= kUntimed) times.push_back(1e3 * ms / batch);
  }
  return spread(std::move(times));
}

Spread Clock::time_cold(int samples, const apitest::Memory& cache,
                        const std::function<void()>& work) const {
  std::vector<double> times;
  for (int i = 0; i < samples + kUntimed; ++i) {
    done(fill_(address(cache), static_cast<unsigned char>(i), cache.bytes(), nullptr));
    const double ms = between(work);
    if (i >= kUntimed) times.push_back(1e3 * ms);
  }
  return spread(std::move(times));
}

void Clock::copy(const apitest::Memory& to, const apitest::Memory& from) const {
  done(copy_(address(to), address(from), from.bytes(), nullptr));
}

}  // namespace bench
