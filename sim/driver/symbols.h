// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every exported entry point by the name and the version callers ask for.
#pragma once

#include <cstddef>

namespace sim::driver {

struct Symbol {
  const char* name;  // as in the header, without suffix
  int version;       // of CUDA, that brought this form
  void (*entry)();
  void (*per_thread)();  // the twin with a per-thread default stream, or null
};

extern const Symbol kSymbols[];
extern const size_t kSymbolCount;

// What only answers CUDA_ERROR_NOT_SUPPORTED, by its exported name.
extern const Symbol kUnsupported[];
extern const size_t kUnsupportedCount;

}  // namespace sim::driver
