// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures time on a GPU with the events, copies and fills of the driver library that lathe opened.
#pragma once

#include <cuda.h>

#include <functional>

#include "bench/table.h"
#include "tests/harness/session.h"

namespace bench {

class Clock {
 public:
  explicit Clock(const char* driver_path);
  // Returns microseconds per call: samples of `batch` calls back to back.
  Spread time(int samples, int batch, const std::function<void()>& work) const;
  // Returns microseconds of single calls, each after `cache` was filled: with nothing of the call
  // before it in the device's second cache, if `cache` is larger.
  Spread time_cold(int samples, const apitest::Memory& cache,
                   const std::function<void()>& work) const;
  void copy(const apitest::Memory& to, const apitest::Memory& from) const;

 private:
  double between(const std::function<void()>& work) const;  // milliseconds

  CUevent begin_ = nullptr, end_ = nullptr;
  CUresult (*record_)(CUevent, CUstream) = nullptr;
  CUresult (*synchronize_)(CUevent) = nullptr;
  CUresult (*elapsed_)(float*, CUevent, CUevent) = nullptr;
  CUresult (*copy_)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = nullptr;
  CUresult (*fill_)(CUdeviceptr, unsigned char, size_t, CUstream) = nullptr;
};

}  // namespace bench
