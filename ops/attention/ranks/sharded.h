// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention on one rank of a group, in steps of attention to blocks of keys. The keys
// travel a ring (ring.cpp) or are gathered (gather.cpp) meanwhile. Only float32 partial results are
// carried from step to step. This header has what both ways share.
#pragma once

#include "ops/attention/ranks/round_tables.h"
#include "ops/attention/ranks/steps.h"

namespace lathe {

// The program of either way: its steps and kernels.
class ShardedAttention : public Executor {
 public:
  ShardedAttention(const AttentionRequest& request, Group* group, unsigned flags);
  // Chooses the kernels of the steps.
  Status make_steps(const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;
  Status check_capacity() const override;

  bool gathers() const { return (flags & kAllgather) != 0; }
  bool names_sequences() const { return request.problem.packed && !request.problem.mods.empty(); }
  // Returns the type in which gradients of keys travel.
  Dtype travelling() const {
    return flags & kNarrowGradients ? request.problem.element : Dtype::f32;
  }

  const AttentionRequest request;
  Group* const group;
  const unsigned flags;
  AttentionSteps steps;
  VectorSlot copy_rows, sum_parts;
  KernelSlot add_rows;
};

// These make the programs without their steps.
std::unique_ptr<ShardedAttention> new_ring_attention(const AttentionRequest& request, Group* group,
                                                     unsigned flags);
std::unique_ptr<ShardedAttention> new_gathered_attention(const AttentionRequest& request,
                                                         Group* group, unsigned flags);
// `group` has more than one rank; `flags` are the group's. Returns UNSUPPORTED, by name, for what
// no step covers.
MadeExecutor make_attention_sharded(const AttentionRequest& request, const DeviceFacts& facts,
                                    Group* group, unsigned flags);

// A section of keys and values, or of their gradients: [batch, tokens, HK, D] and then
// [batch, tokens, HK, DV], without gaps. A section without element_bytes is not in the workspace.
struct KeySection {
  int64_t offset = 0, element_bytes = 0;
};

// Holds the offsets of a call's sections. A section that the call does not use has no bytes.
struct RankWorkspace {
  int64_t out = 0;    // float32 [B, rows, H, DV]: a partial result, if the caller's out is narrow
  int64_t delta = 0;  // float32 [B, H, rows]
  int64_t dq = 0;     // float32 [B, rows, H, D]
  // Keys in the caller's type. There are two of a section that is filled for a later step while an
  // earlier one reads.
  KeySection packed[2];    // own keys, if the caller's have gaps and are sent
  KeySection received[2];  // those of others: a ring's in turn, the gathered ones by slice
  // Gradients of keys, in float32 or, marked t, in the type in which they travel.
  KeySection block;                // what a step leaves: those of the keys that it read
  KeySection sum, arriving, home;  // t, of a ring: the sum that leaves, arrives, or is complete
  KeySection own;                  // of gathered keys: own keys' from own rows
  KeySection returned;             // t: the others', which go to their owners
  KeySection shares;               // t: own keys' from the rows of others, by rank
};

// Keys may be gathered in slices: some key heads, with their query heads, of one row of the batch.
// A call that is not cut has one slice with everything.
struct Slice {
  int64_t index = 0, row = 0, head = 0, kv_head = 0;  // the first of each
  int64_t batch = 0, heads = 0, kv_heads = 0;
};

// The base of both ways' runs. The same walk over rounds and slices reserves the workspace of the
// steps, runs them, and counts what the rank launches, computes and sends.
class ShardedRun : public RankRun {
  enum class Mode { reserve, run, count };

 public:
  ShardedRun(const ShardedAttention& program, const Call& call);
  Status lay_out();
  Status operator()() { return walk(Mode::run); }
  Result<Estimate> estimate();

 protected:
  ~ShardedRun() = default;

  // A way has these functions. The exchange is joined behind forward() and backward().
  virtual void lay_out_keys(const Slice& widest) = 0;
  virtual KeyBlock keys_of(const Slice& slice, int round) const = 0;
  virtual Status forward() = 0;
  virtual Status backward() = 0;

  const AttentionProblem& problem() const { return program_.request.problem; }
  int64_t element_bytes() const { return bytes_of(problem().element); }
  int64_t travelling_bytes() const { return bytes_of(program_.travelling()); }
  int rounds() const { return static_cast<int>(rounds_.rounds.size()); }
  const AttentionRound& at_round(int i) const { return rounds_.rounds[i]; }
  int64_t slices() const;
  Slice slice(int64_t index) const;
  // The backward need not send keys again that the forward of the same call received.
  bool keeps_keys() const { return problem().forward && slices() == 1; }

  KeySection key_section(const Slice& slice, int64_t tokens, int64_t element_bytes);
  KeyBlock block(const Slice& slice, const KeySection& section, int64_t tokens) const;
  KeyBlock own_keys(const Slice& slice) const;
  KeyBlock sent_keys(const Slice& slice) const;
  // Copies own keys without gaps, because messages that are sent from the caller's memory may have
  // none.
  Status pack_keys(const Slice& slice);

  // Posts the messages that fill(hop) adds.
  template <typename Fill>
  Status post(const char* name, int step, Fill fill) {
    if (mode_ == Mode::reserve) return {};
    HopMessages& hop = mode_ == Mode::run ? tables_.messages : counted_messages_;
    hop.clear();
    fill(&hop);
    if (mode_ == Mode::run) return exchange_.post(hop.hop(name, step));
    count(hop.hop(name));
    return {};
  }
  // Runs a step on the rows of a slice and the keys of a round, unless no row sees any of them.
  Status attend(const Slice& slice, int round);
  // Leaves gradients of the round's keys in `sums`, and adds to dq unless it is the first.
  Status differentiate(const Slice& slice, int round, bool first, const KeyBlock& sums);
  // Adds up terms: `own` is float32, `others` has the type in which gradients travel. Either may be
  // null if no term is of it. An estimate counts `bytes` read and written for each element.
  Status sum(const char* own, const char* others, const RoundTables::Terms& terms,
             const TokenRows& to, int64_t bytes);
  // Rounds sums to the type in which they travel.
  Status round(const KeyBlock& from, const KeyBlock& to);
  // Writes sums to the caller's gradients of own keys.
  Status give_keys(const Slice& slice, const KeyBlock& own, const KeyBlock& others,
                   const RoundTables::Terms& terms);
  // Returns whether a kernel that reads and writes so many bytes is to be launched. Counts it.
  bool launches(int64_t bytes);

  const ShardedAttention& program_;
  const RoundTables& tables_;
  const AttentionRounds& rounds_;
  const int64_t batch_, heads_, kv_heads_, rows_;
  const Slice all_;
  RankWorkspace workspace_;
  bool packs_ = false;  // own keys have gaps and are sent

 private:
  TokenRows given(const Slice& slice, int tensor) const;
  TokenRows float_rows(const Slice& slice, char* data, int64_t width) const;
  char* row_values(const Slice& slice, char* data) const;
  StepTensors tensors(const Slice& slice, int round, const KeyBlock& sums = {}) const;
  // `visible`: the share of pairs of rows and keys that the step computes.
  Status run(const AttentionStep& step, const StepTensors& in, double visible = 1);
  Status run_round(const AttentionStep& step, const Slice& slice, int round, const KeyBlock& sums);
  void count(const Hop& hop);

  Status walk(Mode mode);

  Mode mode_ = Mode::reserve;
  Estimate counted_;
  HopMessages counted_messages_;
};

}  // namespace lathe
