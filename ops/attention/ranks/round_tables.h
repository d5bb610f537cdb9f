// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds what attention around a ring, or with gathered keys, needs to know about a shard.
#pragma once

#include "collective/plans/attention_rounds.h"
#include "ops/device_table.h"
#include "ops/rank_program.h"

namespace lathe {

// Holds the rounds that follow from a shard's lengths, with their attention ranges on the device.
class RoundTables final : public ShardState {
 public:
  // Says which rounds a call has.
  struct Wants {
    Rotation rotation = Rotation::ring;
    VisibleRange visible;
    bool names_sequences = false;  // mods receive each range's sequence
  };
  static MadeShardState make(const Device& device, const lathe_shard& shard, const Wants& wants);
  Result<TableImage> image(const Layout& layout) const override;

  // Lists the terms of a sum for sum_parts, in the table: `count` of them, which have `tokens`
  // altogether.
  struct Terms {
    size_t offset = 0;
    int count = 0;
    int64_t tokens = 0;
  };

  const void* ranges(int round) const {
    return table.data() + ranges_ + first_[round] * sizeof(AttentionRange);
  }
  const void* range_sequences(int round) const {
    return table.data() + range_sequences_ + first_[round] * sizeof(int32_t);
  }
  int64_t own_tokens() const { return rounds.key_tokens[rounds.rank]; }
  int64_t gathered_tokens() const { return gathered.back(); }

  AttentionRounds rounds;
  int64_t sequences = 0;
  bool sends_keys = false;  // another rank sees own keys
  // Holds the tokens of the gathered keys before each rank's. The gathered keys, rank by rank, are
  // exactly those that this rank sees. Keys that no rank sent could be NaN.
  std::vector<int64_t> gathered = {0};
  // The gradients of own keys are the sum that own rows give alone; a sum that arrived; or own
  // rows' with the shares of other ranks' rows, by rank.
  Terms own_sum, arrived_sum, shares;
  mutable HopMessages messages;  // each run fills these

 private:
  // Fills in what follows from a layout, and lays the tables out, the same way for all layouts of a
  // capacity.
  Result<TableImage> fill(const Layout& layout, int rank);
  void gather_only_seen();
  // Returns the words of all terms, and leaves offsets in them.
  std::vector<int32_t> make_terms();

  Wants wants_;
  std::vector<int64_t> first_;               // range of each round
  size_t ranges_ = 0, range_sequences_ = 0;  // where the tables lie
};

}  // namespace lathe
