// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention over ten schedules: the order of warps, of blocks' additions and of what
// is asynchronous differs, results must not.
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

}  // namespace
