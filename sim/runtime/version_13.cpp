// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls that CUDA 13 changed, in their new form.
#include "sim/runtime/direct.h"
#include "sim/runtime/properties.h"
#include "sim/runtime/version.h"

namespace sim::runtime {

const unsigned kToolkitVersion = 13000;

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return with_driver([&](const Driver& driver) -> Result {
    return out == nullptr ? Result(cudaErrorInvalidValue) : fill_properties(driver, device, out);
  });
}

SIM_DIRECT(5, cudaGraphAddDependencies, cuGraphAddDependencies, with_context)
SIM_DIRECT(4, cudaMemAdvise, cuMemAdvise, with_context)
SIM_DIRECT_TWO(5, cudaMemPrefetchAsync, cuMemPrefetchAsync, with_context)
SIM_DIRECT_TWO(7, cudaStreamGetCaptureInfo, cuStreamGetCaptureInfo, with_context)
