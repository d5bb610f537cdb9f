// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of flash_attention: which kernels it holds, which of them a call takes, the launches.
#include "ops/attention/run.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "codegen/base/invalid.h"
#include "codegen/choice.h"
#include "ops/attention/memory.h"
#include "ops/attention/params.h"

namespace lathe {
namespace {

// Positions and windows are added in 32 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;

// Where two kernels do the same and the lengths decide between them, a plan holds both: lengths
// vary, and a new one compiles nothing.
struct AttentionSlots {
  KernelSlot forward;                          // a tile has rows of one head,
  KernelSlot forward_packed;                   // or of all query heads of a key head
  KernelSlot mask_blocks, mask_blocks_packed;  // lists for either: with a mask_mod
  AttentionBackwardKernels backward;           // empty slots without a backward
};

class AttentionExecutor final : public Executor {
 public:
  AttentionExecutor(const AttentionRequest& request, const DeviceFacts& facts,
                    AttentionSlots kernels);

  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  // The backward of one call; without one, empty.
  struct Backward {
    AttentionBackwardLaunch launch;
    AttentionBackwardWorkspace workspace;
  };
  // With a mask_mod: lists behind the backward's part of the workspace.
  struct Lists {
    AttentionLists forward, backward;
    int64_t total = 0;
  };

  AttentionShape shape(const Call& call) const {
    return attention_shape(call.extents, request_.problem.packed);
  }
  // Packed rows of no sequence are padding, which somebody has to write.
  AttentionShape grid_shape(AttentionShape shape) const {
    if (request_.problem.packed) shape.sequences = std::max<int64_t>(shape.sequences, 1);
    return shape;
  }
  bool takes_packed(const AttentionShape& shape) const;
  const KernelSlot& forward_of(const AttentionShape& shape) const {
    return takes_packed(shape) ? kernels_.forward_packed : kernels_.forward;
  }
  bool has_backward() const { return kernels_.backward.prepare.has_value(); }
  // Whether there is a row for the forward to write.
  bool has_forward(const AttentionShape& shape) const;
  // What a problem with open extents leaves to its calls.
  Status check(const AttentionShape& shape) const;
  Result<Backward> lay_out(const AttentionShape& shape) const;
  Result<Lists> lay_out_lists(const AttentionShape& shape, const Backward& backward) const;
  Status run_forward(const Call& call, const AttentionShape& shape, const Lists& lists) const;
  Status run_backward(const Call& call, const AttentionShape& shape, const Backward& backward,
                      const Lists& lists) const;
  std::vector<AttentionSequences> even_lengths(const AttentionShape& shape) const;

