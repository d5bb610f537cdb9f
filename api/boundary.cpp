// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Codes and texts of failures, the version and the log.
#include "api/boundary.h"

#include <string>

#include "codegen/base/log.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

static_assert(static_cast<int>(Code::ok) == LATHE_OK);
static_assert(static_cast<int>(Code::invalid_argument) == LATHE_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::unsupported) == LATHE_UNSUPPORTED);
static_assert(static_cast<int>(Code::no_device) == LATHE_NO_DEVICE);
static_assert(static_cast<int>(Code::compile_failed) == LATHE_COMPILE_FAILED);
static_assert(static_cast<int>(Code::not_cached) == LATHE_NOT_CACHED);
static_assert(static_cast<int>(Code::cache_io) == LATHE_CACHE_IO);
static_assert(static_cast<int>(Code::cuda) == LATHE_CUDA);
static_assert(static_cast<int>(Code::nccl) == LATHE_NCCL);
static_assert(static_cast<int>(Code::timeout) == LATHE_TIMEOUT);
static_assert(static_cast<int>(Code::internal) == LATHE_INTERNAL);

struct LastError {
  std::string text;
  const char* shown = "";
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

}  // namespace

lathe_status report(Code code, const char* text) noexcept {
  LastError& last = last_error();
  try {
    last.text = printable(text);
    last.shown = last.text.c_str();
  } catch (...) {
    last.shown = "out of host memory while keeping the text of a failure";
  }
  return static_cast<lathe_status>(code);
}

}  // namespace lathe

extern "C" {

const char* lathe_status_name(lathe_status status) {
  switch (status) {
    case LATHE_OK:
      return "OK";
    case LATHE_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case LATHE_UNSUPPORTED:
      return "UNSUPPORTED";
    case LATHE_NO_DEVICE:
      return "NO_DEVICE";
    case LATHE_COMPILE_FAILED:
      return "COMPILE_FAILED";
    case LATHE_NOT_CACHED:
      return "NOT_CACHED";
    case LATHE_CACHE_IO:
      return "CACHE_IO";
    case LATHE_CUDA:
      return "CUDA";
    case LATHE_NCCL:
      return "NCCL";
    case LATHE_TIMEOUT:
      return "TIMEOUT";
    case LATHE_INTERNAL:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

const char* lathe_last_error(void) { return lathe::last_error().shown; }

#define LATHE_WORD_(x) #x
#define LATHE_WORD(x) LATHE_WORD_(x)
const char* lathe_version(void) {
  return LATHE_WORD(LATHE_VERSION_MAJOR) "." LATHE_WORD(LATHE_VERSION_MINOR) "." LATHE_WORD(
      LATHE_VERSION_PATCH);
}

void lathe_set_log(lathe_log_sink sink, void* user) { lathe::set_log_sink(sink, user); }

}  // extern "C"
