// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what the steps of a ring launch, over a driver table that only writes down:
// which kernels, with which parameters and workspace, and that a run allocates nothing.
#include <doctest/doctest.h>

#include "ops/attention/block/schema.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"
#include "templates/params/attention_merge.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;

constexpr int64_t kAny = -1;

Builder step(bool positions, const char* first) {
  Builder builder("flash_attention_block");
  builder.tensors({{"q", LATHE_BF16, {kAny, 8, 64}},
                   {"k", LATHE_BF16, {kAny, 2, 64}},
                   {"v", LATHE_BF16, {kAny, 2, 128}},
                   {"out", LATHE_F32, {kAny, 8, 128}},
                   {"lse", LATHE_F32, {8, kAny}}});
  if (positions) {
    builder.tensor({"q_pos", LATHE_I32, {kAny}}).tensor({"k_pos", LATHE_I32, {kAny}});
  } else {
    builder.tensor({"ranges", LATHE_I32, {kAny, 7}});
  }
  return std::move(builder.set("causal", "1").set("first", first));
}

Builder gradients(bool positions, const char* deterministic) {
  Builder builder("flash_attention_block_bwd");
  builder.tensors({{"q", LATHE_BF16, {kAny, 8, 64}},
                   {"k", LATHE_BF16, {kAny, 2, 64}},
                   {"v", LATHE_BF16, {kAny, 2, 128}},
                   {"dout", LATHE_BF16, {kAny, 8, 128}},
                   {"lse", LATHE_F32, {8, kAny}},
                   {"delta", LATHE_F32, {8, kAny}},
                   {"dq", LATHE_F32, {kAny, 8, 64}},
                   {"dk", LATHE_F32, {kAny, 2, 64}},
                   {"dv", LATHE_F32, {kAny, 2, 128}}});
  if (positions) {
    builder.tensor({"q_pos", LATHE_I32, {kAny}}).tensor({"k_pos", LATHE_I32, {kAny}});
  } else {
    builder.tensor({"ranges", LATHE_I32, {kAny, 7}});
  }
  return std::move(
      builder.set("window_left", "9223372036854775807").set("deterministic", deterministic));
}

void fill(World* world, int64_t rows, int64_t keys, int64_t ranges) {
  world->fill("Tq Tk NP H HK D DV", {rows, keys, ranges, 8, 2, 64, 128});
}

// Returns the kernels that a run launches, and its workspace.
std::vector<std::string> run(World* world, size_t* workspace = nullptr) {
  REQUIRE_MESSAGE(world->run(workspace) == LATHE_OK, error());
  return world->kernels_launched();
}

using Names = std::vector<std::string>;

// Makes the plan, runs it and checks its kernels. Returns its workspace.
size_t check_run(World* world, const Builder& builder, int64_t keys, int64_t ranges,
                 const Names& kernels) {
  world->make(builder);
  fill(world, 300, keys, ranges);
  size_t bytes = 0;
  CHECK(run(world, &bytes) == kernels);
  return bytes;
}

TEST_CASE("ring: a step by ranges is one launch without workspace") {
  namespace tensors = lathe::attention_block;
  World world;
  world.make(step(false, "0"));
  fill(&world, 300, 500, 3);
  size_t bytes = 1;
  CHECK(run(&world, &bytes) == Names{"attention_block"});
  CHECK(bytes == 0);
  const auto p = recorder.launches[0].as<lathe::AttentionBlockParams>();
  const auto tiles = static_cast<unsigned>(p.forward.tiles);
  CHECK(recorder.launches[0].config.gridDimX == tiles * 8);
  CHECK(recorder.launches[0].config.hStream == kStream);
  CHECK(p.ranges == World::address(tensors::ranges));
  CHECK(p.range_count == 3);
  CHECK(p.first == 0);
  CHECK(p.forward.out == World::address(tensors::out));
  CHECK(p.forward.out_token_stride == 8 * 128);
  CHECK(p.forward.k_token_stride == 2 * 64);
  CHECK(p.forward.window_left == -1);
  CHECK(p.forward.window_right == 0);
  CHECK(p.forward.seq_q == 300);
  CHECK(p.forward.seq_k == 500);
  CHECK(p.forward.softmax_scale == 0.125f);
  fill(&world, 300, 0, 0);  // nothing to add
  CHECK(run(&world).empty());
  fill(&world, 0, 500, 3);
  CHECK(run(&world).empty());
}

