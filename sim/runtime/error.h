// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Errors of the runtime: the driver's by number, and what each thread keeps of its last one.
#pragma once

#include <cuda.h>

#include <string>

#include "abi/cuda_runtime_api.h"

namespace sim::runtime {

// Says whether the runtime has an error of this number.
bool is_known(int error);

// The driver and the runtime give their common errors the same numbers.
cudaError_t runtime_error(CUresult result);

// The answer of a call, from either side.
struct Result {
  Result(CUresult result) : error(runtime_error(result)) {}
  Result(cudaError_t given) : error(given) {}
  bool failed() const { return error != cudaSuccess; }
  cudaError_t error;
};

// Keeps an error for cudaGetLastError and hands it back. cudaErrorNotReady is no error.
cudaError_t record(cudaError_t error);

// Forgets the thread's error, a fault too: cudaDeviceReset brings the device back.
void forget_errors();

// Writes one line to stderr.
void say(const std::string& text);

}  // namespace sim::runtime
