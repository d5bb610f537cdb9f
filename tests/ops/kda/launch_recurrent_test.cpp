// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of kda_recurrent over a driver table that only writes down: parameters and the grid are
// right, and the run allocates nothing.
#include <doctest/doctest.h>

#include "ops/kda/schema.h"
#include "templates/params/kda.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;
namespace of = lathe::kda_recurrent;

Builder step() {
  Builder builder("kda_recurrent");
  builder.tensors({{"q", LATHE_BF16, {-1, -1, 2, 64}},
                   {"k", LATHE_BF16, {-1, -1, 2, 64}},
                   {"v", LATHE_BF16, {-1, -1, 4, 32}},
                   {"g", LATHE_F32, {-1, -1, 4, 64}},
                   {"beta", LATHE_BF16, {-1, -1, 4}},
                   {"dt_bias", LATHE_F32, {256}},
                   {"state_pool", LATHE_F32, {-1, 4, 32, 64}},
                   {"state_indices", LATHE_I32, {-1, -1}},
                   {"num_accepted_tokens", LATHE_I32, {-1}},
                   {"o", LATHE_BF16, {-1, -1, 4, 32}}});
  builder.set("use_gate_in_kernel", "1").set("lower_bound", "-3").set("state_v_first", "1");
  builder.set("use_beta_sigmoid_in_kernel", "1").set("allow_neg_eigval", "1");
  return builder;
}

TEST_CASE("kda_recurrent: parameters are those of the tensors, and nothing is allocated") {
  World world;
  world.make(step());
  world.fill("B T N H HV K V HV*K S spec", {3, 5, 3, 2, 4, 64, 32, 256, 20, 6});
  world.arrays[of::q].strides = {5 * 136, 136, 64, 1};
  world.slots[of::q] = world.arrays[of::q].get();
  size_t slot = 0;
  REQUIRE(lathe_plan_slot(world.plan.get(), "state_pool", &slot) == LATHE_OK);
  world.arrays[slot].strides = {9000, 2048, 64, 1};
  world.slots[slot] = world.arrays[slot].get();
  size_t bytes = 1;
  REQUIRE(lathe_plan_workspace(world.plan.get(), world.slots.data(), nullptr, &bytes) == LATHE_OK);
  CHECK(bytes == 0);
  const long before = allocations();
  const lathe_status status =
      lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream);
  const long after = allocations();
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  CHECK(after == before);
  REQUIRE(recorder.count == 1);

  const auto launch = world.launches_of("kda_recurrent").at(0);
  const auto p = launch.as<lathe::KdaRecurrentParams>();
  CHECK(launch.config.hStream == kStream);
  CHECK(launch.config.gridDimX == 3 * 4 * 1);
  check_addresses({{p.q, of::q}, {p.k, of::k}, {p.v, of::v}, {p.g, of::g}, {p.beta, of::beta}});
  CHECK(p.A_log == nullptr);
  CHECK(p.dt_bias == World::address(of::dt_bias));
  CHECK(p.cu_seqlens == nullptr);
  check_addresses({{p.state_in, of::state_pool},
                   {p.state_out, of::state_pool},
                   {p.state_indices, of::state_indices},
                   {p.num_accepted_tokens, of::num_accepted_tokens},
                   {p.o, of::o}});
  CHECK(p.q_batch_stride == 5 * 136);
  CHECK(p.q_token_stride == 136);
  CHECK(p.q_head_stride == 64);
  CHECK(p.k_token_stride == 128);
  CHECK(p.v_token_stride == 128);
  CHECK(p.g_batch_stride == 5 * 256);
  CHECK(p.beta_batch_stride == 20);
  CHECK(p.beta_token_stride == 4);
  CHECK(p.o_head_stride == 32);
  CHECK(p.in_slot_stride == 9000);
  CHECK(p.out_slot_stride == 9000);
  CHECK(p.in_head_stride == 2048);
  CHECK(p.out_row_stride == 64);
  CHECK(p.sequences == 3);
  CHECK(p.heads == 2);
  CHECK(p.value_heads == 4);
  CHECK(p.tokens == 5);
  CHECK(p.slots == 20);
  CHECK(p.columns == 6);
  CHECK(p.scale == 0.125f);
  CHECK(p.lower_bound == -3);
  CHECK(p.beta_factor == 2);
}

}  // namespace
