// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles device memory: plain, pitched, managed, stream ordered.
#include "sim/driver/memory/memory.h"

#include "sim/driver/context.h"
#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

// Gives memory up once: at the latest when it goes itself, as where a queue is dropped before the
// action that holds it has run. A block that stayed known would be in the way of whoever gets the
// address next.
struct Release {
  std::vector<Memory*> memories;
  uint64_t base = 0;
  std::shared_ptr<char> host;

  void now() {
    for (Memory* memory : memories) memory->release(base);
    memories.clear();
    host.reset();  // not before: its address may be given out again
  }
  ~Release() { now(); }
};

}  // namespace

Action forget_block(Driver& driver, uint64_t base) {
  const Block block = driver.blocks.at(base);
  driver.blocks.erase(base);
  if (block.pool) block.pool->used -= block.bytes;
  const bool shared = block.pool && !block.pool->peers.empty();
  const bool own = block.kind == MemoryKind::device || block.kind == MemoryKind::managed;
  auto release = std::make_shared<Release>();
  release->base = base;
  release->host = block.host;
  if (own && !shared) {
    release->memories = {block.device->memory.get()};
  } else {  // seen by every device
    for (auto& device : driver.devices) release->memories.push_back(device->memory.get());
  }
  return [release] {
    release->now();
    return CUDA_SUCCESS;
  };
}

CUresult allocate(Driver& driver, Lock& lock, Context& context, size_t bytes, MemoryKind kind,
                  const std::shared_ptr<Pool>& pool, CUdeviceptr* out) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *context.device;
  const uint64_t seed = driver.options.seed * 0x9E3779B97F4A7C15u + ++device.allocations;
  // Nobody wants the results of a grid of which few blocks run: large operands then take no more of
  // the host's memory than those blocks touch, which a pattern and shadow bits would.
  const bool counts_only = driver.options.sample_blocks > 0 && kind == MemoryKind::device;
  const MemoryKind filled = counts_only ? MemoryKind::managed : kind;
  uint64_t base = device.memory->allocate(bytes, filled, seed);
  if (base == 0) {  // what is being freed may make room
    after_everything(driver, lock, context, nullptr);
    if (context.error != CUDA_SUCCESS) return context.error;
    base = device.memory->allocate(bytes, filled, seed);
  }
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  block.base = base;
  block.bytes = bytes;
  block.kind = kind;
  block.id = driver.next_block++;
  block.context = &context;
  block.device = &device;
  block.pool = pool;
  driver.blocks[base] = block;
  if (pool) {
    pool->used += bytes;
    pool->used_high = std::max(pool->used_high, pool->used);
    for (Device* peer : pool->peers) peer->memory->adopt(base, bytes, MemoryKind::mapped);
  }
  *out = base;
  return CUDA_SUCCESS;
}

}  // namespace sim::driver

using namespace sim::driver;
using sim::MemoryKind;

SIM_API cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    return allocate(driver, lock, context, bytes, MemoryKind::device, nullptr, out);
  });
}

SIM_API cuMemAllocPitch(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                        unsigned element) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    if (pitch == nullptr || width == 0 || height == 0 ||
        (element != 4 && element != 8 && element != 16)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    *pitch = (width + 511) / 512 * 512;
    return allocate(driver, lock, context, *pitch * height, MemoryKind::device, nullptr, out);
  });
}

SIM_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    return allocate(driver, lock, context, bytes, MemoryKind::managed, nullptr, out);
  });
}

SIM_API cuMemFree(CUdeviceptr address) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    if (address == 0) return CUDA_SUCCESS;
    auto it = driver.blocks.find(address);
    if (it == driver.blocks.end() ||
        (it->second.kind != MemoryKind::device && it->second.kind != MemoryKind::managed)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    Context& owner = *it->second.context;
    after_everything(driver, lock, owner, forget_block(driver, address));
    return context.error;
  });
}

SIM_API cuMemGetInfo(size_t* free, size_t* total) {
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const sim::Memory& memory = *context.device->memory;
    *total = memory.limit_bytes();
    *free = memory.limit_bytes() - memory.used_bytes();
    return CUDA_SUCCESS;
  });
}

SIM_API cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    const Block* block = driver.find_block(address);
    if (block == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = block->base;
    if (bytes != nullptr) *bytes = block->bytes;
    return CUDA_SUCCESS;
  });
}

namespace {

CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUmemoryPool pool_handle, bool named,
                        CUstream stream_handle) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->capture) {  // graph memory nodes are not modelled
      return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    Context& owner = *stream->context;
    std::shared_ptr<Pool> pool =
        named ? driver.find<Pool>(pool_handle) : owner.device->current_pool;
    if (!pool || pool->device != owner.device) return CUDA_ERROR_INVALID_VALUE;
    return allocate(driver, lock, owner, bytes, MemoryKind::device, pool, out);
  });
}

}  // namespace

SIM_API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate_async(out, bytes, nullptr, false, stream);
}

SIM_API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                CUstream stream) {
  return allocate_async(out, bytes, pool, true, stream);
}

// From this point of the stream on the memory is gone: work of other streams that is not ordered
// before it finds it freed.
SIM_API cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    auto it = driver.blocks.find(address);
    if (it == driver.blocks.end() || it->second.kind != MemoryKind::device) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture) {
      return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return submit(driver, *stream, forget_block(driver, address));
  });
}
