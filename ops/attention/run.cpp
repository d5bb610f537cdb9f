// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of flash_attention: which kernels it holds, which of them a call takes, the
// launches.
#include "ops/attention/run.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "codegen/base/invalid.h"
#include "codegen/choice.h"
#include "ops/attention/backward/step.h"
#include "ops/attention/forward/step.h"

namespace lathe {
namespace {

// Where two kernels do the same and the lengths decide between them, a plan holds both: lengths
// vary, and a new one compiles nothing.
struct AttentionLaunchers {
  std::unique_ptr<AttentionForward> plain;   // a tile has rows of one head,
  std::unique_ptr<AttentionForward> shared;  // or of all query heads of a key head
  std::unique_ptr<AttentionBackward> backward;
};

// Holds what follows from a call's shapes. The lists of a mask_mod lie behind the backward's part
// of the workspace.
struct AttentionPlan {
  AttentionShape shape;
  AttentionShape whole;  // of grids: packed rows of no sequence are padding, which somebody writes
  bool forward = false;  // there is a row for the forward to write
  AttentionBackwardLaunch launch;  // of the backward; without one, empty
  AttentionBackwardWorkspace workspace;
  AttentionLists forward_lists, backward_lists;
  int64_t bytes = 0;

  int64_t total() const { return bytes; }
};

Status too_many_blocks(const AttentionShape& shape) {
  return unsupported(text("q of ", shape.sequences, " sequences, ", shape.heads, " heads and ",
                          shape.seq_q, " tokens needs more than ", kMaxExtent,
                          " blocks; split the batch"));
}

Status too_many_tokens(const AttentionShape& shape, bool packed) {
  const bool of_q = shape.seq_q > kMostTokens;
  return unsupported(text(of_q ? "q" : "k", " has ", packed ? 'T' : 'S', of_q ? "q" : "k", " = ",
                          of_q ? shape.seq_q : shape.seq_k, "; allowed are 0 to ", kMostTokens));
}

class AttentionExecutor final : public PlannedExecutor<AttentionExecutor, AttentionPlan> {
 public:
  AttentionExecutor(const AttentionRequest& request, const DeviceFacts& facts,
                    AttentionLaunchers launchers)
      : request_(request),
        facts_(facts),
        plain_(std::move(launchers.plain)),
        shared_(std::move(launchers.shared)),
        backward_(std::move(launchers.backward)) {
    if (plain_) list(plain_->slots());
    if (shared_) list(shared_->slots());
    if (backward_) list(backward_->slots());
  }

  Result<AttentionPlan> plan(const Call& call) const {
    // The only return: the plan is made where the caller wants it.
    Result<AttentionPlan> made(std::in_place);
    if (Status status = fill(call, &*made); !status.ok()) made = std::move(status);
    return made;
  }

  Status launch(const Call& call, const AttentionPlan& plan) const {
    if (plan.forward) {
      LATHE_TRY(forward_of(plan.shape)
                    .launch({request_, plan.shape, plan.whole, plan.forward_lists, call}));
    }
    if (!backward_) return {};
    return backward_->launch(
        {request_, plan.shape, plan.launch, plan.workspace, plan.backward_lists, call});
  }

  Result<Estimate> estimate_plan(const Call&, const AttentionPlan& plan) const {
    const AttentionShape& extent = plan.shape;
    const std::vector<AttentionSequences> sequences = even_lengths(extent);
    Estimate out;
    const auto add = [&out, this](const AttentionCost& cost, uint64_t bytes) {
      out.cost.minimum_bytes += cost.minimum_bytes;
      out.cost.bytes += bytes;
      out.cost.flops += cost.flops;
      out.cost.tensor_ops += cost.tile_flops * attention_product_terms(request_.problem);
    };
    if (plan.forward) {
      const AttentionForward& forward = forward_of(extent);
      const KernelSpec& spec = *forward.kernel;
      out.launches = forward.mask_blocks ? 2 : 1;
      const auto& problem = request_.problem;
      add(attention_forward_cost(problem, spec, extent, sequences),
          attention_memory_bytes(problem, spec, extent, sequences, facts_));
    }
    if (!backward_) return out;
    const AttentionBackwardLaunch& launch = plan.launch;
    const int64_t listed = backward_->mask_queries ? launch.main_blocks : 0;
    for (const int64_t blocks :
         {launch.prepare_blocks, listed, launch.main_blocks, launch.finish_blocks()}) {
      out.launches += blocks > 0 ? 1 : 0;
    }
    const AttentionCost cost =
        attention_backward_cost(request_.problem, *backward_, extent, launch, sequences);
    add(cost, attention_backward_memory_bytes(request_.problem, *backward_, extent, launch,
                                              sequences, cost, facts_));
    return out;
  }

