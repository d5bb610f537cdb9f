// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared object behind nvrtc.h: where it is looked for, and which build it is.
#pragma once

#include <string>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

// dlopen of `path` if not empty, else of LATHE_NVRTC, else of the usual names and places. `asked`:
// the one that opened. Fails naming what was tried.
Result<void*> open_compiler_library(const std::string& path, std::string* asked = nullptr);

// What decides which file open_compiler_library() opens, without opening any.
struct CompilerSearch {
  std::vector<std::string> candidates;  // in order; one without a slash is looked for in...
  std::vector<std::string> folders;     // ...these, in order, and in the loader's own cache
  bool answerable = false;  // false: an object of that name is loaded and would be the answer, the
                            // loader does not tell its folders, or privileges are raised
};
CompilerSearch compiler_search();

// The GNU build id of the loaded object that holds `address`, in hex; empty if it has none.
std::string build_id_of(const void* address);

}  // namespace lathe
