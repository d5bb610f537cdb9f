// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles virtual memory management: addresses, memory and access are had apart. Memory
// is an anonymous file, so that it may be mapped at several places. It has no shadow: all of it
// counts as written.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/driver/context.h"
#include "sim/driver/entry.h"
#include "sim/driver/work.h"

using namespace sim::driver;
using sim::MemoryKind;

namespace {

constexpr size_t kGranularity = 2 << 20;

// cuMemCreate makes one. It is freed with its last handle and its last mapping.
struct Physical : Object {
  Device* device = nullptr;
  size_t bytes = 0;
  int file = -1;
  unsigned references = 1;  // the caller's
  CUmemAllocationProp props = {};
  ~Physical() override {
    if (file >= 0) close(file);
    device->memory->discharge(bytes);
  }
};

CUresult check_props(Driver& driver, const CUmemAllocationProp* props) {
  if (props == nullptr || props->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (props->location.id < 0 || props->location.id >= static_cast<int>(driver.devices.size())) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return props->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS
                                                                : CUDA_ERROR_NOT_SUPPORTED;
}

bool is_whole(uint64_t bytes) { return bytes != 0 && bytes % kGranularity == 0; }

// NaN in every format, so that nobody counts on zeros.
bool fill_with_nan(int file, size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return false;
  std::memset(at, 0x7F, bytes);
  munmap(at, bytes);
  return true;
}

// Returns the mappings of [address, address + bytes), which they must fill; empty if they do not.
std::vector<uint64_t> mappings_of(Driver& driver, uint64_t address, size_t bytes) {
  std::vector<uint64_t> found;
  uint64_t next = address;
  while (next < address + bytes) {
    const auto it = driver.mappings.find(next);
    if (it == driver.mappings.end() || it->second.bytes > address + bytes - next) return {};
    found.push_back(next);
    next += it->second.bytes;
  }
  return found;
}

void hide(Driver& driver, uint64_t base, Mapping& mapping) {
  for (Device* device : mapping.seen_by) device->memory->release(base);
  mapping.seen_by.clear();
  driver.blocks.erase(base);
}

void show(Driver& driver, Context& context, uint64_t base, Mapping& mapping, Device& device) {
  if (std::find(mapping.seen_by.begin(), mapping.seen_by.end(), &device) != mapping.seen_by.end()) {
    return;
  }
  device.memory->adopt(base, mapping.bytes, MemoryKind::mapped);
  mapping.seen_by.push_back(&device);
  Block block;
  block.base = base;
  block.bytes = mapping.bytes;
  block.kind = MemoryKind::mapped;
  block.id = driver.next_block++;
  block.context = &context;
  block.device = &device;
  driver.blocks.emplace(base, block);
}

}  // namespace

SIM_API cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* props,
                                      CUmemAllocationGranularity_flags option) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
        option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *out = kGranularity;
    return check_props(driver, props);
  });
}

