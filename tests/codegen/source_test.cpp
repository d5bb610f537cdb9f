// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests compare the whole emitted unit.
#include "codegen/source.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "ops/conv/update/step.h"

using namespace lathe;

TEST_CASE("golden unit of the causal_conv1d forward") {
  ConvProblem problem;
  problem.x = Dtype::f16;
  problem.weight = Dtype::f32;
  problem.width = 3;
  problem.vector_bytes = 8;
  problem.silu = problem.final_state = problem.forward = true;
  const ConvKernels kernels = *conv_kernels(problem, *facts_of_arch("sm_80"), false);
  CHECK(
      emit_unit(*kernels.forward, "sm_80") ==
      R"(// causal_conv1d x=f16 weight=f32 offsets=i32 width=3 vector=8 tokens=64 ring=24 silu=1 bias=0 residual=0 initial_state=0 final_state=1 packed=0 halo=0 min_blocks=7 threads=128 smem=35024 arch=sm_80
#include "conv/causal_conv1d.cuh"
using namespace lathe;
struct Config {
  using Element = f16;
  using WeightElement = f32;
  using Offset = int;
  static constexpr int kWidth = 3;
  static constexpr int kVectorBytes = 8;
  static constexpr int kTokens = 64;
  static constexpr int kRing = 24;
  static constexpr bool kSilu = true;
  static constexpr bool kBias = false;
  static constexpr bool kResidual = false;
  static constexpr bool kInitialState = false;
  static constexpr bool kFinalState = true;
  static constexpr bool kPacked = false;
  static constexpr bool kHalo = false;
  static constexpr int kThreads = 128, kSmemBytes = 35024;
};
static_assert(sizeof(ConvForwardParams) == 160, "host and device disagree on ConvForwardParams");
static_assert(__INTADDR__(&((ConvForwardParams*)0)->run) == 156, "host and device disagree on ConvForwardParams::run");
static_assert(ConvForwardSmem<Config>::kBytes == Config::kSmemBytes, "host and device disagree on shared memory");
extern "C" __global__ void __launch_bounds__(Config::kThreads, 7)
entry(const __grid_constant__ ConvForwardParams p) { causal_conv1d<Config>(p); }
)");
}

TEST_CASE("units of all kernels are short and say what they are in the first line") {
  ConvProblem problem;
  problem.halo = problem.forward = problem.backward = problem.weight_grad = problem.update = true;
  const ConvKernels kernels = *conv_kernels(problem, *facts_of_arch("sm_90a"), true);
  const KernelSpec specs[] = {
      *kernels.forward,
      *kernels.backward,
      *kernels.weight_grad,
      *kernels.weight_grad_cast,
      *kernels.halo_pack,
      *kernels.halo_join,
      *kernels.halo_add,
      kConvUpdateSequences.candidates(problem, *facts_of_arch("sm_90a")).front()};
  for (const KernelSpec& spec : specs) {
    const std::string unit = emit_unit(spec, "sm_90a");
    CAPTURE(unit);
    CHECK(std::count(unit.begin(), unit.end(), '\n') <= 40);
    CHECK(unit.rfind("// " + spec.text() + " arch=sm_90a\n", 0) == 0);
    // A kernel without dynamic shared memory has none to compare.
    CHECK((unit.find("::kBytes") != std::string::npos) == (spec.smem_bytes != 0));
  }
}
