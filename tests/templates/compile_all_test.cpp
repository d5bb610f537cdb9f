// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every template of the convolutions, every architecture, in configurations that cover each flag,
// width and type: it compiles, keeps everything in registers, and the same key gives the same
// bytes.
#include <doctest/doctest.h>
#include <stdlib.h>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/conv/update/step.h"
#include "ops/exact_sums.h"
#include "ops/kda/decode/kernels.h"
#include "ops/kda/kernels.h"
#include "ops/row_kernels.h"
#include "templates/params/kda.h"
#include "tests/templates/compile_jobs.h"

using namespace lathe;

namespace {

// `all` sets every flag, otherwise none but the kernels themselves.
ConvProblem problem_of(Dtype x, Dtype weight, int width, int vector_bytes, bool all) {
  ConvProblem problem;
  problem.x = x;
  problem.weight = weight;
  problem.width = width;
  problem.vector_bytes = vector_bytes;
  problem.forward = problem.backward = problem.weight_grad = problem.update = true;
  problem.silu = problem.bias = problem.residual = problem.packed = problem.halo = all;
  problem.initial_state = problem.final_state = all;
  problem.dfinal_state = problem.dinitial_state = all;
  problem.cu_seqlens = width % 2 == 0 ? Dtype::i32 : Dtype::i64;
  problem.columns = width - width % 2;  // of a state in a slot
  return problem;
}

// The forward over slots of a pool, with its result in parts.
void add_pool(ConvProblem problem, const DeviceFacts& facts, compile_test::Jobs* jobs) {
  problem.pool = problem.packed = problem.forward = true;
  problem.checkpoints = problem.residual,
  problem.parts = problem.width % 3 == 0 ? 0 : problem.width;
  problem.backward = problem.weight_grad = problem.halo = false;
  problem.initial_state = problem.final_state = false;
  jobs->add(*conv_kernels(problem, facts, false)->forward, facts.arch);
}

// All widths on every architecture, the types in turn; and always what strains registers most.
std::vector<ConvProblem> problems_for(size_t arch_index) {
  constexpr Dtype kTypes[] = {Dtype::bf16, Dtype::f16, Dtype::f32};
  constexpr int kVectors[] = {16, 8, 16, 4, 16, 2, 16};
  std::vector<ConvProblem> problems;
  for (int width = 2; width <= 8; ++width) {
    const size_t turn = arch_index + static_cast<size_t>(width);
    const Dtype x = kTypes[turn % 3];
    const int vector_bytes = std::max(kVectors[turn % 7], bytes_of(x));
    problems.push_back(problem_of(x, kTypes[turn / 3 % 3], width, vector_bytes, turn % 2 == 0));
  }
  problems.push_back(problem_of(Dtype::f32, Dtype::f32, 8, 16, true));
  problems.push_back(problem_of(Dtype::bf16, Dtype::bf16, 4, 16, true));
  problems.push_back(problem_of(Dtype::bf16, Dtype::bf16, 4, 16, false));
  problems.back().silu = true;
  problems.push_back(problem_of(Dtype::f32, Dtype::f32, 4, 16, false));
  problems.back().backward = false;  // weight gradients alone
  return problems;
}

// What strains registers most in turn: wide keys, wide types, every transform, every kind of state.
std::vector<KdaProblem> kda_problems_for(size_t arch_index) {
  constexpr Dtype kTypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
  constexpr int kKeys[] = {256, 128, 60};
  std::vector<KdaProblem> problems;
  for (size_t i = 0; i < 3; ++i) {
    const size_t turn = arch_index + i;
    KdaProblem problem;
    problem.element = kTypes[turn % 3], problem.gate = kTypes[i],
    problem.beta = kTypes[turn / 3 % 3];
    problem.key_dim = kKeys[i], problem.value_dim = kKeys[turn / 3 % 3];
    problem.states = static_cast<int>(turn % 3), problem.gate_kind = static_cast<int>((i + 2) % 3);
    problem.l2norm = problem.A_log = problem.dt_bias = problem.sigmoid = problem.gate_kind != 0;
    problem.packed = i != 1, problem.state_v_first = turn % 2 == 0;
    problems.push_back(problem);
  }
  return problems;
}

// Every type and index once over the architectures, the widest always.
std::vector<KernelSpec> exchange_specs_for(size_t arch_index) {
  constexpr Dtype kTypes[] = {Dtype::bf16, Dtype::f16, Dtype::f32};
  const Dtype type = kTypes[arch_index % 3];
  const auto index = static_cast<RowIndex>(arch_index % 3);
  return {copy_rows_spec(RowIndex::gather, 16),
          copy_rows_spec(index, 2 << arch_index % 4),
          add_rows_spec(Dtype::f32, type),
          add_rows_spec(type, Dtype::f32),
          sum_parts_spec(Dtype::f32, type, 4),
          sum_parts_spec(type, Dtype::f32, 1 << arch_index % 3),
          move_rows_spec(16),
          move_rows_spec(4),
          sum_rows_spec(Dtype::f32, type, true),
          sum_rows_spec(type, type, false),
          repeat_offsets_spec(),
          exact_sums_spec(),
          exact_round_spec()};
}

// A decode layer around the same recurrences, without and with everything.
KdaDecodeProblem decode_problem_of(const KdaProblem& kda, size_t turn) {
  KdaDecodeProblem problem;
  problem.kda = kda;
  problem.kda.packed = false;
  problem.kda.states = turn % 2 == 0 ? kKdaStatesPool : kKdaStatesRings;
  problem.kda.pooled = kda.gate, problem.kda.ring = turn % 4 == 1 ? kda.element : Dtype::f32;
  problem.conv_weight = kda.beta;
  problem.conv_width = 2 + static_cast<int>(turn % 7);
  problem.conv_columns = problem.conv_width + static_cast<int>(turn % 3) - 1;
  problem.conv_bias = turn % 3 == 0, problem.conv_silu = turn % 3 != 1;
  problem.tokens = turn % 4 < 2 ? 1 : kKdaDecodeMostTokens;
  problem.norm = problem.output_gate = turn % 3 != 2;
  problem.output_gate_silu = turn % 2 == 0;
  return problem;
}
// Bytes that a thread of a decode layer may spill: two of its blocks share a multiprocessor.
constexpr int kDecodeSpills = 160;

// The update of one token of each state, and over slots.
void add_updates(ConvProblem problem, const DeviceFacts& facts, compile_test::Jobs* jobs) {
  for (const bool slots : {false, true}) {
    problem.slots = slots, problem.index = problem.cu_seqlens;
    for (const ConvUpdateStep* update : conv_updates()) {
      if (!problem.update || !update->refusal(problem, facts).empty()) continue;
      jobs->add(update->candidates(problem, facts).front(), facts.arch);
    }
  }
}

std::vector<compile_test::Job> all_jobs() {
  compile_test::Jobs jobs;
  size_t turn = 0;
  for (size_t a = 0; a < supported_archs().size(); ++a) {
    const std::string& arch = supported_archs()[a];
    const DeviceFacts facts = *facts_of_arch(arch);
    for (const ConvProblem& problem : problems_for(a)) {
      const auto kernels = conv_kernels(problem, facts, problem.halo);
      REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
      add_pool(problem, facts, &jobs);
      for (const KernelSlot* spec : std::initializer_list<const KernelSlot*>{
               &kernels->forward, &kernels->backward, &kernels->weight_grad,
               &kernels->weight_grad_cast, &kernels->halo_pack, &kernels->halo_join,
               &kernels->halo_add}) {
        if (*spec) jobs.add(**spec, arch);
      }
      add_updates(problem, facts, &jobs);
    }
    for (const KdaProblem& problem : kda_problems_for(a)) {
      const auto kernel = kda_recurrent_kernel(problem, facts);
      REQUIRE_MESSAGE(kernel.ok(), kernel.status().text());
      jobs.add(*kernel, arch);
      const auto decode = kda_decode_kernel(decode_problem_of(problem, ++turn), facts);
      REQUIRE_MESSAGE(decode.ok(), decode.status().text());
      jobs.add(*decode, arch, decode->min_blocks > 1 ? kDecodeSpills : 0);
    }
    for (const KernelSpec& spec : exchange_specs_for(a)) jobs.add(spec, arch);
  }
  return jobs.list();
}

}  // namespace

