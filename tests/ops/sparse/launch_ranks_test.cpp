// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what sparse_flash_attention launches and sends on one rank of several, over
// driver and NCCL tables that only count: gathered keys and tables for the caller's, room for
// everything, and that a run allocates nothing. They also check what is refused.
#include <doctest/doctest.h>

#include <algorithm>

#include "collective/plans/key_gather.h"
#include "ops/sparse/schema.h"
#include "templates/params/rows.h"
#include "templates/params/sparse_attention.h"
#include "templates/params/sparse_ranks.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::contains;
using test::error;
namespace of = lathe::sparse_attention;

constexpr int kWorld = 3, kRank = 1;
const std::vector<int64_t> kRows = {0, 30, 41}, kKeys = {0, 44, 55};

// Bytes of messages, by what they fill.
struct Sent {
  int groups = 0;
  size_t sends = 0, receives = 0, sent = 0, received = 0;
  std::array<std::pair<char*, size_t>, 64> into;  // fixed room, as the launches have
};
Sent sent;

// Counts, and keeps no list: what the run allocates is then the run's own.
std::shared_ptr<const lathe::Nccl> quiet_nccl() {
  auto out = std::make_shared<lathe::Nccl>(*fakes::nccl());
  out->ncclGroupStart = [] { return ++sent.groups, ncclSuccess; };
  out->ncclGroupEnd = [] { return ncclSuccess; };
  out->ncclSend = [](const void*, size_t count, ncclDataType_t, int peer, ncclComm_t, CUstream) {
    CHECK(peer != kRank);
    ++sent.sends, sent.sent += count;
    return ncclSuccess;
  };
  out->ncclRecv = [](void* data, size_t count, ncclDataType_t, int, ncclComm_t, CUstream) {
    sent.into.at(sent.receives++) = {static_cast<char*>(data), count};
    sent.received += count;
    return ncclSuccess;
  };
  return out;
}

Builder problem(bool packed = true) {
  using Shape = std::vector<int64_t>;
  const auto rows = [&](int64_t heads, int64_t width) {
    return packed ? Shape{-1, heads, width} : Shape{-1, -1, heads, width};
  };
  Builder builder("sparse_flash_attention");
  builder.tensors({{"q", LATHE_BF16, rows(16, 64)},
                   {"k", LATHE_BF16, rows(2, 64)},
                   {"v", LATHE_BF16, rows(2, 32)},
                   {"q_rope", LATHE_BF16, rows(16, 16)},
                   {"k_rope", LATHE_BF16, rows(2, 16)},
                   {"indices", LATHE_I32, rows(2, -1)},
                   {"sinks", LATHE_F32, {16}},
                   {"dout", LATHE_BF16, rows(16, 32)},
                   {"out", LATHE_BF16, rows(16, 32)},
                   {"lse", LATHE_F32, packed ? Shape{16, -1} : Shape{-1, 16, -1}},
                   {"dq", LATHE_BF16, rows(16, 64)},
                   {"dk", LATHE_BF16, rows(2, 64)},
                   {"dv", LATHE_BF16, rows(2, 32)},
                   {"dq_rope", LATHE_BF16, rows(16, 16)},
                   {"dk_rope", LATHE_BF16, rows(2, 16)},
                   {"dsinks", LATHE_F32, {16}}});
  if (packed) {
    builder.tensors({{"cu_seqlens_q", LATHE_I64, {-1}}, {"cu_seqlens_k", LATHE_I64, {-1}}});
  }
  return std::move(builder.set("scale", "0.125").set("sparse_mode", "3").set("deterministic", "1"));
}

test::Shard make_shard(bool packed = true) {
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = kWorld, options.rank = kRank, options.balance = LATHE_BALANCE_HEAD_TAIL;
  options.length = kRows.back(), options.key_length = kKeys.back();
  if (packed) {
    options.cu_seqlens = kRows.data(), options.cu_seqlens_k = kKeys.data(), options.offsets = 3;
  }
  lathe_shard* made = nullptr;
  REQUIRE_MESSAGE(lathe_shard_create_with(&made, &options) == LATHE_OK, error());
  return test::Shard(made);
}

// The rank's plan, its shard and its tensors.
struct RankWorld : World {
  fakes::Rank fake;
  test::Shard shard = make_shard();

