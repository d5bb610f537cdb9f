// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs kda on one rank of several. A rank's ends may cut sequences: it sends summaries of what its
// shard makes of their states, composes those of other ranks, and runs one rank's launches on what
// they give.
#pragma once

#include "collective/plans/kda_states.h"
#include "ops/device_table.h"
#include "ops/kda/chunked_run.h"
#include "ops/rank_program.h"

namespace lathe {

// Holds what a plan made of a shard: which rank exchanges which states, and the lengths of the
// rank's shard on the device.
struct KdaShardState final : ShardState {
  DeviceTable table;  // cu_seqlens of the shard, as the kernels read them
  KdaStatesPlan plan;
  KdaMessages messages;
  int64_t sequences = 0;    // of the whole axis; fixed lengths: not told
  mutable HopMessages hop;  // each run fills these
};

// Takes over the executor of one rank, for groups of two ranks and more.
class KdaOverRanks : public Executor {
 public:
  // `its_reduces`: gradients of A_log and dt_bias are summed over the ranks.
  KdaOverRanks(std::unique_ptr<KdaExecutor> its_own, Group* its_group, bool its_reduces);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

  const KdaProblem& problem() const { return own->problem(); }
  const KdaChunkedKernels& kernels() const { return own->kernels(); }
  bool states() const { return kernels().summary->numbers().states != 0; }
  bool grads() const { return kernels().summary->numbers().grads != 0; }

  const std::unique_ptr<KdaExecutor> own;
  Group* const group;
  const bool reduces;
};

// Holds offsets of the data that ranks exchange, float32. `rows` is that of the batch, or 1 if
// packed.
struct KdaRankWorkspace {
  int64_t end = 0, map = 0, grad = 0;  // of this rank: [rows, HV, V or K, K]
  int64_t ends = 0, end_maps = 0;      // of the ranks before, one after another
  int64_t grads = 0, grad_maps = 0;    // of those behind
};

class KdaRankRun final : public RankRun {
 public:
  KdaRankRun(const KdaOverRanks& program, const Call& call);
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  int64_t heads() const { return call_.extents[Dim::HV]; }
  int64_t segments() const { return plan_.shape.segments; }
  // Returns the index of the last local sequence's first row.
  int64_t last() const { return plan_.shape.sequences - rows_; }
  int before() const { return static_cast<int>(states_.before.size()); }
  int after() const { return static_cast<int>(states_.after.size()); }
  // Returns whether this rank sends a summary of the last sequence, or of the first one's gradient.
  bool sends_forth() const { return states_.open && (program_.states() || states_.whole()); }
  bool sends_back() const { return states_.carried && program_.grads(); }
  // Returns the bytes of a state or of a map, for one row and head.
  int64_t state_bytes() const { return 4 * value_dim_ * key_dim_; }
  int64_t map_bytes() const { return 4 * key_dim_ * key_dim_; }
  // Returns those of a message, which has all rows and heads.
  int64_t states_bytes() const { return rows_ * heads() * state_bytes(); }
  int64_t maps_bytes() const { return rows_ * heads() * map_bytes(); }
  // Returns the slot of the rank that is farthest behind.
  int64_t farthest() const { return std::max(after() - 1, 0); }
  KdaSegmentShape segment_shape(int64_t sequences) const {
    return {sequences, heads(), segments(), problem_.key_dim, problem_.value_dim};
  }
  int used_segments(int64_t local) const;
  int64_t tokens(int64_t local) const;
  KdaPartWalks walks() const;

  Status summarize(const KdaCall& of) const;
  Status compose_segments() const;
  Status exchange();
  Transfer transfer(const KdaMessage& message, bool sends) const;
  Status compose_ranks() const;
  Status launch_compose(KdaComposeParams p) const;
  Status reduce_gradients() const;

  const KdaOverRanks& program_;
  const KdaProblem& problem_;
  const KdaShardState& state_;
  const KdaStatesPlan& states_;
  const int64_t rows_, key_dim_, value_dim_;
  KdaPlan plan_;
  KdaRankWorkspace workspace_;
};

MadeExecutor make_kda_over_ranks(std::unique_ptr<KdaExecutor> own, const DeviceFacts& facts,
                                 Group* group, bool reduces);

}  // namespace lathe
