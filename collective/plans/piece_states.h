// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans how the states of KDA go through the pieces of sequences. A piece is an affine map of the
// state, S' = M S + E, and of its gradient backwards, dS = M^T dS' + D. The plan says which maps a
// rank sends and receives, in one group of messages, and the walks that compose them. Pure.
//
// The first piece of a chain hands on a state and no map: its E includes the initial state. The
// last one hands back a gradient: its D includes the final state's. A rank sends E of its piece to
// the ranks with a later piece of the chain, D to those with an earlier one, and M, once, to those
// that go through the piece.
//
// The state before each piece of the rank is a walk over the elements before it. Between two pieces
// of a rank lie those of other ranks; a tree reduces them first, kPieceRadix neighbours to one,
// until a walk meets at most that many. So a rank waits for log W levels and its own pieces.
#pragma once

#include "collective/plans/pieces.h"

namespace lathe {

constexpr int kPieceRadix = 4;

struct PieceMessage {
  enum Kind { end, map, grad };  // E, M, D
  int peer = 0;
  Kind kind = end;
  int element = 0;   // of the sender: the number of its piece; of the receiver: an element
  int elements = 1;  // from that one on
  bool operator==(const PieceMessage&) const = default;
};

// A step of a walk applies an element's map to a state, and may store the state behind it. The
// first step takes the element's end instead.
struct PieceStep {
  int element = 0;
  int piece = -1;  // of the rank, whose state this is; -1: none is stored
  bool operator==(const PieceStep&) const = default;
};
struct PieceWalk {
  int first_step = 0, steps = 0;
  int element = -1;  // whose end the last state becomes; -1: of none
  int map = 0;       // 1: the product of the maps becomes that element's map as well
  bool operator==(const PieceWalk&) const = default;
};
// The walks of a level do not wait for each other.
struct PieceWalks {
  std::vector<PieceWalk> walks;
  std::vector<PieceStep> steps;
  std::vector<int> levels;  // offsets in `walks`
};

struct PieceStatesPlan {
  std::vector<SequencePiece> pieces;  // of this rank
  // Which of the rank's pieces have a chain with more than one piece.
  std::vector<bool> cut;
  // Pieces of the rank that begin, and that end, their sequence, with the sequences.
  std::vector<int32_t> first_pieces, first_sequences, last_pieces, last_sequences;
  std::vector<PieceMessage> sends, receives;
  // These have one level: they take the given state into the end of a first piece before it is
  // sent, and the given gradient into that of a last piece. Step -1 - p begins with the state of
  // piece p.
  PieceWalks given_states, given_grads;
  // These make elements of the rank's own pieces before the exchange, for what others receive.
  PieceWalks joined_forward, joined_back;
  PieceWalks forward, back;
  int elements = 0;  // the rank's pieces, then what it receives, then what walks make

  bool cuts() const;
};
// Returns the rank's pieces and the walks that take in given states, without an exchange. `states`,
// `grads`: which directions a call needs.
PieceStatesPlan own_pieces_plan(const PieceLayout& layout, int rank, bool states, bool grads);
PieceStatesPlan piece_states_plan(const PieceLayout& layout, int rank, bool states, bool grads);

// Plans the same with counts that follow from a capacity alone, `most` pieces a rank, whatever the
// layout is. Every rank sends E, M and D of all its pieces to every other rank: element
// most (1 + i) + p is piece p of the i-th other rank. Lists of pieces are filled up with -1, steps
// and walks with such of no steps, and levels are as many as the longest chain may need. Walks go
// through the same elements in the same order, so states have the same bits.
PieceStatesPlan fixed_states_plan(const PieceLayout& layout, int rank, bool states, bool grads,
                                  int most);
// Fills walks up to the most that there may be over so many elements altogether, of which `gap` lie
// between two pieces of a rank; the last level has `chains`. Returns how many elements walks make
// at most.
int fill_walks(int elements, int gap, int chains, PieceWalks* walks);

// Plans the same over canonical pieces, so that every state has the same bits whoever holds which
// pieces. Piece i of a chain is a leaf of one binary tree; a node of level k has the leaves from
// i 2^k up to (i + 1) 2^k, and its maps are made of its two children's, always. The state before
// piece c goes through the nodes that the binary digits of c name, from the first: 13 = 8 + 4 + 1
// are leaves 0 to 7, 8 to 11, and 12. The gradient behind a piece goes through the nodes from there
// to the end the same way. A rank sends the largest nodes that lie wholly in its pieces, so a run
// of n pieces is at most 2 log n messages; nodes of several ranks' pieces are made where they are
// needed.
PieceStatesPlan canonical_states_plan(const PieceLayout& layout, int rank, bool states, bool grads);

}  // namespace lathe
