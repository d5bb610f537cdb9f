// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to attention kernels with tensor maps: the portable kernel's
// parameters, and before them the maps, of four dimensions: column, token, head, sequence. Those of
// packed tensors are ragged: column, row, head, row again (common/box_coordinates.cuh). Where the
// heads of a group are rows of a tile, q's map has five: column, head of the group, token, group,
// sequence.
#pragma once
#include "templates/params/attention.h"
#include "templates/params/tensor_map.h"

namespace lathe {

// How tiles are dealt out to the blocks of the grid: sm90/tile_order.cuh.
struct AttentionTileOrder {
  long long blocks;               // tiles of all heads and sequences, which the blocks share
  unsigned turns, section_turns;  // turns of all tiles, and of a section's
  int section;                    // heads whose tiles are sorted together, at least 1
  // Packed: the most keys, and the most sequences, whose tiles are; one sequence has as many.
  int section_keys, section_sequences;
  // Otherwise: rows that a sequence's first tile is short of, if it is the short one, and by how
  // many blocks of threads the order moves on from section to section.
  int missing, shift;
  int first_longest;  // under a mask: not the last tile of a sequence sees most keys but the first
  int reserved;
};

struct AttentionWarpgroupsParams {
  TensorMap q, k, v;
  AttentionForwardParams forward;
  AttentionTileOrder order;
};

// A block step of a ring. The maps of k and v have five dimensions: they are ragged, so that a copy
// ends where the visited range of keys does, and the sequence comes last: column, row, head, row
// again, sequence.
struct AttentionBlockWarpgroupsParams {
  TensorMap q, k, v;
  AttentionBlockParams block;
  AttentionTileOrder order;
};

}  // namespace lathe
