// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Counts the program's allocations and, where no sanitizer has these functions already, its reads
// of the environment and the files it opens. A file of its own: inlined beside their use, the two
// halves of the pair would look mismatched to the compiler.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/harness/launch_world.h"

namespace {
std::atomic<long> allocated{0};
}

// The whole program's, so that a run's are counted wherever they come from.
void* operator new(size_t bytes) {
  ++allocated;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {

char* getenv(const char* name) noexcept {
  ++allocated;
  const size_t length = std::strlen(name);
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    if (std::strncmp(*each, name, length) == 0 && (*each)[length] == '=') return *each + length + 1;
  }
  return nullptr;
}

int openat(int folder, const char* path, int flags, ...) {
  ++allocated;
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(AT_FDCWD, path, flags, mode);
}

}  // extern "C"
#endif

long launches::allocations() { return allocated; }
