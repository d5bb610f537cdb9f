// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the program of flash_attention over ranks.
#include "ops/attention/ranks/dispatch.h"
#include "ops/attention/ranks/heads.h"
#include "ops/attention/ranks/sharded.h"

namespace lathe {

MadeExecutor make_attention_over_ranks(const lathe_problem& problem,
                                       const AttentionRequest& request, const DeviceFacts& facts,
                                       Group* group) {
  LATHE_TRY(check_row_alignment(problem, kRowAlignment));  // rows are sent in such words
  if (problem.group_flags & kRankInvariant) {
    return make_attention_heads(problem, request, facts, group);
  }
  switch (problem.group_flags & (kDispatch | kExchangeHeads)) {
    case kDispatch:
      return make_attention_dispatch(problem, request, facts, group);
    case kExchangeHeads:
      return make_attention_heads(problem, request, facts, group);
    default:
      return make_attention_sharded(request, facts, group, problem.group_flags);
  }
}

}  // namespace lathe
