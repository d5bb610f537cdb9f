// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of kda on one rank of several, over driver and NCCL tables that only write down: its
// kernels, its groups of messages, bytes against the formula, and workspace for all of them.
#include <doctest/doctest.h>

#include <algorithm>

#include "ops/kda/schema.h"
#include "templates/params/kda_chunked.h"
#include "tests/harness/launch_world.h"
#include "tests/ops/kda/problems.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;

constexpr int64_t kRows = 2, kHeads = 4, kKeys = 64, kValues = 32;
// Bytes of a message, [rows, HV, V or K, K] float32.
constexpr size_t kState = size_t{4} * kRows * kHeads * kKeys * kValues;
constexpr size_t kMap = size_t{4} * kRows * kHeads * kKeys * kKeys;

const test::Tensors kInputs = test::kKdaGated;
const test::Tensors kForward = {{"o", LATHE_BF16, {-1, -1, 4, 32}},
                                {"final_state", LATHE_F32, {-1, 4, 64, 32}}};
const test::Tensors kBackward = {
    {"do", LATHE_BF16, {-1, -1, 4, 32}},
    {"dht", LATHE_F32, {-1, 4, 64, 32}},
    {"dq", LATHE_BF16, {-1, -1, 2, 64}},
    {"dk", LATHE_BF16, {-1, -1, 2, 64}},
    {"dv", LATHE_BF16, {-1, -1, 4, 32}},
    {"dg", LATHE_F32, {-1, -1, 4, 64}},
    {"dA_log", LATHE_F32, {4}},
    {"ddt_bias", LATHE_F32, {256}},
    {"dinitial_state", LATHE_F32, {-1, 4, 64, 32}},
};

Builder builder_of(bool forward, bool backward, const char* segments) {
  Builder builder("kda");
  builder.tensors(kInputs);
  if (forward) builder.tensors(kForward);
  if (backward) builder.tensors(kBackward);
  builder.set("use_gate_in_kernel", "1").set("segments", segments);
  return builder;
}

// Kernels that all cases of this file share: compiled once.
void share_kernels(World* world) {
  static const test::Folder folder;
  lathe_context& context = world->context;
  context.store = lathe::Store::open(folder.path);
  context.registry =
      std::make_unique<lathe::Registry>(context.store, context.device, context.facts.arch);
}

// As lathe_shard_prepare, but for the ranks' agreement, which needs real ones.
lathe::Status prepare(lathe_shard* shard, const lathe_plan& plan) {
  LATHE_ASSIGN(auto prepared, plan.executor->prepare(*shard));
  shard->states.push_back({plan.id, std::move(prepared)});
  return {};
}

// One run of rank `rank` of a cut of rows of equal length.
struct RankRun {
  World world;
  fakes::Rank fake;
  test::Shard shard;
  size_t bytes = 0, sent = 0, received = 0;
  std::vector<std::string> kernels;

  RankRun(const Builder& builder, int rank, const std::vector<int64_t>& bounds) {
    share_kernels(&world);
    shard = world.make_rank(builder, &fake, rank, bounds);
    const auto r = static_cast<size_t>(rank);
    world.fill("B T N H HV K V HV*K", {kRows, bounds[r + 1] - bounds[r], kRows, 2, kHeads, kKeys,
                                       kValues, kHeads * kKeys});
    const lathe_plan* plan = world.plan.get();
    REQUIRE(prepare(shard.get(), *plan).ok());
    const uint64_t launches = run_rank(world, fake, shard.get(), &bytes);
    CHECK(launches == recorder.count);
    for (size_t i = 0; i < recorder.count; ++i) {
      const auto kernel = static_cast<size_t>(recorder.launches[i].kernel);
      kernels.push_back(plan->kernels[kernel].built->spec().kernel);
    }
    count_messages();
  }
  void count_messages() {
    for (const auto& [stream, ops] : fake.streams) {
      for (const fakes::Op& op : ops) {
        for (const fakes::Message& message : op.messages) {
          if (op.kind != fakes::Op::hop) continue;
          (message.sends ? sent : received) += message.bytes;
          const char* begin = static_cast<const char*>(message.data);
          CHECK(begin >= kWorkspace);
          CHECK(begin + message.bytes <= kWorkspace + bytes);
        }
      }
    }
  }
};

using Names = std::vector<std::string>;

// Part p of P sends E and, from the second part on, M to those behind, D and M to those before.
void check_bytes(const RankRun& run, size_t p, size_t parts, bool forward, bool backward) {
  const size_t before = p, after = parts - 1 - p;
  const bool middle = before > 0 && after > 0;
  size_t sent = 0, received = 0;
  if (forward) {
    sent += after * (kState + (middle ? kMap : 0));
    received += before * kState + (before > 0 ? before - 1 : 0) * kMap;
  }
  if (backward) {
    sent += before * (kState + (middle ? kMap : 0));
    received += after * kState + (after > 0 ? after - 1 : 0) * kMap;
  }
  CHECK(run.sent == sent);
  CHECK(run.received == received);
  CHECK(run.fake.groups == (sent + received > 0 ? 1 : 0));
}

}  // namespace

