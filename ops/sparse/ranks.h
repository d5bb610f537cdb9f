// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs sparse_flash_attention on one rank of several: on its rows, and on the keys that these rows
// may see, gathered into the workspace.
#pragma once

#include <array>

#include "collective/plans/key_gather.h"
#include "ops/device_table.h"
#include "ops/group.h"
#include "ops/rank_program.h"
#include "ops/sparse/run.h"
#include "templates/params/sparse_ranks.h"

namespace lathe {

// Holds what runs need to know about a shard.
class SparseShardState final : public ShardState {
 public:
  // Returns INVALID_ARGUMENT if the shard and the problem do not agree about sequences.
  static Result<std::unique_ptr<const SparseShardState>> make(const SparseRequest& request,
                                                              const lathe_shard& shard,
                                                              const Device& device);

  KeyGather gather;
  SparsePlaces places;
  const void* sources = nullptr;  // on the device: gradient_sources
  int64_t sequences = 0;          // of the whole axis
  mutable HopMessages messages;   // each run fills these

 private:
  DeviceTable table_;
};

inline constexpr int kSparseKeyTensors = 3;  // k, v and k_rope, or their gradients

// Holds offsets in the workspace. The gathered keys and the returned gradients use the same bytes
// in turn.
struct SparseRankOffsets {
  int64_t keys[kSparseKeyTensors] = {};      // gathered
  int64_t dense[kSparseKeyTensors] = {};     // own keys, if they have gaps
  int64_t returned[kSparseKeyTensors] = {};  // gradients of other ranks' rows
  int64_t narrow[kSparseKeyTensors] = {};    // gradients of gathered keys, in the keys' type
  int64_t sinks = 0;                         // float32 [world, H]
  int64_t own = 0;                           // the executor of one device
  int64_t total = 0;
};
struct SparseRankPlan {
  const SparseShardState& state;
  int64_t batch = 0, kv_heads = 0, heads = 0;
  Call call;  // of the executor of one device, on the gathered keys
  SparsePlan launch;
  SparseRankOffsets offsets;

  const KeyGather& gather() const { return state.gather; }
  int64_t total() const { return offsets.total; }
};

// Takes over the executor of one device, for groups of two ranks and more.
class SparseOverRanks final : public PlannedExecutor<SparseOverRanks, SparseRankPlan> {
 public:
  static constexpr int kKeyTensors = kSparseKeyTensors;
  static constexpr int kInputs[kKeyTensors] = {sparse_attention::k, sparse_attention::v,
                                               sparse_attention::k_rope};

  SparseOverRanks(std::unique_ptr<SparseExecutor> own, const SparseGroup& ranks);

  MadeShardState prepare(const lathe_shard& shard) const override;
  Result<SparseRankPlan> plan(const Call& call) const;
  Status launch(const Call& call, SparseRankPlan& run) const;
  Result<Estimate> estimate_plan(const Call& call, const SparseRankPlan& run) const;

 private:
  const SparseProblem& problem() const { return own_->problem(); }
  const SparseGradients& wanted() const { return own_->request().gradients; }
  bool wants_keys() const { return wanted().dk || wanted().dv; }
  bool sums_sinks() const { return wanted().dsinks && ranks_.reduce_sinks; }
  bool joins() const { return wants_keys() || sums_sinks(); }
  int width(int tensor) const {
    return std::array{problem().head_dim, problem().value_dim, problem().rope_dim}[tensor];
  }
  bool has_keys(int tensor) const {
    return tensor == 0 || (tensor == 1 ? !problem().values_in_keys : problem().rope_dim > 0);
  }
  // Returns the width of gradient sums as one device computes them: of k and k_rope together, and
  // of v.
  int sum_width(int tensor) const {
    if (tensor == 0 && wanted().dk) return problem().head_dim + problem().rope_dim;
    return tensor == 1 && wanted().dv ? problem().value_dim : 0;
  }
  // Returns the columns of a key's row that travel: those of sums or, if narrow, of each tensor.
  int returned_width(int tensor) const {
    if (!ranks_.narrow) return sum_width(tensor);
    const bool asked = tensor == 1 ? wanted().dv : wanted().dk;
    return asked && has_keys(tensor) ? width(tensor) : 0;
  }
  int64_t returned_bytes() const { return ranks_.narrow ? element() : 4; }
  int64_t element() const { return bytes_of(problem().element); }
  int64_t join_threads() const { return join_ ? join_->threads : 1; }

  Status check_call(const Call& call, const SparseRankPlan& run) const;
  // Returns whether rows of keys, with all heads, can be sent from where they lie.
  bool is_dense(const Tensor& tensor) const;
  bool packs(const Call& call, const SparseRankPlan& run, int tensor) const {
    return has_keys(tensor) && run.batch * run.gather().own_keys > 0 &&
           !is_dense(call.tensors[kInputs[tensor]]);
  }
  Result<SparseRankOffsets> lay_out(const Call& call, const SparseRankPlan& run) const;
  void place(const Call& call, SparseRankPlan* run) const;
  void estimate_exchange(const SparseRankPlan& run, Estimate* out) const;
  Status run_steps(const Call& call, const SparseRankPlan& run, Exchange* exchange) const;
  Status pack(const Call& call, const SparseRankPlan& run, int tensor) const;
  Status gather(const Call& call, const SparseRankPlan& run, Exchange* exchange) const;
  Status finish(const Call& call, const SparseRankPlan& run) const;
  Status give_back(const SparseRankPlan& run, Exchange* exchange) const;
  Status join(const Call& call, const SparseRankPlan& run) const;
  SparseJoinParams join_params(const Call& call, const SparseRankPlan& run) const;

  std::unique_ptr<SparseExecutor> own_;
  SparseGroup ranks_;
  KernelSlot pack_, join_;  // the latter if there is something to join
};

}  // namespace lathe
