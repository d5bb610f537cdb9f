// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions give a program the driver's functions through the runtime.
#include "sim/runtime/version.h"

namespace sim::runtime {
namespace {

// Flags of the runtime and the driver have the same values.
unsigned long long own_by_default(unsigned long long flags) {
  constexpr unsigned long long kOwn = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  return flags == CU_GET_PROC_ADDRESS_DEFAULT ? kOwn : flags;
}

cudaError_t entry_point(const char* symbol, void** entry, unsigned version,
                        unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return with_driver([&](const Driver& driver) -> Result {
    if (symbol == nullptr || entry == nullptr) return cudaErrorInvalidValue;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result =
        driver.cuGetProcAddress(symbol, entry, static_cast<int>(version), flags, &found);
    if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    // The status tells what was not found; the call has succeeded then.
    return result == CUDA_ERROR_NOT_FOUND && status != nullptr ? CUDA_SUCCESS : result;
  });
}

}  // namespace
}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** entry,
                                                         unsigned version, unsigned long long flags,
                                                         cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, entry, version, flags, status);
}

SIM_RUNTIME cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** entry,
                                                unsigned long long flags,
                                                cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, entry, kToolkitVersion, flags, status);
}

SIM_RUNTIME cudaError_t cudaGetDriverEntryPointByVersion_ptsz(
    const char* symbol, void** entry, unsigned version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, entry, version, own_by_default(flags), status);
}

SIM_RUNTIME cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** entry,
                                                     unsigned long long flags,
                                                     cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, entry, kToolkitVersion, own_by_default(flags), status);
}
