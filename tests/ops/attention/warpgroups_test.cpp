// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the forward by warpgroups at every width it has a tile for: numbers of key
// blocks that fill its ring unevenly, lengths beside the borders of its tiles, and neighbours and
// padding of NaN, which must not reach a result.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

const bool kFamily = choose_family("sm90");

struct Width {
  int64_t head_dim, value_dim;
  int64_t keys, local_keys;  // of a step, without a mask and with one
};
constexpr Width kWidths[] = {{64, 64, 128, 128},   {96, 96, 128, 128},   {128, 128, 176, 128},
                             {192, 128, 128, 128}, {192, 192, 112, 112}, {256, 256, 80, 80},
                             {64, 256, 80, 80},    {128, 64, 128, 128},  {64, 128, 128, 128}};

AttentionCase case_of(const Width& width) {
  AttentionCase c;
  c.head_dim = width.head_dim, c.value_dim = width.value_dim;
  return c;
}

// Other architectures have the portable kernel, which gets the same cases.
void check_forward(const AttentionCase& c, const Width& width) {
  const Answer answer = checked(c);
  if (!on_hopper()) return;
  const std::string spec = answer.spec("attention_forward_warpgroups");
  const int64_t keys = c.causal || c.left >= 0 ? width.local_keys : width.keys;
  CHECK_MESSAGE(spec.find(" n=" + std::to_string(keys) + " ") != spec.npos, spec);
}

}  // namespace

// One block of the grid gets several of these tiles, so that the ring's phases turn at odd places.
TEST_CASE("forward by warpgroups: packed sequences of 0 to 8 key blocks beside one of NaN") {
  REQUIRE(kFamily);
  for (const Width& width : kWidths) {
    const int64_t n = width.keys;
    AttentionCase c = case_of(width);
    c.packed = true;
    c.queries = {1, 65, 0, 64, 127, 33, 128, 63, 129, 3};
    c.keys = {0, n, 5, 2 * n - 1, 1, 2 * n, 3 * n - 7, n + 1, 5 * n, 8 * n - 1};
    c.padding_q = 3, c.padding_k = n;
    c.poisoned = 5;
    check_forward(c, width);
    c.dtype = LATHE_F16, c.cu_dtype = LATHE_I64;
    c.causal = true, c.poisoned = 7, c.sinks = true;
    check_forward(c, width);
  }
}

TEST_CASE("forward by warpgroups: lengths beside the borders of tiles, packed") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.packed = true;
    c.queries = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    c.keys = {1, 63, 64, 65, 79, 80, 81, 127, 128, 129, 0, 175, 176, 177};
    c.poisoned = 5;
    check_forward(c, width);
  }
}

TEST_CASE("forward by warpgroups: sequences of the same length") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {129, 129}, c.keys = {2 * width.keys + 1, 2 * width.keys + 1};
    c.kv_heads = 2;
    c.left = width.keys + 3, c.right = 0;
    c.softcap = 5, c.slopes = Slopes::per_sequence;
    c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    check_forward(c, width);
  }
}