TEST_CASE("kda on a rank: one group of messages each way, and no more bytes than are needed") {
  const std::vector<int64_t> bounds = {0, 100, 100, 230, 330, 400};  // rank 1 has no token
  for (const int rank : {0, 1, 2, 3, 4}) {
    CAPTURE(rank);
    for (const int ways : {1, 2, 3}) {
      const bool forward = ways & 1, backward = ways & 2;
      const RankRun run(builder_of(forward, backward, "1"), rank, bounds);
      if (rank == 1) {
        CHECK(run.fake.groups == 0);
        CHECK(run.kernels == (backward ? Names{"kda_backward_finish"} : Names{}));
      } else {
        // A backward alone walks forward again, from the state that is brought to it.
        check_bytes(run, rank == 0 ? 0 : static_cast<size_t>(rank - 1), 4, forward || backward,
                    backward);
      }
      CHECK(run.fake.reductions == (backward ? 2 : 0));
    }
  }
}

TEST_CASE("kda on a rank: the launches of forward and backward in one call") {
  const RankRun run(builder_of(true, true, "1"), 1, {0, 100, 200, 300});
  CHECK(run.kernels == Names{"kda_summary", "kda_forward", "kda_backward_scan", "kda_backward",
                             "kda_backward_finish"});
  const auto walk = run.world.launches_of("kda_forward").at(0).as<lathe::KdaForwardParams>();
  CHECK(walk.carry.carried == kRows);
  CHECK(walk.carry.open == 0);
  // The tree has one level up to four parts, and with five elements two.
  const std::vector<int64_t> many = {0, 50, 100, 150, 200, 250, 300};
  const RankRun fourth(builder_of(true, false, "1"), 3, many);
  CHECK(fourth.kernels == Names{"kda_summary", "kda_compose", "kda_forward"});
  const RankRun last(builder_of(true, false, "1"), 5, many);
  CHECK(last.kernels == Names{"kda_compose", "kda_compose", "kda_forward"});
  const RankRun first(builder_of(true, false, "1"), 0, many);
  CHECK(first.kernels == Names{"kda_summary", "kda_forward"});
}

TEST_CASE("kda on a rank: the launches of segments") {
  const RankRun run(builder_of(true, true, "3"), 1, {0, 200, 400, 600});
  CHECK(run.kernels == Names{"kda_summary", "kda_compose", "kda_merge", "kda_forward",
                             "kda_backward_scan", "kda_backward", "kda_backward_finish"});
  check_bytes(run, 1, 3, true, true);
}

TEST_CASE("kda in a group of one: no message, and the kernels of one rank") {
  const RankRun run(builder_of(true, true, "1"), 0, {0, 100});
  CHECK(run.fake.groups == 0);
  CHECK(run.fake.reductions == 0);
  CHECK(run.kernels ==
        Names{"kda_forward", "kda_backward_scan", "kda_backward", "kda_backward_finish"});
}

TEST_CASE("kda on a rank: a shard that was not prepared") {
  World world;
  fakes::Rank fake;
  share_kernels(&world);
  world.join(&fake, 2, 0);
  const Builder builder = builder_of(true, false, "1");
  REQUIRE(lathe_problem_group(builder.problem.get(), world.group.get(), 0) == LATHE_OK);
  world.make(builder);
  world.fill("B T N H HV K V HV*K", {1, 10, 1, 2, 4, 64, 32, 256});
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = 2, options.length = 20;
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create_with(&made, &options) == LATHE_OK);
  const test::Shard plain(made);
  size_t bytes = 0;
  CHECK(lathe_plan_workspace(world.plan.get(), world.slots.data(), made, &bytes) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(test::contains(error(), "lathe_shard_prepare"));
  // Nor one of packed sequences, which the problem has none of, whatever the balance.
  const int64_t offsets[] = {0, 5, 20};
  options.cu_seqlens = offsets, options.offsets = 3;
  REQUIRE(lathe_shard_create_with(&made, &options) == LATHE_OK);
  const test::Shard packed(made);
  CHECK(test::contains(prepare(made, *world.plan).text(), "cu_seqlens is not declared"));
  options.balance = LATHE_BALANCE_HEAD_TAIL;
  REQUIRE(lathe_shard_create_with(&made, &options) == LATHE_OK);
  const test::Shard dealt(made);
  CHECK(test::contains(prepare(made, *world.plan).text(), "cu_seqlens is not declared"));
}
