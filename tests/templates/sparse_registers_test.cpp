// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of sparse attention as they are chosen for every architecture: they compile and keep
// everything in registers. Every architecture has some of the problems, the next one the next; all
// tiles of all of them run on demand:
//
//   templates_sparse_compile_test --no-skip -tc="sparse: the survey*"
#include <doctest/doctest.h>

#include <cstdio>

#include "codegen/base/text.h"
#include "codegen/source.h"
#include "ops/sparse/kernels.h"
#include "tests/templates/compile_jobs.h"

using namespace lathe;

namespace {

struct Widths {
  int head_dim, rope_dim, value_dim;
  bool values_in_keys;
};
constexpr Widths kWidths[] = {
    {512, 64, 512, true}, {512, 64, 512, false}, {576, 0, 512, true},   {512, 0, 512, false},
    {448, 64, 448, true}, {384, 64, 384, false}, {256, 64, 256, false}, {320, 0, 320, true},
    {192, 0, 128, false}, {128, 64, 128, false}, {128, 0, 128, true},   {64, 0, 512, false},
    {512, 64, 64, false}, {64, 0, 64, false},
};
constexpr int kGroups[] = {64, 128, 1, 40, 24};

SparseProblem problem_of(const Widths& widths, int group, bool heavy) {
  SparseProblem problem;
  problem.element = heavy ? Dtype::bf16 : Dtype::f16;
  problem.cu_seqlens = heavy ? Dtype::i64 : Dtype::i32;
  problem.head_dim = widths.head_dim, problem.rope_dim = widths.rope_dim;
  problem.value_dim = widths.value_dim, problem.values_in_keys = widths.values_in_keys;
  problem.group = group, problem.packed = problem.sinks = heavy, problem.forward = true;
  return problem;
}

}  // namespace

TEST_CASE("sparse: the defaults compile for every architecture without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  const auto& archs = supported_archs();
  for (size_t a = 0; a < archs.size(); ++a) {
    for (size_t w = 0; w < std::size(kWidths); ++w) {
      if (w > 0 && w != 1 + 2 * a % (std::size(kWidths) - 1)) continue;
      const int group = kGroups[w == 0 ? 0 : (w + a) % std::size(kGroups)];
      const auto kernels =
          sparse_kernels(problem_of(kWidths[w], group, true), *facts_of_arch(archs[a]));
      REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
      jobs.add(*kernels->forward, archs[a]);
      jobs.add(*kernels->combine, archs[a]);
    }
  }
  const compile_test::Outcome outcome = compile_test::compile(*nvrtc, jobs.list());
  for (const std::string& failure : outcome.failures) FAIL_CHECK(failure);
  CHECK(outcome.covered.size() == 2 * archs.size());
  for (const auto& [kernel, registers] : outcome.registers) {
    MESSAGE(kernel, ": at most ", registers, " registers");
  }
}

TEST_CASE("sparse: the survey of registers" * doctest::skip()) {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  for (const std::string& arch :
       {std::string("sm_80"), std::string("sm_90a"), std::string("sm_120")}) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (const Widths& widths : kWidths) {
      for (const int group : kGroups) {
        const SparseProblem problem = problem_of(widths, group, true);
        const auto candidates = sparse_candidates(problem, facts);
        for (size_t i = 0; i < candidates.size(); ++i) {
          const KernelSpec spec = sparse_forward_spec(problem, candidates[i]);
          const auto compiled = nvrtc->compile(emit_unit(spec, arch), arch);
          REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
          const CompileReport& report = compiled->report;
          std::printf(
              "%-6s %3d+%-2d/%-3d%s G %3d: %2dx%-2d %d groups %3d threads %3d registers "
              "%3d spilt %3d KiB%s\n",
              arch.c_str(), widths.head_dim, widths.rope_dim, widths.value_dim,
              widths.values_in_keys ? " in k" : "     ", group, candidates[i].heads,
              candidates[i].keys, candidates[i].groups, spec.threads, report.registers,
              report.spill_stores, spec.smem_bytes / 1024, i == 0 ? " *" : "");
          std::fflush(stdout);
          CHECK((i > 0 || report.spill_stores == 0));
        }
      }
    }
  }
}
