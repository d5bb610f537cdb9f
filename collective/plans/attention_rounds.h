// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans what one rank does in attention over ranks. Each round says whose keys are read, which rows
// see which of those keys, and which messages travel meanwhile. The plan is data for an executor.
// Pure.
#pragma once

#include "collective/plans/attention_ranges.h"

namespace lathe {

enum class Rotation { ring, allgather };

constexpr int kNoRank = -1;

// Describes a message between this rank and `peer`: `tokens` keys (both K and V, or dK and dV) from
// `begin` on, counted in the buffer of their owner. kNoRank: none.
struct KeyMessage {
  int peer = kNoRank;
  int owner = kNoRank;  // whose keys
  int64_t begin = 0, tokens = 0;

  explicit operator bool() const { return peer != kNoRank && tokens > 0; }
  bool operator==(const KeyMessage&) const = default;
};

// Round i of a ring works on the keys of owner (rank - i) mod W. Its hop of keys runs beside it and
// brings what round i + 1 reads. The keys of an owner travel up to the last rank that sees one of
// them. There the gradients are complete and go straight home.
//
// With gathered keys, round 0 works on the rank's own keys while the one exchange runs. Round 1
// works on the keys of all other ranks, which lie in one buffer by rank (key_offsets). The backward
// takes the rounds from the last to the first: what the others own can then travel home beside the
// rank's own.
struct AttentionRound {
  int owner = kNoRank;  // kNoRank: all the others'
  std::vector<AttentionRange> ranges;
  int64_t visible = 0;  // (row, key): the round's work

  // A ring posts these messages beside this round.
  KeyMessage send_keys, receive_keys;
  // A ring's backward posts these messages after this round. send_gradients sends the sum of the
  // owner's gradients so far to the next rank, or home. receive_gradients receives the sum that the
  // next round adds to; receive_home receives the complete sum for this rank's own keys.
  KeyMessage send_gradients, receive_gradients, receive_home;
};

struct AttentionRounds {
  Rotation rotation = Rotation::ring;
  int rank = 0, world = 1;
  int64_t query_tokens = 0;
  std::vector<int64_t> key_tokens;   // by rank
  std::vector<int64_t> key_offsets;  // W + 1: of the gathered buffer
  int64_t most_key_tokens = 0;       // of a rank: what a travelling buffer holds
  // With a capacity, the rows of a rank may have at most so many ranges with the keys of
  // another one. Then tokens are those of the capacity, all keys travel to all ranks, and each
  // round's ranges are filled up with empty ones behind all rows; so only ranges depend on the
  // layout. 0: there is no capacity.
  int64_t most_ranges = 0;
  // Every rank has the same number of rounds. Later rounds would have no visible pair on any rank.
  std::vector<AttentionRound> rounds;

  // With gathered keys, one group sends to each peer the own keys that the peer sees, from the
  // first to the last, and receives the peer's keys that this rank sees. The vectors are by rank.
  // The backward has a second group with both directions swapped: it carries partial gradients of
  // keys, and the owner of the keys sums them.
  std::vector<KeyMessage> send_keys, receive_keys;

  const AttentionRound& own() const { return rounds.front(); }
};

// `layout` was made for the same axes. Returns INVALID_ARGUMENT for a rank outside its world.
Result<AttentionRounds> attention_rounds(const Layout& layout, int rank, Rotation rotation,
                                         const VisibleRange& range);

// Counts the NCCL groups and messages of a rank in forward or backward, the tokens of keys (K and
// V) that it sends, and the tokens of their gradients. A ring's backward posts keys of round i with
// gradients of round i - 1. A ring's backward and a backward with gathered keys send keys again
// where `keys_kept` is false.
struct ExchangeCounts {
  int groups = 0, sends = 0, receives = 0;
  int64_t key_tokens = 0, gradient_tokens = 0;  // sent
  bool operator==(const ExchangeCounts&) const = default;
};
ExchangeCounts forward_exchange(const AttentionRounds& rounds);
ExchangeCounts backward_exchange(const AttentionRounds& rounds, bool keys_kept);

}  // namespace lathe
