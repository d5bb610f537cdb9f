// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to kda_pieces, which takes states through the pieces that
// sequences have on several ranks (collective/plans/piece_states.h).
#pragma once

namespace lathe {

struct KdaPieceStep {
  int element;  // -1 - p: the state that piece p is given
  int piece;    // whose state x is behind the step; -1: of none
};
struct KdaPieceWalk {
  int first_step, steps;  // of no steps: no walk, in a list of a fixed length
  int element;            // whose end the last x becomes; -1: of none
  int map;                // 1: the product of the steps' maps becomes that element's map as well
};

// Elements below `pieces` are the rank's own pieces: of row b of the batch, run b * pieces +
// element, as kda_summary leaves them. Of the others it is run batch * element + b. A run has all
// value heads.
struct KdaPiecesSide {
  const void* walks;  // KdaPieceWalk [walks]
  const void* steps;  // KdaPieceStep, of all walks
  void* ends;         // float32 [runs, HV, V, K]: E^T, or back D^T
  void* states;       // float32 [B, pieces, HV, K, V], or [.., V, K]: where a piece begins, or ends
};

struct KdaPiecesParams {
  KdaPiecesSide forward, back;
  void* maps;  // float32 [runs, HV, K, K]: M^T
  int batch, pieces, value_heads;
  int key_dim, value_dim;
  int forward_blocks;  // blocks below this one walk forward, the others back
};

}  // namespace lathe
