// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the block step on the host: specs, grids, workspace.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

TEST_CASE("specs of the block step") {
  const DeviceFacts device = facts("sm_80");
  AttentionProblem problem;
  problem.forward = problem.ranges = true;
  const KernelSpec ranges = block_spec(problem, device);
  CHECK(ranges.text() ==
        "attention_block element=bf16 cu=i32 width=128 value_width=128 m=128 n=128 stages=1 "
        "packed=0 local=1 softcap=0 alibi=0 sinks=0 pack_gqa=0 listed=0 ranges=1 persistent=0 "
        "threads=256 "
        "smem=98560");
  CHECK(attention_block_workspace_bytes(ranges, 8192) == 0);
  problem.ranges = false, problem.positions = true;
  const KernelSpec positions = block_spec(problem, device);
  CHECK(attention_positions_blocks(8192, 64) == 32);
  CHECK(attention_positions_blocks(1, 64) == 1);
  CHECK(attention_positions_blocks(0, 64) == 0);
  CHECK(attention_block_workspace_bytes(positions, 8192) == 512);
  CHECK(attention_block_workspace_bytes(positions, 8193) == 768);
}

TEST_CASE("sm_90a: which block steps run by warpgroups, and why others do not") {
  DeviceFacts device = facts("sm_90a");
  device.family = "sm90";
  AttentionProblem usual;
  usual.forward = usual.backward = usual.ranges = true;
  const KernelSpec forward = block_spec(usual, device);
  CHECK(forward.kernel == "attention_block_warpgroups");
  CHECK(block_backward_spec(usual, device).kernel == "attention_block_backward_warpgroups");
  CHECK(forward.family == std::string_view("sm90"));
  CHECK(forward.family_reason.empty());
  // Three warpgroups would have no registers for the walk.
  usual.head_dim = usual.value_dim = 64;
  CHECK(block_spec(usual, device).constant("m") == 128);

  // Returns why the forward's step and the backward's are portable; empty: they are not.
  using Reasons = std::pair<std::string, std::string>;
  const auto reasons = [&](auto change) {
    AttentionProblem problem = usual;
    change(problem);
    const KernelSpec specs[] = {block_spec(problem, device), block_backward_spec(problem, device)};
    for (const KernelSpec& spec : specs) {
      CHECK(spec.family_reason.empty() == (spec.family == std::string_view("sm90")));
    }
    return Reasons(specs[0].family_reason, specs[1].family_reason);
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
  device.family = "portable";
  CHECK(reasons([](auto&) {}) ==
        Reasons("not sm90: LATHE_FAMILY is portable", "not sm90: LATHE_FAMILY is portable"));
}

TEST_CASE("persistent blocks are those that the device holds, less a margin") {
  DeviceFacts device = facts("sm_80");
  device.multiprocessors = 100;
  AttentionProblem problem;
  problem.forward = problem.ranges = true;
  problem.head_dim = problem.value_dim = 64;
  const KernelSpec one = block_spec(problem, device);
  CHECK(attention_block_grid(one, 255, device, 7, 5000) == 5000);
  problem.persistent = true;
  const KernelSpec spec = block_spec(problem, device);
  REQUIRE(spec.threads == 128);
  CHECK(attention_block_grid(spec, 255, device, 0, 5000) == 200);  // by registers
  CHECK(attention_block_grid(spec, 160, device, 0, 5000) == 300);
  CHECK(attention_block_grid(spec, 161, device, 0, 5000) == 300);  // 168 of them
  CHECK(attention_block_grid(spec, 40, device, 0, 5000) == 400);   // by shared memory
  CHECK(attention_block_grid(spec, 255, device, 7, 5000) == 186);
  CHECK(attention_block_grid(spec, 255, device, 7, 50) == 50);
  CHECK(attention_block_grid(spec, 255, device, 100, 5000) == 2);
  problem.head_dim = problem.value_dim = 256;
  const KernelSpec wide = block_spec(problem, device);
  CHECK(attention_block_grid(wide, 255, device, 4, 5000) == 96);
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
    CHECK(lse_merge_blocks(spec, 0) == 0);
    CHECK(lse_merge_blocks(spec, 1) == 1);
    CHECK(lse_merge_blocks(spec, rows) == 1);
    CHECK(lse_merge_blocks(spec, rows + 1) == 2);
  }
  CHECK(lse_merge_cost({Dtype::bf16, 64, true, true}, 10, 2).minimum_bytes ==
        10 * (2 * 65 * 4 + 64 * 2 + 4) + 8);
  CHECK(lse_merge_cost({Dtype::f32, 64, false, true}, 10, 2).minimum_bytes == 10 * 2 * 65 * 4 + 8);
}
