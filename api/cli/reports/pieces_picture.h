// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Pictures of the pieces that ranks hold of sequences, as SVG: a row for each rank, and the chain
// of every sequence from piece to piece.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/cli/reports/report.h"

namespace lathe::cli {

struct DrawnPiece {
  int rank = 0, position = 0;
  int64_t sequence = 0, begin = 0, end = 0;
};

struct DrawnPieces {
  int world = 1;
  int64_t tokens = 0;
  std::vector<DrawnPiece> pieces;  // by sequence and position; none is empty
};

// Makes a picture's contents of a case of `lathe plan pieces` and its answer.
DrawnPieces read_pieces(const Json& asked, const Json& answer);
// Returns one picture below the other; readable on light and dark grounds.
std::string pieces_svg(const std::vector<DrawnPieces>& cases);

}  // namespace lathe::cli
