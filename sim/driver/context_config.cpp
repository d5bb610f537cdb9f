// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles settings of contexts that change nothing here but are answered as they were
// set, and profilers' marks.
#include "sim/driver/context.h"
#include "sim/driver/entry.h"

using namespace sim::driver;

SIM_API cuCtxGetApiVersion(CUcontext handle, unsigned* out) {
  return ask_context(handle, out, [](const Context&) { return 3020u; });
}

SIM_API cuCtxGetCacheConfig(CUfunc_cache* out) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = static_cast<CUfunc_cache>(context.cache_config);
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    context.cache_config = config;
    return CUDA_SUCCESS;
  });
}

// Banks are four bytes wide on every device modelled, whatever is asked for.
SIM_API cuCtxGetSharedMemConfig(CUsharedconfig* out) {
  return with_context([&](Driver&, Lock&, Context&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_context([&](Driver&, Lock&, Context&) -> CUresult {
    const bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                       config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuCtxResetPersistingL2Cache(void) {
  return with_context([](Driver&, Lock&, Context&) -> CUresult { return CUDA_SUCCESS; });
}

SIM_API cuCtxSetFlags(unsigned flags) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

SIM_API cuProfilerStart(void) {
  return with_context([](Driver&, Lock&, Context&) -> CUresult { return CUDA_SUCCESS; });
}

SIM_API cuProfilerStop(void) {
  return with_context([](Driver&, Lock&, Context&) -> CUresult { return CUDA_SUCCESS; });
}
