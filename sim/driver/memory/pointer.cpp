// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file answers queries about an address.
#include "sim/driver/entry.h"

using namespace sim::driver;
using sim::MemoryKind;

namespace {

bool is_host(const Block& block) {
  return block.kind == MemoryKind::pinned_host || block.kind == MemoryKind::registered_host;
}

template <typename T>
CUresult give(void* out, T value) {
  *static_cast<T*>(out) = value;
  return CUDA_SUCCESS;
}

CUresult attribute_of(const Block& block, CUpointer_attribute attribute, CUdeviceptr address,
                      void* out) {
  const bool managed = block.kind == MemoryKind::managed;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(out, reinterpret_cast<CUcontext>(block.context->handle));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(out, is_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!is_host(block) && !managed) return CUDA_ERROR_INVALID_VALUE;
      return give(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give(out, 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give(out, static_cast<unsigned long long>(block.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(out, managed ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(out, block.device->ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(out, static_cast<CUdeviceptr>(block.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give(out, static_cast<size_t>(block.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(out, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(out, 0ull);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return give(out, 0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(out, block.pool ? handle_of<CUmemoryPool>(block.pool) : nullptr);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

SIM_API cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    const Block* block = driver.find_block(address);
    if (out == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(*block, attribute, address, out);
  });
}

// Unlike the single form this one succeeds for addresses nobody knows and leaves zeros.
SIM_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out,
                               CUdeviceptr address) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    if (count == 0 || attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Block* block = driver.find_block(address);
    for (unsigned at = 0; at < count; ++at) {
      if (out[at] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      static const Context no_context;
      static Device no_device;
      Block unknown;
      unknown.context = const_cast<Context*>(&no_context);
      unknown.device = &no_device;
      const CUresult result =
          attribute_of(block != nullptr ? *block : unknown, attributes[at], address, out[at]);
      const bool host_pointer = attributes[at] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
      if (result != CUDA_SUCCESS && !host_pointer) return result;
      if (result != CUDA_SUCCESS) give(out[at], static_cast<void*>(nullptr));
      if (block != nullptr) continue;
      if (attributes[at] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) give(out[at], 0u);
      if (attributes[at] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) give(out[at], CUdeviceptr{0});
      if (attributes[at] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) give(out[at], -2);
      if (attributes[at] == CU_POINTER_ATTRIBUTE_MAPPED) give(out[at], 0u);
    }
    return CUDA_SUCCESS;
  });
}
