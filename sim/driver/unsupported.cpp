// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Entry points that cuda.h names and the driver does not have answer CUDA_ERROR_NOT_SUPPORTED and
// report their name once. cuda.h stays out of here, so that every entry point can be made with one
// type; the arguments are never looked at.
#include <atomic>
#include <string>

#include "sim/driver/report/report.h"
#include "sim/driver/symbols.h"
#include "sim/names/driver_functions.h"

namespace sim::driver {
namespace {

constexpr int kNotSupported = 801;

int not_supported(const char* name, std::atomic<bool>* told) {
  if (!told->exchange(true)) report_note(std::string(name) + " is not supported");
  return kNotSupported;
}

}  // namespace
}  // namespace sim::driver

// They are weak, so that a function of that name anywhere in the driver takes the place.
#define SIM_DEFINE(name)                                               \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    static std::atomic<bool> told{false};                              \
    return sim::driver::not_supported(#name, &told);                   \
  }
SIM_DRIVER_FUNCTIONS(SIM_DEFINE)

namespace sim::driver {

#define SIM_ENTRY(name) {#name, 0, reinterpret_cast<void (*)()>(name), nullptr},
const Symbol kExported[] = {SIM_DRIVER_FUNCTIONS(SIM_ENTRY)};
const size_t kExportedCount = sizeof(kExported) / sizeof(kExported[0]);

}  // namespace sim::driver
