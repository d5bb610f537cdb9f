// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls that NVIDIA's runtime has and this one does not answer cudaErrorNotSupported and report
// their name once. Headers with their declarations stay out of here, so that each can be made with
// one type; the arguments are never looked at.
#include <atomic>

#if SIM_CUDART == 12
#include "sim/names/runtime_functions_12.h"
#else
#include "sim/names/runtime_functions_13.h"
#endif

namespace sim::runtime {

int refuse(const char* name, std::atomic<bool>* told);

}  // namespace sim::runtime

// They are weak, so that a function of that name anywhere in the runtime takes the place.
#define SIM_DEFINE(name)                                               \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    static std::atomic<bool> told{false};                              \
    return sim::runtime::refuse(#name, &told);                         \
  }
SIM_RUNTIME_FUNCTIONS(SIM_DEFINE)