SIM_API cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                            unsigned long long flags) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || !is_whole(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t step = std::max(alignment, kGranularity);
    void* at =
        mmap(nullptr, bytes + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto start = reinterpret_cast<uint64_t>(at);
    const uint64_t base = (start + step - 1) / step * step;
    if (base > start) munmap(at, base - start);
    munmap(reinterpret_cast<void*>(base + bytes), start + step - base);
    driver.reservations[base] = bytes;
    *out = base;
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemAddressFree(CUdeviceptr base, size_t bytes) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    const auto it = driver.reservations.find(base);
    if (it == driver.reservations.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    const auto mapped = driver.mappings.lower_bound(base);
    if (mapped != driver.mappings.end() && mapped->first < base + bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(reinterpret_cast<void*>(base), bytes);
    driver.reservations.erase(it);
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                    const CUmemAllocationProp* props, unsigned long long flags) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || !is_whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_props(driver, props);
    if (result != CUDA_SUCCESS) return result;
    Device* device = driver.devices[static_cast<size_t>(props->location.id)].get();
    if (!device->memory->charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto memory = std::make_shared<Physical>();
    memory->device = device;
    memory->bytes = bytes;
    memory->props = *props;
    memory->file = memfd_create("lathe-sim", MFD_CLOEXEC);
    if (memory->file < 0 || ftruncate(memory->file, static_cast<off_t>(bytes)) != 0 ||
        !fill_with_nan(memory->file, bytes)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    driver.add(memory);
    driver.memories[memory->handle] = memory;
    *out = memory->handle;
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto memory = driver.find<Physical>(reinterpret_cast<void*>(handle));
    if (!memory || memory->references == 0) return CUDA_ERROR_INVALID_VALUE;
    if (--memory->references == 0) driver.memories.erase(memory->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto memory = driver.find<Physical>(reinterpret_cast<void*>(handle));
    if (!memory || memory->references == 0 || flags != 0 || offset != 0 || !is_whole(bytes) ||
        bytes != memory->bytes || base % kGranularity != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto reserved = driver.reservations.upper_bound(base);
    if (reserved == driver.reservations.begin()) return CUDA_ERROR_INVALID_VALUE;
    --reserved;
    if (base + bytes > reserved->first + reserved->second) return CUDA_ERROR_INVALID_VALUE;
    const auto after = driver.mappings.lower_bound(base);
    const bool taken_above = after != driver.mappings.end() && after->first < base + bytes;
    const bool taken_below = after != driver.mappings.begin() &&
                             std::prev(after)->first + std::prev(after)->second.bytes > base;
    if (taken_above || taken_below) return CUDA_ERROR_INVALID_VALUE;
    void* at = mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, memory->file, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    driver.mappings[base] = {bytes, memory, {}};
    return CUDA_SUCCESS;
  });
}

// Work enqueued before may still use the addresses; it is waited for.
SIM_API cuMemUnmap(CUdeviceptr base, size_t bytes) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    if (mappings_of(driver, base, bytes).empty()) return CUDA_ERROR_INVALID_VALUE;
    after_everything(driver, lock, context, nullptr);
    for (const uint64_t each : mappings_of(driver, base, bytes)) {
      Mapping& mapping = driver.mappings.at(each);
      hide(driver, each, mapping);
      mmap(reinterpret_cast<void*>(each), mapping.bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      driver.mappings.erase(each);
    }
    return context.error;
  });
}

SIM_API cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc* list, size_t count) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    const std::vector<uint64_t> found = mappings_of(driver, base, bytes);
    if (found.empty() || list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < count; ++at) {
      const CUmemLocation& where = list[at].location;
      if (where.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      if (where.id < 0 || where.id >= static_cast<int>(driver.devices.size())) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      if (list[at].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (const uint64_t each : found) {
      Mapping& mapping = driver.mappings.at(each);
      for (size_t at = 0; at < count; ++at) {
        Device& device = *driver.devices[static_cast<size_t>(list[at].location.id)];
        if (list[at].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
          show(driver, context, each, mapping, device);
        } else if (std::erase(mapping.seen_by, &device) > 0) {
          device.memory->release(each);
          if (mapping.seen_by.empty()) driver.blocks.erase(each);
        }
      }
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemGetAccess(unsigned long long* out, const CUmemLocation* where, CUdeviceptr address) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto it = driver.mappings.upper_bound(address);
    if (out == nullptr || where == nullptr || it == driver.mappings.begin()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    --it;
    if (address >= it->first + it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
    *out = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (const Device* device : it->second.seen_by) {
      if (where->type == CU_MEM_LOCATION_TYPE_DEVICE && where->id == device->ordinal) {
        *out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      }
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                               CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto memory = driver.find<Physical>(reinterpret_cast<void*>(handle));
    if (out == nullptr || !memory) return CUDA_ERROR_INVALID_VALUE;
    *out = memory->props;
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    const auto at = reinterpret_cast<uint64_t>(address);
    auto it = driver.mappings.upper_bound(at);
    if (out == nullptr || it == driver.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
    --it;
    if (at >= it->first + it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
    auto memory = std::static_pointer_cast<Physical>(it->second.memory);
    ++memory->references;
    driver.memories[memory->handle] = memory;
    *out = memory->handle;
    return CUDA_SUCCESS;
  });
}
