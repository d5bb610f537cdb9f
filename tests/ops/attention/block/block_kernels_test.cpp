// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the block step on the host: specs, grids, workspace.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>

#include "ops/attention/block/kernels.h"

using namespace lathe;

TEST_CASE("specs of the block step") {
  const DeviceFacts facts = *facts_of_arch("sm_80");
  AttentionProblem problem;
  problem.forward = problem.ranges = true;
  const AttentionBlockKernels ranges = *attention_block_kernels(problem, facts);
  CHECK(!ranges.positions);
  CHECK(ranges.forward->text() ==
        "attention_block element=bf16 cu=i32 width=128 value_width=128 m=128 n=128 stages=1 "
        "packed=0 local=1 softcap=0 alibi=0 sinks=0 pack_gqa=0 listed=0 ranges=1 persistent=0 "
        "threads=256 "
        "smem=98560");
  CHECK(attention_block_workspace_bytes(ranges.forward.numbers(), 8192) == 0);
  problem.ranges = false, problem.positions = true;
  const AttentionBlockKernels positions = *attention_block_kernels(problem, facts);
  REQUIRE(positions.positions);
  CHECK(attention_positions_blocks(positions.positions.numbers(), 8192, 64) == 32);
  CHECK(attention_positions_blocks(positions.positions.numbers(), 1, 64) == 1);
  CHECK(attention_positions_blocks(positions.positions.numbers(), 0, 64) == 0);
  CHECK(attention_block_workspace_bytes(positions.forward.numbers(), 8192) == 512);
  CHECK(attention_block_workspace_bytes(positions.forward.numbers(), 8193) == 768);
}

TEST_CASE("sm_90a: which block steps run by warpgroups, and why others do not") {
  DeviceFacts facts = *facts_of_arch("sm_90a");
  facts.family = "sm90";
  AttentionProblem usual;
  usual.forward = usual.backward = usual.ranges = true;
  const AttentionBlockKernels taken = *attention_block_kernels(usual, facts);
  CHECK(taken.forward->kernel == "attention_block_warpgroups");
  CHECK(taken.backward->kernel == "attention_block_backward_warpgroups");
  CHECK(taken.forward->family == std::string_view("sm90"));
  CHECK(taken.forward->family_reason.empty());
  // Three warpgroups would have no registers for the walk.
  usual.head_dim = usual.value_dim = 64;
  CHECK(attention_block_kernels(usual, facts)->forward->constant("m") == 128);

  // Returns why the forward's step and the backward's are portable; empty: they are not.
  using Reasons = std::pair<std::string, std::string>;
  const auto reasons = [&](auto change) {
    AttentionProblem problem = usual;
    change(problem);
    const AttentionBlockKernels kernels = *attention_block_kernels(problem, facts);
    for (const KernelSlot* kernel : {&kernels.forward, &kernels.backward}) {
      CHECK((*kernel)->family_reason.empty() == ((*kernel)->family == std::string_view("sm90")));
    }
    return Reasons(kernels.forward->family_reason, kernels.backward->family_reason);
  };
  const std::string positions = "not sm90: rows and keys have positions of their own";
  CHECK(reasons([](auto& p) { p.ranges = false, p.positions = true; }) ==
        Reasons(positions, positions));
  const std::string floats = "not sm90: the elements are float32";
  CHECK(reasons([](auto& p) { p.element = Dtype::f32; }) == Reasons(floats, floats));
  CHECK(reasons([](auto& p) { p.persistent = true; }) ==
        Reasons("", "not sm90: a block has one tile of keys, and sm_margin wants turns"));
  CHECK(reasons([](auto& p) { p.deterministic = true; }) ==
        Reasons("", "not sm90: blocks add to dq in no order"));
  CHECK(reasons([](auto& p) { p.head_dim = p.value_dim = 256; }) ==
        Reasons("", "not sm90: there is no tile for the head widths"));
  facts.family = "portable";
  CHECK(reasons([](auto&) {}) ==
        Reasons("not sm90: LATHE_FAMILY is portable", "not sm90: LATHE_FAMILY is portable"));
}

TEST_CASE("persistent blocks are those that the device holds, less a margin") {
  DeviceFacts facts = *facts_of_arch("sm_80");
  facts.multiprocessors = 100;
  AttentionProblem problem;
  problem.forward = problem.ranges = true;
  problem.head_dim = problem.value_dim = 64;
  const KernelSpec one = *attention_block_kernels(problem, facts)->forward;
  CHECK(attention_block_grid(KernelNumbers(one), 255, facts, 7, 5000) == 5000);
  problem.persistent = true;
  const KernelSpec spec = *attention_block_kernels(problem, facts)->forward;
  REQUIRE(spec.threads == 128);
  CHECK(attention_block_grid(KernelNumbers(spec), 255, facts, 0, 5000) == 200);  // by registers
  CHECK(attention_block_grid(KernelNumbers(spec), 160, facts, 0, 5000) == 300);
  CHECK(attention_block_grid(KernelNumbers(spec), 161, facts, 0, 5000) == 300);  // 168 of them
  CHECK(attention_block_grid(KernelNumbers(spec), 40, facts, 0, 5000) == 400);   // by shared memory
  CHECK(attention_block_grid(KernelNumbers(spec), 255, facts, 7, 5000) == 186);
  CHECK(attention_block_grid(KernelNumbers(spec), 255, facts, 7, 50) == 50);
  CHECK(attention_block_grid(KernelNumbers(spec), 255, facts, 100, 5000) == 2);
  problem.head_dim = problem.value_dim = 256;
  const KernelSpec wide = *attention_block_kernels(problem, facts)->forward;
  CHECK(attention_block_grid(KernelNumbers(wide), 255, facts, 4, 5000) == 96);
}

TEST_CASE("lse_merge: as many lanes as columns, every row once, every byte once") {
  for (const int width : {8, 16, 64, 72, 128, 256}) {
    LseMergeProblem problem;
    problem.block = true;
    problem.value_dim = width;
    const KernelSpec spec = lse_merge_spec(problem);
    const int64_t lanes = spec.constant("lanes");
    CHECK(lanes * 4 >= std::min(width, 128));
    CHECK(lanes * 4 < 2 * width + 1);
    const int64_t rows = spec.threads / lanes;
    CHECK(lse_merge_blocks(KernelNumbers(spec), 0) == 0);
    CHECK(lse_merge_blocks(KernelNumbers(spec), 1) == 1);
    CHECK(lse_merge_blocks(KernelNumbers(spec), rows) == 1);
    CHECK(lse_merge_blocks(KernelNumbers(spec), rows + 1) == 2);
  }
  CHECK(lse_merge_cost({Dtype::bf16, 64, true, true}, 10, 2).minimum_bytes ==
        10 * (2 * 65 * 4 + 64 * 2 + 4) + 8);
  CHECK(lse_merge_cost({Dtype::f32, 64, false, true}, 10, 2).minimum_bytes == 10 * 2 * 65 * 4 + 8);
}
