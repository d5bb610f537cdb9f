// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/ranks/round_tables.h"

#include <algorithm>
#include <utility>

namespace lathe {
namespace {

// Returns the sequence of each range, which is that of its first row.
std::vector<int32_t> sequences_of(const std::vector<AttentionRange>& ranges, const Layout& layout,
                                  int rank) {
  const std::vector<TokenRun> runs = token_runs(layout.queries[rank], layout.cu_seqlens);
  std::vector<int32_t> out;
  for (const AttentionRange& range : ranges) {
    const auto behind = std::partition_point(
        runs.begin(), runs.end(), [&](const TokenRun& run) { return run.begin <= range.qa; });
    out.push_back(behind == runs.begin() ? 0 : std::prev(behind)->sequence);
  }
  return out;
}

}  // namespace

MadeShardState RoundTables::make(const Device& device, const lathe_shard& shard,
                                 const Wants& wants) {
  auto out = std::make_unique<RoundTables>();
  out->wants_ = wants;
  LATHE_ASSIGN(const TableImage image, out->fill(shard.layout, shard.rank));
  LATHE_ASSIGN(out->table, DeviceTable::upload(device, image.bytes()));
  out->messages.reserve(2 * static_cast<size_t>(out->rounds.world));
  return std::unique_ptr<const ShardState>(std::move(out));
}

Result<TableImage> RoundTables::image(const Layout& layout) const {
  RoundTables other;
  other.wants_ = wants_;
  return other.fill(layout, rounds.rank);
}

Result<TableImage> RoundTables::fill(const Layout& layout, int rank) {
  LATHE_ASSIGN(rounds, attention_rounds(layout, rank, wants_.rotation, wants_.visible));
  sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  sends_keys = bool(rounds.own().send_keys) ||
               std::any_of(rounds.send_keys.begin(), rounds.send_keys.end(),
                           [](const KeyMessage& message) { return bool(message); });
  gather_only_seen();
  std::vector<AttentionRange> all;
  for (const AttentionRound& round : rounds.rounds) {
    first_.push_back(static_cast<int64_t>(all.size()));
    all.insert(all.end(), round.ranges.begin(), round.ranges.end());
  }
  TableImage out;
  ranges_ = out.add(all);
  range_sequences_ = out.add(wants_.names_sequences ? sequences_of(all, layout, rounds.rank)
                                                    : std::vector<int32_t>());
  const size_t terms = out.add(make_terms());
  for (Terms* each : {&own_sum, &arrived_sum, &shares}) each->offset += terms;
  return out;
}

// Changes the rounds, which count keys in a buffer of all ranks' keys, to a buffer of the seen keys
// only. The keys of a range are all seen and stay side by side.
void RoundTables::gather_only_seen() {
  for (const KeyMessage& message : rounds.receive_keys) {
    gathered.push_back(gathered.back() + (message ? message.tokens : 0));
  }
  if (rounds.rotation != Rotation::allgather) return;
  for (AttentionRange& range : rounds.rounds.back().ranges) {
    int owner = 0;
    if (range.ka >= rounds.key_offsets.back()) break;  // the empty ones behind all
    while (rounds.key_offsets[owner + 1] <= range.ka) ++owner;
    const auto moved = static_cast<int32_t>(gathered[owner] - rounds.key_offsets[owner] -
                                            rounds.receive_keys[owner].begin);
    range.ka += moved;
    range.kb += moved;
  }
}

std::vector<int32_t> RoundTables::make_terms() {
  // A term has three words: tokens of the terms before it, or -1 if own rows give it; its first
  // token; its last + 1.
  constexpr int kTermBytes = 3 * sizeof(int32_t);
  const auto own = static_cast<int32_t>(own_tokens());
  std::vector<int32_t> words = {-1, 0, own, 0, 0, own};
  for (int peer = 0; peer < static_cast<int>(rounds.send_keys.size()); ++peer) {
    // A rank that received keys returns their gradients.
    const KeyMessage& share = rounds.send_keys[peer];
    if (!share && peer != rounds.rank) continue;
    const auto before = static_cast<int32_t>(peer == rounds.rank ? -1 : shares.tokens);
    words.insert(words.end(), {before, static_cast<int32_t>(share.begin),
                               static_cast<int32_t>(share.begin + share.tokens)});
    shares.tokens += share ? share.tokens : 0;
    ++shares.count;
  }
  own_sum = {0, 1, own_tokens()};
  arrived_sum = {kTermBytes, 1, own_tokens()};
  shares.offset = 2 * kTermBytes;
  return words;
}

}  // namespace lathe
