// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What lengths alone decide: ranges, places of shares, and the gathered buffer.
#include <algorithm>
#include <utility>

#include "ops/attention/ranks/sharded.h"

namespace lathe {
namespace {

template <typename T>
Result<DeviceTable> upload(const Device& device, const std::vector<T>& values) {
  return DeviceTable::upload(device, std::as_bytes(std::span(values)));
}

// The sequence of each range, which is that of its first row.
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

Result<std::unique_ptr<const ShardState>> AttentionTables::make(const Device& device,
                                                                const Layout& layout,
                                                                AttentionRounds attention_rounds,
                                                                bool names_sequences) {
  auto out = std::make_unique<AttentionTables>();
  out->rounds_ = std::move(attention_rounds);
  out->sequences_ = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  out->gather_only_seen();
  const AttentionRounds& rounds = out->rounds_;
  std::vector<AttentionRange> all;
  for (const AttentionRound& round : rounds.rounds) {
    out->first_.push_back(static_cast<int64_t>(all.size()));
    all.insert(all.end(), round.ranges.begin(), round.ranges.end());
  }
  LATHE_ASSIGN(out->pairs_, upload(device, all));
  if (names_sequences) {
    LATHE_ASSIGN(out->range_sequences_, upload(device, sequences_of(all, layout, rounds.rank)));
  }
  // Three words each: tokens of the parts before it, its first token, its last + 1; -1: own.
  const auto own = static_cast<int32_t>(rounds.key_tokens[rounds.rank]);
  std::vector<int32_t> places = {-1, 0, own, 0, 0, own};
  for (int peer = 0; peer < static_cast<int>(rounds.send_keys.size()); ++peer) {
    // Whoever got keys returns their gradients.
    const KeyMessage& share = rounds.send_keys[peer];
    if (!share && peer != rounds.rank) continue;
    const auto before = static_cast<int32_t>(peer == rounds.rank ? -1 : out->share_tokens_);
    places.insert(places.end(), {before, static_cast<int32_t>(share.begin),
                                 static_cast<int32_t>(share.begin + share.tokens)});
    out->share_tokens_ += share ? share.tokens : 0;
    ++out->shares_;
  }
  LATHE_ASSIGN(out->places_, upload(device, places));
  const size_t messages = 2 * static_cast<size_t>(rounds.world);
  out->sends_.resize(messages);
  out->receives_.resize(messages);
  return std::unique_ptr<const ShardState>(std::move(out));
}

// The rounds count keys in a buffer of all ranks' keys. What a range holds is seen and stays side
// by side.
void AttentionTables::gather_only_seen() {
  for (const KeyMessage& message : rounds_.receive_keys) {
    gathered_.push_back(gathered_.back() + (message ? message.tokens : 0));
  }
  if (rounds_.rotation != Rotation::allgather) return;
  for (AttentionRange& range : rounds_.rounds.back().ranges) {
    int owner = 0;
    while (rounds_.key_offsets[owner + 1] <= range.ka) ++owner;
    const auto moved = static_cast<int32_t>(gathered_[owner] - rounds_.key_offsets[owner] -
                                            rounds_.receive_keys[owner].begin);
    range.ka += moved;
    range.kb += moved;
  }
}

AttentionTables::Places AttentionTables::places(int which) const {
  constexpr int kPlaceBytes = 3 * sizeof(int32_t);
  const char* data = places_.data() + which * kPlaceBytes;
  if (which == kShares) return {data, shares_, share_tokens_};
  return {data, 1, rounds_.key_tokens[rounds_.rank]};
}

}  // namespace lathe
