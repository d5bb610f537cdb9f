// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements flash_attention_block behind the plan: checks, parameters, and one launch, or two with
// positions.
#include "ops/attention/block/run.h"

#include <tuple>

#include "codegen/base/invalid.h"
#include "ops/attention/params.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

// Holds what follows from the shapes of a call.
struct BlockPlan {
  AttentionShape shape;
  bool empty = false;  // no row to write; or nothing to add, and nothing to begin
  int64_t workspace = 0;

  int64_t total() const { return workspace; }
};

class AttentionBlockExecutor final : public PlannedExecutor<AttentionBlockExecutor, BlockPlan> {
 public:
  AttentionBlockExecutor(AttentionBlockRequest request, const DeviceFacts& facts,
                         std::unique_ptr<AttentionBlock> step)
      : request_(std::move(request)), facts_(facts), step_(std::move(step)) {
    list({&positions_.kernel, &step_->kernel});
  }

  Result<BlockPlan> plan(const Call& call) const {
    BlockPlan out;
    LATHE_ASSIGN(out.shape, block_shape(call.extents, request_.batch));
    AttentionShape one = out.shape;
    out.empty = one.sequences == 0 || one.heads == 0 || one.seq_q == 0 ||
                (one.seq_k == 0 && !request_.first);
    if (out.empty) return out;
    one.sequences = 1;
    if (attention_forward_blocks(tiling(), one) > kMaxExtent / out.shape.sequences) {
      return too_many_block_rows("q", out.shape);
    }
    out.workspace = attention_block_workspace_bytes(tiling(), out.shape.seq_k);
    return out;
  }

  Status launch(const Call& call, const BlockPlan& plan) const {
    const AttentionShape& shape = plan.shape;
    if (plan.empty) return {};
    LATHE_TRY(
        positions_.find(call, attention_block::k_pos, shape.seq_k, tiling().n, call.workspace));
    return step_->launch({request_, shape, call.workspace, call});
  }

  // Which ranges are kept is on the device: the estimate takes them all.
  Result<Estimate> estimate_plan(const Call&, const BlockPlan& plan) const {
    const AttentionShape& extent = plan.shape;
    const AttentionProblem& problem = request_.attention.problem;
    Estimate out;
    if (plan.empty) return out;
    AttentionSequences all;
    all.queries = extent.seq_q, all.keys = extent.seq_k;
    const AttentionCost row = attention_forward_cost(problem, spec(), extent, {all});
    // out is float32 and, but for the first step, read as well.
    const auto rows = static_cast<uint64_t>(extent.sequences);
    const uint64_t cells = rows * static_cast<uint64_t>(extent.seq_q * extent.heads);
    const uint64_t width = static_cast<uint64_t>(problem.value_dim);
    const uint64_t element = static_cast<uint64_t>(bytes_of(problem.element));
    const uint64_t state = cells * (width * (4 - element) + (request_.first ? 0 : 4 * width + 4));
    out.launches = static_cast<uint64_t>(kernel_count());
    const uint64_t memory = attention_memory_bytes(problem, spec(), extent, {all}, facts_);
    out.cost = {rows * row.minimum_bytes + state, rows * memory + state, rows * row.flops,
                rows * row.tile_flops * attention_product_terms(problem)};
    return out;
  }

 private:
  const KernelSpec& spec() const { return *step_->kernel; }
  const AttentionTiling& tiling() const { return step_->tiling(); }

  AttentionBlockRequest request_;
  DeviceFacts facts_;
  PositionRanges positions_{request_.attention.problem.positions};
  std::unique_ptr<AttentionBlock> step_;
};

// Checks the extents of positions, which every row of a batch shares.
Status check_positions(const Extents& extents) {
  const std::tuple<const char*, const char*, Dim, Dim> both[] = {{"q_pos", "q", Dim::Tq, Dim::Sq},
                                                                 {"k_pos", "k", Dim::Tk, Dim::Sk}};
  for (const auto& [positions, tokens, theirs, ours] : both) {
    const int64_t found = extents[theirs], allowed = extents[ours];
    if (found == kUnknown || allowed == kUnknown || found == allowed) continue;
    return invalid(text(positions, " has ", name_of(theirs), " = ", found, ", but ", tokens,
                        " has ", name_of(ours), " = ", allowed));
  }
  return {};
}

}  // namespace

PositionRanges::PositionRanges(bool needed) {
  if (needed) kernel = attention_positions_spec();
}

Status PositionRanges::find(const Call& call, int positions, int64_t count, int64_t run,
                            void* ranges) const {
  if (!kernel) return {};
  AttentionPositionsParams p = {};
  p.positions = call.tensors[positions].data;
  p.ranges = ranges;
  p.count = static_cast<int>(count);
  p.run = static_cast<int>(run);
  return kernel.launch(attention_positions_blocks(count, run), &p, call.stream);
}

