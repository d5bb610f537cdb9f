// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches: what <<<>>> compiles to, and the calls for which a program fills a configuration.
#include "sim/runtime/launch.h"

#include <vector>

#include "sim/runtime/registry.h"

namespace sim::runtime {
namespace {

// Configurations that <<<>>> has pushed and no kernel's stub has popped yet.
thread_local std::vector<cudaLaunchConfig_t> pushed;

bool within(const dim3& size, unsigned x, unsigned y, unsigned z) {
  return size.x > 0 && size.y > 0 && size.z > 0 && size.x <= x && size.y <= y && size.z <= z;
}

// The driver has one error for every wrong argument; the runtime tells wrong sizes from others.
bool is_possible(const dim3& grid, const dim3& block) {
  return within(grid, 2147483647, 65535, 65535) && within(block, 1024, 1024, 64) &&
         uint64_t{block.x} * block.y * block.z <= 1024;
}

cudaError_t launch(const void* symbol, const cudaLaunchConfig_t* given, void** arguments) noexcept {
  return with_context([&](const Driver& driver) -> Result {
    CUkernel kernel = nullptr;
    CUlaunchConfig config;
    Result result = read_configuration(given, &config);
    if (!result.failed()) result = find_kernel(symbol, &kernel);
    if (result.failed()) return result;
    if (!is_possible(given->gridDim, given->blockDim)) return cudaErrorInvalidConfiguration;
    return driver.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), arguments,
                                   nullptr);
  });
}

cudaError_t launch_plain(const void* symbol, dim3 grid, dim3 block, void** arguments,
                         size_t shared_bytes, cudaStream_t stream) {
  const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, nullptr, 0};
  return launch(symbol, &config, arguments);
}

cudaError_t launch_cooperative(const void* symbol, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  CUlaunchAttribute cooperative = {};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  auto* attributes = reinterpret_cast<cudaLaunchAttribute*>(&cooperative);
  const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, attributes, 1};
  return launch(symbol, &config, arguments);
}

}  // namespace

Result read_configuration(const cudaLaunchConfig_t* given, CUlaunchConfig* out) {
  if (given == nullptr || given->dynamicSmemBytes > UINT32_MAX) return cudaErrorInvalidValue;
  *out = {.gridDimX = given->gridDim.x,
          .gridDimY = given->gridDim.y,
          .gridDimZ = given->gridDim.z,
          .blockDimX = given->blockDim.x,
          .blockDimY = given->blockDim.y,
          .blockDimZ = given->blockDim.z,
          .sharedMemBytes = static_cast<unsigned>(given->dynamicSmemBytes),
          .hStream = given->stream,
          .attrs = reinterpret_cast<CUlaunchAttribute*>(given->attrs),
          .numAttrs = given->numAttrs};
  return cudaSuccess;
}

}  // namespace sim::runtime

using namespace sim::runtime;

// The operator <<<>>> compiles to this. A result other than 0 makes it skip the launch.
SIM_RUNTIME unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                 cudaStream_t stream) {
  const cudaError_t error = guarded([&]() -> Result {
    pushed.push_back({grid, block, shared_bytes, stream, nullptr, 0});
    return cudaSuccess;
  });
  return error == cudaSuccess ? 0 : 1;
}

SIM_RUNTIME cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                   void* stream) {
  return guarded([&]() -> Result {
    if (pushed.empty()) return cudaErrorMissingConfiguration;
    const cudaLaunchConfig_t config = pushed.back();
    pushed.pop_back();
    *grid = config.gridDim;
    *block = config.blockDim;
    *shared_bytes = config.dynamicSmemBytes;
    *static_cast<cudaStream_t*>(stream) = config.stream;
    return cudaSuccess;
  });
}

SIM_RUNTIME cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block,
                                         void** arguments, size_t shared_bytes,
                                         cudaStream_t stream) {
  return launch_plain(kernel, grid, block, arguments, shared_bytes, stream);
}

SIM_RUNTIME cudaError_t cudaLaunchKernel_ptsz(const void* kernel, dim3 grid, dim3 block,
                                              void** arguments, size_t shared_bytes,
                                              cudaStream_t stream) {
  return launch_plain(kernel, grid, block, arguments, shared_bytes, own(stream));
}

SIM_RUNTIME cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                           void** arguments, size_t shared_bytes,
                                           cudaStream_t stream) {
  return launch_plain(kernel, grid, block, arguments, shared_bytes, stream);
}

SIM_RUNTIME cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
                                                void** arguments, size_t shared_bytes,
                                                cudaStream_t stream) {
  return launch_plain(kernel, grid, block, arguments, shared_bytes, own(stream));
}

SIM_RUNTIME cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block,
                                                    void** arguments, size_t shared_bytes,
                                                    cudaStream_t stream) {
  return launch_cooperative(kernel, grid, block, arguments, shared_bytes, stream);
}

SIM_RUNTIME cudaError_t cudaLaunchCooperativeKernel_ptsz(const void* kernel, dim3 grid, dim3 block,
                                                         void** arguments, size_t shared_bytes,
                                                         cudaStream_t stream) {
  return launch_cooperative(kernel, grid, block, arguments, shared_bytes, own(stream));
}

SIM_RUNTIME cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                            void** arguments) {
  return launch(kernel, config, arguments);
}

SIM_RUNTIME cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config,
                                                 const void* kernel, void** arguments) {
  if (config == nullptr) return record(cudaErrorInvalidValue);
  cudaLaunchConfig_t mine = *config;
  mine.stream = own(mine.stream);
  return launch(kernel, &mine, arguments);
}
