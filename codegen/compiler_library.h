// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Says where the compiler library is looked for.
#pragma once

#include <string>
#include <vector>

#include "codegen/nvrtc_library.h"

namespace lathe {

// The files to try, in order: `path` if not empty, else LATHE_NVRTC, else the usual names and
// places: the newest major version everywhere, then the next, and behind all others what is too new
// for a driver of this version (as for driver_loads()). A name without a slash is for the loader of
// this process.
std::vector<CompilerCandidate> compiler_candidates(const std::string& path, int driver_version);

// The same for another process, whose loader knows neither what is loaded here nor the run paths of
// this library: the file of a loaded object of that name, then the files in loader_folders().
std::vector<CompilerCandidate> compiler_files(const std::string& path, int driver_version);

// This decides which file NvrtcLibrary::open(compiler_candidates({}, driver_version)) opens,
// without opening any.
struct CompilerSearch {
  std::vector<std::string> candidates;  // in order; one without a slash is looked for in...
  std::vector<std::string> folders;     // ...these, in order, and in the loader's own cache
  bool answerable = false;  // false: an object of that name is loaded and would be the answer, the
                            // loader does not tell its folders, or privileges are raised
};
CompilerSearch compiler_search(int driver_version);

}  // namespace lathe