Status take_margin(const DeviceFacts& facts, AttentionBlockRequest* request) {
  const int64_t margin = request->attention.sm_margin;
  if (margin >= facts.multiprocessors) {
    return invalid(text("option sm_margin is ", margin, "; the device has ", facts.multiprocessors,
                        " multiprocessors, of which one must be left"));
  }
  request->attention.problem.persistent = margin > 0;
  return {};
}

bool is_block_batch(const lathe_problem& problem, int lead) {
  return has_dim(problem.tensors[lead].shape, Dim::B);
}

Status check_block_form(const lathe_problem& problem, int lead) {
  const bool batch = is_block_batch(problem, lead);
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const TensorInfo& tensor = problem.op->tensors[i];
    const Shape& shape = problem.tensors[i].shape;
    if (!problem.has(static_cast<int>(i)) || parse_shapes(tensor.shape).size() == 1) continue;
    if (!(batch ? is_packed_shape(shape) : has_dim(shape, Dim::B))) continue;
    return invalid(text(tensor.name, " has shape ", shape_text(shape), ", but ",
                        problem.op->tensors[lead].name, " has ",
                        shape_text(problem.tensors[lead].shape),
                        "; allowed are both with a batch or both packed"));
  }
  return {};
}

Result<AttentionShape> block_shape(const Extents& extents, bool batch) {
  if (batch) LATHE_TRY(check_positions(extents));
  const AttentionShape shape = {batch ? extents[Dim::B] : 1, extents[Dim::H], extents[Dim::HK],
                                extents[batch ? Dim::Sq : Dim::Tq],
                                extents[batch ? Dim::Sk : Dim::Tk]};
  LATHE_TRY(check_block_shape(shape));
  return shape;
}

Status too_many_block_rows(const char* tensor, const AttentionShape& shape) {
  return unsupported(text(tensor, " of ", shape.sequences, " rows, ", shape.heads, " heads and ",
                          shape.seq_q, " tokens needs more than ", kMaxExtent,
                          " blocks; split the batch or the heads"));
}

Status check_block_shape(const AttentionShape& shape) {
  LATHE_TRY(check_heads(shape.heads, shape.kv_heads));
  const std::pair<const char*, int64_t> all[] = {{"q", shape.seq_q}, {"k", shape.seq_k}};
  for (const auto& [name, tokens] : all) {
    if (tokens <= kMostTokens) continue;
    return unsupported(text(name, " has ", tokens, " tokens; allowed are 0 to ", kMostTokens));
  }
  return {};
}

Status check_attention_block(const Resolved& resolved) {
  using namespace attention_block_inputs;
  const bool by_ranges = resolved.has(ranges);
  if (by_ranges == resolved.has(q_pos)) {
    return invalid(text(by_ranges ? "ranges is declared beside q_pos and k_pos"
                                  : "neither ranges nor q_pos and k_pos are declared",
                        "; ", resolved.problem.op->name, " takes either ranges or positions"));
  }
  LATHE_TRY(check_block_form(resolved.problem, q));
  if (is_block_batch(resolved.problem, q)) LATHE_TRY(check_positions(resolved.extents));
  LATHE_TRY(check_head_width("q", "D", resolved[Dim::D]));
  LATHE_TRY(check_head_width("v", "DV", resolved[Dim::DV]));
  return check_heads(resolved[Dim::H], resolved[Dim::HK]);
}

Result<AttentionBlockRequest> attention_block_request(const Resolved& resolved) {
  using namespace attention_block_inputs;
  const auto& options = resolved.options_as<BlockOptions>();
  AttentionBlockRequest asked;
  LATHE_ASSIGN(asked.attention, score_request(resolved, q, capture_0, alibi_slopes));
  asked.attention.problem.ranges = resolved.has(ranges);
  asked.attention.problem.positions = !resolved.has(ranges);
  asked.attention.sm_margin = options.sm_margin;
  asked.batch = is_block_batch(resolved.problem, q);
  asked.first = options.first;
  asked.first_keys = options.first_keys;
  return asked;
}

AttentionBlockRequest block_step(const AttentionRequest& whole) {
  AttentionBlockRequest out;
  out.attention = whole;
  out.batch = true;
  for (size_t i = 0; i < whole.captured.size(); ++i) {
    if (whole.captured[i] >= 0) {
      out.attention.captured[i] = attention_block_inputs::capture_0 + static_cast<int>(i);
    }
  }
  AttentionProblem& asked = out.attention.problem;
  asked.ranges = true;
  asked.packed = asked.sinks = asked.forward = asked.backward = asked.dsinks = asked.dlse = false;
  return out;
}

MadeExecutor make_attention_block(AttentionBlockRequest request, const DeviceFacts& facts) {
  request.attention.problem.forward = true;
  LATHE_TRY(take_margin(facts, &request));
  LATHE_ASSIGN(auto step, make_step(attention_blocks(), request.attention.problem, facts));
  return executor_of<AttentionBlockExecutor>(std::move(request), facts, std::move(step));
}

MadeExecutor make_attention_block(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(AttentionBlockRequest request, attention_block_request(resolved));
  return make_attention_block(std::move(request), facts);
}

}  // namespace lathe
