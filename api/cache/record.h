// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Records the problems that a process asks for, as lines of a manifest, in the file of
// LATHE_RECORD. Any number of processes may record into one file.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "api/cache/line_file.h"
#include "codegen/base/digest.h"
#include "ops/problem.h"

namespace lathe {

// Thread-safe. Failing to record is one warning, never an error.
class Recorder {
 public:
  explicit Recorder(std::string path, const FileSystem& fs = real_fs());
  // Returns the recorder of the file that LATHE_RECORD names now: one for each file in a process,
  // null if the variable is unset.
  static std::shared_ptr<Recorder> from_environment();

  // Appends the problem's line, the first time that this process has it.
  void note(const lathe_problem& problem);

 private:
  void warn(const std::string& why);

  const LineFile file_;
  std::mutex mutex_;
  std::set<std::array<uint8_t, 16>> noted_;
  bool warned_ = false;
};

}  // namespace lathe
