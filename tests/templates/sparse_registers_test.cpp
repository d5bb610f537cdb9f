// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of sparse attention, forward and backward, as they are chosen for every architecture:
// they compile and keep everything in registers. Every architecture has some of the problems, the
// next one the next; all tiles of all of them run on demand:
//
//   templates_sparse_compile_test --no-skip -tc="sparse*: the survey*"
#include <doctest/doctest.h>

#include "codegen/base/text.h"
#include "ops/sparse/run.h"
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
constexpr int kGroups[] = {64, 128, 1, 40, 24}, kBackwardGroups[] = {128, 1, 24};

SparseProblem problem_of(const Widths& widths, int group, Dtype element) {
  SparseProblem problem;
  problem.element = element;
  problem.cu_seqlens = Dtype::i64;
  problem.head_dim = widths.head_dim, problem.rope_dim = widths.rope_dim;
  problem.value_dim = widths.value_dim, problem.values_in_keys = widths.values_in_keys;
  problem.group = group, problem.packed = problem.sinks = true;
  return problem;
}
SparseProblem forward_of(const Widths& widths, int group) {
  SparseProblem problem = problem_of(widths, group, Dtype::bf16);
  problem.forward = true;
  return problem;
}
SparseProblem backward_of(const Widths& widths, int group, bool deterministic) {
  SparseProblem problem = problem_of(widths, group, deterministic ? Dtype::f16 : Dtype::bf16);
  problem.dsinks = problem.backward = true, problem.deterministic = deterministic;
  return problem;
}

size_t compile_all(const Compiler& nvrtc, const compile_test::Jobs& jobs) {
  const compile_test::Outcome outcome = compile_test::check_compiles(nvrtc, jobs.list());
  return outcome.covered.size() + outcome.unknown.size();
}

std::string name_of(const Widths& widths) {
  return text(widths.head_dim, '+', widths.rope_dim, '/', widths.value_dim,
              widths.values_in_keys ? " in k" : "");
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
      const auto kernels = sparse_kernels(forward_of(kWidths[w], group), *facts_of_arch(archs[a]));
      REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
      jobs.add(*kernels->forward->kernel, archs[a]);
      jobs.add(*kernels->combine, archs[a]);
    }
  }
  CHECK(compile_all(*nvrtc, jobs) == 2 * archs.size());
}

TEST_CASE("sparse backward: the defaults compile for every architecture without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  const auto& archs = supported_archs();
  for (size_t a = 0; a < archs.size(); ++a) {
    // Every other of the widths, the first of them where it has the largest tile.
    const size_t w = (2 * a + 8) % std::size(kWidths);
    const int group = kBackwardGroups[a % std::size(kBackwardGroups)];
    const auto kernels = sparse_backward_kernels(backward_of(kWidths[w], group, a % 2 == 0),
                                                 *facts_of_arch(archs[a]));
    REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
    jobs.add(*kernels->main->kernel, archs[a]);
    if (!kernels->gather) continue;
    for (const KernelSpec& spec :
         {*kernels->prepare, *kernels->ranges, *kernels->fill, *kernels->gather, *kernels->finish,
          sparse_join_spec(Dtype::f16, Dtype::f32), sparse_join_spec(Dtype::bf16, Dtype::bf16)}) {
      jobs.add(spec, archs[a]);
    }
  }
  compile_all(*nvrtc, jobs);
}

TEST_CASE("sparse: the survey of registers" * doctest::skip()) {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (const Widths& widths : kWidths) {
      for (const int group : kGroups) {
        const SparseProblem problem = forward_of(widths, group);
        bool first = true;  // what the rules choose may not spill
        for (const SparseTile& tile : sparse_candidates(problem, facts)) {
          compile_test::survey(*nvrtc, sparse_forward_spec(problem, tile), arch,
                               text(name_of(widths), " G ", group, first ? " *" : ""), !first);
          first = false;
        }
      }
    }
  }
}

TEST_CASE("sparse backward: the survey of registers" * doctest::skip()) {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (const Widths& widths : kWidths) {
      for (const bool deterministic : {false, true}) {
        const SparseProblem problem = backward_of(widths, 0, deterministic);
        for (const SparseBackwardTile& tile : sparse_backward_candidates(problem, facts)) {
          compile_test::survey(*nvrtc, sparse_backward_spec(problem, tile), arch,
                               text(name_of(widths), deterministic ? " ordered" : ""));
        }
      }
    }
  }
}
