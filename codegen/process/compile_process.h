// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A compiler library in processes of its own: one for each compile that runs at the moment, kept
// for later ones, started when needed. A text that never ends, takes all memory or brings the
// compiler down ends such a process and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/base/status.h"
#include "codegen/nvrtc_library.h"

namespace lathe {

// Thread-safe; also after fork(), where the child starts processes of its own.
class CompileProcesses {
 public:
  // Starts a process with the first candidate that opens there and suits the driver, whose version
  // is as for driver_loads(). LATHE_COMPILE_MAX_BYTES and
  // LATHE_COMPILE_SECONDS are read here.
  static Result<std::shared_ptr<const CompileProcesses>> open(
      const std::vector<CompilerCandidate>& candidates, int driver_version,
      const std::string& append_flags);

  const CompilerFacts& facts() const { return facts_; }

  // `limited`: the time limit holds, because the unit contains text of a caller. The headers of the
  // job are those beside the embedded files, which the process has. COMPILE_FAILED if the process
  // ended: which limit it was, and the variable that raises it.
  Result<CompileOutcome> compile(const CompileJob& job, bool limited) const;

 private:
  CompileProcesses() = default;
  CompilerFacts facts_;
  std::string file_;  // what later processes open
  std::string append_flags_;
  int64_t memory_bytes_ = 0, seconds_ = 0;  // 0: no limit
};

// Returns the embedded files, which every unit may include.
std::vector<CompileHeader> template_headers();

// Returns the number of processes that this one has started: a warm start starts none.
int64_t compile_processes_started();

}  // namespace lathe
