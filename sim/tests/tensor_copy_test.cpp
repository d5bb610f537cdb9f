// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover cp.async.bulk.tensor in every rank and swizzle against boxes cut out by plain
// loops.
#include <random>
#include <set>

#include "sim/tests/tensor_boxes.h"

using namespace sim;
using namespace sim::test;

namespace {

void check_load(Box c) {
  Device d;
  d.settings.async_policy = AsyncPolicy::random;
  std::vector<uint8_t> tensor(extent(c.map));
  std::mt19937 random(7);
  for (uint8_t& b : tensor) b = static_cast<uint8_t>(random());
  c.map.base = d.upload(tensor);
  REQUIRE(tensor_map_fault(c.map) == "");
  MapBytes map;
  BoxPlace at{};
  std::copy(c.at.begin(), c.at.end(), at.c);
  encode_tensor_map(c.map, map.bytes);
  d.load(kernel(c.map.rank, kLoad));
  const uint64_t out = d.upload(std::vector<uint8_t>(32768, 0));
  uint32_t bytes = 0;
  for_box(c, 1024, [&](int64_t, uint64_t) { ++bytes; });
  const Outcome o = d.run("k", 1, 32, map, out, at, bytes, c.tile);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  CHECK(o.findings.empty());
  const auto got = d.download<uint8_t>(out, 32768);
  std::vector<uint8_t> want(32768, 0xA5);
  const uint32_t size = c.map.element_bytes;
  for_box(c, 1024, [&](int64_t from, uint64_t to) {
    const uint8_t nan = to % size == size - 1 ? 0x7F : 0xFF;
    want[to] = from >= 0 ? tensor[static_cast<size_t>(from)] : c.map.fill_nan ? nan : 0;
  });
  CHECK(got == want);
}

}  // namespace

TEST_CASE("boxes of one to five dimensions, inside and across every edge") {
  check_load({make(6, {100}, {64}), {7}});
  check_load({make(6, {100}, {64}), {-9}});
  check_load({make(7, {40, 30}, {32, 16}), {20, 20}});
  check_load({make(9, {64, 20}, {64, 8}), {0, -3}});
  check_load({make(2, {24, 9, 5}, {8, 4, 3}), {20, 7, -1}});
  check_load({make(0, {40, 6, 5, 4}, {32, 3, 2, 2}), {-5, 4, 4, 3}});
  check_load({make(6, {24, 5, 4, 3, 3}, {16, 2, 3, 2, 2}), {-1, 4, -1, 2, 1}});
  check_load({make(4, {10, 10}, {4, 4}), {100, 100}});  // nothing inside
}

TEST_CASE("swizzles of 32, 64 and 128 bytes at every place of the tile") {
  check_load({make(9, {64, 40}, {16, 32}, 1), {8, 4}});
  check_load({make(9, {64, 40}, {32, 32}, 2), {8, 4}});
  check_load({make(9, {128, 80}, {64, 64}, 3), {32, 9}});
  check_load({make(9, {128, 80}, {64, 16}, 3), {32, 9}, 1024});
  check_load({make(9, {128, 80}, {64, 16}, 3), {32, 9}, 128});
  check_load({make(7, {64, 80}, {32, 16}, 3), {60, 75}, 384});
}

TEST_CASE("a prefetch of a box touches the sectors of its copy, and those alone") {
  const std::string before = "  @%p1 cp.async.bulk.prefetch.tensor.$Rd.L2.global.tile [%rd1, $C];";
  for (Box c : {Box{make(9, {64, 40}, {64, 16}, 3), {0, 30}},
                Box{make(7, {40, 30, 3}, {32, 16, 2}), {20, 20, 1}}}) {
    for (const int rows_off : {0, 1}) {
      Device d;
      c.map.base = d.upload(std::vector<uint8_t>(extent(c.map)));
      MapBytes map;
      encode_tensor_map(c.map, map.bytes);
      BoxPlace at{};
      std::copy(c.at.begin(), c.at.end(), at.c);
      std::string moved = before;  // the box before the one that is copied
      if (rows_off != 0) moved = "  sub.u32 %c1, %c1, 60;\n" + before + "\n  add.u32 %c1, %c1, 60;";
      d.load(kernel(c.map.rank, moved + kLoad));
      uint32_t bytes = 0;
      std::set<int64_t> sectors;
      for_box(c, 1024, [&](int64_t from, uint64_t) {
        ++bytes;
        if (from >= 0) sectors.insert((static_cast<int64_t>(c.map.base) + from) / 32);
      });
      const Outcome o =
          d.run("k", 1, 32, map, d.upload(std::vector<uint8_t>(32768, 0)), at, bytes, c.tile);
      INFO(texts(o));
      REQUIRE(o.error == 0);
      CHECK(o.findings.empty());
      CHECK(o.counters.unique_load_sectors == sectors.size());
      // Nothing lies 60 rows before.
      CHECK(o.counters.unique_prefetch_sectors == (rows_off ? 0 : sectors.size()));
      CHECK(o.counters.vain_prefetch_sectors == 0);
      CHECK(o.counters.global_load.requests == 1);
    }
  }
}

TEST_CASE("element strides skip, NaN fills what is outside") {
  check_load({make(6, {64, 40}, {32, 16}, 0, true, {1, 3}), {48, 30}});
  check_load({make(7, {64, 40, 6}, {16, 8, 4}, 0, true, {1, 2, 2}), {-4, 35, 3}});
  check_load({make(8, {20, 7}, {8, 4}, 0, true), {-2, 5}});
}

TEST_CASE("stores leave out what is outside, reductions add") {
  for (const bool add : {false, true}) {
    Device d;
    Box c{make(7, {40, 30}, {32, 8}), {20, 25}};
    std::vector<float> tensor(extent(c.map) / 4);
    for (size_t k = 0; k < tensor.size(); ++k) tensor[k] = static_cast<float>(k);
    c.map.base = d.upload(tensor);
    MapBytes map;
    BoxPlace at{{20, 25, 0, 0, 0}};
    encode_tensor_map(c.map, map.bytes);
    const std::string op =
        add ? "cp.reduce.async.bulk.tensor.$Rd.global.shared::cta.add.tile.bulk_group"
            : "cp.async.bulk.tensor.$Rd.global.shared::cta.tile.bulk_group";
    d.load(kernel(2, R"(
  shl.b32 %r5, %t, 2;
FILL: add.u32 %r7, %r1, %r5; cvt.rn.f32.u32 %r6, %r5; st.shared.u32 [%r7], %r6; add.u32 %r5, %r5, 128;
  setp.lt.u32 %p2, %r5, 1024; @%p2 bra FILL;
  fence.proxy.async.shared::cta; bar.sync 0;
  @%p1 )" + op + R"( [%rd1, $C], [%r3];
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group 0;)"));
    const Outcome o = d.run("k", 1, 32, map, d.buffer(8), at, 1024u, 0u);
    INFO(texts(o));
    REQUIRE(o.error == 0);
    CHECK(o.findings.empty());
    std::vector<float> want = tensor;
    for_box(c, 0, [&](int64_t from, uint64_t to) {
      if (from < 0 || from % 4) return;
      float& w = want[static_cast<size_t>(from) / 4];
      w = (add ? w : 0.0f) + static_cast<float>(to);
    });
    CHECK(d.download<float>(c.map.base, tensor.size()) == want);
  }
}
