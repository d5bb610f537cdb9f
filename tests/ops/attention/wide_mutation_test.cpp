// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are the lists of mutations of the backward by warpgroups for wide heads and with lists.
#include <doctest/doctest.h>

#include "tests/ops/attention/mutants.h"

using namespace apitest;

namespace {

AttentionCase wide_case(int64_t head_dim, int64_t value_dim) {
  AttentionCase c;
  c.head_dim = head_dim, c.value_dim = value_dim;
  c.queries = {330}, c.keys = {70};
  c.backward = c.given_forward = true;
  return c;
}

// The first tile of keys is in all lists of queries, the second in two of five, the third in four.
// So the second comes to its turn early, and walks end in phases of either parity.
const char* const kMask =
    "__device__ bool mask_mod(int, int, int q_idx, int kv_idx) {\n"
    "  const int tile = kv_idx / 128, block = q_idx / 128;\n"
    "  if (block == 3) return true;\n"
    "  const bool listed = tile == 0 || block == 0 || (tile == 2 && block > 1);\n"
    "  return listed && (q_idx + kv_idx) % 5 != 2;\n}\n";

Subject listed(AttentionCase c, BackwardForm form) {
  c.queries = {600}, c.keys = {300}, c.causal = false;
  c.texts["mask_mod"] = kMask;
  ref::Attention inputs = make_inputs(c);
  inputs.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) {
    const int64_t tile = j / 128, block = i / 128;
    if (block == 3) return true;
    const bool in_list = tile == 0 || block == 0 || (tile == 2 && block > 1);
    return in_list && (i + j) % 5 != 2;
  };
  return backward_subject(c, inputs, form);
}

}  // namespace

TEST_CASE("backward by columns of 192: nothing that orders it can go") {
  check_mutations(backward_subject(wide_case(192, 192), BackwardForm::columns));
}

TEST_CASE("backward by columns of 256: nothing that orders it can go") {
  check_mutations(backward_subject(wide_case(256, 256), BackwardForm::columns));
}

TEST_CASE("backward by warpgroups, in order, keys of 192: nothing that orders it can go") {
  AttentionCase c = wide_case(192, 128);
  c.keys = {300}, c.causal = c.deterministic = true;
  check_mutations(backward_subject(c, BackwardForm::halves));
}

TEST_CASE("backward by warpgroups, in order, by lists: nothing that orders it can go") {
  AttentionCase c = wide_case(64, 64);
  c.deterministic = true;
  check_mutations(listed(c, BackwardForm::halves));
}

TEST_CASE("backward by columns, by lists: nothing that orders it can go") {
  check_mutations(listed(wide_case(192, 192), BackwardForm::columns));
}
