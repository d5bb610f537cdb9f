// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The memo keeps what a compile gave, in a folder, under everything that the compile was made of.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memo {

// A Source is text handed to the compiler: the unit, then what its #include lines may name.
struct Source {
  std::string name, text;
  std::vector<std::pair<std::string, std::string>> headers;  // name and text
};

struct Outputs {
  std::string log, ptx, cubin;  // as the compiler gives them, text with its terminating zero
};

// Returns a key for all that the outputs depend on; empty where that cannot be said (an #include of
// a macro or of a header that is not given). Only headers that are reached enter the key, #if not
// being looked at: a changed template leaves the kernels of the others known.
std::string key_of(const std::string& compiler, const Source& source,
                   const std::vector<std::string>& options);

// Returns nothing if there is no such file or it is not whole.
std::optional<Outputs> load(const std::string& folder, const std::string& key);
// Writes a temporary file and renames it. A failure is no error: the next process compiles again.
void save(const std::string& folder, const std::string& key, const Outputs& outputs);

}  // namespace memo