TEST_CASE("ring: rows of a batch are one launch, and with a margin fewer blocks") {
  namespace tensors = lathe::attention_block;
  const auto batch = [](const char* margin) {
    Builder builder("flash_attention_block");
    builder.tensors({{"q", LATHE_BF16, {kAny, kAny, 8, 64}},
                     {"k", LATHE_BF16, {kAny, kAny, 2, 64}},
                     {"v", LATHE_BF16, {kAny, kAny, 2, 128}},
                     {"ranges", LATHE_I32, {kAny, 7}},
                     {"range_batch", LATHE_I32, {kAny}},
                     {"alibi_slopes", LATHE_F32, {kAny, 8}},
                     {"out", LATHE_F32, {kAny, kAny, 8, 128}},
                     {"lse", LATHE_F32, {kAny, 8, kAny}}});
    return std::move(builder.set("first", "1").set("sm_margin", margin));
  };
  for (const char* margin : {"0", "4"}) {
    World world;
    world.context.facts.multiprocessors = 10;
    world.make(batch(margin));
    world.fill("B Sq Sk NP H HK D DV", {3, 3000, 500, 2, 8, 2, 64, 128});
    CHECK(run(&world) == Names{"attention_block"});
    const auto p = recorder.launches[0].as<lathe::AttentionBlockParams>();
    CHECK(p.forward.sequences == 3);
    CHECK(p.forward.q_batch_stride == 3000 * 8 * 64);
    CHECK(p.forward.v_batch_stride == 500 * 2 * 128);
    CHECK(p.forward.alibi_batch_stride == 8);
    CHECK(p.range_batches == World::address(tensors::range_batch));
    const unsigned grid = recorder.launches[0].config.gridDimX;
    const auto tiles = static_cast<unsigned>(p.forward.tiles) * 3 * 8;
    if (*margin == '0') CHECK(grid == tiles);
    if (*margin == '4') CHECK((grid % 6 == 0 && grid < tiles));
  }
}

TEST_CASE("ring: the first step writes even where there is no key") {
  World world;
  check_run(&world, step(false, "1"), 0, 0, {"attention_block"});
  CHECK(recorder.launches[0].as<lathe::AttentionBlockParams>().first == 1);
}

TEST_CASE("ring: positions are summed up before the step, in the workspace") {
  namespace tensors = lathe::attention_block;
  World world;
  const size_t bytes =
      check_run(&world, step(true, "0"), 500, 0, {"attention_positions", "attention_block"});
  const auto ranges = recorder.launches[0].as<lathe::AttentionPositionsParams>();
  const auto p = recorder.launches[1].as<lathe::AttentionBlockParams>();
  CHECK(bytes == 256);  // of ceil(500 / run) blocks
  CHECK(ranges.positions == World::address(tensors::k_pos));
  CHECK(ranges.count == 500);
  CHECK(ranges.ranges == kWorkspace);
  CHECK(p.key_ranges == kWorkspace);
  CHECK(p.q_positions == World::address(tensors::q_pos));
}