 private:
  Status fill(const Call& call, AttentionPlan* plan) const {
    const AttentionProblem& problem = request_.problem;
    plan->shape = plan->whole = attention_shape(call.extents, problem.packed);
    AttentionShape& whole = plan->whole;
    if (problem.packed) whole.sequences = std::max<int64_t>(whole.sequences, 1);
    plan->forward = problem.forward && whole.sequences > 0 && whole.heads > 0 && whole.seq_q > 0;
    LATHE_TRY(check(*plan));
    LATHE_TRY(plan_backward(plan));
    return plan_lists(plan);
  }

  const AttentionForward& forward_of(const AttentionShape& shape) const {
    if (!plain_ || !shared_) return shared_ ? *shared_ : *plain_;
    const int64_t ratio = shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
    const AttentionTiling& tiling = shared_->tiling();
    const bool packs = attention_pack_gqa(shape.seq_q, ratio, tiling.m, request_.problem.packed,
                                          tiling.whole_groups != 0);
    return packs ? *shared_ : *plain_;
  }

  // Checks extents that a problem leaves open to its calls.
  Status check(const AttentionPlan& plan) const {
    const AttentionShape& shape = plan.shape;
    LATHE_TRY(check_heads(shape.heads, shape.kv_heads));
    const bool packed = request_.problem.packed;
    if (std::max(shape.seq_q, shape.seq_k) > kMostTokens) return too_many_tokens(shape, packed);
    if (!plan.forward) return {};
    AttentionShape one = plan.whole;
    // Tiles are at most the rows of all heads, which are mostly few enough.
    int64_t rows = 0;
    if (!packed && !__builtin_mul_overflow(shape.seq_q, shape.heads, &rows) &&
        !__builtin_mul_overflow(rows, one.sequences, &rows) && rows <= kMaxExtent) {
      return {};
    }
    const int64_t sequences = std::exchange(one.sequences, 1);
    const bool fits =
        attention_forward_blocks(forward_of(shape).tiling(), one) <= kMaxExtent / sequences;
    return fits ? Status() : too_many_blocks(shape);
  }

  Status plan_backward(AttentionPlan* plan) const {
    if (!backward_) return {};
    plan->launch = backward_->plan(plan->whole, request_.gradients);
    const AttentionBackwardLaunch& launch = plan->launch;
    const int64_t most = std::max({launch.rows, launch.keys, launch.prepare_blocks,
                                   launch.main_blocks, launch.finish_blocks()});
    if (most > kMaxExtent) return too_many_blocks(plan->shape);
    LATHE_ASSIGN(plan->workspace,
                 attention_backward_workspace(request_.problem, plan->whole, launch));
    return {};
  }

  Status plan_lists(AttentionPlan* plan) const {
    const AttentionProblem& problem = request_.problem;
    WorkspaceLayout layout;
    layout.add({plan->workspace.total});
    if (plan->forward && forward_of(plan->shape).mask_blocks) {
      plan->forward_lists =
          forward_lists(problem, forward_of(plan->shape).tiling(), plan->whole, &layout);
    }
    if (plan->launch.main_blocks > 0 && backward_->mask_queries) {
      LATHE_ASSIGN(plan->backward_lists,
                   backward_lists(problem, backward_->tiling(), plan->whole, &layout));
    }
    plan->bytes = layout.total();
    return layout.status();
  }

