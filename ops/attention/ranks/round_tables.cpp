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
    out.push_back(std::prev(behind)->sequence);
  }
  return out;
}

}  // namespace

MadeShardState RoundTables::make(const Device& device, const Layout& layout,
                                 AttentionRounds made_rounds, bool names_sequences) {
  auto out = std::make_unique<RoundTables>();
  AttentionRounds& rounds = out->rounds = std::move(made_rounds);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  out->sends_keys = bool(rounds.own().send_keys) ||
                    std::any_of(rounds.send_keys.begin(), rounds.send_keys.end(),
                                [](const KeyMessage& message) { return bool(message); });
  out->gather_only_seen();
  std::vector<AttentionRange> all;
  for (const AttentionRound& round : rounds.rounds) {
    out->first_.push_back(static_cast<int64_t>(all.size()));
    all.insert(all.end(), round.ranges.begin(), round.ranges.end());
  }
  LATHE_ASSIGN(out->ranges_, DeviceTable::upload(device, all));
  if (names_sequences) {
    LATHE_ASSIGN(out->range_sequences_,
                 DeviceTable::upload(device, sequences_of(all, layout, rounds.rank)));
  }
  LATHE_TRY(out->upload_terms(device));
  out->messages.reserve(2 * static_cast<size_t>(rounds.world));
  return std::unique_ptr<const ShardState>(std::move(out));
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
    while (rounds.key_offsets[owner + 1] <= range.ka) ++owner;
    const auto moved = static_cast<int32_t>(gathered[owner] - rounds.key_offsets[owner] -
                                            rounds.receive_keys[owner].begin);
    range.ka += moved;
    range.kb += moved;
  }
}

Status RoundTables::upload_terms(const Device& device) {
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
  LATHE_ASSIGN(terms_, DeviceTable::upload(device, words));
  own_sum = {terms_.data(), 1, own_tokens()};
  arrived_sum = {terms_.data() + kTermBytes, 1, own_tokens()};
  shares.data = terms_.data() + 2 * kTermBytes;
  return {};
}

}  // namespace lathe
