// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the cost model against cases worked by hand.
#include "sim/model/model.h"

#include <doctest/doctest.h>

using sim::Counters;
using sim::model::find_gpu;
using sim::model::Gpu;
using sim::model::predict;

namespace {

double term(const sim::model::Prediction& p, const std::string& resource) {
  for (const auto& each : p.terms) {
    if (each.resource == resource) return each.cycles;
  }
  FAIL("no such resource: ", resource);
  return -1;
}

}  // namespace

TEST_CASE("a copy of 1 GiB is bound by DRAM") {
  const Gpu& gpu = *find_gpu("h100");
  Counters c;
  const uint64_t sectors = (1ull << 30) / 32;
  c.global_load.sectors = c.global_store.sectors = sectors;
  c.unique_load_sectors = c.unique_store_sectors = sectors;
  c.warp_instructions = sectors / 16 * 6;  // 16 bytes a lane: 16 sectors a load
  c.by_class["memory"] = sectors / 16 * 2;
  const auto p = predict(c, 100000, gpu);
  CHECK(p.bound == "DRAM");
  // 2 GiB / 3.35 TB/s = 641.04 us at 1.83 GHz = 1173103 cycles
  CHECK(term(p, "DRAM") == doctest::Approx(1173103).epsilon(1e-5));
  CHECK(p.cycles == doctest::Approx(1173803).epsilon(1e-5));     // 700 of latency
  CHECK(p.seconds == doctest::Approx(643.92e-6).epsilon(1e-4));  // 2.5 us of launch
  // 2 * 33554432 sectors * 32 B / 5120 B = 419430; / (2 * 132) = 254200
  CHECK(term(p, "L2") == doctest::Approx(419430.4));
  CHECK(term(p, "L2 to multiprocessor") == doctest::Approx(254200.2));
}

TEST_CASE("a product of matrices is bound by the tensor cores") {
  const Gpu& gpu = *find_gpu("a100");
  Counters c;
  c.tensor_ops = 2ull * 4096 * 4096 * 4096;
  c.warp_instructions = c.tensor_ops / 4096 * 2;
  c.by_class["tensor"] = c.tensor_ops / 4096;
  const auto p = predict(c, 1024, gpu);
  CHECK(p.bound == "tensor");
  CHECK(p.cycles == doctest::Approx(137438953472.0 / (2048 * 108)));
  CHECK(term(p, "issue") == doctest::Approx(67108864.0 / (4 * 108)));
}

TEST_CASE("few blocks use few multiprocessors") {
  const Gpu& gpu = *find_gpu("h100");
  Counters c;
  c.warp_instructions = 4000000;
  c.by_class["float"] = 4000000;
  const auto one = predict(c, 1, gpu), two = predict(c, 2, gpu), many = predict(c, 132, gpu);
  CHECK(one.bound == "issue");
  CHECK(one.cycles == doctest::Approx(1000000));
  CHECK(two.cycles == doctest::Approx(500000));
  CHECK(predict(c, 1000, gpu).cycles == doctest::Approx(many.cycles));
  const auto older = predict(c, 1, *find_gpu("a100"));
  CHECK(older.bound == "float");  // 64 lanes a cycle
  CHECK(older.cycles == doctest::Approx(2000000));
}

TEST_CASE("bank conflicts and special functions") {
  const Gpu& gpu = *find_gpu("h100");
  Counters c;
  c.shared_load.wavefronts = 32 * 1000;
  c.warp_instructions = 2000;
  c.by_class["memory"] = 1000;
  CHECK(predict(c, 1, gpu).cycles == doctest::Approx(32000));
  Counters m;
  m.warp_instructions = 10000;
  m.by_class["math"] = 10000;
  CHECK(predict(m, 1, gpu).cycles == doctest::Approx(20000));
  m.by_class["integer"] = 30000;
  m.by_class["compare"] = 20000;
  CHECK(term(predict(m, 1, gpu), "integer") == doctest::Approx(25000));
}

TEST_CASE("next to nothing is bound by its launch") {
  Counters c;
  c.warp_instructions = 10;
  const auto p = predict(c, 1, *find_gpu("h200"));
  CHECK(p.bound == "launch");
  CHECK(p.seconds > 2.5e-6);
  CHECK(p.seconds < 2.6e-6);
}

TEST_CASE("every device that can be simulated has a row, and it agrees with the profile") {
  for (const char* name :
       {"a100", "a10", "a40", "rtx3090", "l40s", "l4", "rtx4090", "h100", "h200"}) {
    CAPTURE(name);
    const Gpu* gpu = find_gpu(name);
    const sim::Profile* profile = sim::find_gpu(name);
    REQUIRE(gpu != nullptr);
    REQUIRE(profile != nullptr);
    CHECK(gpu->multiprocessors == profile->multiprocessors);
    CHECK(gpu->dram_bytes == profile->memory_bytes_per_second);
    CHECK(gpu->clock_hz <= profile->clock_hz);
  }
  CHECK(find_gpu("b200") == nullptr);
}
