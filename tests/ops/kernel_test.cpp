// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what a slot keeps of a spec for launches.
#include "ops/kernel.h"

#include <doctest/doctest.h>

namespace {

using namespace lathe;

TEST_CASE("a slot keeps the constants that launches compute with, by their names") {
  KernelSpec spec;
  spec.threads = 96, spec.smem_bytes = 4096;
  const char* const names[] = {
      "m",      "n",         "width",    "value_width",  "packed",    "local",
      "ranges", "states",    "grads",    "ranks",        "vector",    "lanes",
      "v",      "key_lanes", "pack_gqa", "whole_groups", "persistent"};
  for (int i = 0; const char* name : names) {
    spec.add({Constant::integer(name, "kSomething", 100 + i++)});
  }
  spec.add({Constant::integer("mm", "kOther", 7)});
  const KernelSlot slot(spec);
  const KernelNumbers& kept = slot.numbers();
  const int64_t found[] = {
      kept.m,      kept.n,         kept.width,    kept.value_width,  kept.packed,    kept.local,
      kept.ranges, kept.states,    kept.grads,    kept.ranks,        kept.vector,    kept.lanes,
      kept.v,      kept.key_lanes, kept.pack_gqa, kept.whole_groups, kept.persistent};
  for (int i = 0; const int64_t number : found) {
    CAPTURE(names[i]);
    CHECK(number == spec.constant(names[i]));
    CHECK(number == 100 + i++);
  }
  CHECK(kept.threads == 96);
  CHECK(kept.smem_bytes == 4096);
  CHECK_FALSE(kept.mapped);
  spec.tensor_maps.push_back({"q", Dtype::bf16, {64, 128}, 128});
  CHECK(KernelNumbers(spec).mapped);
  CHECK(KernelSlot().numbers().m == 0);
}

}  // namespace
