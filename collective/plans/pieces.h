// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cuts the sequences of a layout into pieces, which is what a chain over tokens sees of it. A piece
// is a maximal run of consecutive tokens of one sequence on one rank. The pieces of a sequence, in
// token order, are its chain, whichever ranks hold them. Pure.
#pragma once

#include "collective/plans/layout.h"

namespace lathe {

struct SequencePiece {
  int rank = 0;
  int number = 0;        // among the rank's pieces
  int64_t sequence = 0;  // global number
  int64_t row = 0;       // of its first token in the rank's buffer
  int64_t tokens = 0;
  int64_t before = 0;  // tokens of the sequence before the piece
  int position = 0;    // in its chain

  bool operator==(const SequencePiece&) const = default;
};

// An empty sequence is one empty piece, on the rank that returns its results: the one that holds
// its offset or, behind all tokens, the last token. If there is no token at all, every rank has a
// piece of every sequence, and no chain has more than one rank's.
struct PieceLayout {
  // Each rank's pieces are in the order of its buffer; empty ones come last.
  std::vector<std::vector<SequencePiece>> ranks;
  std::vector<std::vector<SequencePiece>> chains;  // by sequence

  bool is_first(const SequencePiece& piece) const { return piece.position == 0; }
  bool is_last(const SequencePiece& piece) const {
    return piece.position + 1 == static_cast<int>(chains[piece.sequence].size());
  }
  bool is_whole(const SequencePiece& piece) const { return is_first(piece) && is_last(piece); }
  // Returns the pieces' offsets in the rank's buffer, as packed kernels read them.
  std::vector<int32_t> offsets(int rank) const;
};
PieceLayout piece_layout(const Layout& layout);

constexpr int64_t kMostCapacityPieces = 1024;
// Returns INVALID_ARGUMENT, with the rank, if a rank holds more than the layout's capacity, and for
// a capacity that has only one of tokens and pieces, or keys on an axis of their own.
Status check_capacity(const Layout& layout);

// Cuts pieces at every kCanonicalTokens tokens of their sequence as well. So the pieces of a
// sequence depend on its length alone, and what is computed piece by piece has the same bits for
// any number of ranks. Returns INVALID_ARGUMENT, with the rank, the sequence and the token, for a
// bound of a rank's ranges elsewhere within a sequence.
constexpr int64_t kCanonicalTokens = 64;
Result<PieceLayout> canonical_pieces(const Layout& layout, int64_t tokens = kCanonicalTokens);
// Refuses the same bounds, of one axis.
Status check_canonical(const ShardLayout& ranks, const std::vector<int64_t>& cu_seqlens,
                       const char* axis, int64_t tokens = kCanonicalTokens);

}  // namespace lathe
