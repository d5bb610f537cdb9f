// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the simulator writes for this program: lines in a file without a name, which the simulator
// finds by its number, in this process or in a child.
#pragma once

#include "api/cli/reports/report.h"

namespace lathe::cli {

class LineFile {
 public:
  explicit LineFile(const char* name);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  int number() const { return file_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  std::string text() const;
  // The lines as JSON objects. Fails, and names `what` they are, if one is no object.
  Json lines(const char* what) const;
  void clear();

 private:
  int file_;
};

}  // namespace lathe::cli
