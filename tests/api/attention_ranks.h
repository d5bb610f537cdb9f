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
  int sm_margin = 0, gather_heads = 0;
  std::map<std::string, std::string> texts;  // of score_mod and mask_mod
  std::vector<double> capture;               // float32 capture_0, if there is any
  // Of each rank in turn, the sum over its plans; null: not asked for.
  std::vector<lathe_estimate>* estimates = nullptr;
  std::string text() const;
};

// Throws what a rank threw, the first of them. `saved_forward` cases run as two plans per rank.
Values run_attention_ranks(const AttentionCase& attention, const ref::Attention& inputs,
                           const RankOptions& options);

}  // namespace apitest
