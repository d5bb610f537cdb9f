// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This is a driver library in which every call answers success, save cuInit, whose answer is the
// number in LATHE_FAKE_CUINIT, and the entry point named by LATHE_FAKE_MISSING, which is not there.
#include <cstdlib>
#include <cstring>

#define LATHE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int success() { return 0; }

int init() {
  const char* answer = std::getenv("LATHE_FAKE_CUINIT");
  return answer ? std::atoi(answer) : 0;
}

int version(int* out) {
  *out = 12090;
  return 0;
}

int no_text(int, const char** out) {
  *out = "CUDA_ERROR_FAKE";
  return 0;
}

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

LATHE_FAKE_EXPORT int cuGetProcAddress_v2(const char* name, void** out, int asked,
                                          unsigned long long, int* status) {
  const char* missing = std::getenv("LATHE_FAKE_MISSING");
  const bool is_missing = missing && std::strcmp(missing, name) == 0;
  // As the real one: an interface that came after the version asked for is not found.
  const bool is_later = std::strcmp(name, "cuFuncLoad") == 0 && asked < 12040;
  *status = is_missing ? 1 : is_later ? 2 : 0;
  *out = nullptr;
  if (*status != 0) return 500;
  *out = address(&success);
  if (std::strcmp(name, "cuInit") == 0) *out = address(&init);
  if (std::strcmp(name, "cuDriverGetVersion") == 0) *out = address(&version);
  if (std::strncmp(name, "cuGetError", 10) == 0) *out = address(&no_text);
  return 0;
}

// Found by its exported name where the function above does not know it.
LATHE_FAKE_EXPORT int cuFuncLoad(void*) { return 0; }
