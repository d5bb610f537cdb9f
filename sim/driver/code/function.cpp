// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles function attributes. PTX has no register count, so the interpreter's estimate
// stands for it. It may be too high, so that it never makes a launch impossible.
#include "sim/driver/code/function.h"

#include <algorithm>

#include "sim/driver/code/ptxas.h"
#include "sim/driver/entry.h"

namespace sim::driver {
namespace {

constexpr int kWarp = 32;
constexpr int kRegisterGranule = 256;  // registers are given to a warp in pieces of this
constexpr int kSharedGranule = 128;

int round_up(int value, int granule) { return (value + granule - 1) / granule * granule; }

int warp_registers(int of_thread) {
  return round_up(std::max(1, of_thread) * kWarp, kRegisterGranule);
}

// Returns the registers of a thread by ptxas if it has been asked, else the guess.
int registers_of(const Function& function) {
  const int said = function.assembled.value_or(0);
  return said > 0 ? said : std::max(1, static_cast<int>(function.kernel->registers));
}

int max_cluster(const Function& function) { return function.non_portable_cluster ? 16 : 8; }

}  // namespace

int max_threads(const Kernel& kernel, const Profile& profile) {
  const int limit = std::min(1024, profile.threads_per_multiprocessor);
  return kernel.max_threads != 0 ? std::min(limit, static_cast<int>(kernel.max_threads)) : limit;
}

int most_blocks_per_multiprocessor(const Kernel& kernel, const Profile& profile, int threads,
                                   size_t dynamic_shared) {
  const int warps = (threads + kWarp - 1) / kWarp;
  if (warps == 0 || threads > max_threads(kernel, profile)) return 0;
  const int blocks = std::min(profile.blocks_per_multiprocessor,
                              profile.threads_per_multiprocessor / (warps * kWarp));
  const uint64_t shared = kernel.static_shared_bytes + dynamic_shared;
  if (shared > static_cast<uint64_t>(profile.shared_per_block_optin)) return 0;
  const int each = round_up(static_cast<int>(shared) + profile.shared_reserved, kSharedGranule);
  return std::min(blocks, profile.shared_per_multiprocessor / each);
}

int blocks_per_multiprocessor(const Function& function, const Profile& profile, int threads,
                              size_t dynamic_shared) {
  const int most =
      most_blocks_per_multiprocessor(*function.kernel, profile, threads, dynamic_shared);
  const int warps = std::max(1, (threads + kWarp - 1) / kWarp);
  const int by_registers =
      profile.registers_per_multiprocessor / (warps * warp_registers(registers_of(function)));
  return std::min(most, std::max(1, by_registers));
}

bool registers_suffice(const Options& options, Function& function, const Profile& profile,
                       int threads) {
  const int warps = (threads + kWarp - 1) / kWarp, all = profile.registers_per_multiprocessor;
  if (warps * warp_registers(registers_of(function)) <= all) return true;
  return warps * warp_registers(assembled_registers(options, function, profile)) <= all;
}

CUresult get_attribute(const Function& function, const Profile& profile,
                       CUfunction_attribute attribute, int* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel& kernel = *function.kernel;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out = max_threads(kernel, profile);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *out = static_cast<int>(kernel.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      uint64_t bytes = 0;
      for (const Variable& variable : function.code->variables()) {
        if (variable.constant) bytes += variable.bytes;
      }
      *out = static_cast<int>(bytes);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *out = static_cast<int>(kernel.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *out = registers_of(function);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *out = profile.major * 10 + profile.minor;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *out = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *out = function.max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *out = function.carveout;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *out = kernel.explicit_cluster && kernel.required_cluster[0] == 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      *out = static_cast<int>(kernel.required_cluster[0]);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      *out = static_cast<int>(kernel.required_cluster[1]);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *out = static_cast<int>(kernel.required_cluster[2]);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *out = max_cluster(function) > 8 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *out = function.scheduling_policy;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_attribute(Function& function, const Profile& profile, CUfunction_attribute attribute,
                       int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > profile.shared_per_block_optin -
                                   static_cast<int>(function.kernel->static_shared_bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      function.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      function.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      if (value < 0 || value > 1) return CUDA_ERROR_INVALID_VALUE;
      function.non_portable_cluster = value == 1;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < 0 || value > 2) return CUDA_ERROR_INVALID_VALUE;
      function.scheduling_policy = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult param_info(const Kernel& kernel, size_t index, size_t* offset, size_t* bytes) {
  if (offset == nullptr || index >= kernel.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel.params[index].offset;
  if (bytes != nullptr) *bytes = kernel.params[index].bytes;
  return CUDA_SUCCESS;
}

}  // namespace sim::driver

using namespace sim::driver;
using sim::Profile;

SIM_API cuFuncGetAttribute(int* out, CUfunction_attribute attribute, CUfunction handle) {
  return with_function(handle, [&](Function& function, const Profile& profile) {
    return get_attribute(function, profile, attribute, out);
  });
}

SIM_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return with_function(handle, [&](Function& function, const Profile& profile) {
    return set_attribute(function, profile, attribute, value);
  });
}

SIM_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
  return with_function(handle, [&](Function& function, const Profile&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = reinterpret_cast<CUmodule>(function.module->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuFuncGetName(const char** out, CUfunction handle) {
  return with_function(handle, [&](Function& function, const Profile&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = function.kernel->name.c_str();
    return CUDA_SUCCESS;
  });
}

SIM_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return with_function(handle, [&](Function& function, const Profile&) {
    return param_info(*function.kernel, index, offset, bytes);
  });
}

SIM_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  return with_function(handle, [&](Function&, const Profile&) {
    const bool known = config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuFuncLoad(CUfunction handle) {
  return with_function(handle, [](Function&, const Profile&) { return CUDA_SUCCESS; });
}

SIM_API cuFuncIsLoaded(CUfunctionLoadingState* out, CUfunction handle) {
  return with_function(handle, [&](Function&, const Profile&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}
