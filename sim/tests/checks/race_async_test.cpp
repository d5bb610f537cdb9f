// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the race checker's entry points for asynchronous copies, tried on a block made
// by hand.
#include "sim/check/race.h"
#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

// Two warps, two instructions: a store at line 10, a copy at line 20.
struct Bench {
  Bench() {
    for (const int line : {10, 20}) {
      InstInfo info;
      info.ptx_line = line;
      info.form.op = line == 10 ? Op::st : Op::bulk_copy;
      info.text = line == 10 ? "st" : "copy";
      function.infos.push_back(info);
      function.orders.push_back(order_of(info.form));
    }
    store.info = 0;
    copy.info = 1;
    kernel.name = "k";
    kernel.code = {std::shared_ptr<void>(), &function};
    grid.kernel = &kernel;
    grid.block[0] = 64;
    launch.grid = &grid;
    launch.settings = &settings;
    launch.function = &function;
    launch.view.shared_bytes = 1024;
    for (auto& tid : launch.tid) tid.resize(64);
    for (uint32_t t = 0; t < 64; ++t) launch.tid[0][t] = t;
    races = make_race_grid(launch);
    block_races = make_race_block(*races);
    block.races = block_races.get();
    block.warps = 2;
    block.threads = 64;
    block.warp = warps;
    for (uint32_t k = 0; k < 2; ++k) {
      warps[k].block = &block;
      warps[k].function = &function;
      warps[k].index = k;
    }
    start_races(block);
  }

  void access(int warp, RaceUse use, uint32_t at) {
    uint64_t address[32];
    for (uint32_t l = 0; l < 32; ++l) address[l] = at + 4 * l;
    race_access(warps[warp], store, address, ~0u, 4, use, true, &block);
  }
  void fence(int warp, Space space) {
    InstInfo info;
    info.form.op = Op::fence;
    info.form.detail = kFenceAsync;
    info.form.spaces[0] = space;
    info.form.space_count = 1;
    function.infos.push_back(info);
    Inst inst;
    inst.info = static_cast<uint32_t>(function.infos.size() - 1);
    race_fence(warps[warp], inst);
  }
  // A barrier of both warps.
  void meet() {
    for (Warp& w : warps) race_barrier_arrive(w, 0);
    race_barrier_complete(block, 0, 3);
  }
  std::string kinds() const {
    std::string all;
    for (const Finding& f : launch.findings) all += f.kind + " ";
    return all;
  }

  Function function;
  Kernel kernel;
  Grid grid;
  Settings settings;
  Launch launch;
  std::shared_ptr<RaceGrid> races;
  std::shared_ptr<RaceBlock> block_races;
  Block block;
  Warp warps[2];
  Inst store, copy;
};

}  // namespace

TEST_CASE("a read through the asynchronous proxy: fence by the writer or by the issuer") {
  Bench right;
  right.access(0, RaceUse::store, 0);
  right.fence(0, Space::shared);
  right.meet();
  race_async_read(right.warps[1], right.copy, 0, 0, 128, &right.block);
  CHECK(right.kinds() == "");

  Bench issuer;
  issuer.access(0, RaceUse::store, 0);
  issuer.meet();
  issuer.fence(1, Space::shared);
  race_async_read(issuer.warps[1], issuer.copy, 0, 0, 128, &issuer.block);
  CHECK(issuer.kinds() == "");

  Bench wrong_space;
  wrong_space.access(0, RaceUse::store, 0);
  wrong_space.fence(0, Space::global);
  wrong_space.meet();
  race_async_read(wrong_space.warps[1], wrong_space.copy, 0, 0, 128, &wrong_space.block);
  CHECK(wrong_space.kinds() == "missing_proxy_fence ");
  CHECK(wrong_space.launch.findings[0].check == "asynccheck");
  CHECK(wrong_space.launch.findings[0].ptx_line == 20);
  CHECK(wrong_space.launch.findings[0].other_ptx_line == 10);
  CHECK(wrong_space.launch.findings[0].thread[0] == 32);

  Bench early;  // the fence comes before the write
  early.fence(0, Space::shared);
  early.access(0, RaceUse::store, 0);
  early.meet();
  race_async_read(early.warps[1], early.copy, 0, 0, 128, &early.block);
  CHECK(early.kinds() == "missing_proxy_fence ");

  Bench no_barrier;
  no_barrier.access(0, RaceUse::store, 0);
  no_barrier.fence(0, Space::shared);
  race_async_read(no_barrier.warps[1], no_barrier.copy, 0, 0, 128, &no_barrier.block);
  CHECK(no_barrier.kinds() == "race ");
}

TEST_CASE("a write through the asynchronous proxy") {
  for (const bool ordered : {true, false}) {
    for (const RaceUse use : {RaceUse::load, RaceUse::store}) {
      Bench b;
      b.access(0, use, 256);
      if (ordered) b.meet();
      race_async_write(b.warps[1], b.copy, 3, 264, 8, &b.block);
      CHECK(b.kinds() == (ordered ? "" : "race "));
    }
  }
}

TEST_CASE("what landed by a group is known to the lane that waited, and by a barrier to all") {
  Bench b;
  race_async_landed(b.warps[0], b.copy, 5, 0, 128, &b.block);
  b.meet();
  b.access(1, RaceUse::load, 0);
  CHECK(b.kinds() == "");
  Bench other_lanes;
  race_async_landed(other_lanes.warps[0], other_lanes.copy, 5, 0, 128, &other_lanes.block);
  other_lanes.access(0, RaceUse::load, 0);
  CHECK(other_lanes.kinds() == "race ");
  Bench other_warp;
  race_async_landed(other_warp.warps[0], other_warp.copy, 5, 0, 128, &other_warp.block);
  other_warp.access(1, RaceUse::load, 0);
  CHECK(other_warp.kinds() == "race ");
}

TEST_CASE("what landed by an mbarrier is known to those who waited for its phase") {
  for (const bool waited : {true, false}) {
    Bench b;
    SyncClock* const clock = race_clock(b.block);
    race_async_landed(clock, b.copy, 128, 128, &b.block);
    race_async_complete(clock);
    if (waited) race_acquire(b.warps[1], clock);
    b.access(1, RaceUse::load, 128);
    CHECK(b.kinds() == (waited ? "" : "race "));
    if (!waited) continue;
    // No fence is needed before it goes out again; the next phase is another matter.
    race_async_read(b.warps[1], b.copy, 0, 128, 128, &b.block);
    CHECK(b.kinds() == "");
    race_async_landed(clock, b.copy, 256, 128, &b.block);
    b.access(1, RaceUse::load, 256);
    CHECK(b.kinds() == "race ");
  }
}
