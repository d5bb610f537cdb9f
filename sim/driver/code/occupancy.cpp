// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles occupancy: how many blocks or clusters fit, and sizes that fit best.
#include <algorithm>

#include "sim/driver/code/function.h"
#include "sim/driver/entry.h"

using namespace sim::driver;
using sim::Profile;

namespace {

// Clusters spread over the multiprocessors of one group; a group of an H100 has at most 18, some
// have 16. The model: blocks that fit on the whole device, in whole clusters.
int clusters_that_fit(const Function& function, const Profile& profile, int threads, size_t shared,
                      int cluster_blocks) {
  const int blocks = blocks_per_multiprocessor(function, profile, threads, shared);
  return blocks * profile.multiprocessors / std::max(1, cluster_blocks);
}

int cluster_of(const CUlaunchConfig& config) {
  for (unsigned at = 0; at < config.numAttrs; ++at) {
    if (config.attrs[at].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& size = config.attrs[at].value.clusterDim;
      return static_cast<int>(size.x * size.y * size.z);
    }
  }
  return 1;
}

int threads_of(const CUlaunchConfig& config) {
  return static_cast<int>(config.blockDimX * config.blockDimY * config.blockDimZ);
}

CUresult active_blocks(int* out, CUfunction handle, int threads, size_t shared) {
  return with_function(handle, [&](Function& function, const Profile& profile) -> CUresult {
    if (out == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    *out = blocks_per_multiprocessor(function, profile, threads, shared);
    return CUDA_SUCCESS;
  });
}

}  // namespace

SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction handle, int threads,
                                                    size_t shared) {
  return active_blocks(out, handle, threads, shared);
}

SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, CUfunction handle,
                                                             int threads, size_t shared,
                                                             unsigned flags) {
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return active_blocks(out, handle, threads, shared);
}

SIM_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle,
                                         CUoccupancyB2DSize shared_of, size_t shared, int limit) {
  return with_function(handle, [&](Function& function, const Profile& profile) -> CUresult {
    if (grid == nullptr || block == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
    int most = max_threads(*function.kernel, profile);
    if (limit > 0) most = std::min(most, limit);
    int best = 0;
    for (int threads = most; threads > 0; threads = (threads - 1) / 32 * 32) {
      const size_t bytes = shared_of != nullptr ? shared_of(threads) : shared;
      const int blocks = blocks_per_multiprocessor(function, profile, threads, bytes);
      if (blocks * threads > best) {
        best = blocks * threads;
        *block = threads;
        *grid = blocks * profile.multiprocessors;
      }
    }
    return best > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuOccupancyMaxActiveClusters(int* out, CUfunction handle, const CUlaunchConfig* config) {
  return with_function(handle, [&](Function& function, const Profile& profile) -> CUresult {
    if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!profile.clusters) return CUDA_ERROR_NOT_SUPPORTED;
    const int size = cluster_of(*config);
    if (size <= 0 || size > (function.non_portable_cluster ? 16 : 8)) {
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    *out = clusters_that_fit(function, profile, threads_of(*config), config->sharedMemBytes, size);
    return CUDA_SUCCESS;
  });
}

SIM_API cuOccupancyMaxPotentialClusterSize(int* out, CUfunction handle,
                                           const CUlaunchConfig* config) {
  return with_function(handle, [&](Function& function, const Profile& profile) -> CUresult {
    if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!profile.clusters) return CUDA_ERROR_NOT_SUPPORTED;
    int size = function.non_portable_cluster ? 16 : 8;
    while (size > 1 && clusters_that_fit(function, profile, threads_of(*config),
                                         config->sharedMemBytes, size) == 0) {
      size /= 2;
    }
    *out = size;
    return CUDA_SUCCESS;
  });
}

SIM_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* out, CUfunction handle, int blocks,
                                                int threads) {
  return with_function(handle, [&](Function& function, const Profile& profile) -> CUresult {
    if (out == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (blocks > blocks_per_multiprocessor(function, profile, threads, 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int each = profile.shared_per_multiprocessor / blocks / 128 * 128;
    const int usable = std::min(each - profile.shared_reserved, profile.shared_per_block_optin) -
                       static_cast<int>(function.kernel->static_shared_bytes);
    *out = static_cast<size_t>(std::max(0, usable));
    return CUDA_SUCCESS;
  });
}
