// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_block behind the plan: checks, parameters, and one launch, or two with positions.
#include <charconv>
#include <tuple>

#include "codegen/base/invalid.h"
#include "ops/attention/block.h"
#include "ops/attention/memory.h"
#include "ops/attention/params.h"
#include "ops/attention/snippets.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

namespace tensors = attention_block;

constexpr int64_t kMostTokens = int64_t{1} << 30;  // positions and windows are added in 32 bits


class AttentionBlockWork final : public Work {
 public:
  AttentionBlockWork(const AttentionRequest& request, const AttentionBlockKernels& kernels,
                     const BlockGrid& grid, bool batch, bool first)
      : request_(request), grid_(grid), batch_(batch), first_(first) {
    if (kernels.positions) specs_.push_back(*kernels.positions);
    specs_.push_back(*kernels.forward);
  }

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override {
    if (kernels.size() > 1) positions_ = kernels[0].loaded;
    forward_ = kernels.back().loaded;
    grid_.bind(kernels.back());
  }
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  const KernelSpec& spec() const { return specs_.back(); }
  // No row to write; or nothing to add, and nothing to begin.
  bool is_empty(const AttentionShape& shape) const {
    return shape.sequences == 0 || shape.heads == 0 || shape.seq_q == 0 ||
           (shape.seq_k == 0 && !first_);
  }
  Result<AttentionShape> shape_of(const Call& call) const;
  int64_t workspace_of(const AttentionShape& shape) const;
  AttentionBlockParams params(const Call& call, const AttentionShape& shape) const;

  AttentionRequest request_;
  BlockGrid grid_;
  bool batch_, first_;
  std::vector<KernelSpec> specs_;  // that of positions before the forward's
  std::shared_ptr<const Kernel> positions_, forward_;
};

Result<AttentionShape> AttentionBlockWork::shape_of(const Call& call) const {
  LATHE_ASSIGN(const AttentionShape shape, block_shape(call.extents, batch_));
  if (is_empty(shape)) return shape;
  AttentionShape one = shape;
  one.sequences = 1;
  if (attention_forward_blocks(spec(), one) <= kMaxExtent / shape.sequences) return shape;
  return too_many_block_rows("q", shape);
}

int64_t AttentionBlockWork::workspace_of(const AttentionShape& shape) const {
  return is_empty(shape) ? 0 : attention_block_workspace_bytes(spec(), shape.seq_k);
}

Result<size_t> AttentionBlockWork::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const AttentionShape extent, shape_of(call));
  return static_cast<size_t>(workspace_of(extent));
}

AttentionBlockParams AttentionBlockWork::params(const Call& call,
                                                const AttentionShape& shape) const {
  const auto& t = call.tensors;
  AttentionBlockParams p = {};
  AttentionForwardParams& f = p.forward;
  f.q = t[tensors::q].data;
  f.k = t[tensors::k].data;
  f.v = t[tensors::v].data;
  f.alibi_slopes = t[tensors::alibi_slopes].data;
  f.out = t[tensors::out].data;
  f.lse = t[tensors::lse].data;
  const auto fill = [&](int tensor, long long* batch, long long* token, long long* head) {
    const AttentionStrides from = attention_strides(t[tensor], !batch_);
    *batch = from.batch, *token = from.token, *head = from.head;
  };
  fill(tensors::q, &f.q_batch_stride, &f.q_token_stride, &f.q_head_stride);
  fill(tensors::k, &f.k_batch_stride, &f.k_token_stride, &f.k_head_stride);
  fill(tensors::v, &f.v_batch_stride, &f.v_token_stride, &f.v_head_stride);
  fill(tensors::out, &f.out_batch_stride, &f.out_token_stride, &f.out_head_stride);
  f.alibi_batch_stride = request_.alibi_rows ? shape.heads : 0;
  f.sequences = static_cast<int>(shape.sequences);
  f.heads = static_cast<int>(shape.heads);
  f.kv_heads = static_cast<int>(shape.kv_heads);
  f.seq_q = static_cast<int>(shape.seq_q);
  f.seq_k = static_cast<int>(shape.seq_k);
  f.head_dim = request_.problem.head_dim;
  f.value_dim = request_.problem.value_dim;
  f.window_left = block_window(request_.window_left);
  f.window_right = block_window(request_.window_right);
  f.tiles = static_cast<int>(attention_tiles(spec(), shape));
  f.softmax_scale = request_.softmax_scale;
  f.softcap = request_.softcap;
  put_snippets(request_, call, {}, &f);
  p.pairs = t[tensors::pairs].data;
  p.pair_batches = t[tensors::pair_batch].data;
  p.q_positions = t[tensors::q_pos].data;
  p.k_positions = t[tensors::k_pos].data;
  p.key_ranges = call.workspace;
  const int64_t pairs = call.extents[Letter::NP];
  p.pair_count = static_cast<int>(pairs == kUnknown ? 0 : pairs);
  p.first = first_ ? 1 : 0;
  return p;
}

