// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Floors of kda by hand.
#include "bench/operators/kda_work.h"

#include <doctest/doctest.h>

using bench::KdaSize;

TEST_CASE("kda: the least bytes of a call") {
  KdaSize size;
  size.tokens = 10, size.heads = 2, size.group = 3, size.key_dim = 8, size.value_dim = 12;
  // q and k 160 values each, v and o 720 each, g 480, beta 60.
  CHECK(size.minimum_bytes() == 2 * (2 * 160 + 2 * 720 + 480 + 60));
  size.gate = LATHE_F32;
  CHECK(size.minimum_bytes() == 2 * (2 * 160 + 2 * 720 + 60) + 4 * 480);
  size.final_state = true;  // one state read, one written, 6 heads of 96 values
  CHECK(size.minimum_bytes() == 2 * (2 * 160 + 2 * 720 + 60) + 4 * 480 + 2 * 4 * 576);
  size.final_state = false, size.backward = true;
  CHECK(size.minimum_bytes() == 2 * (4 * 160 + 3 * 720 + 2 * 60) + 2 * 4 * 480);
  size.fused = true;  // A_log and dt_bias and their gradients
  CHECK(size.minimum_bytes() == 2 * (4 * 160 + 3 * 720 + 2 * 60) + 2 * 4 * 480 + 2 * 4 * 6 * 9);
}

TEST_CASE("kda: products of the state and of blocks") {
  KdaSize size;
  size.tokens = 32, size.heads = 2;
  CHECK(size.state_ops() == 6.0 * 32 * 2 * 128 * 128);
  CHECK(size.block_ops() == 4.0 * 16 * 32 * 2 * 256);
  size.backward = true;
  CHECK(size.state_ops() == 16.0 * 32 * 2 * 128 * 128);
}

TEST_CASE("kda: a shape is told in a line") {
  KdaSize size;
  size.batch = 2, size.tokens = 100, size.heads = 4, size.group = 2, size.sequences = 3;
  size.fused = true, size.segments = 2;
  CHECK(size.text() == "B2 T100 H4 HV8 K128 V128 N3 fused segments2");
}
