// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the rounds of a ring and of gathered keys.
#include "collective/plans/attention_rounds.h"

#include <algorithm>
#include <limits>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Holds the runs of all ranks on both axes, and says which rows see which keys.
class Ranks {
 public:
  Ranks(const Layout& layout, const VisibleRange& range) : layout_(layout), range_(range) {
    for (int rank = 0; rank < layout.world(); ++rank) {
      rows_.push_back(token_runs(layout.queries[rank], layout.cu_seqlens));
      keys_.push_back(token_runs(layout.keys[rank], layout.cu_seqlens_k));
    }
  }

  int world() const { return layout_.world(); }
  const std::vector<TokenRun>& keys(int rank) const { return keys_[rank]; }

  std::vector<AttentionRange> ranges(int rank, int owner) const {
    return ranges(rank, keys_[owner]);
  }
  std::vector<AttentionRange> ranges(int rank, const std::vector<TokenRun>& keys) const {
    return attention_ranges(rows_[rank], keys, layout_, range_);
  }
  bool sees(int rank, int owner) const {
    for (const TokenRun& rows : rows_[rank]) {
      const int n = rows.sequence;
      const int64_t offset = layout_.cu_seqlens_k[n + 1] - layout_.cu_seqlens_k[n] -
                             (layout_.cu_seqlens[n + 1] - layout_.cu_seqlens[n]);
      for (auto keys = first_of(owner, n); keys != keys_[owner].end() && keys->sequence == n;
           ++keys) {
        if (range_rule(rows.positions, keys->positions, offset, range_).visible > 0) return true;
      }
    }
    return false;
  }
  // Returns how many hops the keys of `owner` make: they stop when no later rank sees any of them.
  int hops(int owner) const {
    for (int i = world() - 1; i > 0; --i) {
      if (sees((owner + i) % world(), owner)) return i;
    }
    return 0;
  }
  // Returns the message with the owner's keys from the first to the last that the rank sees.
  KeyMessage seen(int rank, int owner, int peer) const {
    KeyMessage out = {kNoRank, owner, 0, 0};
    const std::vector<AttentionRange> all = ranges(rank, owner);
    if (all.empty() || rank == owner) return out;
    int64_t end = 0;
    out.begin = layout_.key_tokens(owner);
    for (const AttentionRange& range : all) {
      out.begin = std::min<int64_t>(out.begin, range.ka);
      end = std::max<int64_t>(end, range.kb);
    }
    out.tokens = end - out.begin;
    out.peer = peer;
    return out;
  }

 private:
  std::vector<TokenRun>::const_iterator first_of(int owner, int sequence) const {
    return std::partition_point(keys_[owner].begin(), keys_[owner].end(),
                                [&](const TokenRun& run) { return run.sequence < sequence; });
  }

  const Layout& layout_;
  VisibleRange range_;
  std::vector<std::vector<TokenRun>> rows_, keys_;
};

KeyMessage whole(const AttentionRounds& rounds, int peer, int owner) {
  return {peer, owner, 0, rounds.key_tokens[owner]};
}

// In round i rank - 1 sends the keys that it works on, if there is a hop i.
void fill_ring(const Ranks& ranks, AttentionRounds* out) {
  const int world = out->world, rank = out->rank;
  std::vector<int> hops;
  for (int owner = 0; owner < world; ++owner)
    hops.push_back(out->most_ranges > 0 ? world - 1 : ranks.hops(owner));
  const auto at = [&](int r) { return ((r % world) + world) % world; };
  const int count = 1 + *std::max_element(hops.begin(), hops.end());
  for (int i = 0; i < count; ++i) {
    AttentionRound round;
    round.owner = at(rank - i);
    const int owner = round.owner, next = at(rank + 1), last = at(rank - 1), coming = at(last - i);
    if (i <= hops[owner]) round.ranges = ranks.ranges(rank, owner);
    if (i < hops[owner]) {
      round.send_keys = whole(*out, next, owner);
      round.send_gradients = whole(*out, next, owner);
    } else if (i == hops[owner] && i > 0) {
      round.send_gradients = whole(*out, owner, owner);  // home
    }
    if (i < hops[coming]) {
      round.receive_keys = whole(*out, last, coming);
      round.receive_gradients = whole(*out, last, coming);
    }
    if (i == hops[rank] && i > 0) round.receive_home = whole(*out, at(rank + i), rank);
    out->rounds.push_back(std::move(round));
  }
}

