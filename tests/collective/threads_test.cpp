// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover groups whose ranks are threads, through the simulator's libraries as they were
// built. Steps are copies, so that no compiler is needed; rows are identified as in halo_world.h.
#include "tests/collective/threads.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <numeric>
#include <vector>

#include "collective/exchange.h"
#include "collective/plans/conv_halo.h"

using namespace lathe;
using namespace threads;

namespace {

// A step that copies one buffer into another.
struct Copy {
  const Driver& driver;
  const Memory &from, &to;
  Step step() {
    return {[](void* user, CUstream stream) {
              const auto& copy = *static_cast<Copy*>(user);
              return check(copy.driver,
                           copy.driver.cuMemcpyDtoDAsync(copy.to.at(), copy.from.at(),
                                                         copy.from.bytes(), stream),
                           "cuMemcpyDtoDAsync");
            },
            this};
  }
};

struct RankResult {
  Status status;
  Rows halo_messages, gradient_messages;
  std::vector<float> sums;
};

// Runs the whole life of one rank: join, forward, backward, all-reduce, leave.
RankResult live(const std::shared_ptr<const Device>& device, const UniqueId& id,
                const Partition& cut, int rank, int width) {
  RankResult out;
  const auto run = [&]() -> Status {
    LATHE_ASSIGN(auto group, Group::create(device, *open_nccl(NcclChoice::threads), id, cut.world(),
                                           rank, 20000));
    const Device::Scope scope(*device);
    LATHE_TRY(scope.status());
    const Driver& driver = device->driver();
    CUstream stream = nullptr;
    LATHE_TRY(check(driver, driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream"));
    const HaloPlan plan = halo_plan(cut, rank, width);
    const size_t rows = width - 1;
    Memory tail(*device, rows), sent(*device, rows), got(*device, rows * plan.sources.size());
    Memory halo(*device, rows * plan.sources.size()), dhalo(*device, rows), back(*device, rows);
    Memory arrived(*device, rows * plan.destinations.size());
    Memory added(*device, rows * plan.destinations.size());
    Rows mine(rows), gradients(rows);
    std::iota(mine.begin(), mine.end(), 1000 * rank);
    std::iota(gradients.begin(), gradients.end(), 1000 * rank + 500);
    tail.put(mine);
    dhalo.put(gradients);
    Copy pack{driver, tail, sent}, boundary{driver, got, halo}, gradient{driver, dhalo, back};
    Copy add{driver, arrived, added};
    const HaloBuffers rows_at{sent.pointer(), got.pointer(), rows * 8};
    const HaloBuffers gradients_at{back.pointer(), arrived.pointer(), rows * 8};
    LATHE_TRY(
        conv_halo_forward(*group, plan, rows_at, pack.step(), {}, boundary.step(), {}, stream));
    LATHE_TRY(conv_halo_backward(*group, plan, rows_at, gradients_at, pack.step(), {},
                                 boundary.step(), gradient.step(), {}, add.step(), stream));
    Memory floats(*device, 2);
    const float values[4] = {1.0f * rank, 1, 0.5f, -2.0f * rank};
    Rows packed(2);
    std::memcpy(packed.data(), values, sizeof values);
    floats.put(packed);
    LATHE_TRY(all_reduce_f32(*group, floats.pointer(), 4, stream));
    LATHE_TRY(check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize"));
    out.halo_messages = halo.get();
    out.gradient_messages = added.get();
    const Rows sums = floats.get();
    out.sums.resize(4);
    std::memcpy(out.sums.data(), sums.data(), 16);
    LATHE_TRY(group->async_error());
    return check(driver, driver.cuStreamDestroy(stream), "cuStreamDestroy");
  };
  out.status = run();
  return out;
}

}  // namespace

TEST_CASE("threads: messages, gradients and sums arrive") {
  const auto device = simulator();
  if (device == nullptr) return;
  const Partition cuts[] = {{{0, 9}}, {{0, 4, 9}}, {{0, 1, 1, 2, 9}}, {{0, 0, 1, 2, 3, 4, 5, 6}}};
  for (const Partition& cut : cuts) {
    for (const int width : {2, 4, 8}) {
      const auto id = make_unique_id(**open_nccl(NcclChoice::threads));
      REQUIRE_MESSAGE(id.ok(), id.status().text());
      std::vector<RankResult> results(cut.world());
      run_ranks(cut.world(),
                [&](int rank) { results[rank] = live(device, *id, cut, rank, width); });
      for (int rank = 0; rank < cut.world(); ++rank) {
        CAPTURE(rank);
        REQUIRE_MESSAGE(results[rank].status.ok(), results[rank].status.text());
        const HaloPlan plan = halo_plan(cut, rank, width);
        Rows rows, gradients;
        for (const HaloPeer& peer : plan.sources) {
          for (int h = 0; h < width - 1; ++h) rows.push_back(1000 * peer.rank + h);
        }
        for (const HaloPeer& peer : plan.destinations) {
          for (int h = 0; h < width - 1; ++h) gradients.push_back(1000 * peer.rank + 500 + h);
        }
        CHECK(results[rank].halo_messages == rows);
        CHECK(results[rank].gradient_messages == gradients);
        const int world = cut.world();
        const float total = 0.5f * static_cast<float>(world * (world - 1));
        if (world > 1) {
          CHECK(results[rank].sums ==
                std::vector<float>{total, static_cast<float>(world), 0.5f * world, -2 * total});
        }
      }
    }
  }
}

TEST_CASE("threads: a rank that never comes is a timeout, and the others are told") {
  const auto device = simulator();
  if (device == nullptr) return;
  const auto id = make_unique_id(**open_nccl(NcclChoice::threads));
  REQUIRE(id.ok());
  Status status[2];
  run_ranks(2, [&](int rank) {
    const int timeout_ms = rank == 0 ? 300 : 600000;
    status[rank] =
        Group::create(device, *open_nccl(NcclChoice::threads), *id, 3, rank, timeout_ms).status();
  });
  CHECK(status[0].code() == Code::timeout);
  CHECK(status[0].text() == "rank 0 of 3 waited 300 ms for the other ranks to join the group");
  CHECK(status[1].code() == Code::nccl);
  CHECK_MESSAGE(status[1].text().find("rank 0 aborted the communicator") != std::string::npos,
                status[1].text());
}

TEST_CASE("threads: one rank aborts in mid-exchange, the other's wait ends") {
  const auto device = simulator();
  if (device == nullptr) return;
  const auto id = make_unique_id(**open_nccl(NcclChoice::threads));
  REQUIRE(id.ok());
  std::barrier joined(2);  // an abort may otherwise reach a rank that has not seen all ranks meet
  run_ranks(2, [&](int rank) {
    auto group = Group::create(device, *open_nccl(NcclChoice::threads), *id, 2, rank, 5000);
    joined.arrive_and_wait();
    CHECK_MESSAGE(group.ok(), group.status().text());
    if (!group.ok()) return;
    const Device::Scope scope(*device);
    if (rank == 0) {
      Memory data(*device, 4);
      CHECK(all_reduce_f32(**group, data.pointer(), 8, nullptr).ok());
      CHECK((*group)->abort().ok());
      CHECK(all_reduce_f32(**group, data.pointer(), 8, nullptr).code() == Code::nccl);
      CHECK(device->driver().cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
    }
  });
}
