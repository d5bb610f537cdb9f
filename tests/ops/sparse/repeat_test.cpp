// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sparse_flash_attention over ten schedules: the order of warps, of blocks'
// additions and of what is asynchronous differs, results must not.
#include "tests/harness/repeat.h"

#include "tests/harness/check.h"
#include "tests/ops/sparse/case.h"

using namespace apitest;

namespace {

SparseCase small() {
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 64, s.rope_dim = 16, s.value_dim = 64, s.kv_heads = 2, s.group = 8;
  s.rows = {17, 0, 9}, s.keys = {40, 3, 11}, s.topk = 65;
  s.packed = s.causal = s.sinks = true;
  return c;
}

void check_schedules(const SparseCase& c) {
  INFO(c.text());
  check_repeats(10, [&] { return run_sparse(make_context().get(), c, make_sparse(c)); });
}

TEST_CASE("sparse attention: a forward is the same bits in every schedule") {
  for (const int splits : {1, 3}) {
    SparseCase c = small();
    c.splits = splits;
    check_schedules(c);
  }
}

// Keys are named by many rows, and more than once by a row.
TEST_CASE("sparse attention: a deterministic backward is the same bits in every schedule") {
  for (const bool inside : {false, true}) {
    SparseCase c = small();
    c.backward = c.deterministic = true, c.shape.values_in_keys = inside;
    check_schedules(c);
  }
}

// More heads than a tile has, and lists longer than its keys.
TEST_CASE("sparse attention: wide heads in groups of 24 are the same bits in every schedule") {
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 128, s.rope_dim = 64, s.value_dim = 128, s.kv_heads = 2, s.group = 24;
  s.rows = {3, 0, 4}, s.keys = {40, 7, 90}, s.padding_q = 1, s.topk = 130;
  s.packed = s.causal = s.sinks = true;
  c.splits = 1;
  check_schedules(c);
  // Rows that name few keys, many of them more than once.
  s.rows = {5, 0, 4}, s.keys = {6, 3, 20}, s.topk = 40;
  s.causal = s.sinks = false, c.cu_dtype = LATHE_I64;
  c.backward = c.deterministic = true, c.splits = 0;
  check_schedules(c);
  s.packed = false, s.values_in_keys = s.sinks = true, s.padding_q = 0;
  s.head_dim = 192, s.rope_dim = 0, s.rows = {4, 4}, s.keys = {20, 20};
  check_schedules(c);
}

}  // namespace
