// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the canonical text of specs: it is the cache key's, so any change here makes
// every cache cold.
#include "codegen/spec.h"

#include <doctest/doctest.h>

#include "codegen/base/digest.h"
#include "ops/conv/update/step.h"
#include "tests/twin_texts.h"

using namespace lathe;

TEST_CASE("text lists the constants in their order, then threads and shared memory") {
  KernelSpec spec;
  spec.kernel = "scale";
  spec.threads = 64;
  spec.smem_bytes = 1024;
  spec.constants = {Constant::type("x", "Element", Dtype::bf16),
                    Constant::integer("width", "kWidth", 4), Constant::flag("bias", "kBias", true),
                    Constant::flag("silu", "kSilu", false)};
  CHECK(spec.text() == "scale x=bf16 width=4 bias=1 silu=0 threads=64 smem=1024");
  CHECK(spec.constant("width") == 4);
  CHECK(spec.constant("x") == static_cast<long long>(Dtype::bf16));
}

TEST_CASE("texts that were made to have one XXH3 are two kernels") {
  const std::string one = twins::score_mod('2', '5'), other = twins::score_mod('5', '2');
  REQUIRE(one != other);
  REQUIRE(digest(one) == digest(other));
  KernelSpec spec, twin;
  spec.mods = {{"score_mod", "", one}}, twin.mods = {{"score_mod", "", other}};
  CHECK(spec.text() != twin.text());
  spec.mods = {{"score_mod", "", "abc"}};
  CHECK(spec.text() ==
        " score_mod=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad threads=0 "
        "smem=0");
}

TEST_CASE("what a launch needs beyond a grid is in the text where it is not the default") {
  KernelSpec spec;
  spec.kernel = "stem", spec.threads = 64;
  CHECK(spec.text() == "stem threads=64 smem=0");
  spec.cluster = 2, spec.min_blocks = 3;
  spec.tensor_maps = {{"k", Dtype::bf16, {64, 128}, 128}, {"v", Dtype::f32, {32}, 0}};
  CHECK(spec.text() ==
        "stem map_k=bf16x64x128/128 map_v=f32x32 cluster=2 min_blocks=3 threads=64 smem=0");
}

TEST_CASE("golden text of the causal_conv1d kernels") {
  ConvProblem problem;
  problem.silu = problem.bias = problem.packed = problem.halo = true;
  problem.forward = problem.backward = problem.weight_grad = problem.update = true;
  problem.cu_seqlens = Dtype::i64;
  const DeviceFacts facts = *facts_of_arch("sm_90a");
  const ConvKernels kernels = *conv_kernels(problem, facts, true);
  CHECK(kernels.forward->text() ==
        "causal_conv1d x=bf16 weight=bf16 offsets=i64 width=4 vector=8 tokens=64 ring=24 silu=1 "
        "bias=1 residual=0 initial_state=0 final_state=0 packed=1 halo=1 min_blocks=7 threads=128 "
        "smem=30368");
  CHECK(kernels.backward->text() ==
        "causal_conv1d_bwd x=bf16 weight=bf16 offsets=i64 width=4 vector=8 tokens=64 ring=12 "
        "silu=1 bias=1 dx=1 weight_grad=1 initial_state=0 dfinal_state=0 dinitial_state=0 packed=1 "
        "halo=1 min_blocks=4 threads=128 smem=30368");
  CHECK(kConvUpdateSequences.candidates(problem, facts).front().text() ==
        "causal_conv1d_update x=bf16 weight=bf16 width=4 vector=4 silu=1 bias=1 residual=0 rows=4 "
        "min_blocks=4 threads=256 smem=17824");
  CHECK(kConvUpdateRow.candidates(problem, facts).front().text() ==
        "causal_conv1d_update_row x=bf16 weight=bf16 width=4 vector=4 silu=1 bias=1 residual=0 "
        "threads=128 smem=7808");
  CHECK(kernels.weight_grad->text() ==
        "causal_conv1d_weight_grad output=f32 width=4 bias=1 by_tap=1 threads=256 smem=6400");
  CHECK(kernels.weight_grad_cast->text() ==
        "causal_conv1d_weight_grad output=bf16 width=4 bias=1 by_tap=0 threads=256 smem=6400");
  CHECK(kernels.halo_pack->text() ==
        "causal_conv1d_halo_pack x=bf16 offsets=i64 width=4 vector=16 initial_state=0 packed=1 "
        "threads=128 smem=0");
  CHECK(kernels.halo_join->text() ==
        "causal_conv1d_halo_join x=bf16 offsets=i64 width=4 vector=16 packed=1 threads=128 smem=0");
  CHECK(kernels.halo_add->text() ==
        "causal_conv1d_halo_add x=bf16 offsets=i64 width=4 vector=8 dinitial_state=0 packed=1 "
        "threads=128 smem=0");
}

TEST_CASE("without packed lengths the type of the offsets does not enter the text") {
  const DeviceFacts facts = *facts_of_arch("sm_80");
  ConvProblem problem;
  problem.forward = true;
  problem.cu_seqlens = Dtype::i32;
  const std::string narrow = conv_kernels(problem, facts, false)->forward->text();
  problem.cu_seqlens = Dtype::i64;
  CHECK(conv_kernels(problem, facts, false)->forward->text() == narrow);
  problem.packed = true;
  CHECK(conv_kernels(problem, facts, false)->forward->text() != narrow);
}
