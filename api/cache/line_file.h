// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A file that an environment variable names, to which any number of processes append lines.
#pragma once

#include <string>

#include "cache/store/fs.h"

namespace lathe {

// Thread-safe: the file is opened and closed for each line, so that no descriptor lives on in
// children. Only a regular file is written, and no link is followed.
class LineFile {
 public:
  explicit LineFile(std::string path, const FileSystem& fs = real_fs());
  const std::string& path() const { return path_; }
  // Appends a line, which has no newline. Returns why it failed; empty if it did not.
  std::string append(const std::string& line) const;

 private:
  std::string append_to(int file, const std::string& line) const;
  bool lock(int file) const;

  const std::string path_;
  const FileSystem& fs_;
};

}  // namespace lathe
