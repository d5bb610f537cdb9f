// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover rows that are aligned to 2, 4 or 8 bytes where kernels take longest: the steps
// of a ring, and float32.
#include "tests/ops/attention/alignment.h"
#include "tests/ops/attention/block/block_case.h"

using namespace apitest;

TEST_CASE("float32 rows, aligned to an element and to two") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 80, .value_dim = 80, .group = 2};
  c.queries = {19}, c.keys = {19}, c.backward = true;
  check_case(c, 4);
  c.head_dim = c.value_dim = 64, c.packed = true, c.backward = false;
  check_case(c, 8);
}

TEST_CASE("a step of a ring and its gradients") {
  struct Step {
    TileRow row;
    int alignment;
    const char* first;
  };
  ref::AttentionBlock shape;
  shape.rows = 33, shape.keys = 50, shape.heads = 2, shape.kv_heads = 1;
  shape.head_dim = shape.value_dim = 80;
  const Step steps[] = {{{LATHE_BF16, 96, 96, "", "ranges"}, 2, ""},
                        {{LATHE_F16, 96, 96, "", "positions ordered local"}, 4, "first_keys"},
                        {{LATHE_F16, 96, 96, "", "ranges"}, 8, "first"}};
  for (const auto& [row, alignment, first] : steps) {
    CAPTURE(alignment);
    const BlockInputs in = make_block(row, 3, shape, nullptr, 2);
    const bool begins = std::string_view(first) == "first";
    check_block(row, in, begins, run_misplaced(block_call(row, in, begins, 0), alignment));
    check_block_gradients(row, in, first,
                          run_misplaced(block_gradients_call(row, in, first, 0), alignment));
  }
}
