// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs causal_conv1d on one rank among several where sequences lie in pieces on any ranks. The
// rank's pieces are the sequences of a packed call of one rank; the tokens before each of them, or
// the initial state, are its initial state there.
#pragma once

#include "collective/plans/piece_history.h"
#include "ops/conv/run.h"
#include "ops/device_table.h"
#include "ops/exact_sums.h"
#include "ops/rank_program.h"
#include "templates/params/conv_lines.h"

namespace lathe {

// Holds lines to be made, on the device.
struct ConvLineTable {
  DeviceTable sums, sources;
  int lines = 0;

  static Result<ConvLineTable> make(const Device& device, const LineSums& lines);
};

struct ConvPiecesState final : ShardState {
  PieceHistory history, gradients;  // lines that a call needs, and those that have gradients
  int64_t pieces = 0;
  int64_t sequences = 0;                           // of the whole axis; fixed lengths: not told
  DeviceTable offsets;                             // of the pieces, in the rank's buffer
  ConvLineTable packed, joined, final_grads;       // before the step
  ConvLineTable finals, returned, tokens, states;  // behind it
  mutable HopMessages hop;                         // each exchange fills these
};

// Says what a program over pieces is to be.
struct ConvPiecesMode {
  bool reduces = false;    // gradients of weights are summed over the ranks
  bool canonical = false;  // pieces, and bits, do not depend on the ranks
};

class ConvOverPieces : public Executor {
 public:
  // `its_asked`: the problem of the whole call. `its_own`: the executor of `its_step`, which runs
  // the pieces.
  ConvOverPieces(const ConvProblem& its_asked, const ConvExecutor& its_own, RankStep its_step,
                 Group* its_group, ConvPiecesMode its_mode);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;
  // Whether gradients of histories go back to their owners.
  bool returns() const { return asked.backward || asked.dinitial_state; }

  const ConvProblem asked;
  const ConvExecutor& own;
  const RankStep step;
  Group* const group;
  const ConvPiecesMode mode;
  KernelSlot lines, repeat;
  ExactSumKernels sums;  // of canonical pieces, for gradients of weights
};

// `asked`: the problem of the whole call. `reduce`: gradients of weights are summed over the ranks.
MadeExecutor make_conv_over_pieces(const ConvProblem& asked, const DeviceFacts& facts, Group* group,
                                   bool reduce);
// Makes the program of groups with LATHE_RANK_INVARIANT, of one rank too.
MadeExecutor make_conv_rank_invariant(const ConvProblem& asked, const DeviceFacts& facts,
                                      Group* group, bool reduce);

}  // namespace lathe
