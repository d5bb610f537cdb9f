// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Streams and events with default flags.
#include "sim/runtime/version.h"

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

SIM_RUNTIME cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}

SIM_RUNTIME cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return record(cudaErrorInvalidValue);
  *version = static_cast<int>(kToolkitVersion);
  return cudaSuccess;
}
