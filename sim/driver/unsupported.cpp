// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Entry points that the header names and the driver does not have answer CUDA_ERROR_NOT_SUPPORTED
// and report their name once. cuda.h stays out of here, so that every entry point can be made with
// one type; the arguments are never looked at.
#include "sim/driver/unsupported.h"

#include <atomic>
#include <string>

#include "sim/driver/report/report.h"
#include "sim/driver/symbols.h"

namespace sim::driver {
namespace {

constexpr int kNotSupported = 801;

int not_supported(const char* name, std::atomic<bool>* told) {
  if (!told->exchange(true)) report_note(std::string(name) + " is not supported");
  return kNotSupported;
}

}  // namespace
}  // namespace sim::driver

// Weak, so that a function of the driver takes the place.
#define SIM_DEFINE(name)                                               \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    static std::atomic<bool> told{false};                              \
    return sim::driver::not_supported(#name, &told);                   \
  }
SIM_UNSUPPORTED(SIM_DEFINE)

namespace sim::driver {

#define SIM_ENTRY(name) {#name, 0, reinterpret_cast<void (*)()>(name), nullptr},
const Symbol kUnsupported[] = {SIM_UNSUPPORTED(SIM_ENTRY)};
const size_t kUnsupportedCount = sizeof(kUnsupported) / sizeof(kUnsupported[0]);

}  // namespace sim::driver
