// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of causal_conv1d on one rank of several, over driver and NCCL tables that only write down:
// tiles, the order of halo and boundary, messages and the workspace for them.
#include <doctest/doctest.h>

#include <algorithm>

#include "collective/plans/conv_halo.h"
#include "ops/conv/kernels.h"
#include "ops/conv/schema.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::contains;
using test::error;

// Every token tile of a rank in one launch, every state tile once, and what needs the halo last.
template <typename Params>
void check_cover(const std::vector<Launch>& launches, int all_tiles, int all_state_tiles,
                 const void* halo) {
  std::vector<int> seen(static_cast<size_t>(all_tiles), 0);
  int state_tiles = 0;
  for (const Launch& launch : launches) {
    const Params p = launch.as<Params>();
    for (int tile = p.first_tile; tile < p.first_tile + p.tiles; ++tile) {
      ++seen.at(static_cast<size_t>(tile));
    }
    if (p.state_tiles > 0) CHECK(p.first_tile == 0);
    state_tiles += p.state_tiles;
    CHECK(p.halo == halo);
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  CHECK(state_tiles == all_state_tiles);
}

// Rank `rank` of a cut, its plan and one run of it.
struct RankRun {
  World world;
  fakes::Rank fake;
  test::Shard shard;
  size_t bytes = 0;  // of the workspace
  uint64_t estimated = 0;
  lathe::HaloPlan halo;

  RankRun(Builder builder, int rank, const std::vector<int64_t>& bounds) {
    shard = world.make_rank(builder, &fake, rank, bounds);
    halo = lathe::halo_plan(shard->layout.partition, rank, 4);
    const size_t r = static_cast<size_t>(rank);
    world.fill(2, bounds[r + 1] - bounds[r], 2, 64, 4);
    estimated = run_rank(world, fake, shard.get(), &bytes);
  }
  bool peers() const { return !halo.sources.empty() || !halo.destinations.empty(); }
};

void check_rank(int rank, const std::vector<int64_t>& bounds) {
  CAPTURE(rank);
  const RankRun run(both_ways(), rank, bounds);
  const World& world = run.world;
  const lathe::HaloPlan& halo = run.halo;
  const int64_t begin = halo.part.begin, end = halo.part.end;
  const auto pack = world.launches_of("causal_conv1d_halo_pack");
  const auto join = world.launches_of("causal_conv1d_halo_join");
  const auto add = world.launches_of("causal_conv1d_halo_add");
  CHECK(pack.size() == (halo.destinations.empty() ? 0u : 1u));
  CHECK(join.size() == (halo.sources.empty() || halo.aligned ? 0u : 1u));
  CHECK(add.size() == (halo.destinations.empty() ? 0u : 1u));
  // The rows once for both directions, then the gradients.
  CHECK(run.fake.groups == (run.peers() ? 2 : 0));

  lathe::ConvShape shape{2, end - begin, 64, 2};
  shape.multiprocessors = world.context.facts.multiprocessors;
  const auto& specs = world.plan->executor->specs();
  const lathe::ConvTiling tiling = lathe::conv_tiling(specs[0], shape);
  const lathe::ConvTiling back = lathe::conv_tiling(specs[1], shape);
  const void* rows = nullptr;
  const auto forward = world.launches_of("causal_conv1d");
  const auto backward = world.launches_of("causal_conv1d_bwd");
  if (!join.empty()) {
    rows = join[0].as<lathe::ConvHaloJoinParams>().halo;
  } else if (!halo.sources.empty()) {
    rows = forward.at(0).as<lathe::ConvForwardParams>().halo;
    CHECK(rows >= kWorkspace);
  }
  check_cover<lathe::ConvForwardParams>(forward, tiling.tiles, tiling.state_tiles, rows);
  check_cover<lathe::ConvBackwardParams>(backward, back.tiles, back.state_tiles, rows);
  for (const Launch& launch : backward) {
    const auto p = launch.as<lathe::ConvBackwardParams>();
    CHECK(p.begin == begin);
    CHECK(p.end == end);
    CHECK(p.length == bounds.back());
    CHECK(p.all_tiles == back.tiles);
  }

  const auto sums = world.launches_of("causal_conv1d_weight_grad");
  const auto reduced = sums.at(0).as<lathe::ConvWeightGradParams>();
  CHECK(reduced.dbias == static_cast<float*>(reduced.dweight) + 4 * 64);
  CHECK(run.fake.reductions == 1);
  if (back.tiles >= 2) CHECK(run.estimated == recorder.count);
}

TEST_CASE("ranks: each tile once, the boundary with the halo, gradients added and reduced") {
  const std::vector<int64_t> cuts[] = {{0, 1000, 2100, 3000},  // one message from the neighbour
                                       {0, 600, 601, 1400},    // from two ranks
                                       {0, 5, 5, 900}};        // over an empty part
  for (const auto& bounds : cuts) {
    for (int rank = 0; rank < 3; ++rank) check_rank(rank, bounds);
  }
}

// A part of the workspace that a launch names.
struct Section {
  const char* name;
  const void* begin;
  size_t bytes;
};

void check_apart(std::vector<Section> sections, size_t bytes) {
  std::sort(sections.begin(), sections.end(),
            [](const Section& a, const Section& b) { return a.begin < b.begin; });
  const char* free = kWorkspace;
  for (const Section& section : sections) {
    CAPTURE(section.name);
    CHECK(static_cast<const char*>(section.begin) >= free);
    free = static_cast<const char*>(section.begin) + section.bytes;
    CHECK(free <= kWorkspace + bytes);
  }
}

// `gradient` alone, without dx: the gradient of the halo travels all the same.
void check_room(const test::Declaration& gradient, int rank) {
  CAPTURE(gradient.name);
  CAPTURE(rank);
  Builder builder("causal_conv1d");
  builder.tensors({{"x", LATHE_BF16, {-1, -1, 64}},
                   {"weight", LATHE_BF16, {64, 4}},
                   {"initial_state", LATHE_BF16, {-1, 64, 4}},
                   {"dy", LATHE_BF16, {-1, -1, 64}},
                   gradient});
  const RankRun run(std::move(builder), rank, {0, 1000, 2100, 3000});
  const World& world = run.world;
  const size_t row = size_t{2} * 64, message = 3 * row * 2, gradients = 3 * row * 4;
  std::vector<Section> sections;
  for (const Launch& launch : world.launches_of("causal_conv1d_halo_pack")) {
    const auto p = launch.as<lathe::ConvHaloPackParams>();
    sections.push_back({"rows", p.rows, message});
  }
  const auto backward = world.launches_of("causal_conv1d_bwd");
  REQUIRE(!backward.empty());
  const auto p = backward[0].as<lathe::ConvBackwardParams>();
  if (p.halo) sections.push_back({"halo", p.halo, message});
  if (p.partials) {
    sections.push_back({"partials", p.partials, static_cast<size_t>(p.all_tiles) * 2 * 5 * 64 * 4});
  }
  sections.push_back({"dhalo", p.dhalo, gradients});
  for (const Launch& launch : world.launches_of("causal_conv1d_halo_add")) {
    const auto q = launch.as<lathe::ConvHaloAddParams>();
    sections.push_back({"dreceived", q.messages, gradients});
  }
  check_apart(std::move(sections), run.bytes);
  CHECK(run.fake.groups == 2);
  CHECK(run.estimated == recorder.count);
}

TEST_CASE("ranks: the workspace has room for the halo's gradient, also without dx") {
  for (int rank = 0; rank < 3; ++rank) {
    check_room({"dweight", LATHE_BF16, {64, 4}}, rank);
    check_room({"dinitial_state", LATHE_BF16, {-1, 64, 4}}, rank);
  }
}

TEST_CASE("plans with and without a group keep to their own runs") {
  World world;
  fakes::Rank fake;
  world.join(&fake, 2, 1);
  Builder builder = both_ways();
  REQUIRE(lathe_problem_group(builder.problem.get(), world.group.get(), 0) == LATHE_OK);
  world.make(builder);
  world.fill(1, 10, 1, 64, 4);
  CHECK(lathe_plan_run(world.plan.get(), world.slots.data(), kWorkspace, 1 << 20, kStream) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "lathe_plan_run_sharded"));
  const auto sharded = [&](int ranks, int rank, int64_t length) {
    lathe_shard* made = nullptr;
    REQUIRE(lathe_shard_create(&made, ranks, rank, length, nullptr) == LATHE_OK);
    const test::Shard shard(made);
    return lathe_plan_run_sharded(world.plan.get(), shard.get(), world.slots.data(), kWorkspace,
                                  1 << 20, kStream);
  };
  CHECK(sharded(2, 0, 20) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "rank 0 of 2"));
  CHECK(sharded(3, 1, 30) == LATHE_INVALID_ARGUMENT);
  CHECK(sharded(2, 1, 22) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "T is 10"));
  CHECK(contains(error(), "11 tokens"));
  CHECK(recorder.count == 0);

  World alone;
  alone.make(both_ways());
  alone.fill(1, 10, 1, 64, 4);
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create(&made, 1, 0, 10, nullptr) == LATHE_OK);
  const test::Shard shard(made);
  CHECK(lathe_plan_run_sharded(alone.plan.get(), shard.get(), alone.slots.data(), kWorkspace,
                               1 << 20, kStream) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "no group"));
}

}  // namespace
