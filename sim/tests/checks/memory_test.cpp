// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the allocations of a device, and which of their bytes are defined.
#include "sim/check/memory.h"

#include <doctest/doctest.h>

using namespace sim;

TEST_CASE("allocations: limits, adoption, shadows") {
  Memory memory(0, 1 << 20);
  const uint64_t a = memory.allocate(1000, MemoryKind::device, 1);
  REQUIRE(a != 0);
  CHECK(a % 256 == 0);
  CHECK(memory.used_bytes() == 1000);
  CHECK(memory.allocate(1 << 20, MemoryKind::device, 1) == 0);
  CHECK(memory.first_undefined(a, 1000) == a);
  memory.define(a + 10, 100);
  CHECK(memory.first_undefined(a + 10, 200) == a + 110);
  const uint64_t b = memory.allocate(1000, MemoryKind::device, 1);
  memory.copy_definedness(b + 3, a + 10, 200);
  CHECK(memory.first_undefined(b + 3, 200) == b + 103);
  CHECK(memory.find(a + 1000) == nullptr);
  std::vector<uint8_t> host(256);
  const auto h = reinterpret_cast<uint64_t>(host.data());
  CHECK(memory.adopt(h, 256, MemoryKind::registered_host));
  CHECK(!memory.adopt(h + 10, 8, MemoryKind::registered_host));
  CHECK(memory.first_undefined(h, 256) == UINT64_MAX);
  CHECK(memory.release(h));
  CHECK(memory.release(a));
  CHECK(memory.find(a)->freed);
  CHECK(memory.used_bytes() == 1000);
}
