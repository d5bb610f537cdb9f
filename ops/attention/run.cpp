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
#include "ops/attention/params.h"
#include "ops/attention/sm90/backward_kernels.h"
#include "ops/attention/sm90/kernels.h"

namespace lathe {
namespace {

// Where two kernels do the same and the lengths decide between them, a plan holds both: lengths
// vary, and a new one compiles nothing.
struct AttentionSlots {
  KernelSlot forward;                          // a tile has rows of one head,
  KernelSlot forward_packed;                   // or of all query heads of a key head
  KernelSlot mask_blocks, mask_blocks_packed;  // lists for either: with a mask_mod
  AttentionBackwardKernels backward;           // empty slots without a backward
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

class AttentionExecutor final : public PlannedExecutor<AttentionExecutor, AttentionPlan> {
 public:
  AttentionExecutor(const AttentionRequest& request, const DeviceFacts& facts,
                    AttentionSlots kernels)
      : request_(request), facts_(facts), kernels_(std::move(kernels)) {
    AttentionBackwardKernels& backward = kernels_.backward;
    list({&kernels_.forward, &kernels_.forward_packed, &kernels_.mask_blocks,
          &kernels_.mask_blocks_packed, &backward.mask_queries, &backward.prepare,
          &backward.together, &backward.apart, &backward.finish});
  }

  Result<AttentionPlan> plan(const Call& call) const {
    // The only return: the plan is made where the caller wants it.
    Result<AttentionPlan> made(std::in_place);
    if (Status status = fill(call, &*made); !status.ok()) made = std::move(status);
    return made;
  }

