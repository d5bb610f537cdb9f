// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The steps that attention over ranks is made of, and their calls. Rings, gathered keys and
// dispatch differ in which rows and keys a step has, not in the steps.
#pragma once

#include "ops/attention/block.h"
#include "ops/rank_program.h"

namespace lathe {

struct KeyBlock {
  TokenRows k, v;
};

// The tensors that a step and its gradients both read.
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
  // rounds, of which all but the first go on; else a single gradient step adds to what is there.
  Status make(const AttentionRequest& whole, const DeviceFacts& facts, bool rounds);

  // The steps there are, in the order of the plan's kernels.
  std::vector<const Part*> all() const;

  std::unique_ptr<Part> first, next;                      // of the forward
  std::unique_ptr<Part> finish;                           // folds sinks in and rounds
  std::unique_ptr<Part> delta;                            // before gradients
  std::unique_ptr<Part> gradients_first, gradients_next;  // of the backward

  // Calls of a step, for the outer call `of`. Numbers of rows, `lse` and so on, are float32
  // [batch, heads, rows] of the rows that stand beside them.
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
