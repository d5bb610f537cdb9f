// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of chunked KDA as they are chosen for every architecture: they compile, and of 16-bit
// inputs up to a width of 128 they keep everything in registers, but for the early starts.
//
// Every other architecture has one of the widths and sets of options of the table, the next one the
// next; with LATHE_TEST_SHARD=3/32 it is a part of all of them.
#include <doctest/doctest.h>

#include "codegen/compile_log.h"
#include "ops/kda/chunked_kernels.h"
#include "templates/params/kda.h"
#include "tests/templates/compile_jobs.h"

using namespace lathe;

namespace {

struct Widths {
  int key_dim, value_dim;
  Dtype element;
};
constexpr Widths kWidths[] = {{128, 128, Dtype::bf16}, {64, 64, Dtype::f16},
                              {100, 60, Dtype::bf16},  {128, 32, Dtype::f16},
                              {256, 256, Dtype::bf16}, {128, 128, Dtype::f32},
                              {192, 128, Dtype::f16},  {256, 128, Dtype::f32}};

// What of a problem changes the code beside types and widths.
struct Options {
  bool packed, l2norm, A_log, dt_bias, sigmoid, states, v_first, chunks, grouped, both;
  int gate;
};
constexpr Options kOptions[] = {
    {true, true, true, true, true, true, false, false, false, false, kKdaGateBounded},
    {false, false, false, false, false, false, false, true, true, true, kKdaGateGiven},
    {true, true, true, true, false, true, true, true, true, true, kKdaGateSoftplus},
    {false, true, false, true, true, false, true, false, true, false, kKdaGateBounded},
};

KdaProblem problem_of(const Widths& widths, const Options& options, bool half) {
  KdaProblem problem;
  problem.element = widths.element;
  problem.gate = half ? widths.element : Dtype::f32;
  problem.beta = half ? Dtype::f32 : widths.element;
  problem.cu_seqlens = half ? Dtype::i64 : Dtype::i32;
  problem.key_dim = widths.key_dim, problem.value_dim = widths.value_dim;
  problem.vector_bytes = widths.key_dim % 8 == 0 && widths.value_dim % 8 == 0 ? 16 : 8;
  problem.packed = options.packed, problem.l2norm = options.l2norm;
  problem.gate_kind = options.gate, problem.sigmoid = options.sigmoid;
  problem.A_log = problem.dA_log = options.A_log;
  problem.dt_bias = problem.ddt_bias = options.dt_bias;
  problem.initial_state = problem.final_state = options.states;
  problem.dht = problem.dinitial_state = options.states;
  problem.state_v_first = options.v_first, problem.chunk_states = options.chunks;
  problem.grouped = options.grouped;
  problem.forward = problem.backward = problem.segmented = true;
  problem.saves = options.both;
  return problem;
}

// A problem that gives everything. Without `saves` its scan has both walks, as a backward on its
// own has.
void add_jobs(const KdaProblem& problem, const DeviceFacts& facts, compile_test::Jobs* jobs,
              int most_spilt = 0) {
  const std::string& arch = facts.arch;
  const bool wide = problem.key_dim > 128 || problem.element == Dtype::f32;
  const int spilt = wide ? compile_test::kAnySpills : most_spilt;
  const auto add = [&](const KdaProblem& of) {
    auto kernels = kda_chunked_kernels(of, facts);
    REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
    for (const KernelSlot* slot : kernels->slots()) {
      if (*slot) jobs->add(**slot, arch, spilt);
    }
  };
  add(problem);
  if (problem.packed) {  // and as one rank among several has it
    KdaProblem part = problem;
    part.ranks = true;
    add(part);
  }
  KdaProblem early = problem;
  early.saves = early.backward = early.dinitial_state = early.segmented = false;
  early.warmup = true;
  if (!problem.l2norm) return;
  // It holds the state of two walks: with every option 4 bytes of one set of them are outside.
  jobs->add(*kda_chunked_kernels(early, facts)->forward->kernel, arch, 4);
}

DeviceFacts hopper() {
  DeviceFacts facts = *facts_of_arch("sm_90a");
  facts.family = "sm90";
  return facts;
}

}  // namespace

