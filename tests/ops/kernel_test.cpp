// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what a slot keeps of a spec for launches.
#include "ops/kernel.h"

#include <doctest/doctest.h>

namespace {

using namespace lathe;

struct Numbers {
  Numbers() = default;
  Numbers(const KernelSpec& spec) : rows(spec.constant("m")), flag(spec.constant("packed", 7)) {}
  long long rows = 0, flag = 0;
};

TEST_CASE("a slot keeps the constants that launches compute with") {
  KernelSpec spec;
  spec.add({Constant::integer("mm", "kOther", 5), Constant::integer("m", "kTileM", 64)});
  CHECK(NumberedSlot<Numbers>(spec).numbers().rows == 64);
  CHECK(NumberedSlot<Numbers>(spec).numbers().flag == 7);  // it has none of the name
  spec.add({Constant::flag("packed", "kPacked", false)});
  CHECK(NumberedSlot<Numbers>(spec).numbers().flag == 0);
  CHECK_FALSE(NumberedSlot<Numbers>().has_value());
  CHECK(NumberedSlot<Numbers>().numbers().rows == 0);
}

}  // namespace
