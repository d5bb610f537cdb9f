// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls that NVIDIA's runtime has and this one does not answer cudaErrorNotSupported and report
// their name once. Headers with their declarations stay out of here, so that each can be made with
// one type; the arguments are never looked at.
#include "sim/runtime/unsupported.h"

#include <atomic>

namespace sim::runtime {

int refuse(const char* name, std::atomic<bool>* told);

}  // namespace sim::runtime

#define SIM_DEFINE(name)                                         \
  extern "C" __attribute__((visibility("default"))) int name() { \
    static std::atomic<bool> told{false};                        \
    return sim::runtime::refuse(#name, &told);                   \
  }
SIM_UNSUPPORTED(SIM_DEFINE)
#if SIM_CUDART == 12
SIM_UNSUPPORTED_12(SIM_DEFINE)
#else
SIM_UNSUPPORTED_13(SIM_DEFINE)
#endif
