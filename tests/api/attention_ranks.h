// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A case of flash_attention over ranks that are threads: its tensors dealt out by the shard's
// intervals, the results put together as one rank has them.
#pragma once

#include "tests/api/attention_case.h"

namespace apitest {

struct RankOptions {
  int world = 2;
  lathe_balance balance = LATHE_BALANCE_NONE;
  unsigned flags = 0;      // of lathe_problem_group
  int64_t block_size = 0;  // of ptrr
  std::string text() const;
};

// Throws what a rank threw, the first of them. `saved_forward` cases run as two plans per rank.
Values run_attention_ranks(const AttentionCase& attention, const ref::Attention& inputs,
                           const RankOptions& options);

// Equal bit for bit to `expected`.
void check_bits(const Values& actual, const Values& expected);

}  // namespace apitest
