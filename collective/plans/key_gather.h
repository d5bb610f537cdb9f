// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Brings keys to the queries. The plan says which keys of the whole axis a rank's rows may see,
// which ranks hold those keys, and how their gradients go home. Keys are gathered sequence by
// sequence in the order of the axis. Each gathered run begins at the start of its sequence and ends
// behind the last key that a row of the rank may see, so positions in a sequence stay valid. Pure.
#pragma once

#include "collective/plans/attention_ranges.h"

namespace lathe {

// A run is neighbouring rows of a rank's buffer that are of one sequence, with the sequence's
// gathered keys.
struct KeyRun {
  int64_t sequence = 0;
  int64_t rows_begin = 0, rows_end = 0;  // in the buffer
  int64_t keys_begin = 0, keys_end = 0;  // among the gathered keys
  int64_t origin = 0;                    // of keys_begin on the whole axis
};

// A piece is keys that go from one rank's buffer to another's gathered keys, and whose gradients go
// back.
struct KeyPiece {
  int64_t at_owner = 0, at_reader = 0, tokens = 0;
  bool operator==(const KeyPiece&) const = default;
};
using KeyPieces = std::vector<KeyPiece>;

struct KeyGather {
  int rank = 0;
  int64_t keys = 0;             // that are gathered here
  int64_t own_keys = 0;         // of the rank's buffer
  std::vector<KeyRun> runs;     // by rows
  std::vector<KeyPieces> from;  // by owner; of the rank itself: copies
  std::vector<KeyPieces> to;    // by reader; of the rank itself the same copies
  // [world + 1]: gradients of rank r's readers arrive at rows returned[r] .. returned[r + 1] - 1;
  // the rank's own do not travel.
  std::vector<int64_t> returned;

  int64_t received() const;  // tokens from the other ranks
  int64_t sent() const;      // and to them
};
// Returns the rank's rows, sequence by sequence, and where their keys will lie. `causal`: a row
// sees no key behind its position, (len_k - len_q) + its place in the sequence.
std::vector<KeyRun> key_runs(const Layout& layout, int rank, bool causal);
KeyGather key_gather(const Layout& layout, int rank, bool causal);

// Returns for each row of a rank's buffer its position among the keys of its sequence, as above.
std::vector<int32_t> row_positions(const Layout& layout, int rank);

// Returns where the terms of the gradient of own key j are, [world, own_keys]. For another reader
// the entry is a row of the returned gradients, for the rank itself a row of its gathered keys; -1:
// none.
std::vector<int32_t> gradient_sources(const KeyGather& gather);

}  // namespace lathe
