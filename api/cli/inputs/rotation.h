// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The flags of a run over ranks: how many, how keys travel, which tokens each rank holds.
#pragma once

#include "api/cli/options.h"
#include "api/cli/problem.h"

namespace lathe::cli {

struct Ranks {
  int count = 0;        // 0: alone, without a group
  unsigned method = 0;  // of lathe_problem_group
  lathe_balance balance = LATHE_BALANCE_NONE;

  Ranks() = default;
  Ranks(int ranks) : count(ranks) {}  // NOLINT: contiguous parts are the rule
};

// Flags as given; "": not given.
struct RankFlags {
  std::string ranks, rotate, balance;
};
void add_rank_flags(CLI::App* verb, RankFlags* flags);

// Refuses what the operator has no choice of.
Ranks parse_ranks(const RankFlags& flags, const lathe_operator_info* op);

}  // namespace lathe::cli
