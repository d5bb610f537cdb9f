// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A survey of what the default tiles of attention cost in registers, spills and shared memory, for
// whoever changes a template or the choice. Minutes long, so only on demand:
//
//   templates_test --no-skip -tc="attention: the survey*"
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "codegen/base/text.h"
#include "codegen/kernels/attention.h"
#include "codegen/nvrtc.h"
#include "codegen/source.h"

using namespace lathe;

namespace {

constexpr int kReservedShared = 1024;  // of each block, by the system

// Blocks of a kernel that a multiprocessor holds.
int resident(const KernelSpec& spec, const CompileReport& report, const DeviceFacts& facts) {
  const int registers = (report.registers + 7) / 8 * 8 * spec.threads;
  return std::min(facts.registers_per_multiprocessor / std::max(registers, 1),
                  facts.shared_bytes_per_multiprocessor / (spec.smem_bytes + kReservedShared));
}

struct Row {
  const char* flags;
  bool packed, local, softcap, alibi, sinks, pack_gqa;
};
constexpr Row kRows[] = {
    {"none", false, false, false, false, false, false},
    {"local", false, true, false, false, false, false},
    {"packed local", true, true, false, false, false, false},
    {"local alibi pack_gqa", false, true, false, true, false, true},
    {"packed local softcap", true, true, true, false, false, false},
    {"packed local softcap alibi sinks", true, true, true, true, true, false},
    {"all", true, true, true, true, true, true},
};

}  // namespace

TEST_CASE("attention: the survey of registers" * doctest::skip()) {
  const auto nvrtc = Compiler::open();
  REQUIRE_MESSAGE(nvrtc.ok(), nvrtc.status().text());
  int spilt = 0;
  for (const std::string& arch : supported_archs()) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (const Dtype element : {Dtype::bf16, Dtype::f32}) {
      for (const int head_dim : {64, 96, 128, 192, 256}) {
        for (const int value_dim : {64, 96, 128, 192, 256}) {
          for (const Row& row : kRows) {
            AttentionProblem problem;
            problem.forward = true;
            problem.element = element;
            problem.head_dim = head_dim, problem.value_dim = value_dim;
            problem.packed = row.packed, problem.local = row.local, problem.softcap = row.softcap;
            problem.alibi = row.alibi, problem.sinks = row.sinks, problem.pack_gqa = row.pack_gqa;
            const auto kernels = attention_kernels(problem, facts);
            REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
            const KernelSpec& spec = *kernels->forward;
            const auto compiled = (*nvrtc)->compile(emit_unit(spec, arch), arch);
            REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
            const CompileReport& report = compiled->report;
            std::printf(
                "%-7s %-4s %3d/%-3d %-33s %3lldx%-3lld %3d threads %3d registers %3d spilt %3d "
                "stack %3d KiB %d blocks\n",
                arch.c_str(), std::string(word(element)).c_str(), head_dim, value_dim, row.flags,
                spec.constant("m"), spec.constant("n"), spec.threads, report.registers,
                report.spill_stores, report.stack_bytes, spec.smem_bytes / 1024,
                resident(spec, report, facts));
            std::fflush(stdout);
            spilt += report.spill_stores > 0 || report.stack_bytes > 0;
          }
        }
      }
    }
  }
  CHECK(spilt == 0);
}
