// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared object behind nvrtc.h: where it is looked for, and which build it is.
#pragma once

#include <string>

#include "codegen/base/status.h"

namespace lathe {

// dlopen of `path` if not empty, else of LATHE_NVRTC, else of the usual names and places. Fails
// naming what was tried.
Result<void*> open_compiler_library(const std::string& path);

// The GNU build id of the loaded object that holds `address`, in hex; empty if it has none.
std::string build_id_of(const void* address);

}  // namespace lathe
