// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans the exchange of states between ranks that hold contiguous parts of the tokens. The plan
// says which sequences a rank holds, which of them the ends of its part cut, and which ranks'
// summaries it needs for those. Pure.
//
// A part is an affine map of the state of a sequence, S' = M S + E, and of its gradient backwards,
// dS = M^T dS' + D. Only the first and the last sequence of a part can be cut. E of the last one
// goes to the ranks that hold more of it, D of the first one to those that hold what is before, and
// M with either only where the sequence covers the whole part: a part in which it begins hands on a
// state and no map, E from its initial state, and one in which it ends D from its final gradient.
#pragma once

#include "collective/plans/layout.h"

namespace lathe {

// Fixed lengths are one sequence here: every row of a batch is cut like all others.
struct KdaStatesPlan {
  Interval part;                    // this rank's tokens
  int64_t first = 0;                // global number of local sequence 0
  std::vector<int64_t> cu_seqlens;  // of the local sequences within the part, empty ones too
  bool carried = false;             // local sequence 0 began before the part
  bool open = false;                // the last one goes on behind it
  int64_t carried_tokens = 0;       // of local sequence 0 before the part
  std::vector<int> before;          // ranks with those tokens, in their order
  std::vector<int> after;           // ranks with what follows of the last one, in their order

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  // The part is the middle of one sequence.
  bool whole() const { return carried && open && sequences() == 1; }
};
// A sequence is local to the ranks that return results for it. An empty sequence belongs to the
// part that holds its offset or, behind all tokens, to the rank of the last token. If there is no
// token at all, every sequence is local to every rank. The layout is contiguous.
KdaStatesPlan kda_states_plan(const Layout& layout, int rank);

struct KdaMessage {
  enum Kind { end, map, grad };  // E, M, D
  int peer = 0;
  Kind kind = end;
  bool forth = true;  // in the direction of the tokens
  int slot = 0;       // of a receiver: its place among `before`, or `after`
  bool operator==(const KdaMessage&) const = default;
};
// Lists the messages of one call: states travel forth, gradients back. Between two ranks messages
// are in the same order on both sides.
struct KdaMessages {
  std::vector<KdaMessage> sends, receives;
};
KdaMessages kda_messages(const KdaStatesPlan& plan, bool states, bool grads);

}  // namespace lathe
