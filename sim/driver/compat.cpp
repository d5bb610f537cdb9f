// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds older names of calls whose newest form has a suffix, for programs that look them
// up by name.
#include "sim/driver/entry.h"

#undef cuEventElapsedTime
#undef cuStreamWaitValue32
#undef cuStreamWriteValue32
#undef cuCtxCreate

SIM_API cuEventElapsedTime(float* out, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(out, start, end);
}

SIM_API cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                            unsigned flags) {
  return cuStreamWaitValue32_v2(stream, address, value, flags);
}

SIM_API cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return cuStreamWriteValue32_v2(stream, address, value, flags);
}

SIM_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return cuCtxCreate_v4(out, nullptr, flags, device);
}

SIM_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* params, int count, unsigned flags,
                       CUdevice device) {
  CUctxCreateParams given = {params, count, nullptr};
  return cuCtxCreate_v4(out, &given, flags, device);
}
