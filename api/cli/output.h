// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Files that the program writes where an option says: each appears whole or not at all, by
// lathe_file_write. Only a regular file is replaced; a symbolic link is refused, not followed.
#pragma once

#include <string>
#include <vector>

namespace lathe::cli {

// Refuses a path where writing cannot work, before any time is spent on what is to be written.
void check_output(const char* option, const std::string& path);
// Refuses a path that names the same file as that of another option.
void check_apart(const char* option, const std::string& path, const char* other_option,
                 const std::string& other);

void write_output(const char* option, const std::string& path,
                  const std::vector<const void*>& pieces, const std::vector<size_t>& bytes);
void write_output(const char* option, const std::string& path, const std::string& text);

}  // namespace lathe::cli
