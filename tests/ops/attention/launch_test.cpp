// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what flash_attention launches, over a driver table that only writes down: which
// of its kernels, with which parameters and workspace, and that a run allocates nothing.
#include <doctest/doctest.h>

#include "ops/attention/schema.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"
#include "tests/harness/launch_world.h"
#include "tests/ops/attention/problems.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;
namespace attention = lathe::attention;

constexpr int kMultiprocessors = 108;  // as far as choices go

// 8 query heads of 2 key heads, D = 64, DV = 128. One plan for all: its kernels compile once.
World& training() {
  static World world;
  if (!world.plan) {
    Builder builder("flash_attention");
    builder.tensors(test::kBackward).set("causal", "1").set("window_left", "1000");
    world.context.facts.multiprocessors = kMultiprocessors;
    world.make(builder);
  }
  return world;
}

void fill(World* world, int64_t batch, int64_t queries, int64_t keys) {
  world->fill("B Sq Sk H HK D DV", {batch, queries, keys, 8, 2, 64, 128});
}

size_t run(World* world) {
  size_t bytes = 0;
  REQUIRE_MESSAGE(world->run(&bytes) == LATHE_OK, error());
  return bytes;
}

int64_t offset(const void* address) { return static_cast<const char*>(address) - kWorkspace; }

TEST_CASE("attention: a training step is four launches over one workspace") {
  World& world = training();
  fill(&world, 2, 16, 32);
  world.arrays[attention::q].strides = {16 * 1024, 1024, 64, 1};
  world.slots[attention::q] = world.arrays[attention::q].get();
  const size_t bytes = run(&world);
  CHECK(bytes == 2 * 1024 + 65536 + 131072 + 262144);
  REQUIRE(recorder.count == 4);

  const auto forward = recorder.launches[0].as<lathe::AttentionForwardParams>();
  CHECK(recorder.launches[0].config.gridDimX == 1 * 2 * 2);  // 64 rows of a key head are one tile
  CHECK(forward.out == World::address(attention::out));
  CHECK(forward.window_left == -1);  // a window over all keys is none
  CHECK(forward.window_right == 0);

  const auto prepare = recorder.launches[1].as<lathe::AttentionBackwardPrepareParams>();
  CHECK(recorder.launches[1].config.gridDimX == 8);
  check_addresses({{prepare.out, attention::out},
                   {prepare.dout, attention::dout},
                   {prepare.lse, attention::lse}});
  CHECK(prepare.dlse == nullptr);
  CHECK(prepare.rows == 32);
  CHECK(prepare.dq_words == 32 * 8 * 64 / 4);

  const auto main = recorder.launches[2].as<lathe::AttentionBackwardParams>();
  CHECK(recorder.launches[2].config.gridDimX == 1 * 8 * 2);  // query heads apart
  CHECK(recorder.launches[2].config.hStream == kStream);
  CHECK(main.q == World::address(attention::q));
  CHECK(main.q_batch_stride == 16 * 1024);
  CHECK(main.q_token_stride == 1024);
  CHECK(main.lse2 == prepare.lse2);
  CHECK(main.delta == prepare.delta);
  CHECK(main.dq == prepare.dq);
  CHECK(main.dq_token_stride == 8 * 64);
  CHECK(main.dq_batch_stride == 16 * 8 * 64);
  CHECK(main.dk_token_stride == 8 * 64);  // of all query heads
  CHECK(main.dv_token_stride == 8 * 128);
  CHECK(main.slices == 1);
  CHECK(main.softmax_scale == 0.125f);

  const auto finish = recorder.launches[3].as<lathe::AttentionBackwardFinishParams>();
  CHECK(finish.dq_sums == main.dq);
  CHECK(finish.dk_parts == main.dk);
  CHECK(finish.dv_parts == main.dv);
  check_addresses(
      {{finish.dq, attention::dq}, {finish.dk, attention::dk}, {finish.dv, attention::dv}});
  CHECK(finish.dk_token_stride == 2 * 64);
  CHECK(finish.rows == 32);
  CHECK(finish.keys == 64);
  CHECK(finish.dsinks_blocks == 0);

  CHECK(offset(main.lse2) == 0);
  CHECK(offset(main.delta) == 1024);
  CHECK(offset(main.dq) == 2048);
  CHECK(offset(main.dk) == 2048 + 65536);
  CHECK(offset(main.dv) == 2048 + 65536 + 131072);
}

