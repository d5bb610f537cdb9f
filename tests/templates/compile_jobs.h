// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernels to compile for a test, by all threads there are, and what became of them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/nvrtc.h"
#include "codegen/spec.h"
#include "tests/shard.h"

namespace compile_test {

struct Job {
  lathe::KernelSpec spec;
  std::string arch;
  int spilt_bytes = 0;  // as many may be spilt
};
constexpr int kAnySpills = 1 << 20;

// Jobs whose units are the same compile once.
class Jobs {
 public:
  void add(const lathe::KernelSpec& spec, const std::string& arch, int spilt_bytes = 0);
  std::vector<Job> list(const testing::Shard& shard = {}) const;

 private:
  std::map<std::string, Job> by_unit_;
};

struct Outcome {
  std::vector<std::string> failures;
  std::vector<std::string> losses;       // by a compiler that scripts/bootstrap does not install
  std::map<std::string, int> registers;  // the most, by kernel
  std::set<std::pair<std::string, std::string>> covered;  // kernel and architecture
  std::set<std::pair<std::string, std::string>> unknown;  // to a compiler that is older than that
};
// Fails by name what does not compile, keeps something outside registers or has static shared
// memory.
Outcome compile(const lathe::Compiler& compiler, const std::vector<Job>& jobs);

// The same, with a failed check for each failure and a message of each kernel's registers.
Outcome check_compiles(const lathe::Compiler& compiler, const std::vector<Job>& jobs);

// One line about a kernel: label, tile, registers, what it keeps elsewhere, blocks that a
// multiprocessor holds. Nothing may be kept elsewhere unless it may spill.
void survey(const lathe::Compiler& compiler, const lathe::KernelSpec& spec, const std::string& arch,
            const std::string& label, bool may_spill = false);

// Null, with a message, where there is no compiler.
std::shared_ptr<const lathe::Compiler> open_compiler();

}  // namespace compile_test
