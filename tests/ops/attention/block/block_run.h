// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs random steps of ring attention in children, under schedules of an architecture of
// the family that the case names.
#pragma once

#include <algorithm>
#include <functional>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/block/block_case.h"

namespace apitest {

// One step: what it goes on from, and how many multiprocessors are left to it.
struct BlockCase {
  TileRow row;
  BlockInputs in;
  bool first = false;   // of a forward
  std::string written;  // of a backward: block_gradients_call
  int64_t sm_margin = 0;
  std::string text;
};

inline Answer run_forward(const BlockCase& c) {
  return execute(shared_context(), block_call(c.row, c.in, c.first, c.sm_margin));
}
inline Answer run_backward(const BlockCase& c) {
  return execute(shared_context(), block_gradients_call(c.row, c.in, c.written, c.sm_margin));
}

inline std::vector<BlockCase> random_cases(const std::vector<TileRow>& rows, uint32_t seed) {
  std::vector<BlockCase> cases;
  for (const TileRow& row : rows) {
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      BlockCase c{row, make_block(row, seed, turn == 3 ? 3 : 1)};
      c.first = turn % 3 == 0;
      c.written = turn == 1 ? "first" : turn == 2 ? "first_keys" : "";
      c.text = row.flags + " " + row.tile + " seed " + std::to_string(seed);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

// Portable kernels run on sm_80, the others on the architecture that they are made for.
inline const char* arch() { return in_family("sm90") ? "sm_90a" : "sm_80"; }

// By warpgroups a width has one tile.
inline TileRow row_of(TileRow row) {
  if (in_family("sm90")) row.tile.clear();
  return row;
}
inline std::vector<TileRow> rows_of(std::vector<TileRow> rows) {
  for (TileRow& row : rows) row = row_of(row);
  return rows;
}

// By warpgroups steps have ranges. A score_mod may take more registers than there are.
inline bool own_forward(const TileRow& row) {
  return row.dtype != LATHE_F32 && row.has("ranges") && !row.has("score");
}
inline bool own_backward(const TileRow& row) {
  return own_forward(row) && row.width == row.value_width && row.width % 64 == 0 &&
         row.width <= 128 && !row.has("ordered") && !row.has("mask");
}

// `own`: there is a kernel by warpgroups for the row. Tiles that are named, and these, keep
// everything in registers.
inline void check_own(const TileRow& row, const Answer& answer, const char* kernel, bool own) {
  CAPTURE(kernel);
  own = own && in_family("sm90");
  if (own) CHECK(!answer.spec(kernel + std::string("_warpgroups")).empty());
  const bool narrow = std::max(row.width, row.value_width) <= 128;
  if (own || (!row.tile.empty() && narrow)) check_no_spills(answer);
}

inline std::vector<Answer> under(uint64_t schedule, const std::function<void(const Give&)>& work) {
  const auto answers = in_child(schedule_number(schedule, arch()), work);
  for (const Answer& answer : answers) check_clean(answer);
  return answers;
}

inline void check_each(const std::vector<BlockCase>& cases, Answer (*run)(const BlockCase&),
                       void (*check)(const BlockCase&, const Answer&)) {
  const auto answers = under(3, [&](const Give& give) {
    for (const BlockCase& c : cases) give([&] { return run(c); });
  });
  REQUIRE(answers.size() == cases.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    INFO(cases[i].text);
    check(cases[i], answers[i]);
  }
}

// All but one of the multiprocessors of sm_80: tiles take turns.
constexpr int64_t kMargin = 107;

}  // namespace apitest
