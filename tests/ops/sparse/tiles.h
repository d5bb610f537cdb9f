// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file lists configurations of the kernels of sparse_flash_attention with tiles that are not
// the default, and runs them on sm_80 under several schedules.
#pragma once

#include <random>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/sparse/case.h"

namespace apitest {

using sparse_case::Lists;

struct Row {
  lathe_dtype dtype;
  int head_dim, rope_dim, value_dim;
  const char* tile;
  std::vector<int> groups;  // query heads of a key head that the tile is offered for
  std::string flags;        // of packed, sinks, wide, values_in_keys, ordered
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

inline SparseCase case_of(const Row& row) {
  SparseCase c;
  c.dtype = row.dtype, c.cu_dtype = row.has("wide") ? LATHE_I64 : LATHE_I32;
  auto& s = c.shape;
  s.head_dim = row.head_dim, s.rope_dim = row.rope_dim, s.value_dim = row.value_dim;
  s.packed = row.has("packed"), s.sinks = row.has("sinks");
  s.values_in_keys = row.has("values_in_keys"), s.group = row.groups[0];
  c.deterministic = row.has("ordered");
  return c;
}
inline SparseCase forward_of(const Row& row) {
  SparseCase c = case_of(row);
  c.tile = row.tile, c.splits = 1;
  return c;
}
// The case reads the reference's forward, so that no kernel of the forward is compiled.
inline SparseCase backward_of(const Row& row) {
  SparseCase c = case_of(row);
  c.main_tile = row.tile, c.backward = c.given_forward = true;
  return c;
}

inline void draw_shape(const Row& row, std::mt19937& random, SparseCase* c) {
  const auto one_of = [&](const std::vector<int>& list) { return list[random() % list.size()]; };
  auto& s = c->shape;
  const int sequences = one_of({1, 2, 4});
  const int rows = one_of({1, 2, 3}), keys = one_of({0, 1, 40, 97, 200});
  for (int n = 0; n < sequences; ++n) {
    s.rows.push_back(s.packed ? one_of({0, 1, 3}) : rows);
    s.keys.push_back(s.packed ? one_of({0, 1, 31, 97}) : keys);
  }
  if (s.packed) s.padding_q = one_of({0, 2}), s.padding_k = one_of({0, 3});
  s.group = one_of(row.groups);
  s.kv_heads = s.group > 16 ? 1 : one_of({1, 2});
  s.topk = one_of({1, 31, 63, 64, 65, 95, 128, 150});
  s.absolute = random() % 4 == 0;
  s.block = s.absolute ? 1 : one_of({1, 1, 2, 16});
  if (s.block > 1) s.topk = one_of({1, 5, 9});
  s.causal = random() % 2 == 0, s.q_pos = random() % 2 == 0;
  s.lists = static_cast<Lists>(one_of({0, 0, 0, 0, 1, 2, 3, 4}));
}

// Returns `turns` cases of each row, made by `of`.
inline std::vector<SparseCase> random_cases(const std::vector<Row>& rows, int turns,
                                            SparseCase (*of)(const Row& row)) {
  std::mt19937 random(1);
  std::vector<SparseCase> cases;
  for (const Row& row : rows) {
    for (int turn = 0; turn < turns; ++turn) {
      SparseCase c = of(row);
      draw_shape(row, random, &c);
      if (!c.backward && turn % 3 == 2) c.splits = 1 + turn;
      c.seed = static_cast<uint32_t>(cases.size()) + 1;
      cases.push_back(c);
    }
  }
  return cases;
}

inline Answer run_here(const SparseCase& c, const ref::SparseAttention& a) {
  return run_sparse(shared_context(), c, a);
}
inline void check_all(const std::vector<SparseCase>& cases) {
  under_schedules(
      cases.size(), [&](size_t i) { return run_here(cases[i], make_sparse(cases[i])); },
      [&](size_t i, const Answer& answer) {
        INFO(cases[i].text());
        check_sparse(cases[i], make_sparse(cases[i]), answer);
        check_no_spills(answer);
      },
      "sm_80");
}

// Runs the tests below on sm_80; each run gives one answer.
inline std::vector<Answer> on_sm80(const std::function<void(const Give&)>& work) {
  const auto answers = in_child(schedule_number(0, "sm_80"), work);
  for (const Answer& answer : answers) check_clean(answer);
  return answers;
}

}  // namespace apitest
