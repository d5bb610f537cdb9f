// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Counts the program's allocations. A file of its own: inlined beside their use, the two halves of
// the pair would look mismatched to the compiler.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/api/launch_world.h"

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

long launches::allocations() { return allocated; }
