// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles memory pools. Memory goes back to the device when it is freed, whatever the
// threshold says.
#include <algorithm>

#include "sim/driver/entry.h"

using namespace sim::driver;

namespace {

template <typename F>
CUresult with_pool(CUmemoryPool handle, F body) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto pool = driver.find<Pool>(handle);
    return pool ? body(driver, pool) : CUDA_ERROR_INVALID_VALUE;
  });
}

bool is_reuse(CUmemPool_attribute attribute) {
  return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

SIM_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = handle_of<CUmemoryPool>(device.default_pool);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = handle_of<CUmemoryPool>(device.current_pool);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device& device) -> CUresult {
    auto pool = driver.find<Pool>(handle);
    if (!pool || pool->device != &device) return CUDA_ERROR_INVALID_VALUE;
    device.current_pool = pool;
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
        props->location.id >= static_cast<int>(driver.devices.size())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    auto pool = driver.add(std::make_shared<Pool>());
    pool->device = driver.devices[static_cast<size_t>(props->location.id)].get();
    driver.pools[pool->handle] = pool;
    *out = handle_of<CUmemoryPool>(pool);
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemPoolDestroy(CUmemoryPool handle) {
  return with_pool(handle, [](Driver& driver, const std::shared_ptr<Pool>& pool) {
    if (driver.pools.erase(pool->handle) == 0) return CUDA_ERROR_INVALID_VALUE;  // a default pool
    driver.objects.erase(pool->handle);
    if (pool->device->current_pool == pool) pool->device->current_pool = pool->device->default_pool;
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return with_pool(handle, [&](Driver&, const std::shared_ptr<Pool>& pool) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (is_reuse(attribute)) {
      pool->reuse[attribute - 1] = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    }
    const uint64_t number = *static_cast<cuuint64_t*>(value);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      pool->release_threshold = number;
      return CUDA_SUCCESS;
    }
    const bool high = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
                      attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    if (!high || number != 0) return CUDA_ERROR_INVALID_VALUE;
    pool->used_high = pool->used;
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return with_pool(handle, [&](Driver&, const std::shared_ptr<Pool>& pool) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (is_reuse(attribute)) {
      *static_cast<int*>(value) = pool->reuse[attribute - 1];
      return CUDA_SUCCESS;
    }
    auto* number = static_cast<cuuint64_t*>(value);
    switch (attribute) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *number = pool->release_threshold;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *number = pool->used;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *number = pool->used_high;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

SIM_API cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  return with_pool(handle, [](Driver&, const std::shared_ptr<Pool>&) { return CUDA_SUCCESS; });
}

namespace {

// Returns the device a pool's access is about; null if there is none such.
Device* device_at(Driver& driver, const CUmemLocation& location) {
  const bool known = location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
                     location.id < static_cast<int>(driver.devices.size());
  return known ? driver.devices[static_cast<size_t>(location.id)].get() : nullptr;
}

// Gives the pool's memory to the peer's kernels, or takes it away.
void share(Driver& driver, Pool& pool, Device& peer, bool allowed) {
  const bool had = std::erase(pool.peers, &peer) > 0;
  if (allowed) pool.peers.push_back(&peer);
  if (had == allowed) return;
  for (const auto& [base, block] : driver.blocks) {
    if (block.pool.get() != &pool) continue;
    if (allowed) {
      peer.memory->adopt(base, block.bytes, sim::MemoryKind::mapped);
    } else {
      peer.memory->release(base);
    }
  }
}

}  // namespace

SIM_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  return with_pool(handle, [&](Driver& driver, const std::shared_ptr<Pool>& pool) {
    if (map == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < count; ++at) {
      if (device_at(driver, map[at].location) == nullptr) return CUDA_ERROR_INVALID_VALUE;
      const bool own = device_at(driver, map[at].location) == pool->device;
      const bool none = map[at].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
      const bool all = map[at].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (!all && (own || !none)) return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t at = 0; at < count; ++at) {
      Device* peer = device_at(driver, map[at].location);
      const bool all = map[at].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (peer != pool->device) share(driver, *pool, *peer, all);
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  return with_pool(handle, [&](Driver& driver, const std::shared_ptr<Pool>& pool) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Device* device = device_at(driver, *location);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool all = device == pool->device ||
                     std::find(pool->peers.begin(), pool->peers.end(), device) != pool->peers.end();
    *flags = all ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}