TEST_CASE("attention: one forward for all lengths, which choose among the backward's kernels") {
  World& world = training();
  fill(&world, 2, 16, 32);
  run(&world);
  const int packed = recorder.launches[0].kernel, apart = recorder.launches[2].kernel;
  // 128 rows fill a tile; 2 * 2 * 27 blocks of keys would fill the device.
  fill(&world, 2, 128, 3400);
  run(&world);
  CHECK(recorder.launches[0].kernel == packed);
  CHECK(recorder.launches[0].config.gridDimX == 8 * 2);
  CHECK(recorder.launches[2].kernel != apart);
  CHECK(recorder.launches[2].config.gridDimX == 27 * 2 * 2);
  const auto main = recorder.launches[2].as<lathe::AttentionBackwardParams>();
  CHECK(main.dk == World::address(attention::dk));
  CHECK(main.dk_token_stride == 2 * 64);
  CHECK(main.window_left == 1000);
  const auto finish = recorder.launches[3].as<lathe::AttentionBackwardFinishParams>();
  CHECK(finish.dk_blocks == 0);
  CHECK(finish.dv_blocks == 0);
  CHECK(recorder.launches[3].config.gridDimX == static_cast<unsigned>(finish.dq_blocks));
}

TEST_CASE("attention: deterministic, a block for each accumulator of dq; and dq alone") {
  World world;
  world.context.facts.multiprocessors = kMultiprocessors;
  Builder builder("flash_attention");
  builder.tensors({{"q", LATHE_BF16, {-1, -1, 8, 64}},
                   {"k", LATHE_BF16, {-1, -1, 8, 64}},
                   {"v", LATHE_BF16, {-1, -1, 8, 64}},
                   {"out", LATHE_BF16, {-1, -1, 8, 64}},
                   {"lse", LATHE_F32, {-1, 8, -1}},
                   {"dout", LATHE_BF16, {-1, -1, 8, 64}},
                   {"dq", LATHE_BF16, {-1, -1, 8, 64}}});
  world.make(builder.set("deterministic", "1").set("saved_forward", "1"));
  world.fill("B Sq Sk H HK D DV", {2, 64, 4096, 8, 8, 64, 64});
  CHECK(run(&world) == 2 * 4096 + 7 * 262144);
  REQUIRE(recorder.count == 3);
  const auto prepare = recorder.launches[0].as<lathe::AttentionBackwardPrepareParams>();
  const auto main = recorder.launches[1].as<lathe::AttentionBackwardParams>();
  const auto finish = recorder.launches[2].as<lathe::AttentionBackwardFinishParams>();
  CHECK(recorder.launches[1].config.gridDimX == 7 * 8 * 2);
  CHECK(main.slices == 7);  // 108 / 16
  CHECK(prepare.dq_words == 7 * 2 * 64 * 8 * 64 / 4);
  CHECK(finish.slices == 7);
  CHECK(main.dq_slice_stride == 2 * 64 * 8 * 64);
  CHECK(main.dk == nullptr);
  CHECK(main.dv == nullptr);
  CHECK(prepare.out == World::address(attention::out));
}

