// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles hints about managed memory, which lies where host and devices see it: they are
// checked and have no effect. The file also handles what may be set about an address.
#include "sim/driver/entry.h"
#include "sim/driver/work.h"

using namespace sim::driver;
using sim::MemoryKind;

namespace {

bool is_managed(Driver& driver, CUdeviceptr address, size_t bytes) {
  const Block* block = bytes == 0 ? nullptr : driver.find_block(address, bytes);
  return block != nullptr && block->kind == MemoryKind::managed;
}

bool is_place(Driver& driver, const CUmemLocation& where) {
  if (where.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    return where.id >= 0 && where.id < static_cast<int>(driver.devices.size());
  }
  return where.type == CU_MEM_LOCATION_TYPE_HOST;
}

}  // namespace

SIM_API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                       CUmemLocation where) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    const bool known =
        advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    const bool placed =
        advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
    if (!known || !is_managed(driver, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return !placed || is_place(driver, where) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  });
}

SIM_API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation where,
                              unsigned flags, CUstream handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0 || !is_managed(driver, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (!is_place(driver, where)) return CUDA_ERROR_INVALID_DEVICE;
    return submit(driver, *stream, nullptr);
  });
}

SIM_API cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation where,
                                   unsigned flags, CUstream stream) {
  return cuMemPrefetchAsync_v2(address, bytes, where, flags,
                               stream == nullptr ? CU_STREAM_PER_THREAD : stream);
}

SIM_API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                       flags == CU_MEM_ATTACH_SINGLE;
    const bool managed = is_managed(driver, address, bytes == 0 ? 1 : bytes);
    return known && managed ? submit(driver, *stream, nullptr) : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t bytes,
                                    unsigned flags) {
  return cuStreamAttachMemAsync(stream == nullptr ? CU_STREAM_PER_THREAD : stream, address, bytes,
                                flags);
}

// Copies that touch pageable memory are always over on return.
SIM_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                              CUdeviceptr address) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    const bool good = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
                      driver.find_block(address) != nullptr;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
