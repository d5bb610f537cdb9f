// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs sparse_flash_attention on one rank of several: on its rows, and on the keys that these rows
// may see, gathered into the workspace. Tensors of keys are k, v and k_rope, or their gradients.
#pragma once

#include <array>

#include "collective/plans/key_gather.h"
#include "ops/device_table.h"
#include "ops/exact_sums.h"
#include "ops/rank_program.h"
#include "ops/sparse/run.h"
#include "templates/params/exact_sums.h"
#include "templates/params/sparse_ranks.h"

namespace lathe {

inline constexpr int kSparseKeyTensors = 3;

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

// Takes over the executor of one device, for groups of two ranks and more.
class SparseOverRanks : public Executor {
 public:
  SparseOverRanks(std::unique_ptr<SparseExecutor> its_own, const SparseGroup& its_ranks);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

  const SparseProblem& problem() const { return own->problem(); }
  const SparseGradients& wanted() const { return own->request().gradients; }
  bool wants_keys() const { return wanted().dk || wanted().dv; }
  // Says whether ranks send each other parts of dsinks; exact sums are added up by a collective.
  bool sums_sinks() const { return wanted().dsinks && ranks.reduce_sinks && !problem().exact; }
  bool joins() const { return wants_keys() || sums_sinks(); }
  bool has_keys(int tensor) const {
    return tensor == 0 || (tensor == 1 ? !problem().values_in_keys : problem().rope_dim > 0);
  }
  // Returns the columns of a tensor of keys; 0 if the problem does not have it.
  int width(int tensor) const {
    const int widths[] = {problem().head_dim, problem().value_dim, problem().rope_dim};
    return has_keys(tensor) ? widths[tensor] : 0;
  }
  // Returns the width of gradient sums as one device computes them: of k and k_rope together, and
  // of v.
  int sum_width(int tensor) const {
    if (tensor == 0 && wanted().dk) return problem().head_dim + problem().rope_dim;
    return tensor == 1 && wanted().dv ? problem().value_dim : 0;
  }
  // Returns the columns of a key's row that travel: those of sums or, if narrow, of each tensor.
  int returned_width(int tensor) const {
    if (!ranks.narrow) return sum_width(tensor);
    return (tensor == 1 ? wanted().dv : wanted().dk) ? width(tensor) : 0;
  }
  int64_t element() const { return bytes_of(problem().element); }
  // Returns the bytes of a column that travels: an exact sum has several words.
  int64_t returned_bytes() const {
    return problem().exact ? 8 * kExactWords : ranks.narrow ? element() : 4;
  }
  TokenRows rows(const Call& call, int tensor) const {
    return rows_of(call.tensors[tensor], own->request().tokens);
  }

  const std::unique_ptr<SparseExecutor> own;
  const SparseGroup ranks;
  VectorSlot pack;
  KernelSlot join;       // if there is something to join
  ExactSumKernels sums;  // for dsinks, if its sum is exact
};

// Holds offsets in the workspace, by tensor of keys. The gathered keys and the returned gradients
// use the same bytes in turn.
struct SparseRankWorkspace {
  int64_t keys[kSparseKeyTensors] = {};      // gathered: [B, keys, HK, width]
  int64_t packed[kSparseKeyTensors] = {};    // own keys, if they have gaps
  int64_t returned[kSparseKeyTensors] = {};  // gradients of other ranks' rows
  int64_t narrow[kSparseKeyTensors] = {};    // gradients of gathered keys, in the keys' type
  int64_t sinks = 0;                         // float32 [world, H]
  int64_t words = 0;                         // exact sums of H columns
};

class SparseRankRun final : public RankRun {
 public:
  SparseRankRun(const SparseOverRanks& program, const Call& call);
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  // Returns the caller's keys; those in messages, which are packed if the caller's have gaps; and
  // those that the step reads.
  TokenRows own_keys(int tensor) const;
  TokenRows sent_keys(int tensor) const;
  TokenRows gathered_keys(int tensor) const;
  bool packs(int tensor) const;
  // Returns gradients of gathered keys as they travel, and those that come back.
  TokenRows sent_gradients(int tensor) const;
  TokenRows returned_gradients(int tensor) const;

  void read_gathered_keys();
  Status run_steps();
  Status gather();
  Status copy_own(int tensor) const;
  Status finish() const;
  Status add_sinks() const;
  Status give_back();
  Status join() const;
  SparseJoinParams join_params() const;
  void estimate_exchange(Estimate* out) const;

  const SparseOverRanks& program_;
  const SparseShardState& state_;
  const KeyGather& gather_;
  const int64_t batch_, kv_heads_, heads_;
  Call inner_;  // of the executor of one device, on the gathered keys
  SparsePlan plan_;
  SparseRankWorkspace workspace_;
};

// Makes the executor for groups of two ranks and more.
MadeExecutor make_sparse_over_ranks(std::unique_ptr<SparseExecutor> own, const SparseGroup& ranks);

}  // namespace lathe