  // Packed lengths are on the device: the estimate takes them as even. The first of them have one
  // token more where tokens do not divide, so that there are three kinds of sequences at most.
  std::vector<AttentionSequences> even_lengths(const AttentionShape& shape) const {
    const int64_t count = shape.sequences, parts = request_.problem.packed ? count : 1;
    if (count == 0) return {};
    const int64_t more_q = shape.seq_q % parts, more_k = shape.seq_k % parts;
    std::vector<AttentionSequences> out;
    int64_t begin = 0;
    for (const int64_t end : {std::min(more_q, more_k), std::max(more_q, more_k), count}) {
      if (end <= begin) continue;
      const AttentionMask mask = {shape.seq_q / parts + (begin < more_q ? 1 : 0),
                                  shape.seq_k / parts + (begin < more_k ? 1 : 0),
                                  request_.window_left, request_.window_right};
      out.push_back({mask, end - begin});
      begin = end;
    }
    return out;
  }

  AttentionRequest request_;
  DeviceFacts facts_;
  std::unique_ptr<AttentionForward> plain_, shared_;
  std::unique_ptr<AttentionBackward> backward_;
};

// Whether the heads of a group share tiles. Where the length varies they do: that costs at most 0.2
// % more instructions than one kernel for short and one for long sequences would, counted at 4096
// tokens, and there is one to compile. Both kernels are made only where the heads a group has vary.
Status choose_forward(AttentionRequest request, const DeviceFacts& facts, AttentionLaunchers* out) {
  AttentionProblem& problem = request.problem;
  // Which kernels there are is no matter of a measured tile, which is that of one of them.
  problem.pack_gqa = true;
  LATHE_ASSIGN(const auto usual, make_step(attention_forwards(), problem, without_choices(facts)));
  const int64_t queries = request.declared.seq_q, ratio = request.ratio;
  bool plain = true, shared = true;
  if (ratio != kUnknown) {
    const AttentionTiling& tiling = usual->tiling();
    shared = attention_pack_gqa(queries, ratio, tiling.m, problem.packed || queries == kUnknown,
                                tiling.whole_groups != 0);
    plain = !shared;
  }
  for (const bool pack : {false, true}) {
    if (!(pack ? shared : plain)) continue;
    problem.pack_gqa = pack;
    LATHE_ASSIGN((pack ? out->shared : out->plain),
                 make_step(attention_forwards(), problem, facts));
  }
  return {};
}

// Returns both kinds of blocks, unless the problem declares enough to tell which.
Result<AttentionHeadChoice> choose_heads(const AttentionRequest& request,
                                         const DeviceFacts& facts) {
  if (!request.problem.backward || request.ratio == 1 || request.problem.rank_invariant) {
    return AttentionHeadChoice{true, false};
  }
  const AttentionShape& shape = request.declared;
  for (const int64_t extent : {shape.sequences, shape.heads, shape.kv_heads, shape.seq_k}) {
    if (extent == kUnknown) return AttentionHeadChoice{true, true};
  }
  // Which kernels there are is no matter of a measured tile, which is that of one of them.
  LATHE_ASSIGN(const auto usual,
               make_attention_backward({request.problem, {}}, without_choices(facts)));
  const bool apart = usual->heads_apart(shape);
  return AttentionHeadChoice{!apart, apart};
}

}  // namespace

MadeExecutor make_attention(const AttentionRequest& request, const DeviceFacts& facts) {
  AttentionLaunchers launchers;
  if (request.problem.forward) LATHE_TRY(choose_forward(request, facts, &launchers));
  if (request.problem.backward || request.problem.dsinks) {
    LATHE_ASSIGN(const AttentionHeadChoice heads, choose_heads(request, facts));
    LATHE_ASSIGN(launchers.backward, make_attention_backward({request.problem, heads}, facts));
  }
  return executor_of<AttentionExecutor>(request, facts, std::move(launchers));
}

}  // namespace lathe