Status AttentionBlockWork::run(const Call& call) const {
  LATHE_ASSIGN(const AttentionShape extent, shape_of(call));
  LATHE_TRY(call.check_workspace(workspace_of(extent)));
  if (is_empty(extent)) return {};
  if (positions_) {
    LATHE_TRY(find_position_ranges(*positions_, specs_[0], call.tensors[tensors::k_pos].data,
                                   extent.seq_k, spec().constant("n"), call.workspace,
                                   call.stream));
  }
  const AttentionBlockParams p = params(call, extent);
  const int64_t blocks = grid_.blocks(spec(), attention_forward_blocks(spec(), extent));
  return forward_->launch({static_cast<unsigned>(blocks), 1, 1}, &p, call.stream);
}

// Which pairs are kept is on the device: the estimate takes them all.
Result<Estimate> AttentionBlockWork::estimate(const Call& call) const {
  LATHE_ASSIGN(const AttentionShape extent, shape_of(call));
  Estimate out;
  if (is_empty(extent)) return out;
  AttentionSequences all;
  all.queries = extent.seq_q, all.keys = extent.seq_k;
  const AttentionCost row = attention_forward_cost(request_.problem, spec(), extent, {all});
  // out is float32 and, but for the first step, read as well.
  const auto rows = static_cast<uint64_t>(extent.sequences);
  const uint64_t cells = rows * static_cast<uint64_t>(extent.seq_q * extent.heads);
  const uint64_t width = static_cast<uint64_t>(request_.problem.value_dim);
  const uint64_t element = static_cast<uint64_t>(bytes_of(request_.problem.element));
  const uint64_t state = cells * (width * (4 - element) + (first_ ? 0 : 4 * width + 4));
  out.launches = positions_ || specs_.size() > 1 ? 2 : 1;
  const uint64_t memory =
      attention_memory_bytes(request_.problem, spec(), extent, {all}, grid_.facts());
  out.cost = {rows * row.minimum_bytes + state, rows * memory + state, rows * row.flops,
              rows * row.tile_flops * attention_product_terms(request_.problem)};
  return out;
}

}  // namespace

Result<BlockGrid> BlockGrid::make(const BlockOptions& options, const DeviceFacts& facts) {
  BlockGrid out;
  out.facts_ = facts;
  out.margin_ = options.sm_margin;
  if (out.margin_ < facts.multiprocessors) return out;
  return invalid(text("option sm_margin is ", out.margin_, "; the device has ",
                      facts.multiprocessors, " multiprocessors, of which one must be left"));
}

void BlockGrid::bind(const PlanKernel& kernel) {
  const std::string_view text = kernel.built->entry->metadata.find("registers").value_or("");
  int registers = 0;
  std::from_chars(text.data(), text.data() + text.size(), registers);
  if (registers > 0) registers_ = registers;
}

bool is_block_batch(const lathe_problem& problem, int lead) {
  return has_letter(problem.tensors[lead].shape, Letter::B);
}

Status check_block_form(const lathe_problem& problem, int lead) {
  const bool batch = is_block_batch(problem, lead);
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const TensorInfo& tensor = problem.op->tensors[i];
    const Shape& shape = problem.tensors[i].shape;
    if (!problem.has(static_cast<int>(i)) || parse_shapes(tensor.shape).size() == 1) continue;
    if (!(batch ? is_packed_shape(shape) : has_letter(shape, Letter::B))) continue;
    return invalid(text(tensor.name, " has shape ", shape_text(shape), ", but ",
                        problem.op->tensors[lead].name, " has ",
                        shape_text(problem.tensors[lead].shape),
                        "; allowed are both with a batch or both packed"));
  }
  return {};
}

