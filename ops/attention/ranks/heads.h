// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks by heads: one exchange gives every rank whole sequences and a share of
// the heads, an ordinary call works on them, one exchange brings the results home.
#pragma once

#include "collective/group.h"
#include "ops/attention/run.h"
#include "ops/parts.h"

namespace lathe {

// How heads are dealt out: rank r has query heads [r q_heads, (r + 1) q_heads) and key heads
// [r kv_heads / repeat, ..): each key head is on `repeat` ranks, and kv_heads is 1 where that is
// more than one.
struct HeadShare {
  int64_t q_heads = 0, kv_heads = 0, repeat = 1;
};
// INVALID_ARGUMENT, with H, HK and W, for heads that cannot be dealt out evenly.
Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int world);

// Method LATHE_EXCHANGE_HEADS on a group of several ranks. Two levels, by option head_ranks: ranks
// 0 .. head_ranks - 1 exchange heads, the next as many, and so on; between ranks of the same heads
// keys travel a ring. The group is then split, so every rank makes its plan at the same time.
Result<std::unique_ptr<Executor>> make_attention_heads(const lathe_problem& problem,
                                                       const AttentionRequest& request,
                                                       const DeviceFacts& facts, Group* group);

}  // namespace lathe
