// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/driver/code/request.h"

#include <algorithm>
#include <cstring>

namespace sim::driver {
namespace {

constexpr uint32_t kPortableCluster = 8, kLargestCluster = 16;

CUresult read_extra(void** extra, std::vector<uint8_t>* params) {
  const uint8_t* buffer = nullptr;
  const size_t* bytes = nullptr;
  for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = static_cast<const uint8_t*>(extra[1]);
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || bytes == nullptr || *bytes < params->size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::copy(buffer, buffer + params->size(), params->begin());
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_attributes(const CUlaunchConfig& config, Request* request) {
  if (config.numAttrs > 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < config.numAttrs; ++at) {
    const CUlaunchAttribute& attribute = config.attrs[at];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        request->cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        request->cluster[0] = attribute.value.clusterDim.x;
        request->cluster[1] = attribute.value.clusterDim.y;
        request->cluster[2] = attribute.value.clusterDim.z;
        if (product(request->cluster) == 0) return CUDA_ERROR_INVALID_VALUE;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        request->early = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        if (attribute.id < 0 || attribute.id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        break;  // hints: what they allow, such as an early start, is never required
    }
  }
  return CUDA_SUCCESS;
}

CUresult check_block(const Request& request, const Function& function) {
  if (product(request.grid) == 0 || product(request.block) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (request.grid[0] > 2147483647u || request.grid[1] > 65535 || request.grid[2] > 65535 ||
      request.block[0] > 1024 || request.block[1] > 1024 || request.block[2] > 64 ||
      product(request.block) > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Kernel& kernel = *function.kernel;
  const auto& required = kernel.required_block;
  if (required[0] != 0 && std::memcmp(required, request.block, sizeof required) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (kernel.max_threads != 0 && product(request.block) > kernel.max_threads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (request.shared > static_cast<uint32_t>(function.max_dynamic_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult check_cluster(Request* request, const Function& function, const Profile& profile) {
  const Kernel& kernel = *function.kernel;
  const auto& required = kernel.required_cluster;
  if (request->cluster[0] == 0) {
    for (int axis = 0; axis < 3; ++axis) {
      request->cluster[axis] = required[0] != 0 ? required[axis] : 1;
    }
  } else if (required[0] != 0 && std::memcmp(required, request->cluster, sizeof required) != 0) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  const uint64_t size = product(request->cluster);
  if (size == 1) return CUDA_SUCCESS;
  if (!profile.clusters) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const uint32_t most = function.non_portable_cluster ? kLargestCluster : kPortableCluster;
  if (size > most || (kernel.max_cluster_rank != 0 && size > kernel.max_cluster_rank)) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (request->grid[axis] % request->cluster[axis] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

CUresult read_params(const Kernel& kernel, void** each, void** extra,
                     std::vector<uint8_t>* params) {
  params->assign(kernel.param_bytes, 0);
  if (each != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return read_extra(extra, params);
  if (kernel.params.empty()) return CUDA_SUCCESS;
  if (each == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < kernel.params.size(); ++at) {
    if (each[at] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(params->data() + kernel.params[at].offset, each[at], kernel.params[at].bytes);
  }
  return CUDA_SUCCESS;
}

}  // namespace sim::driver
