// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes random steps of ring attention through lathe.h, flash_attention_block and its
// gradients: blocks of rows and keys, which rows see which keys, mods, and what a step goes on
// from.
#pragma once

#include <memory>
#include <random>

#include "reference/attention_block.h"
#include "tests/harness/tile_rows.h"

namespace apitest {

// A row's flags: ranges, positions, local, softcap, alibi, score, mask, tiles, ordered.

// Rows qa to qb see keys ka to kb; mods are told q0, k0 and the batch.
struct BlockRange {
  int64_t qa = 0, qb = 0, ka = 0, kb = 0, shift = 0, q0 = 0, k0 = 0, batch = 0;
};
// Says which rows see which keys: by positions if there are any, else by attention ranges.
struct BlockStep {
  std::vector<BlockRange> ranges;
  std::vector<int64_t> q_positions, k_positions;
  int64_t window_left = -1, window_right = -1;
  bool batches = false;  // ranges tell of the batch

  std::optional<int64_t> ahead(int64_t i, int64_t j) const;
  // Returns what mods are told of row i and key j of row b of the batch.
  struct Place {
    int64_t q, k, batch;
  };
  Place place(int64_t i, int64_t j, int64_t b) const;
};

// BlockInputs holds the blocks of a batch, of one shape, and what all of them share.
struct BlockInputs {
  std::vector<ref::AttentionBlock> blocks;
  std::shared_ptr<BlockStep> step = std::make_shared<BlockStep>();
  Values out, lse;        // of a partial result: [B, rows, H, DV], [B, H, rows]
  Values dout, whole, e;  // of a backward: the whole's lse and E
  Values dq, dk, dv;      // sums that it adds to
};
// Makes seeded inputs. Rows and keys of no range are NaN, which must reach nothing; so is out of
// rows without a partial result.
BlockInputs make_block(const TileRow& row, uint32_t seed, int64_t batch = 1);
// Makes inputs from given rows and keys, in place of random ones.
BlockInputs make_block(const TileRow& row, uint32_t seed, const ref::AttentionBlock& shape,
                       const BlockStep* step, int64_t batch = 1);

Call block_call(const TileRow& row, const BlockInputs& in, bool first, int64_t sm_margin = 0);
// `first` names the gradients that are written and not read: "" (none), "first" (all) or
// "first_keys" (dk and dv).
Call block_gradients_call(const TileRow& row, const BlockInputs& in, const std::string& first,
                          int64_t sm_margin = 0);

// Makes doctest CHECKs against plain loops in double. Rows that see no key are not written, to the
// bit.
void check_block(const TileRow& row, const BlockInputs& in, bool first, const Answer& answer);
void check_block_gradients(const TileRow& row, const BlockInputs& in, const std::string& first,
                           const Answer& answer);

}  // namespace apitest
