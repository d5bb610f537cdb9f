// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The schedule of ring attention as data, and the rule that classes pairs of intervals. Pure.
#pragma once

#include "collective/shard.h"

namespace lathe {

constexpr int kNoRank = -1;

// Of the rank's rows and the owner's keys: all, one half of a head-tail shard, or nothing.
enum class Span { none, all, low, high };
enum class StepMask { skip, full, causal };

// What rank `rank` does in round `step`: it works on the keys of `owner`, sends them on while it
// does, and in the backward sends the gradients of keys after it. kNoRank: nobody.
struct RingStep {
  int rank = 0, step = 0, owner = 0;
  int send_to = kNoRank, recv_from = kNoRank;
  Span q = Span::none, kv = Span::none;
  StepMask mask = StepMask::skip;
  int dkv_send_to = kNoRank, dkv_recv_from = kNoRank, dkv_recv_owner = kNoRank;
};
// All of it, rank by rank. One sequence with as many keys as queries, cut contiguously or, with
// `head_tail`, into chunks r and 2W - 1 - r of 2W: then every step but the first is half a block of
// work on every rank. Everything else follows pair_rule.
std::vector<RingStep> ring_schedule(int world, bool causal, bool head_tail);

enum class PairKind { none, full, partial };
// Rows [q.begin, q.end) and keys [kv.begin, kv.end) of one sequence that has `offset` more keys
// than queries: a row sees keys from `left` before its own to `right` behind, below 0 all of them.
// Row i of the interval sees key j of the interval if -left <= j - i - shift <= right.
struct PairRule {
  PairKind kind = PairKind::none;
  int64_t shift = 0;
  int64_t visible = 0;  // pairs; a partial one may have none
};
PairRule pair_rule(Interval q, Interval kv, int64_t offset, int64_t left, int64_t right);

// Partial results, (out, natural logarithm of the sum of exponentials), joined in their order: a
// part of lse -inf has no weight, whatever its out holds. The rule that kernels follow in float32.
struct PartialResult {
  double out = 0, lse = 0;
};
PartialResult merge_partials(const std::vector<PartialResult>& parts);

// All keys gathered, rows cut contiguously: what a rank computes is packed attention, aligned to
// the last key, over one slice of the keys.
struct GatherSlice {
  std::vector<int> seq_ids;
  std::vector<int64_t> cu_seqlens_q, cu_seqlens_k;
  Interval keys;
};
Result<std::vector<GatherSlice>> gather_slices(const std::vector<int64_t>& cu_seqlens, int world,
                                               bool causal);

}  // namespace lathe