TEST_CASE("attention: without rows or keys what has elements is written, the rest left alone") {
  World& world = training();
  using Names = std::vector<std::string>;
  const auto launched = [&](int64_t batch, int64_t queries, int64_t keys) {
    fill(&world, batch, queries, keys);
    run(&world);
    Names names;
    for (size_t i = 0; i < recorder.count; ++i) {
      const int kernel = recorder.launches[i].kernel;
      names.push_back(world.plan->kernels[static_cast<size_t>(kernel)].built->spec().kernel);
    }
    return names;
  };
  CHECK(launched(0, 16, 32).empty());
  CHECK(launched(2, 0, 0).empty());
  // dk and dv are 0; dq is.
  CHECK(launched(2, 0, 32) == Names{"attention_backward", "attention_backward_finish"});
  CHECK(launched(2, 16, 0) ==
        Names{"attention_forward", "attention_backward_prepare", "attention_backward_finish"});
}

TEST_CASE("attention: a mask_mod has each walk preceded by its lists, behind the rest") {
  World world;
  world.context.facts.multiprocessors = kMultiprocessors;
  Builder builder("flash_attention");
  builder.tensors(test::kBackward).set("causal", "1");
  const std::string mask = "__device__ bool mask_mod(int, int, int q, int k) { return q != k; }";
  builder.tensor({"capture_1", LATHE_I32, {-1}}).set("scalar_2", "0.5");
  REQUIRE(lathe_problem_set_text(builder.problem.get(), "mask_mod", mask.data(), mask.size()) ==
          LATHE_OK);
  world.make(builder);
  world.fill("B Sq Sk H HK D DV C1", {2, 16, 300, 8, 2, 64, 128, 5});
  const size_t bytes = run(&world);
  REQUIRE(recorder.count == 6);
  const auto kernel = [&](size_t i) {
    const int index = recorder.launches[i].kernel;
    return world.plan->kernels[static_cast<size_t>(index)].built->spec();
  };
  CHECK(kernel(0).kernel == "attention_mask_blocks");
  CHECK(kernel(1).kernel == "attention_forward");
  CHECK(kernel(3).kernel == "attention_mask_queries");
  CHECK(kernel(4).kernel == "attention_backward");
  const auto forward = recorder.launches[1].as<lathe::AttentionForwardParams>();
  CHECK(recorder.launches[0].params == recorder.launches[1].params);
  CHECK(recorder.launches[0].config.gridDimX == recorder.launches[1].config.gridDimX);
  CHECK(forward.capture[0] == nullptr);
  CHECK(forward.capture[1] == World::address(attention::capture_0 + 1));
  CHECK(forward.capture_count[1] == 5);
  CHECK(forward.scalar[2] == 0.5f);
  CHECK(forward.visits_stride == (300 + kernel(1).constant("n") - 1) / kernel(1).constant("n"));
  const auto backward = recorder.launches[4].as<lathe::AttentionBackwardParams>();
  CHECK(recorder.launches[3].params == recorder.launches[4].params);
  CHECK(backward.key_tiles == (300 + kernel(4).constant("n") - 1) / kernel(4).constant("n"));
  CHECK(recorder.launches[3].config.gridDimX == static_cast<unsigned>(backward.key_tiles * 8 * 2));
  CHECK(backward.capture[1] == forward.capture[1]);
  // One after another, each with room for all of its entries.
  const auto finish = recorder.launches[5].as<lathe::AttentionBackwardFinishParams>();
  CHECK(offset(forward.visits) >= offset(finish.dv_parts) + 2 * 300 * 8 * 128 * 4);
  const int64_t lists = recorder.launches[1].config.gridDimX;
  CHECK(offset(forward.visit_counts) >= offset(forward.visits) + lists * forward.visits_stride * 4);
  CHECK(offset(backward.visits) >= offset(forward.visit_counts) + lists * 4);
  CHECK(offset(backward.visit_counts) >=
        offset(backward.visits) + backward.key_tiles * 16 * backward.visits_stride * 4);
  CHECK(static_cast<int64_t>(bytes) >= offset(backward.visit_counts) + backward.key_tiles * 16 * 4);
}

}  // namespace
