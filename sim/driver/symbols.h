// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tables list the exported entry points.
#pragma once

#include <cstddef>

namespace sim::driver {

struct Symbol {
  const char* name;  // as in the header, without suffix
  int version;       // of CUDA, that brought this form
  void (*entry)();
  void (*per_thread)();  // the twin with a per-thread default stream, or null
};

// The functions that the driver has, by the name and the version that callers ask for.
extern const Symbol kSymbols[];
extern const size_t kSymbolCount;

// All functions that cuda.h declares, sorted by their exported names. Those that the driver does
// not have only answer CUDA_ERROR_NOT_SUPPORTED.
extern const Symbol kExported[];
extern const size_t kExportedCount;

}  // namespace sim::driver
