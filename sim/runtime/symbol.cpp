// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies into and out of __device__, __constant__ and __managed__ variables.
#include "sim/runtime/copy.h"
#include "sim/runtime/registry.h"

namespace sim::runtime {
namespace {

// Runs body(const Driver&, address of the range).
template <typename F>
cudaError_t with_range(const void* symbol, size_t offset, size_t bytes, F body) noexcept {
  return with_context([&](const Driver& driver) -> Result {
    void* range = nullptr;
    const Result result = find_range(symbol, offset, bytes, &range);
    return result.failed() ? result : Result(body(driver, range));
  });
}

bool goes_in(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
         kind == cudaMemcpyDefault;
}
bool comes_out(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
         kind == cudaMemcpyDefault;
}

}  // namespace
}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
  return with_range(symbol, offset, bytes, [&](const Driver& driver, void* to) {
    return goes_in(kind) ? copy(driver, to, from, bytes, kind) : cudaErrorInvalidMemcpyDirection;
  });
}

SIM_RUNTIME cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                                size_t offset, cudaMemcpyKind kind,
                                                cudaStream_t stream) {
  return with_range(symbol, offset, bytes, [&](const Driver& driver, void* to) {
    return goes_in(kind) ? copy_async(driver, to, from, bytes, kind, stream)
                         : cudaErrorInvalidMemcpyDirection;
  });
}

SIM_RUNTIME cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes,
                                             size_t offset, cudaMemcpyKind kind) {
  return with_range(symbol, offset, bytes, [&](const Driver& driver, void* from) {
    return comes_out(kind) ? copy(driver, to, from, bytes, kind) : cudaErrorInvalidMemcpyDirection;
  });
}

SIM_RUNTIME cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes,
                                                  size_t offset, cudaMemcpyKind kind,
                                                  cudaStream_t stream) {
  return with_range(symbol, offset, bytes, [&](const Driver& driver, void* from) {
    return comes_out(kind) ? copy_async(driver, to, from, bytes, kind, stream)
                           : cudaErrorInvalidMemcpyDirection;
  });
}

// The calls of programs whose default stream is the thread's own.

SIM_RUNTIME cudaError_t cudaMemcpyToSymbol_ptds(const void* symbol, const void* from, size_t bytes,
                                                size_t offset, cudaMemcpyKind kind) {
  const cudaError_t error =
      cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, CU_STREAM_PER_THREAD);
  return error != cudaSuccess ? error : cudaStreamSynchronize(CU_STREAM_PER_THREAD);
}

SIM_RUNTIME cudaError_t cudaMemcpyToSymbolAsync_ptsz(const void* symbol, const void* from,
                                                     size_t bytes, size_t offset,
                                                     cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, own(stream));
}

SIM_RUNTIME cudaError_t cudaMemcpyFromSymbol_ptds(void* to, const void* symbol, size_t bytes,
                                                  size_t offset, cudaMemcpyKind kind) {
  const cudaError_t error =
      cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, CU_STREAM_PER_THREAD);
  return error != cudaSuccess ? error : cudaStreamSynchronize(CU_STREAM_PER_THREAD);
}

SIM_RUNTIME cudaError_t cudaMemcpyFromSymbolAsync_ptsz(void* to, const void* symbol, size_t bytes,
                                                       size_t offset, cudaMemcpyKind kind,
                                                       cudaStream_t stream) {
  return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, own(stream));
}
