// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The coordinates at which a copy through a tensor map begins.
#pragma once
#include "params/tensor_map.h"

namespace lathe {

// These are the coordinates of a box that starts at `row` of a sequence, which starts at row
// `start` of a packed tensor and has `rows`. A map of a packed tensor is ragged: its rows begin
// kRaggedRows rows ahead of the tensor and end kRaggedRows further on, and its last dimension moves
// it on by rows too. So what is past the sequence is past the map: it is read as zeros, never as
// the rows of the next sequence.
template <class Config>
struct BoxCoordinates {
  int row, sequence;

  template <class Tile>
  __device__ __forceinline__ BoxCoordinates(const Tile& tile, int row, int start, int rows)
      : row(Config::kPacked ? kRaggedRows - rows + row : row),
        sequence(Config::kPacked ? start + rows : tile.sequence) {}
};

}  // namespace lathe