TEST_CASE("ring: gradients of a step go where the caller has them") {
  namespace tensors = lathe::attention_block_bwd;
  World world;
  const size_t bytes = check_run(&world, gradients(false, "0"), 500, 2,
                                 {"attention_block_prepare", "attention_block_backward"});
  CHECK(bytes == 9728);  // lse in base 2, of 8 heads
  const auto first = recorder.launches[0].as<lathe::AttentionBlockPrepareParams>();
  const auto p = recorder.launches[1].as<lathe::AttentionBlockBackwardParams>();
  CHECK(first.lse == World::address(tensors::lse));
  CHECK(first.rows == 8 * 300);
  CHECK(first.chunks == 0);
  CHECK(p.backward.lse2 == first.lse2);
  check_addresses({{p.backward.delta, tensors::delta},
                   {p.backward.dq, tensors::dq},
                   {p.backward.dk, tensors::dk},
                   {p.backward.dv, tensors::dv}});
  CHECK(p.backward.window_left == -1);  // a window beyond all positions is none
  CHECK(recorder.launches[1].config.gridDimX == static_cast<unsigned>(p.backward.slices) * 2);
  fill(&world, 300, 0, 0);
  CHECK(run(&world).empty());
}

TEST_CASE("ring: deterministic, dq goes through slices of the workspace") {
  namespace tensors = lathe::attention_block_bwd;
  World world;
  world.context.facts.multiprocessors = 6;
  check_run(&world, gradients(true, "1"), 5000, 0,
            {"attention_block_prepare", "attention_positions", "attention_block_backward",
             "attention_block_finish"});
  const auto first = recorder.launches[0].as<lathe::AttentionBlockPrepareParams>();
  const auto ranges = recorder.launches[1].as<lathe::AttentionPositionsParams>();
  const auto p = recorder.launches[2].as<lathe::AttentionBlockBackwardParams>();
  const auto last = recorder.launches[3].as<lathe::AttentionBlockFinishParams>();
  CHECK(p.backward.slices == 3);  // 6 / 2 key heads
  CHECK(p.backward.dq == first.sums);
  CHECK(p.backward.dq_slice_stride == 300 * 8 * 64);
  CHECK(first.chunks == 3 * 300 * 8 * 64 / 4);
  CHECK(ranges.positions == World::address(tensors::q_pos));
  CHECK(ranges.ranges == p.row_ranges);
  CHECK(last.sums == first.sums);
  CHECK(last.dq == World::address(tensors::dq));
  CHECK(last.slices == 3);
  CHECK(last.token_stride == 8 * 64);
}

TEST_CASE("ring: merge, and what its backward begins with") {
  World world;
  Builder merge("lse_merge");
  merge.tensors({{"out", LATHE_F32, {kAny, 8, 128}},
                 {"lse", LATHE_F32, {8, kAny}},
                 {"sinks", LATHE_F32, {8}},
                 {"rounded", LATHE_BF16, {kAny, 8, 128}}});
  world.make(merge);
  fill(&world, 300, 0, 0);
  CHECK(run(&world) == Names{"lse_merge"});
  const auto p = recorder.launches[0].as<lathe::LseMergeParams>();
  CHECK(p.rows == 300 * 8);
  CHECK(p.tokens == 300);
  CHECK(p.block_out == nullptr);
  CHECK(p.rounded == World::address(lathe::lse_merge::rounded));

  World other;
  Builder delta("flash_attention_delta");
  delta.tensors({{"out", LATHE_BF16, {kAny, 8, 128}},
                 {"dout", LATHE_BF16, {kAny, 8, 128}},
                 {"lse", LATHE_F32, {8, kAny}},
                 {"sinks", LATHE_F32, {8}},
                 {"delta", LATHE_F32, {8, kAny}},
                 {"dsinks", LATHE_F32, {8}}});
  other.make(delta);
  fill(&other, 300, 0, 0);
  CHECK(run(&other) == Names{"attention_backward_prepare", "attention_backward_finish"});
  const auto rows = recorder.launches[0].as<lathe::AttentionBackwardPrepareParams>();
  CHECK(rows.delta == World::address(lathe::attention_delta::delta));
  CHECK(rows.dq_words == 0);
  fill(&other, 0, 0, 0);  // the sum over no row is 0
  CHECK(run(&other) == Names{"attention_backward_finish"});
}

}  // namespace