  explicit RankWorld(Builder builder, unsigned flags = LATHE_REDUCE_PARAMETER_GRADS) {
    sent = {};
    join(&fake, kWorld, kRank);
    auto made = lathe::Group::create(context.device, quiet_nccl(), {}, kWorld, kRank, 1000);
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    group->group = *made;
    REQUIRE_MESSAGE(lathe_problem_group(builder.problem.get(), group.get(), flags) == LATHE_OK,
                    error());
    make(builder);
    // Events are not written down either.
    auto& driver = const_cast<lathe::Driver&>(context.device->driver());
    driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    driver.cuStreamWaitEvent = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
    driver.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    fill("Tq Tk N H HK D R DV topk", {shard->layout.query_tokens(kRank),
                                      shard->layout.key_tokens(kRank), 2, 16, 2, 64, 16, 32, 9});
  }
  // Without the ranks' agreement, for which there are no others here.
  void prepare() {
    auto made = plan->executor->prepare(*shard);
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    shard->states.push_back({plan->id, std::move(*made)});
  }
  lathe_status run(size_t* bytes) {
    const lathe_status status = lathe_plan_workspace(plan.get(), slots.data(), shard.get(), bytes);
    if (status != LATHE_OK) return status;
    recorder.count = 0;
    check_workspace_needed(plan.get(), shard.get(), slots, *bytes);
    const long before = allocations();
    const lathe_status ran =
        lathe_plan_run_sharded(plan.get(), shard.get(), slots.data(), kWorkspace, *bytes, kStream);
    CHECK(allocations() == before);
    return ran;
  }
};

// The plan tells the launches and messages of the last run.
void check_estimate(const RankWorld& world) {
  lathe_estimate estimate = {};
  estimate.size = sizeof estimate;
  REQUIRE(lathe_plan_estimate(world.plan.get(), world.slots.data(), world.shard.get(), &estimate) ==
          LATHE_OK);
  CHECK(estimate.launches == recorder.count);
  CHECK(estimate.exchanges == static_cast<uint64_t>(sent.groups));
  CHECK(estimate.exchange_bytes == sent.sent);
}

TEST_CASE("sparse ranks: gathered keys and tables for the caller's, and nothing is allocated") {
  RankWorld world(problem());
  world.prepare();
  size_t bytes = 0;
  REQUIRE_MESSAGE(world.run(&bytes) == LATHE_OK, error());
  const lathe::KeyGather plan = lathe::key_gather(world.shard->layout, kRank, true);
  CHECK(sent.groups == 2);
  // Keys and values in 16 bits, gradients in 32, and sinks to and from the two others.
  const size_t row = 2 * (64 + 16 + 32), sinks = 2 * 16 * 4;
  const auto got = static_cast<size_t>(plan.received()), gave = static_cast<size_t>(plan.sent());
  CHECK(sent.received == row * (2 * got + 4 * gave) + sinks);
  CHECK(sent.sent == row * (2 * gave + 4 * got) + sinks);

  const auto forward = world.launches_of("sparse_forward").at(0).as<lathe::SparseForwardParams>();
  const auto* table = reinterpret_cast<const char*>(kTables);
  CHECK(forward.in.seq_k == plan.keys);
  CHECK(forward.in.seq_q == world.shard->layout.query_tokens(kRank));
  CHECK(forward.in.sequences == static_cast<int>(plan.runs.size()));
  CHECK(forward.in.k_token_stride == 128);
  CHECK(forward.in.v_token_stride == 64);
  CHECK(forward.in.q == World::address(of::q));
  for (const void* own : {forward.in.cu_seqlens_q, forward.in.key_starts, forward.in.key_ends,
                          forward.in.key_origins, forward.in.q_pos}) {
    CHECK(own >= table);
    CHECK(own < table + 4096);
  }
  CHECK(forward.in.q_pos_batch_stride == 0);
  CHECK(forward.in.origin_stride == kKeys.back());
  for (const void* keys : {forward.in.k, forward.in.v, forward.in.k_rope}) {
    CHECK(keys >= kWorkspace);
    CHECK(keys < kWorkspace + bytes);
  }
  CHECK(world.launches_of("copy_rows").empty());

  const auto main = world.launches_of("sparse_backward").at(0).as<lathe::SparseBackwardParams>();
  CHECK(main.in.k == forward.in.k);
  const auto finish =
      world.launches_of("sparse_backward_finish").at(0).as<lathe::SparseBackwardFinishParams>();
  CHECK(finish.dk_blocks + finish.dv_blocks == 0);
  const auto join = world.launches_of("sparse_gradient_join").at(0).as<lathe::SparseJoinParams>();
  CHECK(finish.dsinks == static_cast<const float*>(join.dsinks_parts) + 16 * kRank);
  check_addresses({{join.dsinks, of::dsinks},
                   {join.tensors[0].out, of::dk},
                   {join.tensors[1].out, of::dv},
                   {join.tensors[2].out, of::dk_rope}});
  CHECK(join.tensors[0].own == main.dk);
  CHECK(join.tensors[1].own == main.dv);
  CHECK(join.tensors[2].own == main.dk);
  CHECK(join.tensors[2].own_column == 64);
  CHECK(join.keys == plan.own_keys);
  CHECK(join.gathered == plan.keys);
  CHECK(join.received == plan.returned.back());
  // Received data stays inside the workspace and out of the sums that are sent.
  const char* const sums = static_cast<const char*>(main.dk);
  const size_t sums_bytes = static_cast<size_t>(plan.keys) * 2 * 80 * 4;
  for (size_t i = 0; i < sent.receives; ++i) {
    const auto& [data, size] = sent.into[i];
    CHECK(data >= kWorkspace);
    CHECK(data + size <= kWorkspace + bytes);
    CHECK((data + size <= sums || data >= sums + sums_bytes));
  }
  check_estimate(world);
}

