// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs causal_conv1d on one rank among several where sequences lie in pieces on any ranks. The
// rank's pieces are the sequences of a packed call of one rank; the tokens before each of them, or
// the initial state, are its initial state there.
#pragma once

#include "collective/plans/history_tables.h"
#include "ops/conv/run.h"
#include "ops/device_table.h"
#include "ops/exact_sums.h"
#include "ops/rank_program.h"
#include "templates/params/conv_lines.h"

namespace lathe {

// Says where lines to be made lie in a state's table.
struct ConvLineTable {
  size_t sums = 0, sources = 0;
  int lines = 0;
};

struct ConvPiecesState final : ShardState {
  // Where the tables of a layout lie.
  struct Places {
    size_t offsets = 0;                              // of the pieces, in the rank's buffer
    ConvLineTable packed, joined, final_grads;       // before the step
    ConvLineTable finals, returned, tokens, states;  // behind it
  };

  static MadeShardState make(const Device& device, const lathe_shard& shard,
                             const HistoryWants& wants);
  Result<TableImage> image(const Layout& layout) const override;

  HistoryWants wants;
  int rank = 0;
  PieceHistory history, gradients;  // lines that a call needs, and those that have gradients
  int64_t pieces = 0;
  int64_t sequences = 0;  // of the whole axis; fixed lengths: not told
  bool fixed = false;     // the layout has a capacity
  Places at;
  mutable HopMessages hop;  // each exchange fills these
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
  Status check_capacity() const override;
  // Whether gradients of histories go back to their owners.
  bool returns() const { return wants().returns(); }
  HistoryWants wants() const;

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
