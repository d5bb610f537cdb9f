// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of sparse attention's backward as they are chosen for every architecture: they
// compile and keep everything in registers. All tiles of all problems run on demand:
//
//   templates_sparse_compile_test --no-skip -tc="sparse backward: the survey*"
#include <doctest/doctest.h>

#include <cstdio>

#include "codegen/base/text.h"
#include "codegen/source.h"
#include "ops/sparse/backward_kernels.h"
#include "ops/sparse/ranks_kernels.h"
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
constexpr int kGroups[] = {128, 1, 24};

SparseProblem problem_of(const Widths& widths, int group, bool deterministic) {
  SparseProblem problem;
  problem.element = deterministic ? Dtype::f16 : Dtype::bf16;
  problem.cu_seqlens = Dtype::i64;
  problem.head_dim = widths.head_dim, problem.rope_dim = widths.rope_dim;
  problem.value_dim = widths.value_dim, problem.values_in_keys = widths.values_in_keys;
  problem.group = group, problem.packed = problem.sinks = problem.dsinks = true;
  problem.backward = true, problem.deterministic = deterministic;
  return problem;
}

}  // namespace

TEST_CASE("sparse backward: the defaults compile for every architecture without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  const auto& archs = supported_archs();
  for (size_t a = 0; a < archs.size(); ++a) {
    // Every other of the widths, the first of them where it has the largest tile.
    const size_t w = (2 * a + 8) % std::size(kWidths);
    const auto kernels =
        sparse_backward_kernels(problem_of(kWidths[w], kGroups[a % std::size(kGroups)], a % 2 == 0),
                                *facts_of_arch(archs[a]));
    REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
    jobs.add(*kernels->main, archs[a]);
    if (!kernels->gather) continue;
    for (const KernelSpec& spec :
         {*kernels->prepare, *kernels->ranges, *kernels->fill, *kernels->gather, *kernels->finish,
          sparse_join_spec(Dtype::f16, Dtype::f32), sparse_join_spec(Dtype::bf16, Dtype::bf16)}) {
      jobs.add(spec, archs[a]);
    }
  }
  const compile_test::Outcome outcome = compile_test::compile(*nvrtc, jobs.list());
  for (const std::string& failure : outcome.failures) FAIL_CHECK(failure);
  for (const auto& [kernel, registers] : outcome.registers) {
    MESSAGE(kernel, ": at most ", registers, " registers");
  }
}

TEST_CASE("sparse backward: the survey of registers" * doctest::skip()) {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  for (const std::string& arch :
       {std::string("sm_80"), std::string("sm_90a"), std::string("sm_120")}) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (const Widths& widths : kWidths) {
      for (const bool deterministic : {false, true}) {
        const SparseProblem problem = problem_of(widths, 0, deterministic);
        const auto candidates = sparse_backward_candidates(problem, facts);
        for (size_t i = 0; i < candidates.size(); ++i) {
          const KernelSpec spec = *sparse_backward_specs(problem, candidates[i]).main;
          const auto compiled = nvrtc->compile(emit_unit(spec, arch), arch);
          REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
          const CompileReport& report = compiled->report;
          std::printf(
              "%-6s %3d+%-2d/%-3d%s%s: %2dx%-2d %d stages %3d threads %3d registers "
              "%3d spilt %3d KiB%s\n",
              arch.c_str(), widths.head_dim, widths.rope_dim, widths.value_dim,
              widths.values_in_keys ? " in k" : "     ", deterministic ? " ordered" : "",
              candidates[i].heads, candidates[i].keys, candidates[i].stages, spec.threads,
              report.registers, report.spill_stores, spec.smem_bytes / 1024, i == 0 ? " *" : "");
          std::fflush(stdout);
          CHECK(report.spill_stores == 0);
        }
      }
    }
  }
}