TEST_CASE("sparse ranks: keys with gaps are packed, each tensor on its own") {
  RankWorld world(problem());
  world.prepare();
  world.arrays[of::k].strides = {2 * 80, 80, 1};
  world.arrays[of::k_rope].strides = {2 * 80, 80, 1};
  for (const int tensor : {of::k, of::k_rope}) world.slots[tensor] = world.arrays[tensor].get();
  size_t bytes = 0;
  REQUIRE_MESSAGE(world.run(&bytes) == LATHE_OK, error());
  const auto packs = world.launches_of("copy_rows");
  REQUIRE(packs.size() == 2);
  const auto p = packs[0].as<lathe::CopyRowsParams>();
  CHECK(p.from == World::address(of::k));
  CHECK(p.from_head_stride == 160);
  CHECK(p.to_token_stride == 256);
  CHECK(p.cells == world.shard->layout.key_tokens(kRank));
  CHECK(p.vectors == 8);
  check_estimate(world);
}

TEST_CASE("sparse ranks: narrow gradients are rounded before they travel") {
  RankWorld world(problem(), LATHE_NARROW_GRADIENTS);
  world.prepare();
  size_t bytes = 0;
  REQUIRE_MESSAGE(world.run(&bytes) == LATHE_OK, error());
  const lathe::KeyGather plan = lathe::key_gather(world.shard->layout, kRank, true);
  const auto both = static_cast<size_t>(plan.received() + plan.sent());
  CHECK(sent.received == 2 * 2 * (64 + 16 + 32) * both);
  const auto finish =
      world.launches_of("sparse_backward_finish").at(0).as<lathe::SparseBackwardFinishParams>();
  CHECK(finish.dk_blocks > 0);
  CHECK(finish.dk_rope_token_stride == 32);
  CHECK(finish.dsinks == World::address(of::dsinks));
  const auto join = world.launches_of("sparse_gradient_join").at(0).as<lathe::SparseJoinParams>();
  CHECK(join.tensors[2].returned_column == 0);
  CHECK(join.tensors[2].own_column == 64);
  CHECK(join.heads == 0);
}

TEST_CASE("sparse ranks: what cannot be is refused by name") {
  {
    RankWorld world(problem());
    size_t bytes = 0;
    CHECK(world.run(&bytes) == LATHE_INVALID_ARGUMENT);
    CHECK(contains(error(), "lathe_shard_prepare"));
    world.prepare();
    world.arrays[of::cu_seqlens_q].shape = world.arrays[of::cu_seqlens_k].shape = {4};
    for (const int tensor : {of::cu_seqlens_q, of::cu_seqlens_k}) {
      world.slots[tensor] = world.arrays[tensor].get();
    }
    CHECK(world.run(&bytes) == LATHE_INVALID_ARGUMENT);
    CHECK(contains(error(), "N + 1 = 4"));
    world.shard = make_shard(false);
    const auto prepared = world.plan->executor->prepare(*world.shard);
    CHECK(contains(prepared.status().text(), "cu_seqlens_q is declared"));
  }
  for (const auto& [flag, name] : {std::pair(LATHE_DISPATCH, "LATHE_DISPATCH"),
                                   std::pair(LATHE_EXCHANGE_HEADS, "LATHE_EXCHANGE_HEADS")}) {
    World world;
    fakes::Rank fake;
    world.join(&fake, kWorld, kRank);
    Builder builder = problem(false);
    REQUIRE(lathe_problem_group(builder.problem.get(), world.group.get(), flag) == LATHE_OK);
    lathe_plan* made = nullptr;
    CHECK(lathe_plan_create(&made, &world.context, builder.problem.get()) == LATHE_UNSUPPORTED);
    CHECK(contains(error(), name));
    CHECK(contains(error(), "LATHE_ALLGATHER"));
  }
}

}  // namespace
