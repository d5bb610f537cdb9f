// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the forward by warpgroups where the query heads of a key head are rows of one
// tile: groups that divide a tile's rows and groups that leave some of them to nobody, tokens
// beside the borders of tiles, neighbours and padding of NaN.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

const bool kFamily = choose_family("sm90");

struct Width {
  int64_t head_dim, value_dim, rows;  // of a tile
};
// One whose warps keep their tile in shared memory is among them, and one whose widths differ.
constexpr Width kWidths[] = {{64, 64, 128}, {128, 128, 128}, {192, 128, 128}};

AttentionCase case_of(const Width& width, int64_t group) {
  AttentionCase c;
  c.head_dim = width.head_dim, c.value_dim = width.value_dim;
  c.group = group;
  return c;
}

// Other architectures have the portable kernel, which gets the same cases.
void check_forward(const AttentionCase& c, bool packs) {
  const Answer answer = checked(c);
  if (!on_hopper()) return;
  const std::string spec = answer.spec("attention_forward_warpgroups");
  CHECK_MESSAGE(spec.find(packs ? " pack_gqa=1 " : " pack_gqa=0 ") != spec.npos, spec);
}

}  // namespace

TEST_CASE(
    "groups by warpgroups: packed sequences beside the borders of tiles, one of them of NaN") {
  REQUIRE(kFamily);
  for (const Width& width : kWidths) {
    for (const int64_t group : {4, 5}) {
      const int64_t tokens = width.rows / group;  // of a tile
      AttentionCase c = case_of(width, group);
      c.packed = true;
      c.queries = {1, tokens, 0, tokens - 1, 3, tokens + 1, 2 * tokens, 2};
      c.keys = {130, 65, 40, 1, 64, 129, 200, 0};
      c.padding_q = 3, c.padding_k = 70;
      c.poisoned = 4;
      check_forward(c, true);
      c.dtype = LATHE_F16, c.cu_dtype = LATHE_I64;
      c.causal = true, c.poisoned = 6, c.sinks = true, c.kv_heads = 2;
      check_forward(c, true);
    }
  }
}

TEST_CASE("groups by warpgroups: short sequences of the same length") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width, 6);
    c.queries = {37, 37}, c.keys = {150, 150};
    c.kv_heads = 2;
    c.left = 70, c.right = 0;
    c.softcap = 5, c.slopes = Slopes::per_sequence;
    c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    check_forward(c, true);
    c.fixed_lengths = true;  // few rows of a tile would be used by one head
    check_forward(c, true);
  }
}

TEST_CASE("groups by warpgroups: one head a tile where groups do not fit") {
  for (const int64_t group : {100, 130}) {
    AttentionCase c = case_of({128, 128, 128}, group);
    c.queries = {5, 5}, c.keys = {70, 70};
    check_forward(c, false);
    c.queries = {1, 3}, c.keys = {70, 5};
    c.packed = true;
    check_forward(c, false);
  }
}
