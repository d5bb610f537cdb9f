// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists what a convolution over the pieces of one rank moves: every table that its launches read,
// and its messages (collective/plans/piece_history.h). Pure.
//
// With a capacity, all counts follow from it: a rank exchanges with each other rank the lines that
// all its pieces may need, and tables have room for the most pieces. Only their contents depend on
// the layout. Lines that nobody needs are zeros, and the rest of a table makes nothing (none).
#pragma once

#include "collective/plans/piece_history.h"

namespace lathe {

// Says what a convolution has.
struct HistoryWants {
  int width = 0;
  bool backward = false;  // dx
  bool initial_state = false, final_state = false;
  bool dinitial_state = false, dfinal_state = false;
  bool canonical = false;  // pieces are cut at kCanonicalTokens

  // Whether gradients of histories go back to their owners.
  bool returns() const { return backward || dinitial_state; }
};

struct HistoryTables {
  int64_t pieces = 0;
  PieceHistory history, gradients;       // lines that a call needs, and those that have gradients
  std::vector<int32_t> offsets;          // of the pieces, in the rank's buffer
  LineSums packed, joined, final_grads;  // before the pieces are run
  LineSums finals, returned, tokens, states;  // behind that
};
// Returns what canonical_pieces refuses.
Result<HistoryTables> history_tables(const Layout& layout, int rank, const HistoryWants& wants);

}  // namespace lathe
