// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator and its NCCL write lines for this program into a file without a name, which they
// find by its number, in this process or in a child.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "api/cli/reports/report.h"

namespace lathe::cli {

class LineFile {
 public:
  explicit LineFile(const char* name) : file_(memfd_create(name, 0)) {
    if (file_ < 0) fail("no memory file can be made: ", std::strerror(errno));
  }
  ~LineFile() { close(file_); }
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  int number() const { return file_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path()).rdbuf();
    return out.str();
  }

  // Returns the lines as JSON objects. Fails, and names `what` they are, if one is no object.
  Json lines(const char* what) const {
    Json out = Json::array();
    std::ifstream lines(path());
    for (std::string line; std::getline(lines, line);) {
      Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!entry.is_object()) fail(what, " a line that is not JSON");
      out.push_back(std::move(entry));
    }
    return out;
  }

  void clear() { (void)!ftruncate(file_, 0); }

 private:
  int file_;
};

}  // namespace lathe::cli
