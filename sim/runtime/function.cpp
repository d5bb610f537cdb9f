// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attributes of kernels, and how many blocks of them fit.
#include "sim/runtime/launch.h"
#include "sim/runtime/registry.h"

namespace sim::runtime {
namespace {

// Runs body(const Driver&, CUkernel, device).
template <typename F>
cudaError_t with_kernel(const void* symbol, F body) noexcept {
  return with_context([&](const Driver& driver) -> Result {
    CUkernel kernel = nullptr;
    int device = 0;
    Result result = find_kernel(symbol, &kernel);
    if (!result.failed()) result = current_device(&device);
    return result.failed() ? result : Result(body(driver, kernel, device));
  });
}

// A kernel stands for its function in the current context.
CUfunction function_of(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

// X(member, attribute) of cudaFuncAttributes
#define SIM_FUNCTION_ATTRIBUTES(X)                                           \
  X(sharedSizeBytes, SHARED_SIZE_BYTES)                                      \
  X(constSizeBytes, CONST_SIZE_BYTES)                                        \
  X(localSizeBytes, LOCAL_SIZE_BYTES)                                        \
  X(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)                               \
  X(numRegs, NUM_REGS)                                                       \
  X(ptxVersion, PTX_VERSION)                                                 \
  X(binaryVersion, BINARY_VERSION)                                           \
  X(cacheModeCA, CACHE_MODE_CA)                                              \
  X(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES)                \
  X(preferredShmemCarveout, PREFERRED_SHARED_MEMORY_CARVEOUT)                \
  X(clusterDimMustBeSet, CLUSTER_SIZE_MUST_BE_SET)                           \
  X(requiredClusterWidth, REQUIRED_CLUSTER_WIDTH)                            \
  X(requiredClusterHeight, REQUIRED_CLUSTER_HEIGHT)                          \
  X(requiredClusterDepth, REQUIRED_CLUSTER_DEPTH)                            \
  X(clusterSchedulingPolicyPreference, CLUSTER_SCHEDULING_POLICY_PREFERENCE) \
  X(nonPortableClusterSizeAllowed, NON_PORTABLE_CLUSTER_SIZE_ALLOWED)

}  // namespace
}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int device) -> Result {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = {};
    Result result = cudaSuccess;
    int value = 0;
#define SIM_READ(member, attribute)                                                              \
  if (!result.failed()) {                                                                        \
    result = driver.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_##attribute, handle, device); \
    out->member = static_cast<decltype(out->member)>(value);                                     \
  }
    SIM_FUNCTION_ATTRIBUTES(SIM_READ)
#undef SIM_READ
    return result;
  });
}

SIM_RUNTIME cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute,
                                             int value) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int device) {
    return driver.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, handle,
                                       device);
  });
}

SIM_RUNTIME cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                        cudaFuncAttribute attribute, int value,
                                                        int device) {
  return with_driver([&](const Driver& driver) {
    return driver.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel,
                                       device);
  });
}

SIM_RUNTIME cudaError_t cudaFuncSetCacheConfig(const void* kernel, cudaFuncCache config) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int device) {
    return driver.cuKernelSetCacheConfig(handle, static_cast<CUfunc_cache>(config), device);
  });
}

SIM_RUNTIME cudaError_t cudaFuncSetSharedMemConfig(const void* kernel, cudaSharedMemConfig config) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) -> Result {
    CUfunction function = nullptr;
    const Result result = driver.cuKernelGetFunction(&function, handle);
    if (result.failed()) return result;
    return driver.cuFuncSetSharedMemConfig(function, static_cast<CUsharedconfig>(config));
  });
}

SIM_RUNTIME cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) {
    return driver.cuKernelGetName(name, handle);
  });
}

SIM_RUNTIME cudaError_t cudaFuncGetParamInfo(const void* kernel, size_t index, size_t* offset,
                                             size_t* bytes) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) {
    return driver.cuKernelGetParamInfo(handle, index, offset, bytes);
  });
}

SIM_RUNTIME cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  return with_kernel(symbol, [&](const Driver& driver, CUkernel handle, int) {
    return driver.cuKernelGetFunction(function, handle);
  });
}

SIM_RUNTIME cudaError_t cudaGetKernel(cudaKernel_t* out, const void* symbol) {
  return with_context([&](const Driver&) -> Result {
    return out == nullptr ? Result(cudaErrorInvalidValue) : find_kernel(symbol, out);
  });
}

SIM_RUNTIME cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library,
                                             const char* name) {
  return with_driver([&](const Driver& driver) -> Result {
    const Result result = driver.cuLibraryGetKernel(kernel, library, name);
    if (!result.failed()) know_kernel(*kernel);
    return result;
  });
}

SIM_RUNTIME cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned count,
                                                    cudaLibrary_t library) {
  return with_driver([&](const Driver& driver) -> Result {
    unsigned all = 0;
    Result result = driver.cuLibraryGetKernelCount(&all, library);
    if (!result.failed()) result = driver.cuLibraryEnumerateKernels(kernels, count, library);
    if (result.failed()) return result;
    for (unsigned at = 0; at < all && at < count; ++at) know_kernel(kernels[at]);
    return cudaSuccess;
  });
}

SIM_RUNTIME cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* kernel, int threads, size_t shared_bytes, unsigned flags) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) {
    return driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, function_of(handle), threads, shared_bytes, flags);
  });
}

SIM_RUNTIME cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                      const void* kernel,
                                                                      int threads,
                                                                      size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads,
                                                                shared_bytes, 0);
}

SIM_RUNTIME cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* shared_bytes,
                                                                  const void* kernel, int blocks,
                                                                  int threads) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) {
    return driver.cuOccupancyAvailableDynamicSMemPerBlock(shared_bytes, function_of(handle), blocks,
                                                          threads);
  });
}

SIM_RUNTIME cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                                       const cudaLaunchConfig_t* config) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) -> Result {
    CUlaunchConfig how;
    const Result result = read_configuration(config, &how);
    if (result.failed()) return result;
    return driver.cuOccupancyMaxActiveClusters(clusters, function_of(handle), &how);
  });
}

SIM_RUNTIME cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, const void* kernel,
                                                             const cudaLaunchConfig_t* config) {
  return with_kernel(kernel, [&](const Driver& driver, CUkernel handle, int) -> Result {
    CUlaunchConfig how;
    const Result result = read_configuration(config, &how);
    if (result.failed()) return result;
    return driver.cuOccupancyMaxPotentialClusterSize(blocks, function_of(handle), &how);
  });
}