// Positions are those of the rows and keys of every row of a batch.
Status check_positions(const Extents& extents) {
  const std::tuple<const char*, const char*, Letter, Letter> both[] = {
      {"q_pos", "q", Letter::Tq, Letter::Sq}, {"k_pos", "k", Letter::Tk, Letter::Sk}};
  for (const auto& [positions, tokens, theirs, ours] : both) {
    const int64_t found = extents[theirs], allowed = extents[ours];
    if (found == kUnknown || allowed == kUnknown || found == allowed) continue;
    return invalid(text(positions, " has ", name_of(theirs), " = ", found, ", but ", tokens,
                        " has ", name_of(ours), " = ", allowed));
  }
  return {};
}

Result<AttentionShape> block_shape(const Extents& extents, bool batch) {
  if (batch) LATHE_TRY(check_positions(extents));
  const AttentionShape shape = {batch ? extents[Letter::B] : 1, extents[Letter::H],
                                extents[Letter::HK], extents[batch ? Letter::Sq : Letter::Tq],
                                extents[batch ? Letter::Sk : Letter::Tk]};
  LATHE_TRY(check_block_shape(shape));
  return shape;
}

Status too_many_block_rows(const char* tensor, const AttentionShape& shape) {
  return unsupported(text(tensor, " of ", shape.sequences, " rows, ", shape.heads, " heads and ",
                          shape.seq_q, " tokens needs more than ", kMaxExtent,
                          " blocks; split the batch or the heads"));
}

Status find_position_ranges(const Kernel& kernel, const KernelSpec& spec, const void* positions,
                            int64_t count, int64_t run, void* ranges, CUstream stream) {
  AttentionPositionsParams p = {};
  p.positions = positions;
  p.ranges = ranges;
  p.count = static_cast<int>(count);
  p.run = static_cast<int>(run);
  const int64_t blocks = attention_positions_blocks(spec, count, run);
  if (blocks == 0) return {};
  return kernel.launch({static_cast<unsigned>(blocks), 1, 1}, &p, stream);
}

int block_window(int64_t window) { return window > kMaxExtent - 1 ? -1 : static_cast<int>(window); }

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
  using namespace attention_block;  // the backward's first rows are the same
  const bool by_pairs = resolved.has(pairs);
  if (by_pairs == resolved.has(q_pos)) {
    return invalid(text(by_pairs ? "pairs is declared beside q_pos and k_pos"
                                 : "neither pairs nor q_pos and k_pos are declared",
                        "; ", resolved.problem.op->name, " takes either pairs or positions"));
  }
  LATHE_TRY(check_block_form(resolved.problem, q));
  if (is_block_batch(resolved.problem, q)) LATHE_TRY(check_positions(resolved.extents));
  LATHE_TRY(check_head_width("q", "D", resolved[Letter::D]));
  LATHE_TRY(check_head_width("v", "DV", resolved[Letter::DV]));
  return check_heads(resolved[Letter::H], resolved[Letter::HK]);
}

Result<AttentionRequest> attention_block_request(const Resolved& resolved) {
  using namespace attention_block;
  LATHE_ASSIGN(AttentionRequest asked, score_request(resolved, q, capture_0, alibi_slopes));
  asked.problem.pairs = resolved.has(pairs);
  asked.problem.positions = !asked.problem.pairs;
  return asked;
}

Result<std::unique_ptr<Work>> make_attention_block(const Resolved& resolved,
                                                   const DeviceFacts& facts) {
  LATHE_ASSIGN(AttentionRequest request, attention_block_request(resolved));
  const auto& options = resolved.options_as<BlockOptions>();
  request.problem.forward = true;
  LATHE_ASSIGN(const BlockGrid grid, BlockGrid::make(options, facts));
  request.problem.persistent = grid.persistent();
  LATHE_ASSIGN(const AttentionBlockKernels kernels,
               attention_block_kernels(request.problem, facts));
  const bool batch = is_block_batch(resolved.problem, tensors::q);
  return std::unique_ptr<Work>(
      std::make_unique<AttentionBlockWork>(request, kernels, grid, batch, options.first));
}

}  // namespace lathe
