// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/compile_jobs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "codegen/base/text.h"
#include "codegen/device_facts.h"
#include "codegen/source.h"

namespace compile_test {

using namespace lathe;

constexpr int kReservedShared = 1024;  // of each block, by the system

void Jobs::add(const KernelSpec& spec, const std::string& arch, int spilt_bytes) {
  by_unit_.emplace(emit_unit(spec, arch), Job{spec, arch, spilt_bytes});
}

std::vector<Job> Jobs::list(const testing::Shard& shard) const {
  std::vector<Job> jobs;
  size_t number = 0;
  for (const auto& [unit, job] : by_unit_) {
    if (shard.has(number++)) jobs.push_back(job);
  }
  return jobs;
}

namespace {

// Says whether this compiler must keep everything in registers and products in flight: those that
// scripts/bootstrap installs. With another one that does not a kernel is slower, or a plan takes
// the portable one in its place.
bool is_strict(const Compiler& compiler) {
  return compiler.identity().starts_with("nvrtc 12.9 ") ||
         compiler.identity().starts_with("nvrtc 13.0 ");
}

// Says whether the compiler is newer than the architecture: sm_90a is of sm_90.
bool knows(const Compiler& compiler, const std::string& arch) {
  const std::string number = arch.substr(0, arch.find_last_of("0123456789") + 1);
  return compiler.archs().empty() || std::ranges::count(compiler.archs(), number) > 0;
}

}  // namespace

Outcome compile(const Compiler& compiler, const std::vector<Job>& jobs) {
  Outcome outcome;
  auto& losses = is_strict(compiler) ? outcome.failures : outcome.losses;
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      const Job& job = jobs[i];
      if (!knows(compiler, job.arch)) {
        const std::lock_guard lock(mutex);
        outcome.unknown.insert({job.spec.kernel, job.arch});
        continue;
      }
      const auto compiled =
          compiler.compile(emit_unit(job.spec, job.arch), job.arch, job.spec.mods);
      const std::lock_guard lock(mutex);
      const std::string what = job.spec.text() + " arch=" + job.arch;
      if (!compiled.ok()) {
        outcome.failures.push_back(compiled.status().text());
        continue;
      }
      const CompileReport& report = compiled->report;
      if (report.registers <= 0) outcome.failures.push_back(what + ": registers not known");
      const int spilt = std::max({report.stack_bytes, report.spill_stores, report.spill_loads});
      if (spilt > job.spilt_bytes) {
        losses.push_back(text(what, ": stack ", report.stack_bytes, ", spills ",
                              report.spill_stores, "/", report.spill_loads));
      }
      for (const Remark& remark : report.remarks.value_or(std::vector<Remark>())) {
        losses.push_back(text(what, ": ", remark.code, " ", remark.text));
      }
      if (report.smem_static != 0) outcome.failures.push_back(what + ": static shared memory");
      int& most = outcome.registers[job.spec.kernel];
      most = std::max(most, report.registers);
      outcome.covered.insert({job.spec.kernel, job.arch});
    }
  };
  std::thread other(work);
  work();
  other.join();
  return outcome;
}

Outcome check_compiles(const Compiler& compiler, const std::vector<Job>& jobs) {
  const Outcome outcome = compile(compiler, jobs);
  for (const std::string& failure : outcome.failures) FAIL_CHECK(failure);
  for (const std::string& loss : outcome.losses) MESSAGE(compiler.identity(), ": ", loss);
  for (const auto& [kernel, registers] : outcome.registers) {
    MESSAGE(kernel, ": at most ", registers, " registers");
  }
  for (const auto& [kernel, arch] : outcome.unknown) {
    MESSAGE("skipped: ", kernel, " for ", arch, ", which is newer than this compiler");
  }
  MESSAGE(jobs.size(), " units");
  return outcome;
}

void survey(const Compiler& compiler, const KernelSpec& spec, const std::string& arch,
            const std::string& label, bool may_spill) {
  const auto compiled = compiler.compile(emit_unit(spec, arch), arch);
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  const CompileReport& report = compiled->report;
  const DeviceFacts facts = *facts_of_arch(arch);
  const int registers = std::max((report.registers + 7) / 8 * 8 * spec.threads, 1);
  const int blocks =
      std::min(facts.registers_per_multiprocessor / registers,
               facts.shared_bytes_per_multiprocessor / (spec.smem_bytes + kReservedShared));
  char line[256];
  std::snprintf(line, sizeof line,
                "%-7s %-55s %3lldx%-3lld %3d threads %3d registers %3d spilt %3d stack %3d KiB %d "
                "blocks",
                arch.c_str(), label.c_str(), spec.constant("m"), spec.constant("n"), spec.threads,
                report.registers, report.spill_stores, report.stack_bytes, spec.smem_bytes / 1024,
                blocks);
  std::puts(line);
  std::fflush(stdout);
  CHECK_MESSAGE((report.remarks && report.remarks->empty()), line);
  CHECK_MESSAGE((may_spill || (report.spill_stores == 0 && report.stack_bytes == 0)), line);
}

std::shared_ptr<const Compiler> open_compiler() {
  const auto opened = Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

}  // namespace compile_test
