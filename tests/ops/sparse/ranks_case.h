// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes cases of sparse_flash_attention for tests over ranks and compares their results
// with those of one rank: rows bit for bit, for what a list names is the same in the same order;
// gradients of keys and sinks to the order of float32 sums.
#pragma once

#include "tests/harness/check.h"
#include "tests/harness/ranks.h"
#include "tests/ops/sparse/case.h"

namespace apitest {

inline SparseCase batch(int count, int rows, int keys) {
  SparseCase c;
  c.shape.rows.assign(static_cast<size_t>(count), rows);
  c.shape.keys.assign(static_cast<size_t>(count), keys);
  c.shape.kv_heads = 2, c.shape.group = 4, c.shape.topk = 40;
  c.backward = c.deterministic = true;
  return c;
}
inline SparseCase packed(std::vector<int> rows, std::vector<int> keys) {
  SparseCase c = batch(1, 0, 0);
  c.shape.rows = std::move(rows), c.shape.keys = std::move(keys), c.shape.packed = true;
  return c;
}

inline Call whole_call(const SparseCase& c) {
  return sparse_call(c, make_sparse(c), c.backward ? SparsePart::both : SparsePart::forward);
}
inline Ranks ranks_of(int world, lathe_balance balance) {
  return {.world = world, .balance = balance, .flags = LATHE_REDUCE_PARAMETER_GRADS};
}

// Checks sums of the same terms in another order, rounded to bf16 where they were.
inline void check_sums(const std::string& name, const Values& found, const Values& expected) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  check_near(found, expected, 1e-5 * largest, name == "dsinks" ? 1e-5 : 1.0 / 128, name);
}
inline void check_equal(const Outputs& many, const Outputs& one) {
  REQUIRE(many.size() == one.size());
  for (const auto& [name, expected] : one) {
    if (name == "dk" || name == "dv" || name == "dk_rope" || name == "dsinks") {
      check_sums(name, many.at(name), expected);
    } else {
      CHECK_MESSAGE((many.at(name) == expected), name);
    }
  }
}

}  // namespace apitest
