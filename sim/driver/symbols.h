// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This table lists every exported entry point by the name and the version that callers ask for.
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

// These entry points only answer CUDA_ERROR_NOT_SUPPORTED; each is listed by its exported name.
extern const Symbol kUnsupported[];
extern const size_t kUnsupportedCount;

}  // namespace sim::driver