  AttentionRequest request_;
  DeviceFacts facts_;
  AttentionSlots kernels_;
};

Status too_many_blocks(const AttentionShape& shape) {
  return Status(Code::unsupported, text("q of ", shape.sequences, " sequences, ", shape.heads,
                                        " heads and ", shape.seq_q, " tokens needs more than ",
                                        kMaxExtent, " blocks; split the batch"));
}

AttentionExecutor::AttentionExecutor(const AttentionRequest& request, const DeviceFacts& facts,
                                     AttentionSlots kernels)
    : request_(request), facts_(facts), kernels_(std::move(kernels)) {
  AttentionBackwardKernels& backward = kernels_.backward;
  list({&kernels_.forward, &kernels_.forward_packed, &kernels_.mask_blocks,
        &kernels_.mask_blocks_packed, &backward.mask_queries, &backward.prepare, &backward.together,
        &backward.apart, &backward.finish});
}

bool AttentionExecutor::takes_packed(const AttentionShape& shape) const {
  if (!kernels_.forward || !kernels_.forward_packed) return kernels_.forward_packed.has_value();
  const int64_t ratio = shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
  return attention_pack_gqa(shape.seq_q, ratio, kernels_.forward->constant("m"),
                            request_.problem.packed);
}

bool AttentionExecutor::has_forward(const AttentionShape& shape) const {
  return request_.problem.forward && grid_shape(shape).sequences > 0 && shape.heads > 0 &&
         shape.seq_q > 0;
}

Status AttentionExecutor::check(const AttentionShape& shape) const {
  LATHE_TRY(check_heads(shape.heads, shape.kv_heads));
  const bool packed = request_.problem.packed;
  for (const auto& [name, dim, tokens] : {std::tuple("q", packed ? "Tq" : "Sq", shape.seq_q),
                                          std::tuple("k", packed ? "Tk" : "Sk", shape.seq_k)}) {
    if (tokens <= kMostTokens) continue;
    return Status(Code::unsupported,
                  text(name, " has ", dim, " = ", tokens, "; allowed are 0 to ", kMostTokens));
  }
  if (!has_forward(shape)) return {};
  AttentionShape one = grid_shape(shape);
  // Tiles are at most the rows of all heads, which are mostly few enough.
  int64_t rows = 0;
  if (!packed && !__builtin_mul_overflow(shape.seq_q, shape.heads, &rows) &&
      !__builtin_mul_overflow(rows, one.sequences, &rows) && rows <= kMaxExtent) {
    return {};
  }
  const int64_t sequences = std::exchange(one.sequences, 1);
  const bool fits = attention_forward_blocks(*forward_of(shape), one) <= kMaxExtent / sequences;
  return fits ? Status() : too_many_blocks(shape);
}

Result<AttentionExecutor::Backward> AttentionExecutor::lay_out(const AttentionShape& shape) const {
  Backward out;
  if (!has_backward()) return out;
  const AttentionShape whole = grid_shape(shape);
  out.launch = attention_backward_launch(request_.problem, kernels_.backward, facts_, whole,
                                         request_.gradients);
  const AttentionBackwardLaunch& launch = out.launch;
  for (const int64_t count : {launch.rows, launch.keys, launch.prepare_blocks, launch.main_blocks,
                              launch.finish_blocks()}) {
    if (count > kMaxExtent) return too_many_blocks(shape);
  }
  LATHE_ASSIGN(out.workspace, attention_backward_workspace(request_.problem, whole, launch));
  return out;
}

Result<size_t> AttentionExecutor::workspace_bytes(const Call& call) const {
  const AttentionShape extent = shape(call);
  LATHE_TRY(check(extent));
  LATHE_ASSIGN(const Backward backward, lay_out(extent));
  LATHE_ASSIGN(const Lists lists, lay_out_lists(extent, backward));
  return static_cast<size_t>(lists.total);
}

Result<AttentionExecutor::Lists> AttentionExecutor::lay_out_lists(const AttentionShape& shape,
                                                                  const Backward& backward) const {
  Lists out;
  WorkspaceLayout layout;
  layout.add({backward.workspace.total});
  const AttentionShape whole = grid_shape(shape);
  if (request_.problem.mod("mask_mod") && has_forward(shape)) {
    LATHE_ASSIGN(out.forward, forward_lists(request_.problem, *forward_of(shape), whole, &layout));
  }
  if (request_.problem.mod("mask_mod") && backward.launch.main_blocks > 0) {
    LATHE_ASSIGN(out.backward,
                 backward_lists(request_.problem, kernels_.backward.main(), whole, &layout));
  }
  out.total = layout.total();
  LATHE_TRY(layout.status());
  return out;
}

Status AttentionExecutor::run_forward(const Call& call, const AttentionShape& extent,
                                      const Lists& lists) const {
  const bool packed = takes_packed(extent);
  const KernelSlot& kernel = packed ? kernels_.forward_packed : kernels_.forward;
  const KernelSlot& list = packed ? kernels_.mask_blocks_packed : kernels_.mask_blocks;
  const AttentionForwardParams p =
      attention_forward_params(request_, *kernel, extent, call, lists.forward);
  const Grid grid = attention_forward_grid(*kernel, grid_shape(extent));
  if (list) LATHE_TRY(list.launch(grid, &p, call.stream));
  return kernel.launch(grid, &p, call.stream);
}

Status AttentionExecutor::run_backward(const Call& call, const AttentionShape& extent,
                                       const Backward& backward, const Lists& lists) const {
  const AttentionBackwardLaunch& launch = backward.launch;
  const AttentionBackwardCall of{request_, extent, launch, backward.workspace, call};
  if (launch.prepare_blocks > 0) {
    const AttentionBackwardPrepareParams p = attention_prepare_params(of);
    LATHE_TRY(kernels_.backward.prepare.launch(launch.prepare_blocks, &p, call.stream));
  }
  if (launch.main_blocks > 0) {
    const AttentionBackwardParams p = attention_backward_params(of, lists.backward);
    const KernelSlot& main = launch.apart ? kernels_.backward.apart : kernels_.backward.together;
    const KernelSlot& list = kernels_.backward.mask_queries;
    if (list) LATHE_TRY(list.launch(lists.backward.blocks, &p, call.stream));
    LATHE_TRY(main.launch(launch.main_blocks, &p, call.stream));
  }
  if (launch.finish_blocks() == 0) return {};
  const AttentionBackwardFinishParams p = attention_finish_params(of);
  return kernels_.backward.finish.launch(launch.finish_blocks(), &p, call.stream);
}

Status AttentionExecutor::run(const Call& call) const {
  const AttentionShape extent = shape(call);
  LATHE_TRY(check(extent));
  LATHE_ASSIGN(const Backward backward, lay_out(extent));
  LATHE_ASSIGN(const Lists lists, lay_out_lists(extent, backward));
  LATHE_TRY(call.check_workspace(lists.total));
  if (has_forward(extent)) LATHE_TRY(run_forward(call, extent, lists));
  return has_backward() ? run_backward(call, extent, backward, lists) : Status();
}

// Packed lengths are on the device: the estimate takes them as even. The first of them have one
// token more where tokens do not divide, so that there are three kinds of sequences at most.
std::vector<AttentionSequences> AttentionExecutor::even_lengths(const AttentionShape& shape) const {
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

Result<Estimate> AttentionExecutor::estimate(const Call& call) const {
  const AttentionShape extent = shape(call);
  LATHE_TRY(check(extent));
  const std::vector<AttentionSequences> sequences = even_lengths(extent);
  Estimate out;
  const auto add = [&out, this](const AttentionCost& cost, uint64_t bytes) {
    out.cost.minimum_bytes += cost.minimum_bytes;
    out.cost.bytes += bytes;
    out.cost.flops += cost.flops;
    out.cost.tensor_ops += cost.tile_flops * attention_product_terms(request_.problem);
  };
  if (has_forward(extent)) {
    const KernelSpec& spec = *forward_of(extent);
    out.launches = request_.problem.mod("mask_mod") ? 2 : 1;
    const auto& problem = request_.problem;
    add(attention_forward_cost(problem, spec, extent, sequences),
        attention_memory_bytes(problem, spec, extent, sequences, facts_));
  }
  if (!has_backward()) return out;
  LATHE_ASSIGN(const Backward backward, lay_out(extent));
  const AttentionBackwardLaunch& launch = backward.launch;
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

// Whether the heads of a group share tiles. Where the length varies they do: that costs at most 0.2
// % more instructions than one kernel for short and one for long sequences would, counted at 4096
// tokens, and there is one to compile. Both kernels are made only where the heads a group has vary.
Status choose_forward(AttentionRequest request, const DeviceFacts& facts, AttentionSlots* out) {
  AttentionProblem& problem = request.problem;
  // Which kernels there are is no matter of a measured tile, which is that of one of them.
  LATHE_ASSIGN(const AttentionTile tile, attention_choose(problem, without_choices(facts)));
  const int64_t queries = request.declared.seq_q, ratio = request.ratio;
  bool plain = true, shared = ratio != 1;
  if (ratio != kUnknown) {
    if (queries != kUnknown) {
      shared = attention_pack_gqa(queries, ratio, tile.rows, problem.packed);
    }
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

// Both kinds of blocks, unless the problem declares enough to tell which.
Result<AttentionHeadChoice> choose_heads(const AttentionRequest& request,
                                         const DeviceFacts& facts) {
  if (request.ratio == 1) return AttentionHeadChoice{true, false};
  const AttentionShape& shape = request.declared;
  for (const int64_t extent : {shape.sequences, shape.heads, shape.kv_heads, shape.seq_k}) {
    if (extent == kUnknown) return AttentionHeadChoice{true, true};
  }
  LATHE_ASSIGN(const AttentionBackwardTile tile,
               attention_backward_choose(request.problem, without_choices(facts)));
  const bool apart = attention_heads_apart(request.problem, tile, facts, shape);
  return AttentionHeadChoice{!apart, apart};
}

}  // namespace

Result<std::unique_ptr<Executor>> make_attention(const AttentionRequest& request,
                                                 const DeviceFacts& facts) {
  AttentionSlots kernels;
  if (request.problem.forward) LATHE_TRY(choose_forward(request, facts, &kernels));
  if (request.problem.backward || request.problem.dsinks) {
    LATHE_ASSIGN(const AttentionHeadChoice heads, choose_heads(request, facts));
    LATHE_ASSIGN(kernels.backward, attention_backward_kernels(request.problem, facts, heads));
  }
  return executor_of<AttentionExecutor>(request, facts, std::move(kernels));
}

}  // namespace lathe
