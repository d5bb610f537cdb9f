// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Gives device memory and streams to callers that have no framework to get them from.
#include "api/boundary.h"
#include "api/context.h"

namespace lathe {
namespace {

// Runs `body`, which gets the driver, with the device's context current.
template <typename Body>
lathe_status on_device(lathe_context* context, const char* what, Body body) {
  return boundary({{context, "context"}}, [&]() -> Status {
    LATHE_TRY(require_device(*context, what));
    const Device::Scope scope(*context->device);
    LATHE_TRY(scope.status());
    return body(context->device->driver());
  });
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

Status check_copy(const void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  LATHE_TRY(require(to, "to"));
  return require(from, "from");
}

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_malloc(lathe_context* context, void** out, size_t bytes) {
  return on_device(context, "lathe_malloc", [&](const Driver& driver) -> Status {
    LATHE_TRY(require(out, "out"));
    CUdeviceptr pointer = 0;
    if (bytes > 0) LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemAlloc, &pointer, bytes));
    *out = reinterpret_cast<void*>(pointer);
    return {};
  });
}

lathe_status lathe_free(lathe_context* context, void* pointer) {
  return on_device(context, "lathe_free", [&](const Driver& driver) -> Status {
    if (!pointer) return {};
    return LATHE_DRIVER_CALL(driver, cuMemFree, address(pointer));
  });
}

lathe_status lathe_copy_to_device(lathe_context* context, void* to, const void* from, size_t bytes,
                                  void* stream) {
  return on_device(context, "lathe_copy_to_device", [&](const Driver& driver) -> Status {
    LATHE_TRY(check_copy(to, from, bytes));
    if (bytes == 0) return {};
    const auto on = static_cast<CUstream>(stream);
    LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemcpyHtoDAsync, address(to), from, bytes, on));
    // Pinned memory is read later than the call returns: only waiting frees every buffer.
    return LATHE_DRIVER_CALL(driver, cuStreamSynchronize, on);
  });
}

lathe_status lathe_copy_to_host(lathe_context* context, void* to, const void* from, size_t bytes,
                                void* stream) {
  return on_device(context, "lathe_copy_to_host", [&](const Driver& driver) -> Status {
    LATHE_TRY(check_copy(to, from, bytes));
    const auto on = static_cast<CUstream>(stream);
    if (bytes > 0) {
      LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemcpyDtoHAsync, to, address(from), bytes, on));
    }
    return LATHE_DRIVER_CALL(driver, cuStreamSynchronize, on);
  });
}

lathe_status lathe_stream_create(lathe_context* context, void** out) {
  return on_device(context, "lathe_stream_create", [&](const Driver& driver) -> Status {
    LATHE_TRY(require(out, "out"));
    CUstream stream = nullptr;
    LATHE_TRY(LATHE_DRIVER_CALL(driver, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING));
    *out = stream;
    return {};
  });
}

lathe_status lathe_stream_destroy(lathe_context* context, void* stream) {
  return on_device(context, "lathe_stream_destroy", [&](const Driver& driver) -> Status {
    if (!stream) return {};
    return LATHE_DRIVER_CALL(driver, cuStreamDestroy, static_cast<CUstream>(stream));
  });
}

lathe_status lathe_stream_synchronize(lathe_context* context, void* stream) {
  return on_device(context, "lathe_stream_synchronize", [&](const Driver& driver) {
    return LATHE_DRIVER_CALL(driver, cuStreamSynchronize, static_cast<CUstream>(stream));
  });
}

}  // extern "C"