TEST_CASE("every template compiles for every architecture, without spills but for decode layers") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const std::vector<compile_test::Job> jobs = all_jobs();
  const compile_test::Outcome outcome = compile_test::check_compiles(*nvrtc, jobs);
  std::set<std::string> kernels;
  for (const compile_test::Job& job : jobs) kernels.insert(job.spec.kernel);
  CHECK(outcome.covered.size() + outcome.unknown.size() ==
        kernels.size() * supported_archs().size());
}

TEST_CASE("the same unit gives the same bytes, whatever was compiled in between") {
  setenv("LATHE_TEST_NVRTC_MEMO", "", 1);  // the compiler itself
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const ConvKernels kernels = *conv_kernels(problem_of(Dtype::bf16, Dtype::bf16, 4, 16, false),
                                            *facts_of_arch("sm_90a"), false);
  const std::string unit = emit_unit(*kernels.forward, "sm_90a");
  const auto first = nvrtc->compile(unit, "sm_90a");
  REQUIRE(first.ok());
  const std::string other = emit_unit(*kernels.weight_grad, "sm_80");
  REQUIRE(nvrtc->compile(other, "sm_80").ok());
  const auto again = nvrtc->compile(unit, "sm_90a");
  REQUIRE(again.ok());
  CHECK(first->cubin == again->cubin);
  CHECK(first->ptx == again->ptx);
}

TEST_CASE("host and device must agree: a wrong size, offset or sum does not compile") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  ConvProblem problem = problem_of(Dtype::f32, Dtype::f32, 2, 4, false);
  const KernelSpec good = *conv_kernels(problem, *facts_of_arch("sm_80"), false)->forward;
  for (int which = 0; which < 3; ++which) {
    KernelSpec bad = good;
    (which == 0 ? bad.params_bytes : which == 1 ? bad.last_field_offset : bad.smem_bytes) += 8;
    const auto compiled = nvrtc->compile(emit_unit(bad, "sm_80"), "sm_80");
    REQUIRE(!compiled.ok());
    const std::string& text = compiled.status().text();
    CHECK(text.find("host and device disagree on") != std::string::npos);
    const size_t from = text.find("unit saved in ") + 14;
    std::remove(text.substr(from, text.find('\n', from) - from).c_str());
  }
}
