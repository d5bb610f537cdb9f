// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of decoding with values that are columns of the keys.
#include <algorithm>

#include "ops/attention/decode/portable.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2, kRowEntryBytes = 8, kScoreBytes = 4;
constexpr int kNarrowEntryBytes = 8;  // number and scale of a row
// A thread has at most this many registers for out and the scores with their 16-bit copy; found by
// trial with sparse attention, whose warps share rows in the same way.
constexpr int kMostAccumulators = 152;
constexpr int kGroups[] = {4, 2};  // warps that share 16 rows, the preferred number first
constexpr int kCopiedRows = 4;     // 128 bytes of each, by the 32 copies that a warp makes at once

int groups_of(const AttentionTile& tile) { return tile.warps * 16 / tile.rows; }

bool fits(const AttentionProblem& problem, const AttentionTile& tile, const DeviceFacts& facts) {
  const int scores = tile.keys / 2;
  const int accumulators = problem.value_dim / groups_of(tile) / 2 + scores + scores / 2;
  const int turn = tile.warps * kCopiedRows;
  return tile.warps <= 8 && tile.keys % turn == 0 && tile.rows % turn == 0 &&
         accumulators <= kMostAccumulators &&
         attention_latent_smem(problem, tile) <= facts.shared_bytes_per_block;
}

std::vector<AttentionTile> tiles_of(const AttentionProblem& problem, const DeviceFacts& facts,
                                    int rows) {
  std::vector<AttentionTile> tiles;
  for (const int groups : kGroups) {
    for (const int keys : {32, 64, 16}) {
      for (const int stages : {3, 2}) {
        const AttentionTile tile = {rows, keys, stages, rows / 16 * groups};
        if (fits(problem, tile, facts)) tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

}  // namespace

int attention_latent_smem(const AttentionProblem& problem, const AttentionTile& tile) {
  const int width = problem.head_dim * kElementBytes;
  const int scores = tile.warps * 16 * tile.keys * kScoreBytes;
  if (problem.narrow == kWideRows) {
    return tile.rows * width + tile.stages * tile.keys * (width + kRowEntryBytes) + scores;
  }
  const int raw = problem.narrow == kByteRows ? static_cast<int>(kByteRow) : problem.head_dim;
  return (tile.rows + tile.keys) * width + scores +
         tile.stages * tile.keys * (raw + kRowEntryBytes + kNarrowEntryBytes);
}

std::vector<AttentionTile> attention_latent_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows) {
  std::vector<AttentionTile> tiles = tiles_of(problem, facts, rows);
  while (tiles.empty() && rows > 16) tiles = tiles_of(problem, facts, rows /= 2);
  return tiles;
}

KernelSpec attention_latent_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("attention", "attention_decode_latent", AttentionDecodeParams, splits),
      "AttentionDecodeLatentSmem", attention_latent_smem(problem, tile), 32 * tile.warps);
  add_decode_constants(problem, tile, problem.head_dim, problem.value_dim, &spec);
  return spec;
}

}  // namespace lathe
