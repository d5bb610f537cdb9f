// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans what the pieces of sequences need of the tokens before them: a causal convolution of width
// W reads W - 1, wherever they lie. Pieces may be shorter than that, so several ranks may own them.
//
// A rank runs its pieces as the sequences of a packed call, and their histories are the initial
// states of that call: slot s of a piece is token s - W before it. Slots before the start of the
// sequence are slots of its initial state. A line is one token, or one slot, of all channels. Each
// rank receives a line once, in one group of messages; gradients go back the same way. Pure.
#pragma once

#include "collective/plans/pieces.h"

namespace lathe {

struct LineRef {
  enum Kind { none, token, state, message, piece };
  Kind kind = none;
  // This is a token's row in the rank's buffer, a state's sequence * W + slot, a piece's
  // number * W + slot, or a message's line among all that leave, or arrive.
  int index = 0;
  auto operator<=>(const LineRef&) const = default;
};

struct LineMessage {
  int peer = 0, first = 0, lines = 0;
  bool operator==(const LineMessage&) const = default;
};

struct PieceHistory {
  int width = 0;
  std::vector<LineRef> slots;  // [pieces, W]: where each slot comes from; none: zeros
  std::vector<LineRef> sent;   // the lines that leave, which are tokens and states; none: zeros
  std::vector<LineMessage> sends, receives;

  int64_t received() const;
};
// `tokens`, `states`: whether lines of tokens, and of initial states, are wanted.
PieceHistory piece_history(const PieceLayout& layout, int rank, int width, bool tokens,
                           bool states);

// A list of lines to be made: line `to` is the sum of count sources from `first` on.
struct LineSum {
  LineRef to;
  int first = 0, count = 0;
  bool operator==(const LineSum&) const = default;
};
struct LineSums {
  std::vector<LineSum> lines;
  std::vector<LineRef> sources;

  void add(LineRef to, const std::vector<LineRef>& from);
};

LineSums packed_lines(const PieceHistory& history);    // what leaves
LineSums joined_lines(const PieceHistory& history);    // the slots of all pieces
LineSums returned_lines(const PieceHistory& history);  // gradients of what has arrived
// Gradients of tokens, or of initial states, from the rank's pieces and from what has come back.
LineSums summed_lines(const PieceHistory& history, LineRef::Kind kind);
// The states behind sequences are those of their last pieces; other pieces have zeros.
LineSums final_lines(const PieceLayout& layout, int rank, int width, bool of_pieces);

}  // namespace lathe
