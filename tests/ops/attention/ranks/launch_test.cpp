// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what a run of flash_attention on one rank of several launches and posts, over
// driver and NCCL tables that only write down: the order of hops and launches, no allocation, room
// for all.
#include <doctest/doctest.h>

#include "ops/attention/schema.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::contains;
using test::error;

constexpr int kWorld = 3;
constexpr int64_t kBatch = 2, kTokens = 96, kHeads = 4, kKeyHeads = 2, kWidth = 64;

Builder both_ways_attention(bool causal) {
  Builder builder("flash_attention");
  const std::vector<int64_t> rows = {-1, -1, kHeads, kWidth}, keys = {-1, -1, kKeyHeads, kWidth};
  builder.tensors({{"q", LATHE_BF16, rows},
                   {"k", LATHE_BF16, keys},
                   {"v", LATHE_BF16, keys},
                   {"dout", LATHE_BF16, rows},
                   {"out", LATHE_BF16, rows},
                   {"lse", LATHE_F32, {-1, kHeads, -1}},
                   {"dq", LATHE_BF16, rows},
                   {"dk", LATHE_BF16, keys},
                   {"dv", LATHE_BF16, keys}});
  return std::move(builder.set("causal", causal ? "1" : "0"));
}

struct RankRun {
  World world;
  fakes::Rank fake;
  test::Shard shard;
  size_t bytes = 0;

  explicit RankRun(unsigned flags, bool causal, int rank, bool prepares = true) {
    world.join(&fake, kWorld, rank);
    const Builder builder = both_ways_attention(causal);
    REQUIRE(lathe_problem_group(builder.problem.get(), world.group.get(), flags) == LATHE_OK);
    world.make(builder);
    lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
    options.world = kWorld, options.rank = rank, options.length = kTokens;
    options.balance = LATHE_BALANCE_HEAD_TAIL;
    lathe_shard* made = nullptr;
    REQUIRE(lathe_shard_create_with(&made, &options) == LATHE_OK);
    shard.reset(made);
    world.fill("B Sq Sk H HK D DV",
               {kBatch, kTokens / kWorld, kTokens / kWorld, kHeads, kKeyHeads, kWidth, kWidth});
    recorder.params_bytes.fill(0);  // steps share kernels, and nobody looks at parameters
    if (prepares) run();
  }
  void run() {
    const lathe_plan* plan = world.plan.get();
    // lathe_shard_prepare without the ranks' agreement, for which nobody would answer.
    auto prepared = plan->executor->prepare(*shard);
    REQUIRE_MESSAGE(prepared.ok(), prepared.status().text());
    shard->states.push_back({plan->id, std::move(*prepared)});
    REQUIRE_MESSAGE(lathe_plan_workspace(plan, world.slots.data(), shard.get(), &bytes) == LATHE_OK,
                    error());
    fake.groups = 0, fake.streams.clear();
    recorder.count = 0;
    check_workspace_needed(plan, shard.get(), world.slots, bytes);
    const lathe_status status =
        lathe_plan_run_sharded(plan, shard.get(), world.slots.data(), kWorkspace, bytes, kStream);
    REQUIRE_MESSAGE(status == LATHE_OK, error());
    CHECK(fake.violations.empty());
    lathe_estimate estimate = {};
    estimate.size = sizeof estimate;
    REQUIRE(lathe_plan_estimate(plan, world.slots.data(), shard.get(), &estimate) == LATHE_OK);
    CHECK(estimate.launches == recorder.count);
    CHECK(estimate.exchanges == static_cast<uint64_t>(fake.groups));
  }
  // Received data lies in the workspace.
  void check_room() const {
    for (const auto& [stream, ops] : fake.streams) {
      for (const fakes::Op& op : ops) {
        for (const fakes::Message& message : op.messages) {
          if (message.sends) continue;
          const char* begin = static_cast<const char*>(message.data);
          CHECK(begin >= kWorkspace);
          CHECK(begin + message.bytes <= kWorkspace + bytes);
        }
      }
    }
  }
};

TEST_CASE("attention over ranks: groups of a ring and of gathered keys") {
  for (const bool causal : {false, true}) {
    for (int rank = 0; rank < kWorld; ++rank) {
      CAPTURE(rank);
      const RankRun ring(0, causal, rank);
      CHECK(ring.fake.groups == 2 * kWorld);
      ring.check_room();
      const RankRun gathered(LATHE_ALLGATHER, causal, rank);
      CHECK(gathered.fake.groups == 2);
      gathered.check_room();
    }
  }
}

TEST_CASE("attention over ranks: each hop waits for the step whose buffer it takes") {
  const RankRun run(0, false, 1);
  // The exchange stream has a wait for the caller's stream right before every hop.
  for (const auto& [stream, ops] : run.fake.streams) {
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != fakes::Op::hop) continue;
      REQUIRE(i > 0);
      CHECK(ops[i - 1].kind == fakes::Op::wait);
    }
  }
}

TEST_CASE("attention over ranks: a shard that is not prepared, or was made of other lengths") {
  RankRun run(0, true, 1, false);
  const lathe_plan* plan = run.world.plan.get();
  CHECK(lathe_plan_workspace(plan, run.world.slots.data(), run.shard.get(), &run.bytes) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "lathe_shard_prepare"));
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = kWorld, options.rank = 1, options.length = kTokens;
  const int64_t offsets[] = {0, 40, kTokens};
  options.cu_seqlens = offsets, options.offsets = 3;
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create_with(&made, &options) == LATHE_OK);
  const test::Shard packed(made);
  const auto prepared = plan->executor->prepare(*made);
  CHECK(prepared.status().code() == lathe::Code::invalid_argument);
  CHECK(contains(prepared.status().text(), "cu_seqlens"));
}

TEST_CASE("attention over ranks: a run allocates nothing") {
  for (const unsigned flags : {0u, unsigned{LATHE_ALLGATHER}}) {
    RankRun run(flags, true, 1);
    recorder.count = 0;
    fakes::silent = true;
    const long before = allocations();
    const lathe_status status =
        lathe_plan_run_sharded(run.world.plan.get(), run.shard.get(), run.world.slots.data(),
                               kWorkspace, run.bytes, kStream);
    const long after = allocations();
    fakes::silent = false;
    CHECK(status == LATHE_OK);
    CHECK(recorder.count > 0);
    CHECK(after == before);
  }
}

}  // namespace
