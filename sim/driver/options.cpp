// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads LATHE_SIM_* into Options.
#include "sim/driver/options.h"

#include <cstdlib>

namespace sim::driver {
namespace {

bool read_number(const char* name, uint64_t low, uint64_t high, uint64_t* out, std::string* what) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return true;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 0);
  if (*text == '-' || *end != '\0' || value < low || value > high) {
    *what = std::string(name) + " is \"" + text + "\"; allowed: " + std::to_string(low) + " to " +
            std::to_string(high);
    return false;
  }
  *out = value;
  return true;
}

}  // namespace

bool read_options(Options* out, std::string* what) {
  // First, because it is where a complaint about the others goes.
  if (const char* report = std::getenv("LATHE_SIM_REPORT")) out->report = report;
  uint64_t devices = 1, threads = 0;
  if (!read_number("LATHE_SIM_DEVICES", 1, 64, &devices, what) ||
      !read_number("LATHE_SIM_SEED", 0, UINT64_MAX, &out->seed, what) ||
      !read_number("LATHE_SIM_THREADS", 0, 1024, &threads, what) ||
      !read_number("LATHE_SIM_MEMORY_BYTES", 1, UINT64_MAX, &out->memory_bytes, what) ||
      !read_number("LATHE_SIM_INSTRUCTION_LIMIT", 0, UINT64_MAX, &out->instruction_limit, what)) {
    return false;
  }
  out->devices = static_cast<int>(devices);
  out->threads = static_cast<int>(threads);
  if (const char* arch = std::getenv("LATHE_SIM_ARCH"); arch != nullptr && *arch != '\0') {
    out->arch = arch;
  }
  if (const char* text = std::getenv("LATHE_SIM_CHECK"); text != nullptr && *text != '\0') {
    const std::string check = text;
    if (check == "none") {
      out->check = kCheckNone;
    } else if (check == "memory") {
      out->check = kMemcheck;
    } else if (check == "all") {
      out->check = kCheckAll;
    } else {
      *what = "LATHE_SIM_CHECK is \"" + check + "\"; allowed: none, memory, all";
      return false;
    }
  }
  return true;
}

}  // namespace sim::driver
