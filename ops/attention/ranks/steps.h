// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the steps of attention over ranks, and builds their calls. Rings, gathered keys and
// dispatch differ in the rows and keys of a step, not in the steps.
#pragma once

#include "ops/attention/block/run.h"
#include "ops/rank_program.h"

namespace lathe {

// Holds keys and values, or their gradients.
struct KeyBlock {
  TokenRows k, v;
  int64_t element_bytes = 0;  // in a message
};

// Holds what steps read and write. Each step takes what it needs. Per-row numbers are float32
// [batch, heads, rows], for the rows of q.
struct StepTensors {
  TokenRows q;
  KeyBlock keys;
  const void* ranges = nullptr;
  int64_t range_count = 0;
  const void* range_sequences = nullptr;  // what mods are told of each range; null: the batch row
  const char* slopes = nullptr;           // float32; null: no ALiBi
  int64_t slopes_batch_stride = 0;        // 0: one slope a head
  TokenRows partial;                      // float32: out so far
  TokenRows out, dout;                    // in the caller's type
  TokenRows dq;                           // float32
  KeyBlock sums;                          // float32: dk and dv
  const void *lse = nullptr, *dlse = nullptr, *delta = nullptr;
  const void* dsinks = nullptr;
};

struct AttentionStep : RankStep {
  enum class Kind { forward, finish, delta, gradients };
  Kind kind;

  explicit AttentionStep(Kind its_kind) : kind(its_kind) {}
};

class AttentionSteps {
 public:
  // Chooses the kernels of the steps that `whole` needs. `rounds`: rows meet their keys in several
  // rounds, and all but the first continue a result; else a single gradient step adds to existing
  // gradients.
  Status make(const AttentionRequest& whole, const DeviceFacts& facts, bool rounds);

  // Returns all steps, in the order of the plan's kernels and of a run with one round.
  std::array<const AttentionStep*, 6> all() const {
    return {&first, &next, &finish, &delta, &gradients_first, &gradients_next};
  }
  const AttentionStep& forward(bool is_first) const { return is_first ? first : next; }
  const AttentionStep& gradients(bool is_first) const {
    return is_first ? gradients_first : gradients_next;
  }
  // Puts what a step takes into its call. `of` is the outer call.
  void put(const AttentionStep& step, const StepTensors& in, const Call& of, Call* call) const;

  using Kind = AttentionStep::Kind;
  AttentionStep first{Kind::forward}, next{Kind::forward};
  AttentionStep finish{Kind::finish};  // folds sinks in and rounds
  AttentionStep delta{Kind::delta};    // runs before gradients
  AttentionStep gradients_first{Kind::gradients}, gradients_next{Kind::gradients};

 private:
  void put_inputs(const RankStep& step, const StepTensors& in, const Call& of, Call* call) const;

  AttentionRequest request_;
};

}  // namespace lathe
