// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies by the direction that the caller names. The driver checks that a device side is one.
#pragma once

#include "sim/runtime/entry.h"

namespace sim::runtime {

Result copy(const Driver& driver, void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
Result copy_async(const Driver& driver, void* to, const void* from, size_t bytes,
                  cudaMemcpyKind kind, cudaStream_t stream);

// Makes the driver's description of a copy of slices; arrays are refused.
Result read_box(const cudaMemcpy3DParms& given, CUDA_MEMCPY3D* out);

// Runs body(const Driver&, stream) with the thread's own stream and waits for it: the way of the
// calls without a stream when the default stream is the thread's own.
template <typename F>
cudaError_t on_own_stream(F body) {
  return with_context([&](const Driver& driver) -> Result {
    const Result result = body(driver, CU_STREAM_PER_THREAD);
    return result.failed() ? result : Result(driver.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
}

}  // namespace sim::runtime
