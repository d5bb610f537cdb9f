// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies and fills of plain ranges.
#include "sim/runtime/copy.h"

namespace sim::runtime {

Result copy(const Driver& driver, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver.cuMemcpyHtoD(address(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return driver.cuMemcpyDtoH(to, address(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return driver.cuMemcpyDtoD(address(to), address(from), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return driver.cuMemcpy(address(to), address(from), bytes);
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

Result copy_async(const Driver& driver, void* to, const void* from, size_t bytes,
                  cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver.cuMemcpyHtoDAsync(address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return driver.cuMemcpyDtoHAsync(to, address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return driver.cuMemcpyDtoDAsync(address(to), address(from), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return driver.cuMemcpyAsync(address(to), address(from), bytes, stream);
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return with_context([&](const Driver& driver) { return copy(driver, to, from, bytes, kind); });
}

SIM_RUNTIME cudaError_t cudaMemcpy_ptds(void* to, const void* from, size_t bytes,
                                        cudaMemcpyKind kind) {
  return on_own_stream([&](const Driver& driver, cudaStream_t stream) {
    return copy_async(driver, to, from, bytes, kind, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                        cudaMemcpyKind kind, cudaStream_t stream) {
  return with_context(
      [&](const Driver& driver) { return copy_async(driver, to, from, bytes, kind, stream); });
}

SIM_RUNTIME cudaError_t cudaMemcpyAsync_ptsz(void* to, const void* from, size_t bytes,
                                             cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, kind, own(stream));
}

SIM_RUNTIME cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemsetD8(address(pointer), static_cast<unsigned char>(value), bytes);
  });
}

SIM_RUNTIME cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes,
                                        cudaStream_t stream) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemsetD8Async(address(pointer), static_cast<unsigned char>(value), bytes,
                                  stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemset_ptds(void* pointer, int value, size_t bytes) {
  return on_own_stream([&](const Driver& driver, cudaStream_t stream) {
    return driver.cuMemsetD8Async(address(pointer), static_cast<unsigned char>(value), bytes,
                                  stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemsetAsync_ptsz(void* pointer, int value, size_t bytes,
                                             cudaStream_t stream) {
  return cudaMemsetAsync(pointer, value, bytes, own(stream));
}
