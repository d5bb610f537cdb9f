// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What one rank does in attention over ranks: round by round whose keys it meets, which rows see
// which of them, and what travels meanwhile. Data for an executor: pure.
#pragma once

#include "collective/plans/attention_ranges.h"

namespace lathe {

enum class Rotation { ring, allgather };

constexpr int kNoRank = -1;

// A message between this rank and `peer`: `tokens` keys (both K and V, or dK and dV) from `begin`
// on, counted in the buffer of their owner. kNoRank: none.
struct KeyMessage {
  int peer = kNoRank;
  int owner = kNoRank;  // whose keys
  int64_t begin = 0, tokens = 0;

  explicit operator bool() const { return peer != kNoRank && tokens > 0; }
  bool operator==(const KeyMessage&) const = default;
};

// Round i of a ring works on the keys of owner (rank - i) mod W. Its hop of keys runs beside it and
// brings what round i + 1 reads. The keys of an owner travel as far as there is a rank that sees
// one of them, and no further; there the gradients have met all rows and go straight home.
//
// Gathered keys: round 0 works on the rank's own, beside the one exchange of all; round 1 on those
// of all others, which lie in one buffer by rank (key_offsets). The backward takes the rounds from
// the last to the first: what the others own can then travel home beside the rank's own.
struct AttentionRound {
  int owner = kNoRank;  // kNoRank: all the others'
  std::vector<AttentionRange> ranges;
  int64_t visible = 0;  // (row, key): the round's work

  // Of a ring, beside this round.
  KeyMessage send_keys, receive_keys;
  // Of a ring's backward, after this round: the sum of the owner's gradients so far goes on to the
  // next rank, or home. receive_gradients: the sum that the next round adds its part to;
  // receive_home: that of this rank's own keys, complete.
  KeyMessage send_gradients, receive_gradients, receive_home;
};

struct AttentionRounds {
  Rotation rotation = Rotation::ring;
  int rank = 0, world = 1;
  int64_t query_tokens = 0;
  std::vector<int64_t> key_tokens;   // by rank
  std::vector<int64_t> key_offsets;  // W + 1: of the gathered buffer
  int64_t most_key_tokens = 0;       // of a rank: what a travelling buffer holds
  // As many on every rank: those behind have no visible pair on any.
  std::vector<AttentionRound> rounds;

  // Of gathered keys, by rank: which of the rank's own keys the peer sees, from the first to the
  // last; and which of the peer's keys the rank sees. One group. The backward has one more, with
  // both directions swapped: gradients of keys, partial, to be summed by their owner.
  std::vector<KeyMessage> send_keys, receive_keys;

  const AttentionRound& own() const { return rounds.front(); }
};

// `layout` was made for the same axes. INVALID_ARGUMENT for a rank outside its world.
Result<AttentionRounds> attention_rounds(const Layout& layout, int rank, Rotation rotation,
                                         const VisibleRange& range);

// What a rank sends and how many NCCL groups it calls, forward or backward; tokens of keys as they
// go (K and V), tokens of their gradients. A ring's backward posts keys of round i with gradients
// of round i - 1; it and a backward with gathered keys send keys again where `keys_kept` is false.
struct ExchangeCounts {
  int groups = 0, sends = 0, receives = 0;
  int64_t key_tokens = 0, gradient_tokens = 0;  // sent
  bool operator==(const ExchangeCounts&) const = default;
};
ExchangeCounts forward_exchange(const AttentionRounds& rounds);
ExchangeCounts backward_exchange(const AttentionRounds& rounds, bool keys_kept);

}  // namespace lathe
