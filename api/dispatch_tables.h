// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the tables of an exchange of shards between ranks, in the words of Zhuang et al. (DistCA,
// 2025).
#pragma once

#include "api/shard_cases.h"
#include "collective/plans/dispatch.h"

namespace lathe::kinds {

// Numbers of JSON that an entry of a table takes, in all the tables of an answer that have it.
constexpr int64_t kEntry = 16;

// The tokens of a shard that go to rank `to`, at `offset` of what arrives there. Keys have a copy
// for each shard of queries that needs them.
struct Entry {
  int64_t rank, shard, copy, to, offset;
};

struct Exchange {
  Table seq_len;                  // [rank][shard]
  Json targets;                   // [rank][shard] ranks, or [rank][shard][copy]; kNowhere: none
  std::vector<int64_t> num_seqs;  // shards of each rank, without padding
  std::vector<Entry> entries;     // those of a destination in the order of arrival

  int64_t length(const Entry& entry) const { return seq_len[entry.rank][entry.shard]; }
  Table square() const { return Table(seq_len.size(), std::vector<int64_t>(seq_len.size())); }
};

// Says where each entry goes, and how much each rank receives from each.
Json forward(const Exchange& exchange);
// Says how results go home. Shard k of a rank's receive buffer goes to a token of its owner's
// buffer; gradients of keys to that of the buffer for their copy, so their owner also has to know
// which copies come.
Json reverse(const Exchange& exchange, bool copies);

// Refuses an answer that would not fit. Tables are as wide as their longest rank: a few shards on
// one of many ranks make large ones.
void list_entries(const PlanCase& input, size_t ranks, size_t shards, size_t copies);

}  // namespace lathe::kinds
