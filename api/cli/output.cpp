// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes output files: see output.h.
#include "api/cli/output.h"

#include <filesystem>

#include "api/cli/failure.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

// Also of files that are not there yet.
bool same_file(const fs::path& one, const fs::path& other) {
  std::error_code error;
  if (fs::equivalent(one, other, error)) return true;
  const fs::path a = fs::weakly_canonical(one, error), b = fs::weakly_canonical(other, error);
  return !a.empty() && a == b;
}

}  // namespace

void check_output(const char* option, const std::string& path) {
  if (lathe_file_check(path.c_str()) == LATHE_OK) return;
  refuse(option, " is ", in_quotes(path), ", which cannot be written: ", lathe_last_error());
}

void check_apart(const char* option, const std::string& path, const char* other_option,
                 const std::string& other) {
  if (!same_file(path, other)) return;
  refuse(option, " is ", in_quotes(path), ", the file of ", other_option,
         "; allowed is another file, since it would be replaced");
}

void write_output(const char* option, const std::string& path,
                  const std::vector<const void*>& pieces, const std::vector<size_t>& bytes) {
  if (lathe_file_write(path.c_str(), pieces.data(), bytes.data(), pieces.size()) == LATHE_OK) {
    return;
  }
  fail(option, " is ", in_quotes(path), ", which cannot be written: ", lathe_last_error());
}

void write_output(const char* option, const std::string& path, const std::string& text) {
  write_output(option, path, {text.data()}, {text.size()});
}

}  // namespace lathe::cli
