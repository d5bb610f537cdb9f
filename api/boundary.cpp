// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements codes and texts of failures, the version and the log.
#include "api/boundary.h"

#include <iterator>
#include <string>

#include "codegen/base/log.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

// Codes, statuses and the names of statuses, in the order of their values.
struct Named {
  Code code;
  lathe_status status;
  const char* name;
};
constexpr Named kStatuses[] = {{Code::ok, LATHE_OK, "OK"},
                               {Code::invalid_argument, LATHE_INVALID_ARGUMENT, "INVALID_ARGUMENT"},
                               {Code::unsupported, LATHE_UNSUPPORTED, "UNSUPPORTED"},
                               {Code::no_device, LATHE_NO_DEVICE, "NO_DEVICE"},
                               {Code::compile_failed, LATHE_COMPILE_FAILED, "COMPILE_FAILED"},
                               {Code::not_cached, LATHE_NOT_CACHED, "NOT_CACHED"},
                               {Code::cache_io, LATHE_CACHE_IO, "CACHE_IO"},
                               {Code::cuda, LATHE_CUDA, "CUDA"},
                               {Code::nccl, LATHE_NCCL, "NCCL"},
                               {Code::timeout, LATHE_TIMEOUT, "TIMEOUT"},
                               {Code::internal, LATHE_INTERNAL, "INTERNAL"}};
static_assert([] {
  for (int i = 0; const Named& each : kStatuses) {
    if (static_cast<int>(each.code) != i || static_cast<int>(each.status) != i) return false;
    ++i;
  }
  return true;
}());

thread_local struct {
  std::string text;
  const char* shown = "";
} last_error;

}  // namespace

lathe_status report(Code code, const char* text) noexcept {
  try {
    last_error.text = printable(text);
    last_error.shown = last_error.text.c_str();
  } catch (...) {
    last_error.shown = "out of host memory while keeping the text of a failure";
  }
  return static_cast<lathe_status>(code);
}

}  // namespace lathe

extern "C" {

const char* lathe_status_name(lathe_status status) {
  const auto index = static_cast<size_t>(status);
  return index < std::size(lathe::kStatuses) ? lathe::kStatuses[index].name : "UNKNOWN";
}

const char* lathe_last_error(void) { return lathe::last_error.shown; }

#define LATHE_WORD_(x) #x
#define LATHE_WORD(x) LATHE_WORD_(x)
const char* lathe_version(void) {
  return LATHE_WORD(LATHE_VERSION_MAJOR) "." LATHE_WORD(LATHE_VERSION_MINOR) "." LATHE_WORD(
      LATHE_VERSION_PATCH);
}

void lathe_set_log(lathe_log_sink sink, void* user) { lathe::set_log_sink(sink, user); }

}  // extern "C"