  Status launch(const Call& call, const AttentionPlan& plan) const {
    if (plan.forward) LATHE_TRY(run_forward(call, plan));
    return has_backward() ? run_backward(call, plan) : Status();
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
      const KernelSpec& spec = *forward_of(extent);
      out.launches = lists_blocks() ? 2 : 1;
      const auto& problem = request_.problem;
      add(attention_forward_cost(problem, spec, extent, sequences),
          attention_memory_bytes(problem, spec, extent, sequences, facts_));
    }
    if (!has_backward()) return out;
    const AttentionBackwardLaunch& launch = plan.launch;
    const int64_t listed = kernels_.backward.mask_queries ? launch.main_blocks : 0;
    for (const int64_t blocks :
         {launch.prepare_blocks, listed, launch.main_blocks, launch.finish_blocks()}) {
      out.launches += blocks > 0 ? 1 : 0;
    }
    const AttentionCost cost =
        attention_backward_cost(request_.problem, kernels_.backward, extent, launch, sequences);
    add(cost, attention_backward_memory_bytes(request_.problem, kernels_.backward, extent, launch,
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

  bool takes_packed(const AttentionShape& shape) const {
    if (!kernels_.forward || !kernels_.forward_packed) return kernels_.forward_packed.has_value();
    const int64_t ratio = shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
    const KernelNumbers& kernel = kernels_.forward_packed.numbers();
    return attention_pack_gqa(shape.seq_q, ratio, kernel.m, request_.problem.packed, kernel.mapped);
  }

  const KernelSlot& forward_of(const AttentionShape& shape) const {
    return takes_packed(shape) ? kernels_.forward_packed : kernels_.forward;
  }
  bool lists_blocks() const { return kernels_.mask_blocks || kernels_.mask_blocks_packed; }
  bool has_backward() const { return kernels_.backward.prepare.has_value(); }

  // Checks extents that a problem leaves open to its calls.
  Status check(const AttentionPlan& plan) const {
    const AttentionShape& shape = plan.shape;
    LATHE_TRY(check_heads(shape.heads, shape.kv_heads));
    const bool packed = request_.problem.packed;
    for (const auto& [name, dim, tokens] : {std::tuple("q", packed ? "Tq" : "Sq", shape.seq_q),
                                            std::tuple("k", packed ? "Tk" : "Sk", shape.seq_k)}) {
      if (tokens <= kMostTokens) continue;
      return unsupported(
          text(name, " has ", dim, " = ", tokens, "; allowed are 0 to ", kMostTokens));
    }
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
        attention_forward_blocks(forward_of(shape).numbers(), one) <= kMaxExtent / sequences;
    return fits ? Status() : too_many_blocks(shape);
  }

  Status plan_backward(AttentionPlan* plan) const {
    if (!has_backward()) return {};
    plan->launch = attention_backward_launch(request_.problem, kernels_.backward, facts_,
                                             plan->whole, request_.gradients);
    const AttentionBackwardLaunch& launch = plan->launch;
    for (const int64_t count : {launch.rows, launch.keys, launch.prepare_blocks, launch.main_blocks,
                                launch.finish_blocks()}) {
      if (count > kMaxExtent) return too_many_blocks(plan->shape);
    }
    LATHE_ASSIGN(plan->workspace,
                 attention_backward_workspace(request_.problem, plan->whole, launch));
    return {};
  }

  Status plan_lists(AttentionPlan* plan) const {
    const AttentionProblem& problem = request_.problem;
    WorkspaceLayout layout;
    layout.add({plan->workspace.total});
    if (lists_blocks() && plan->forward) {
      plan->forward_lists =
          forward_lists(problem, forward_of(plan->shape).numbers(), plan->whole, &layout);
    }
    if (kernels_.backward.mask_queries && plan->launch.main_blocks > 0) {
      LATHE_ASSIGN(plan->backward_lists,
                   backward_lists(problem, kernels_.backward.main_numbers(), plan->whole, &layout));
    }
    plan->bytes = layout.total();
    return layout.status();
  }

  Status run_forward(const Call& call, const AttentionPlan& plan) const {
    const bool packed = takes_packed(plan.shape);
    const KernelSlot& kernel = packed ? kernels_.forward_packed : kernels_.forward;
    const KernelSlot& list = packed ? kernels_.mask_blocks_packed : kernels_.mask_blocks;
    const KernelNumbers& numbers = kernel.numbers();
    AttentionWarpgroupsParams p;  // of which a portable kernel has the first part alone
    p.forward = {};
    fill_forward(request_, numbers, plan.shape, call, plan.forward_lists, &p.forward);
    const int64_t blocks = attention_forward_blocks(numbers, plan.whole);
    if (list) LATHE_TRY(list.launch(blocks, &p.forward, call.stream));
    if (numbers.mapped) {
      return launch_attention_warpgroups(kernel, blocks, facts_.multiprocessors, call.stream, &p);
    }
    return kernel.launch(blocks, &p.forward, call.stream);
  }

  Status run_backward(const Call& call, const AttentionPlan& plan) const {
    const AttentionBackwardLaunch& launch = plan.launch;
    const AttentionBackwardCall of{request_, plan.shape, launch, plan.workspace, call};
    if (launch.prepare_blocks > 0) {
      const AttentionBackwardPrepareParams p = attention_prepare_params(of);
      LATHE_TRY(kernels_.backward.prepare.launch(launch.prepare_blocks, &p, call.stream));
    }
    if (launch.main_blocks > 0) {
      const AttentionBackwardParams p = attention_backward_params(of, plan.backward_lists);
      const KernelSlot& main = launch.apart ? kernels_.backward.apart : kernels_.backward.together;
      const KernelSlot& list = kernels_.backward.mask_queries;
      if (list) LATHE_TRY(list.launch(plan.backward_lists.blocks, &p, call.stream));
      void* const order = launch.dq_turns > 0 ? call.workspace + plan.workspace.dq_order : nullptr;
      LATHE_TRY(main.numbers().mapped
                    ? launch_attention_backward_warpgroups(main, p, launch, order, call.stream)
                    : main.launch(launch.main_blocks, &p, call.stream));
    }
    if (launch.finish_blocks() == 0) return {};
    const AttentionBackwardFinishParams p = attention_finish_params(of);
    if (launch.in_tiles) {
      const AttentionBackwardWarpgroupsFinishParams in_tiles = attention_finish_params_in_tiles(of);
      return kernels_.backward.finish.launch(launch.finish_blocks(), &in_tiles, call.stream);
    }
    return kernels_.backward.finish.launch(launch.finish_blocks(), &p, call.stream);
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
  AttentionSlots kernels_;
};

// Whether the heads of a group share tiles. Where the length varies they do: that costs at most 0.2
// % more instructions than one kernel for short and one for long sequences would, counted at 4096
// tokens, and there is one to compile. Both kernels are made only where the heads a group has vary.
Status choose_forward(AttentionRequest request, const DeviceFacts& facts, AttentionSlots* out) {
  AttentionProblem& problem = request.problem;
  // Which kernels there are is no matter of a measured tile, which is that of one of them.
  problem.pack_gqa = true;
  LATHE_ASSIGN(const AttentionKernels usual, attention_kernels(problem, without_choices(facts)));
  const int64_t queries = request.declared.seq_q, ratio = request.ratio;
  bool plain = true, shared = true;
  if (ratio != kUnknown) {
    const KernelNumbers& kernel = usual.forward.numbers();
    shared = attention_pack_gqa(queries, ratio, kernel.m, problem.packed || queries == kUnknown,
                                kernel.mapped);
    plain = !shared;
  }
  for (const bool pack : {false, true}) {
    if (!(pack ? shared : plain)) continue;
    problem.pack_gqa = pack;
    LATHE_ASSIGN(const AttentionKernels kernels, attention_kernels(problem, facts));
    (pack ? out->forward_packed : out->forward) = kernels.forward;
    (pack ? out->mask_blocks_packed : out->mask_blocks) = kernels.mask_blocks;
  }
  return {};
}

// Returns both kinds of blocks, unless the problem declares enough to tell which.
Result<AttentionHeadChoice> choose_heads(const AttentionRequest& request,
                                         const DeviceFacts& facts) {
  if (request.ratio == 1) return AttentionHeadChoice{true, false};
  const AttentionShape& shape = request.declared;
  for (const int64_t extent : {shape.sequences, shape.heads, shape.kv_heads, shape.seq_k}) {
    if (extent == kUnknown) return AttentionHeadChoice{true, true};
  }
  // Which kernels there are is no matter of a measured tile, which is that of one of them.
  LATHE_ASSIGN(const KernelSpec usual,
               attention_backward_main(request.problem, without_choices(facts), false));
  const bool apart = attention_heads_apart(request.problem, KernelNumbers(usual), facts, shape);
  return AttentionHeadChoice{!apart, apart};
}

}  // namespace

MadeExecutor make_attention(const AttentionRequest& request, const DeviceFacts& facts) {
  AttentionSlots kernels;
  if (request.problem.forward) LATHE_TRY(choose_forward(request, facts, &kernels));
  if (request.problem.backward || request.problem.dsinks) {
    LATHE_ASSIGN(const AttentionHeadChoice heads, choose_heads(request, facts));
    LATHE_ASSIGN(kernels.backward, attention_backward_kernels(request.problem, facts, heads));
  }
  return executor_of<AttentionExecutor>(request, facts, std::move(kernels));
}

}  // namespace lathe
