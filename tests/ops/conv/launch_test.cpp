// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of causal_conv1d on one rank, over a driver table that only writes down: parameters and
// tiles are right, and the run allocates nothing.
#include <doctest/doctest.h>

#include "ops/conv/schema.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::contains;
using test::error;

TEST_CASE("one rank: parameters are those of the tensors, and nothing is allocated") {
  World world;
  world.make(both_ways());
  world.fill(2, 700, 2, 64, 4);
  world.arrays[0].strides = {700 * 64 + 640, 64, 1};
  world.slots[0] = world.arrays[0].get();
  size_t bytes = 0;
  REQUIRE_MESSAGE(
      lathe_plan_workspace(world.plan.get(), world.slots.data(), nullptr, &bytes) == LATHE_OK,
      error());
  const long before = allocations();
  const lathe_status status =
      lathe_plan_run(world.plan.get(), world.slots.data(), kWorkspace, bytes, kStream);
  const long after = allocations();
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  CHECK(after == before);
  REQUIRE(recorder.count == 3);

  namespace conv = lathe::conv;
  const auto forward = world.launches_of("causal_conv1d").at(0);
  const auto p = forward.as<lathe::ConvForwardParams>();
  CHECK(forward.config.hStream == kStream);
  check_addresses({{p.x, conv::x}, {p.weight, conv::weight}, {p.bias, conv::bias}});
  CHECK(p.residual == nullptr);
  check_addresses(
      {{p.initial_state, conv::initial_state}, {p.y, conv::y}, {p.final_state, conv::final_state}});
  CHECK(p.x_batch_stride == 700 * 64 + 640);
  CHECK(p.y_batch_stride == 700 * 64);
  CHECK(p.x_token_stride == 64);
  CHECK(p.batch == 2);
  CHECK(p.channels == 64);
  CHECK(p.sequences == 2);
  CHECK(p.length == 700);
  CHECK(p.begin == 0);
  CHECK(p.end == 700);
  CHECK(p.first_tile == 0);
  CHECK(p.tiles >= 2);
  CHECK(p.state_tiles >= 1);

  const auto q = world.launches_of("causal_conv1d_bwd").at(0).as<lathe::ConvBackwardParams>();
  check_addresses({{q.dy, conv::dy}, {q.dx, conv::dx}, {q.dinitial_state, conv::dinitial_state}});
  CHECK(q.dfinal_state == nullptr);
  CHECK(q.all_tiles == q.tiles);
  CHECK(static_cast<char*>(q.partials) >= kWorkspace);
  CHECK(static_cast<char*>(q.partials) + int64_t{2} * q.tiles * 5 * 64 * 4 <= kWorkspace + bytes);

  const auto w =
      world.launches_of("causal_conv1d_weight_grad").at(0).as<lathe::ConvWeightGradParams>();
  CHECK(w.partials == q.partials);
  CHECK(w.tiles == 2 * q.all_tiles);
  check_addresses({{w.dweight, conv::dweight}, {w.dbias, conv::dbias}});
}

TEST_CASE("what is found in the cache is in the device before the next is looked for") {
  World world;
  world.make(both_ways());
  const size_t kernels = world.plan->kernels.size();
  REQUIRE(kernels == 3);
  world.plan.reset();
  auto fresh = std::make_unique<lathe::Registry>(world.context.store, world.context.device,
                                                 world.context.facts.arch);
  std::vector<uint64_t> found;
  recorder.loading = [&] { found.push_back(world.context.registry->stat().hits); };
  world.context.registry = std::move(fresh);
  world.make(both_ways());
  recorder.loading = nullptr;
  CHECK(found == std::vector<uint64_t>{1, 2, 3});
  CHECK(world.context.registry->stat().compiled == 0);
  for (const lathe::PlanKernel& kernel : world.plan->kernels) {
    CHECK(kernel.built->entry->cubin.empty());
  }
}

TEST_CASE("no tokens: states and weight gradients are still written") {
  World world;
  world.make(both_ways());
  world.fill(2, 0, 2, 64, 4);
  REQUIRE_MESSAGE(
      lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream) == LATHE_OK,
      error());
  REQUIRE(recorder.count == 3);
  CHECK(world.launches_of("causal_conv1d").at(0).as<lathe::ConvForwardParams>().tiles == 0);
  CHECK(world.launches_of("causal_conv1d_bwd").at(0).as<lathe::ConvBackwardParams>().state_tiles >
        0);
  CHECK(world.launches_of("causal_conv1d_weight_grad")
            .at(0)
            .as<lathe::ConvWeightGradParams>()
            .tiles == 0);

  recorder.count = 0;
  world.fill(0, 5, 0, 64, 4);
  REQUIRE(lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream) == LATHE_OK);
  CHECK(recorder.count == 1);  // the weight gradient is zero, and that is written
}

TEST_CASE("a workspace that is missing, small or misaligned is refused") {
  World world;
  world.make(both_ways());
  world.fill(2, 700, 2, 64, 4);
  size_t bytes = 0;
  REQUIRE(lathe_plan_workspace(world.plan.get(), world.slots.data(), nullptr, &bytes) == LATHE_OK);
  check_workspace_needed(world.plan.get(), nullptr, world.slots, bytes);
  CHECK(recorder.count == 0);
}

TEST_CASE("the update rolls its state in place") {
  World world;
  Builder builder("causal_conv1d_update");
  builder.tensors({{"x", LATHE_F16, {-1, 96}},
                   {"weight", LATHE_F16, {96, 3}},
                   {"state", LATHE_F16, {-1, 96, 3}},
                   {"y", LATHE_F16, {-1, 96}}});
  world.make(builder);
  world.fill("B S D W LS", {7, 7, 96, 3, 3});
  const long before = allocations();
  const lathe_status status =
      lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream);
  CHECK(allocations() == before);
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  REQUIRE(recorder.count == 1);
  const auto p = recorder.launches[0].as<lathe::ConvUpdateParams>();
  check_addresses({{p.state, lathe::conv_update::state}, {p.y, lathe::conv_update::y}});
  CHECK(p.x_stride == 96);
  CHECK(p.state_stride == 96 * 3);
  CHECK(p.batch == 7);
  CHECK(p.channels == 96);
}

}  // namespace
