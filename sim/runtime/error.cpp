// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file keeps each thread's last error, and knows which errors end a context.
#include "sim/runtime/error.h"

#include <atomic>
#include <cstdio>

#include "sim/runtime/entry.h"

namespace sim::runtime {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

// After these the device's context is dead, and every call fails until cudaDeviceReset.
bool is_fault(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

}  // namespace

cudaError_t runtime_error(CUresult result) {
  return is_known(result) ? static_cast<cudaError_t>(result) : cudaErrorUnknown;
}

cudaError_t record(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady && !is_fault(last_error)) {
    last_error = error;
  }
  return error;
}

void forget_errors() { last_error = cudaSuccess; }

void say(const std::string& text) {
  const std::string line = "lathe sim: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// For the calls in unsupported.cpp, which cannot see the types.
int refuse(const char* name, std::atomic<bool>* told) {
  if (!told->exchange(true)) say(std::string(name) + " is not supported");
  return record(cudaErrorNotSupported);
}

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaPeekAtLastError() { return last_error; }

SIM_RUNTIME cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  if (!is_fault(error)) last_error = cudaSuccess;
  return error;
}
