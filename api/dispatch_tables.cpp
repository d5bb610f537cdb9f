// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/dispatch_tables.h"

#include <algorithm>
#include <numeric>

namespace lathe::kinds {
namespace {

// Returns a table like the targets with the value of each entry, and 0 elsewhere.
template <typename Value>
Json table_of_entries(const Exchange& exchange, const Value& value) {
  Json out = exchange.targets;
  for (Json& rank : out) {
    for (Json& shard : rank) shard = shard.is_array() ? Json(shard.size(), Json(0)) : Json(0);
  }
  for (const Entry& entry : exchange.entries) {
    Json& shard = out[entry.rank][entry.shard];
    (shard.is_array() ? shard[entry.copy] : shard) = value(entry);
  }
  return out;
}

// Adds what each rank receives from each, [i][j] from j, and the sums, as the last column too.
void add_counts(Table received, Json* out) {
  std::vector<int64_t> totals;
  for (auto& row : received) {
    totals.push_back(std::accumulate(row.begin(), row.end(), int64_t{0}));
    row.push_back(totals.back());
  }
  (*out)["num_recv_tokens"] = received;
  (*out)["num_total_recv_tokens"] = totals;
}

}  // namespace

Json forward(const Exchange& exchange) {
  Table received = exchange.square();
  for (const Entry& entry : exchange.entries) {
    received[entry.to][entry.rank] += exchange.length(entry);
  }
  const auto offset = [](const Entry& entry) { return entry.offset; };
  Json out = {{"dst_rank", exchange.targets},
              {"dst_offset", table_of_entries(exchange, offset)},
              {"seq_len", exchange.seq_len},
              {"num_seqs", exchange.num_seqs}};
  add_counts(std::move(received), &out);
  return out;
}

Json reverse(const Exchange& exchange, bool copies) {
  const size_t world = exchange.seq_len.size();
  Table ranks(world), offsets(world), lengths(world), received = exchange.square();
  for (const Entry& entry : exchange.entries) {
    const auto own = exchange.seq_len[entry.rank].begin();
    const auto size = static_cast<int64_t>(exchange.seq_len[entry.rank].size());
    const int64_t before = std::accumulate(own, own + entry.shard, int64_t{0});
    const int64_t buffer = std::accumulate(own + entry.shard, own + size, before);
    ranks[entry.to].push_back(entry.rank);
    offsets[entry.to].push_back(entry.copy * buffer + before);
    lengths[entry.to].push_back(exchange.length(entry));
    received[entry.rank][entry.to] += exchange.length(entry);
  }
  std::vector<size_t> counts;
  for (const auto& list : ranks) counts.push_back(list.size());
  const size_t longest = std::ranges::max(counts);
  for (size_t i = 0; i < world; ++i) {
    ranks[i].resize(longest, kNowhere), offsets[i].resize(longest), lengths[i].resize(longest);
  }
  Json out = {
      {"dst_rank", ranks}, {"dst_offset", offsets}, {"seq_len", lengths}, {"num_seqs", counts}};
  add_counts(std::move(received), &out);
  if (!copies) return out;
  out["seq_recv_mask"] = table_of_entries(exchange, [](const Entry&) { return 1; });
  out["recv_seq_lens"] = exchange.seq_len;
  return out;
}

void list_entries(const PlanCase& input, size_t ranks, size_t shards, size_t copies) {
  const auto world = static_cast<int64_t>(ranks), most = static_cast<int64_t>(shards);
  input.list("pairs of ranks", world * world, 2);
  input.list("shards", world * most, kEntry);
  input.list("copies", world * most * static_cast<int64_t>(copies), kEntry);
}

}  // namespace lathe::kinds
