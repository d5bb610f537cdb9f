// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs kda on one rank of several where sequences lie in pieces on any ranks. The rank's pieces are
// the sequences of a packed call of one rank. Before it ranks exchange what each piece of a cut
// sequence makes of a state and of a gradient, and take the states through the pieces before theirs
// (collective/plans/piece_states.h).
#pragma once

#include "collective/plans/piece_states.h"
#include "ops/device_table.h"
#include "ops/exact_sums.h"
#include "ops/kda/chunked_run.h"
#include "ops/rank_program.h"
#include "ops/row_copies.h"
#include "templates/params/kda_pieces.h"

namespace lathe {

// Says where walks lie in a state's table, and where their levels begin.
struct KdaWalkTable {
  size_t walks = 0, steps = 0;
  std::vector<int> levels = {0};

  int count() const { return static_cast<int>(levels.size()) - 1; }
  // Returns how many walks a level has; 0 behind the last one.
  int walks_of(int level) const { return level < count() ? levels[level + 1] - levels[level] : 0; }
};

struct KdaPiecesState final : ShardState {
  // Where the tables of a layout lie.
  struct Places {
    size_t offsets = 0;  // of the pieces, in the rank's buffer
    size_t first_pieces = 0, first_sequences = 0, last_pieces = 0, last_sequences = 0;
    KdaWalkTable given_states, given_grads, joined_forward, joined_back, forward, back;
  };
  // Says which chains a call has.
  struct Wants {
    bool states = false, grads = false, canonical = false;
    int64_t chunk = 0;  // of states of chunks; 0: none
  };

  static MadeShardState make(const Device& device, const lathe_shard& shard, const Wants& wants);
  Result<TableImage> image(const Layout& layout) const override;

  Wants wants;
  int rank = 0;
  PieceStatesPlan plan;
  int64_t sequences = 0;  // of the whole axis; fixed lengths: not told
  bool fixed = false;     // the layout has a capacity
  Places at;
  mutable HopMessages hop;  // each run fills these

  int64_t pieces() const { return std::ssize(plan.pieces); }
};

// Says what a program over pieces is to be.
struct KdaPiecesMode {
  bool reduces = false;    // gradients of A_log and dt_bias are summed over the ranks
  bool canonical = false;  // pieces, and bits, do not depend on the ranks
};

class KdaOverPieces : public Executor {
 public:
  // `its_asked`: the request of the whole call. `its_walks`: the executor of `its_step`, which runs
  // the pieces. `its_summary`: null if nothing walks.
  KdaOverPieces(const KdaRequest& its_asked, const KdaExecutor& its_walks, RankStep its_step,
                std::unique_ptr<KdaSummary> its_summary, Group* its_group, KdaPiecesMode its_mode);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;
  Status check_capacity() const override;

  // Whether states go through the pieces, and gradients.
  bool states() const { return walks.problem().initial_state; }
  bool grads() const { return walks.problem().dht; }

  const KdaRequest asked;
  const KdaExecutor& walks;
  const RankStep step;
  Group* const group;
  const KdaPiecesMode mode;
  const std::unique_ptr<KdaSummary> summary;
  KernelSlot chains, repeat;
  RowKernels rows;       // states have whole words of 16 bytes: the wide one alone
  ExactSumKernels sums;  // of canonical pieces, for gradients of A_log and dt_bias
};

// Holds offsets of the workspace's sections. A section that a call does not use has no bytes.
struct KdaPiecesWorkspace {
  int64_t offsets = 0;             // int32 [B * pieces + 1]
  int64_t states = 0, finals = 0;  // float32 [B * pieces, HV, K, V], or [.., V, K]
  int64_t final_grads = 0, initial_grads = 0;
  int64_t ends = 0, grad_ends = 0;  // float32 [B * elements, HV, V, K]
  int64_t maps = 0;                 // float32 [B * elements, HV, K, K]
  int64_t words = 0;                // exact sums of HV * K columns
};

class KdaPiecesRun final : public RankRun {
 public:
  KdaPiecesRun(const KdaOverPieces& program, const Call& call);
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  int64_t pieces() const { return state_.pieces(); }
  int64_t heads() const { return call_.extents[Dim::HV]; }
  // Returns the float32 numbers of a state, and of a map, of all heads.
  int64_t state_size() const { return heads() * problem_.key_dim * problem_.value_dim; }
  int64_t map_size() const { return heads() * problem_.key_dim * problem_.key_dim; }
  Status check_strides() const;
  Call step() const;
  void put_rows(Call* call, int tensor) const;

  // A StateCopy copies states of sequences from a caller's tensor to those of pieces, or back.
  struct StateCopy {
    int tensor;
    int64_t section;
    size_t pieces, sequences;  // where their numbers lie in the table
    int64_t count;
  };
  Status copy_states(RowCopier* copier, const StateCopy& copy, bool to_pieces) const;
  Status take_given() const;
  Status give_results() const;
  Status summarize() const;
  template <typename Body>
  Status each_run(Body body) const;
  Status summarize(int64_t first, int64_t last, const KdaSummaryParams& common) const;
  Transfer transfer(const PieceMessage& message, bool sends) const;
  Status exchange();
  Status walk(const KdaWalkTable& forward, const KdaWalkTable& back) const;
  Status reduce_gradients() const;
  Status add_gradients() const;

  const KdaOverPieces& program_;
  const KdaProblem& problem_;  // of the pieces
  const KdaPiecesState& state_;
  const int64_t batch_, tokens_;
  const void* offsets_ = nullptr;
  KdaPiecesWorkspace workspace_;
};

// `asked`: the request of the whole call.
MadeExecutor make_kda_over_pieces(const KdaRequest& asked, const DeviceFacts& facts, Group* group,
                                  bool reduces);
// Makes the program of groups with LATHE_RANK_INVARIANT, of one rank too.
MadeExecutor make_kda_rank_invariant(const KdaRequest& asked, const DeviceFacts& facts,
                                     Group* group, bool reduces);

}  // namespace lathe
