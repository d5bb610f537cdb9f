// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the steps of attention over ranks, and builds their calls. Rings, gathered keys and
// dispatch differ in the rows and keys of a step, not in the steps.
#pragma once

#include "ops/attention/block/run.h"
#include "ops/rank_program.h"

namespace lathe {

struct KeyBlock {
  TokenRows k, v;
};

// Holds the tensors that a step and its gradients both read.
struct BlockInputs {
  TokenRows q;
  KeyBlock keys;
  const void* ranges = nullptr;
  int64_t range_count = 0;
  const void* range_sequences = nullptr;  // what mods are told of each range; null: the batch row
  const char* slopes = nullptr;           // float32; null: no ALiBi
  int64_t slopes_batch_stride = 0;        // 0: one slope a head
};

class AttentionSteps {
 public:
  // Chooses the kernels of the steps that `whole` needs. `rounds`: rows meet their keys in several
  // rounds, and all but the first continue a result; else a single gradient step adds to existing
  // gradients.
  Status make(const AttentionRequest& whole, const DeviceFacts& facts, bool rounds);

  // Returns the existing steps, in the order of the plan's kernels.
  std::vector<const Part*> all() const;

  std::unique_ptr<Part> first, next;                      // of the forward
  std::unique_ptr<Part> finish;                           // folds sinks in and rounds
  std::unique_ptr<Part> delta;                            // before gradients
  std::unique_ptr<Part> gradients_first, gradients_next;  // of the backward

  // Build the calls of a step, for the outer call `of`. Per-row numbers such as `lse` are float32
  // [batch, heads, rows] for the rows of the same argument list.
  void put_forward(const Part& step, const BlockInputs& in, const TokenRows& out, const void* lse,
                   const Call& of, Call* call) const;
  void put_finish(const TokenRows& out, const void* lse, const TokenRows& rounded, const Call& of,
                  Call* call) const;
  struct Delta {
    TokenRows out, dout;
    const void *lse, *dlse;
    void *delta, *dsinks;
  };
  void put_delta(const Delta& rows, const Call& of, Call* call) const;
  struct Gradients {
    TokenRows dout, dq;
    KeyBlock sums;  // dk and dv
    const void *lse, *delta;
  };
  void put_gradients(const Part& step, const BlockInputs& in, const Gradients& rows, const Call& of,
                     Call* call) const;

 private:
  AttentionRequest request_;
};

}  // namespace lathe
