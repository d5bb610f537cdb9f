// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles pinned and registered host memory: the same address on every device.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "sim/driver/context.h"
#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/work.h"

using namespace sim::driver;
using sim::MemoryKind;

namespace {

constexpr size_t kPage = 4096;

// Makes [base, base + bytes) known to every device, or to none.
CUresult adopt(Driver& driver, Context& context, Block block) {
  for (size_t at = 0; at < driver.devices.size(); ++at) {
    if (driver.devices[at]->memory->adopt(block.base, block.bytes, block.kind)) continue;
    while (at-- > 0) driver.devices[at]->memory->release(block.base);
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  block.id = driver.next_block++;
  block.context = &context;
  block.device = context.device;
  driver.blocks[block.base] = std::move(block);
  return CUDA_SUCCESS;
}

// Returns whether the process has memory at all of these addresses. mincore fails where there is
// none.
bool is_mapped(uint64_t address, uint64_t bytes) {
  constexpr uint64_t kPages = 4096;  // asked about at once
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > UINT64_MAX - address - page) return false;
  unsigned char residence[kPages];
  for (uint64_t at = address / page * page; at < address + bytes; at += kPages * page) {
    const uint64_t length = std::min(address + bytes - at, kPages * page);
    if (mincore(reinterpret_cast<void*>(at), length, residence) != 0) return false;
  }
  return true;
}

CUresult allocate_host(void** out, size_t bytes, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    constexpr unsigned kKnown =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (out == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    if (rounded < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    Block block;
    block.host.reset(static_cast<char*>(std::aligned_alloc(kPage, rounded)), std::free);
    if (!block.host) return CUDA_ERROR_OUT_OF_MEMORY;
    block.base = reinterpret_cast<uint64_t>(block.host.get());
    block.bytes = bytes;
    block.kind = MemoryKind::pinned_host;
    block.host_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    *out = block.host.get();
    return adopt(driver, context, std::move(block));
  });
}

CUresult release_host(void* address, MemoryKind kind, CUresult unknown) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    auto it = driver.blocks.find(reinterpret_cast<uint64_t>(address));
    if (it == driver.blocks.end() || it->second.kind != kind) return unknown;
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    Context& owner = *it->second.context;
    after_everything(driver, lock, owner, forget_block(driver, it->first));
    return context.error;
  });
}

}  // namespace

SIM_API cuMemAllocHost(void** out, size_t bytes) { return allocate_host(out, bytes, 0); }

SIM_API cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return allocate_host(out, bytes, flags);
}

SIM_API cuMemFreeHost(void* address) {
  return release_host(address, MemoryKind::pinned_host, CUDA_ERROR_INVALID_VALUE);
}

SIM_API cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if (address == nullptr || bytes == 0 || (flags & ~kKnown) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    if (!is_mapped(reinterpret_cast<uint64_t>(address), bytes)) return CUDA_ERROR_INVALID_VALUE;
    Block block;
    block.base = reinterpret_cast<uint64_t>(address);
    block.bytes = bytes;
    block.kind = MemoryKind::registered_host;
    block.host_flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
    return adopt(driver, context, std::move(block));
  });
}

SIM_API cuMemHostUnregister(void* address) {
  return release_host(address, MemoryKind::registered_host, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SIM_API cuMemHostGetDevicePointer(CUdeviceptr* out, void* address, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    const Block* block = driver.find_block(reinterpret_cast<uint64_t>(address));
    if (out == nullptr || flags != 0 || block == nullptr ||
        (block->kind != MemoryKind::pinned_host && block->kind != MemoryKind::registered_host)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *out = reinterpret_cast<CUdeviceptr>(address);
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemHostGetFlags(unsigned* out, void* address) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    const Block* block = driver.find_block(reinterpret_cast<uint64_t>(address));
    if (out == nullptr || block == nullptr || block->kind != MemoryKind::pinned_host) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *out = block->host_flags;
    return CUDA_SUCCESS;
  });
}
