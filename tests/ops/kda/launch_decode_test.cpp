// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs of kda_decode, and of kda over a pool, over a driver table that only writes down: parameters
// and grids are right, and the runs allocate nothing.
#include <doctest/doctest.h>

#include "templates/params/kda_chunked.h"
#include "templates/params/kda_decode.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;

TEST_CASE("kda_decode: parameters are those of the tensors, and nothing is allocated") {
  Builder builder("kda_decode");
  builder.tensors({{"qkv", LATHE_BF16, {-1, -1, 384}},
                   {"conv_weight", LATHE_F32, {384, 4}},
                   {"conv_pool", LATHE_BF16, {-1, 384, 3}},
                   {"g", LATHE_F32, {-1, -1, 4, 64}},
                   {"beta", LATHE_BF16, {-1, -1, 4}},
                   {"dt_bias", LATHE_F32, {256}},
                   {"state_pool", LATHE_F32, {-1, 4, 32, 64}},
                   {"state_indices", LATHE_I32, {-1}},
                   {"source_indices", LATHE_I32, {-1}},
                   {"output_gate", LATHE_F16, {-1, -1, 4, 32}},
                   {"norm_weight", LATHE_F32, {32}},
                   {"o", LATHE_BF16, {-1, -1, 4, 32}}});
  builder.set("use_gate_in_kernel", "1").set("lower_bound", "-3").set("state_v_first", "1");
  builder.set("null_slot", "2").set("norm_eps", "0.5");
  World world;
  world.make(builder);
  world.fill("B T D W LS HV K V HV*K S", {3, 5, 384, 4, 3, 4, 64, 32, 256, 20});
  const auto place = [&](const char* name, std::vector<int64_t> strides) {
    size_t slot = 0;
    REQUIRE(lathe_plan_slot(world.plan.get(), name, &slot) == LATHE_OK);
    world.arrays[slot].strides = std::move(strides);
    world.slots[slot] = world.arrays[slot].get();
  };
  place("qkv", {5 * 400, 400, 1});
  place("conv_pool", {4000, 8, 1});
  place("state_pool", {9000, 2048, 64, 1});
  const long before = allocations();
  const lathe_status status =
      lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream);
  const long after = allocations();
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  CHECK(after == before);
  REQUIRE(recorder.count == 1);
  const auto launch = world.launches_of("kda_decode").at(0);
  const auto p = launch.as<lathe::KdaDecodeParams>();
  CHECK(launch.config.gridDimX == 3 * 2);
  CHECK(p.qkv_batch_stride == 2000);
  CHECK(p.qkv_token_stride == 400);
  CHECK(p.conv_slot_stride == 4000);
  CHECK(p.conv_channel_stride == 8);
  CHECK(p.conv_column_stride == 1);
  CHECK(p.output_gate_batch_stride == 5 * 128);
  CHECK(p.output_gate_token_stride == 128);
  CHECK(p.output_gate_head_stride == 32);
  CHECK(p.norm_eps == 0.5f);
  CHECK(p.conv_bias == nullptr);
  const lathe::KdaRecurrentParams& state = p.state;
  CHECK(state.q == nullptr);
  CHECK(state.A_log == nullptr);
  CHECK(state.ring_k == nullptr);
  CHECK(state.has_initial_state == nullptr);
  CHECK(state.state_in == state.state_out);
  CHECK(state.out_slot_stride == 9000);
  CHECK(state.in_head_stride == 2048);
  CHECK(state.g_token_stride == 256);
  CHECK(state.beta_batch_stride == 20);
  CHECK(state.beta_token_stride == 4);
  CHECK(state.o_head_stride == 32);
  CHECK(state.heads == 2);
  CHECK(state.value_heads == 4);
  CHECK(state.tokens == 5);
  CHECK(state.slots == 20);
  CHECK(state.null_slot == 2);
  CHECK(state.lower_bound == -3);
  CHECK(state.scale == 0.125f);
}

TEST_CASE("kda: a pool's parameters, in segments, and nothing is allocated") {
  Builder builder("kda");
  builder.tensors({{"q", LATHE_BF16, {-1, -1, 2, 64}},
                   {"k", LATHE_BF16, {-1, -1, 2, 64}},
                   {"v", LATHE_BF16, {-1, -1, 4, 32}},
                   {"g", LATHE_F32, {-1, -1, 4, 64}},
                   {"beta", LATHE_BF16, {-1, -1, 4}},
                   {"cu_seqlens", LATHE_I32, {-1}},
                   {"state_pool", LATHE_F16, {-1, 4, 64, 32}},
                   {"state_indices", LATHE_I64, {-1}},
                   {"has_initial_state", LATHE_I32, {-1}},
                   {"cu_checkpoints", LATHE_I32, {-1}},
                   {"checkpoint_tokens", LATHE_I32, {-1}},
                   {"checkpoint_slots", LATHE_I32, {-1}},
                   {"o", LATHE_BF16, {-1, -1, 4, 32}}});
  builder.set("segments", "3").set("null_slot", "0");
  World world;
  world.make(builder);
  world.fill("B T N H HV K V S C", {1, 400, 2, 2, 4, 64, 32, 9, 5});
  REQUIRE_MESSAGE(world.run() == LATHE_OK, error());
  CHECK(world.kernels_launched() ==
        std::vector<std::string>{"kda_summary", "kda_merge", "kda_forward"});
  const auto summary = world.launches_of("kda_summary").at(0).as<lathe::KdaSummaryParams>().pool;
  const auto pool = world.launches_of("kda_forward").at(0).as<lathe::KdaForwardParams>().pool;
  CHECK(pool.states != nullptr);
  CHECK(pool.states == summary.states);
  CHECK(pool.before == summary.before);
  CHECK(pool.source_indices == nullptr);
  CHECK(pool.has_initial_state != nullptr);
  CHECK(pool.cu_checkpoints != nullptr);
  CHECK(pool.checkpoint_tokens != nullptr);
  CHECK(pool.checkpoint_slots != nullptr);
  CHECK(pool.slot_stride == 4 * 64 * 32);
  CHECK(pool.head_stride == 64 * 32);
  CHECK(pool.row_stride == 32);
  CHECK(pool.slots == 9);
  CHECK(pool.null_slot == 0);
  CHECK(pool.checkpoints == 5);
}

}  // namespace