void fill_gathered(const Ranks& ranks, AttentionRounds* out) {
  const int rank = out->rank;
  AttentionRound own, others;
  own.owner = rank;
  own.ranges = ranks.ranges(rank, rank);
  std::vector<TokenRun> keys;
  for (int peer = 0; peer < out->world; ++peer) {
    const bool all = out->most_ranges > 0 && peer != rank;
    out->send_keys.push_back(all ? whole(*out, peer, rank) : ranks.seen(peer, rank, peer));
    out->receive_keys.push_back(all ? whole(*out, peer, peer) : ranks.seen(rank, peer, peer));
    if (peer == rank) continue;
    for (TokenRun run : ranks.keys(peer)) {
      run.begin += out->key_offsets[peer];
      keys.push_back(run);
    }
  }
  out->rounds.push_back(std::move(own));
  if (out->world == 1) return;
  others.ranges = ranks.ranges(rank, keys);
  out->rounds.push_back(std::move(others));
}

void count(const KeyMessage& send, const KeyMessage& receive, bool gradients,
           ExchangeCounts* counts) {
  counts->sends += send ? 1 : 0;
  counts->receives += receive ? 1 : 0;
  if (send) (gradients ? counts->gradient_tokens : counts->key_tokens) += send.tokens;
}
// A group without messages makes no NCCL call, so it is not counted.
void end_group(const ExchangeCounts& before, ExchangeCounts* counts) {
  counts->groups += counts->sends + counts->receives > before.sends + before.receives ? 1 : 0;
}

void count_group(const std::vector<KeyMessage>& sends, const std::vector<KeyMessage>& receives,
                 bool gradients, ExchangeCounts* counts) {
  const ExchangeCounts before = *counts;
  for (size_t i = 0; i < sends.size(); ++i) count(sends[i], receives[i], gradients, counts);
  end_group(before, counts);
}

}  // namespace

Result<AttentionRounds> attention_rounds(const Layout& layout, int rank, Rotation rotation,
                                         const VisibleRange& range) {
  if (rank < 0 || rank >= layout.world()) {
    return invalid(text("rank is ", rank, "; allowed are 0 to ", layout.world() - 1));
  }
  AttentionRounds out;
  out.rotation = rotation;
  out.rank = rank;
  out.world = layout.world();
  out.query_tokens = layout.query_rows(rank);
  out.most_ranges = layout.capacity.pieces * layout.capacity.pieces;
  out.key_offsets = {0};
  for (int each = 0; each < out.world; ++each) {
    out.key_tokens.push_back(layout.key_rows(each));
    out.key_offsets.push_back(out.key_offsets.back() + out.key_tokens.back());
  }
  out.most_key_tokens = *std::max_element(out.key_tokens.begin(), out.key_tokens.end());
  const Ranks ranks(layout, range);
  if (rotation == Rotation::ring) {
    fill_ring(ranks, &out);
  } else {
    fill_gathered(ranks, &out);
  }
  for (AttentionRound& round : out.rounds) {
    round.visible = visible_in(round.ranges, range);
    if (out.most_ranges == 0) continue;
    const int64_t owners = round.owner == kNoRank ? out.world - 1 : 1;
    constexpr int32_t kBehind = std::numeric_limits<int32_t>::max();
    round.ranges.resize(owners * out.most_ranges, {kBehind, kBehind, kBehind, kBehind});
  }
  return out;
}

ExchangeCounts forward_exchange(const AttentionRounds& rounds) {
  ExchangeCounts out;
  count_group(rounds.send_keys, rounds.receive_keys, false, &out);  // none in a ring
  for (const AttentionRound& round : rounds.rounds) {
    count_group({round.send_keys}, {round.receive_keys}, false, &out);  // none with gathered keys
  }
  return out;
}

ExchangeCounts backward_exchange(const AttentionRounds& rounds, bool keys_kept) {
  ExchangeCounts out;
  if (rounds.rotation == Rotation::allgather) {
    if (!keys_kept) out = forward_exchange(rounds);
    count_group(rounds.receive_keys, rounds.send_keys, true, &out);
    return out;
  }
  for (size_t i = 0; i <= rounds.rounds.size(); ++i) {
    const ExchangeCounts before = out;
    if (i < rounds.rounds.size() && !keys_kept) {
      count(rounds.rounds[i].send_keys, rounds.rounds[i].receive_keys, false, &out);
    }
    if (i > 0) {
      const AttentionRound& done = rounds.rounds[i - 1];
      count(done.send_gradients, done.receive_gradients, true, &out);
      count({}, done.receive_home, true, &out);
    }
    end_group(before, &out);
  }
  return out;
}

}  // namespace lathe
