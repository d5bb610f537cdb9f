// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a compile gave, kept in a folder under everything that it was made of.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memo {

// Text handed to the compiler: the unit, then what its #include lines may name.
struct Source {
  std::string name, text;
  std::vector<std::pair<std::string, std::string>> headers;  // name and text
};

struct Outputs {
  std::string log, ptx, cubin;  // as the compiler gives them, text with its terminating zero
};

// Stands for all that the outputs depend on; empty where that cannot be said (an #include of a
// macro or of what is not given). Of the headers only those that are reached enter, #if not being
// looked at: a template that is changed leaves the kernels of the others known.
std::string key_of(const std::string& compiler, const Source& source,
                   const std::vector<std::string>& options);

// Nothing if there is no such file or it is not whole.
std::optional<Outputs> load(const std::string& folder, const std::string& key);
// By temporary file and rename. Failing is no error: the next one compiles again.
void save(const std::string& folder, const std::string& key, const Outputs& outputs);

}  // namespace memo
