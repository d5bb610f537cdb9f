// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator and its NCCL write lines for this program into a file without a name, which they
// find by its number, in this process or in a child.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  // Returns the lines as JSON objects. Fails, and names `what` they are, if one is no object.
  Json lines(const char* what) const;
  void clear();

 private:
  int file_;
};

struct TrafficCounts {
  int groups = 0;            // of messages, of the rank with the most
  uint64_t sent = 0;         // bytes, of the rank with the most
  uint64_t largest_hop = 0;  // bytes that one rank sends in one group
};

// Counts from its making on; one at a time.
class Traffic {
 public:
  Traffic();
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // Returns the counts since the last call. Zeros where another NCCL runs.
  TrafficCounts take();

 private:
  LineFile file_;
  std::optional<std::string> before_;  // what the variable was
};

}  // namespace lathe::cli
