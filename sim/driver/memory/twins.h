// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These macros define entry points that come in two: one whose stream 0 is the legacy stream, and a
// twin whose stream 0 is the calling thread's own.
#pragma once

#include "sim/driver/entry.h"
#include "sim/driver/work.h"

// SIM_SYNC(name, twin, (parameters), expression in `stream`) defines a call in the default stream.
#define SIM_SYNC(name, twin, parameters, ...)     \
  SIM_API name parameters {                       \
    CUstream const stream = CU_STREAM_LEGACY;     \
    return __VA_ARGS__;                           \
  }                                               \
  SIM_API twin parameters {                       \
    CUstream const stream = CU_STREAM_PER_THREAD; \
    return __VA_ARGS__;                           \
  }

#define SIM_UNPACK(...) __VA_ARGS__

// SIM_ASYNC(name, twin, (parameters but the stream), expression in `stream`) defines a call with a
// stream.
#define SIM_ASYNC(name, twin, parameters, ...)                                 \
  SIM_API name(SIM_UNPACK parameters, CUstream stream) { return __VA_ARGS__; } \
  SIM_API twin(SIM_UNPACK parameters, CUstream stream) {                       \
    stream = sim::driver::own(stream);                                         \
    return __VA_ARGS__;                                                        \
  }