TEST_CASE("chunked kda compiles for every architecture, of 16 bits without spills up to 128") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const bool all = testing::shard_is_chosen();
  compile_test::Jobs jobs;
  const auto& archs = supported_archs();
  for (size_t a = 0; a < archs.size(); ++a) {
    for (size_t w = 0; w < std::size(kWidths); ++w) {
      for (size_t o = 0; o < std::size(kOptions); ++o) {
        // One of every other architecture.
        if (!all &&
            (a % 2 != 0 || w != a / 2 % std::size(kWidths) || o != (a / 2) % std::size(kOptions)))
          continue;
        add_jobs(problem_of(kWidths[w], kOptions[o], (a + o) % 2 == 0), *facts_of_arch(archs[a]),
                 &jobs);
      }
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list(testing::chosen_shard(1)));
}

// A plan refuses a Hopper's kernel that spills and takes the portable one, which is three times as
// slow, so the calls that models make are here: each input transform alone and all of them, either
// type of gate, with states and packed.
TEST_CASE("kda's forward by warpgroups compiles without spills, with what models ask of it") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  const DeviceFacts facts = hopper();
  int turn = 0;
  for (const int width : {64, 128, 256}) {
    for (const int gate : {kKdaGateGiven, kKdaGateSoftplus, kKdaGateBounded}) {
      for (const bool half : {false, true}) {
        for (const bool l2norm : {false, true}) {
          ++turn;
          Options options{};
          options.gate = gate, options.l2norm = l2norm;
          options.A_log = options.dt_bias = gate != kKdaGateGiven;
          options.sigmoid = turn % 2 == 0;
          options.states = turn % 3 != 0, options.packed = turn % 4 == 1;
          options.v_first = turn % 5 == 0;
          KdaProblem problem = problem_of({width, width, Dtype::bf16}, options, half);
          problem.backward = problem.segmented = problem.saves = problem.dht = false;
          problem.dA_log = problem.ddt_bias = problem.dinitial_state = false;
          const auto kernels = kda_chunked_kernels(problem, facts);
          REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
          const KernelSpec& spec = *kernels->forward->kernel;
          INFO(spec.text(), " ", spec.family_reason);
          CHECK(spec.kernel == "kda_forward_warpgroups");
          if (testing::shard_is_chosen() || turn % 3 == 0 || (width == 128 && half)) {
            jobs.add(spec, "sm_90a");
          }
        }
      }
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list());
}

// The launch of segments by clusters keeps a few registers outside, some of them across its first
// walk alone: a plan puts up with 160 bytes.
TEST_CASE("kda's forward by clusters compiles with what plans take, whatever models ask of it") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  int turn = 0;
  for (const int gate : {kKdaGateGiven, kKdaGateSoftplus, kKdaGateBounded}) {
    for (const bool half : {false, true}) {
      for (const bool l2norm : {false, true}) {
        for (const bool packed : {false, true}) {
          ++turn;
          Options options{};
          options.gate = gate, options.l2norm = l2norm, options.packed = packed;
          options.A_log = options.dt_bias = gate != kKdaGateGiven;
          options.sigmoid = turn / 2 % 2 == 0, options.states = turn % 3 != 0;
          options.v_first = turn % 5 == 0;
          KdaProblem problem = problem_of({128, 128, Dtype::bf16}, options, half);
          problem.backward = problem.saves = problem.dht = false;
          problem.dA_log = problem.ddt_bias = problem.dinitial_state = false;
          problem.pool = packed && turn % 4 == 0;
          if (problem.pool) problem.initial_state = problem.final_state = true;
          if (problem.pool) problem.pooled = turn % 8 == 0 ? Dtype::bf16 : Dtype::f32;
          const auto kernels = kda_chunked_kernels(problem, hopper());
          REQUIRE_MESSAGE(kernels.ok(), kernels.status().text());
          REQUIRE(kernels->cluster);
          CHECK_FALSE(kernels->summary);
          if (testing::shard_is_chosen() || turn % 3 == 0) {
            jobs.add(*kernels->cluster->kernel, "sm_90a", kKeptBytes);
          }
        }
      }
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list(testing::chosen_shard(1)));
}

TEST_CASE("kda's summaries, walks and gradients by warpgroups compile with what plans take") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  for (size_t o = 0; o < std::size(kOptions); ++o) {
    // A walk back with gates of 32 bits keeps 17 registers outside, which a plan puts up with.
    const bool half = o % 2 == 0;
    add_jobs(problem_of({128, 128, Dtype::bf16}, kOptions[o], half), hopper(), &jobs,
             half ? 0 : 72);
  }
  compile_test::check_compiles(*nvrtc, jobs.list(testing::chosen_shard(1)));
}
