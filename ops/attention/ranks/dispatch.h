// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks by dispatch: queries and keys go to where the planner has the work
// balanced, one block step computes there over whole contexts, results go home.
#pragma once

#include "collective/dispatch_plan.h"
#include "collective/group.h"
#include "ops/attention/run.h"
#include "ops/parts.h"
#include "ops/row_moves.h"

namespace lathe {

// What a shard's lengths say.
class DispatchPrepared final : public Prepared {
 public:
  static Result<std::unique_ptr<const Prepared>> make(const Device& device,
                                                      const lathe_shard& shard, DispatchPlan plan,
                                                      int tensors);

  DispatchPlan plan;
  int64_t queries = 0, keys = 0;  // that arrive here, or stay
  RowRoute queries_there, queries_back, keys_there, gradients;
  DeviceTable pairs, documents, sum_first, sum_terms;
  RankMoves shares;  // of dsinks: every rank's to all others, in rows by rank
  // Room for the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;
};

// A tensor that is cut along the tokens.
struct DispatchTensor {
  int tensor = 0;
  bool keys = false;  // tokens and heads of keys
  bool rows = false;  // float32 [B, H, tokens]: one number a row
  bool there = true;  // an input; else a result
  int64_t width = 1, bytes = 4;
};

// Offsets in the workspace; no bytes where a call has no use for them.
struct DispatchSpot {
  bool direct = false;   // the caller's rows are compact: they are sent, or arrive, where they lie
  int64_t home = 0;      // else compact rows of the rank's own tokens
  int64_t sent = 0;      // packed: in the order of the messages
  int64_t received = 0;  // packed; of gradients of keys: the slots
  int64_t far = 0;       // [arrived tokens, batch, heads, width]
  int64_t dense = 0;     // of rows: [batch, heads, arrived tokens]
};

struct DispatchLaid {
  const DispatchPrepared* prepared = nullptr;
  int64_t batch = 1, heads = 0, kv_heads = 0;
  std::array<DispatchSpot, attention::count> spots;
  int64_t out = 0, delta = 0;          // float32, arrived rows
  int64_t dq = 0, dk = 0, dv = 0;      // float32
  int64_t dsinks = 0, dsinks_sum = 0;  // of each rank, and of all
  int64_t inner = 0, inner_bytes = 0;
  size_t total = 0;

  // A rank's dsinks, which a sum reads four at a time.
  int64_t padded_heads() const { return (heads + 3) / 4 * 4; }
};

class AttentionDispatch final : public ComposedWork {
 public:
  static Result<std::unique_ptr<Work>> make(const lathe_problem& problem,
                                            const AttentionRequest& request,
                                            const Extents& promised, const DeviceFacts& facts,
                                            Group* group);

  Result<std::unique_ptr<const Prepared>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend class DispatchRun;
  AttentionDispatch(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  Status make_parts(const lathe_problem& problem, const DeviceFacts& facts);
  Status plan_with(const Extents& promised);

  bool packed() const { return request_.problem.packed; }
  bool rounds() const { return request_.problem.element != Dtype::f32; }
  bool forward() const { return request_.problem.forward; }
  bool keys_have_gradients() const { return request_.gradients.dk || request_.gradients.dv; }
  Result<DispatchLaid> lay_out(const Call& call) const;
  Status lay_out(const Call& call, const DispatchTensor& each, DispatchLaid* laid,
                 Sections* sections) const;
  Status lay_out_step(const Call& call, DispatchLaid* laid, Sections* sections) const;

  bool names_documents() const { return packed() && !request_.problem.snippets.empty(); }
  // Calls of the parts.
  void put_inputs(const Part& part, const Call& call, const DispatchLaid& laid, Call* out) const;
  Call step_call(const Call& call, const DispatchLaid& laid) const;
  Call merge_call(const Call& call, const DispatchLaid& laid) const;
  Call delta_call(const Call& call, const DispatchLaid& laid) const;
  Call gradient_call(const Call& call, const DispatchLaid& laid) const;
  int64_t out_of_step(const DispatchLaid& laid) const {
    return rounds() ? laid.out : laid.spots[attention::out].far;
  }

  AttentionRequest request_;
  Group* group_;
  bool reduces_, narrow_;
  DispatchRules rules_;
  std::vector<DispatchTensor> tensors_;
  std::unique_ptr<Part> step_, merge_, delta_, gradient_;
  RowKernels kernels_;
  // Float32 rounded; gradients of keys added up; dsinks of ranks.
  std::shared_ptr<const Kernel> round_, add_keys_, add_sinks_;
};

}  // namespace lathe
