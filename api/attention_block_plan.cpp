// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_block behind the plan: checks, parameters, and one launch, or two with positions.
#include "api/attention_block.h"
#include "api/boundary.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

namespace tensors = attention_block;

constexpr int64_t kMostTokens = int64_t{1} << 30;  // positions and windows are added in 32 bits
constexpr int kRowAlignment = 16;                  // kernels copy rows in 16-byte pieces

Status unsupported(std::string what) { return Status(Code::unsupported, std::move(what)); }

class AttentionBlockWork final : public Work {
 public:
  AttentionBlockWork(const AttentionRequest& request, const AttentionBlockKernels& kernels,
                     bool first)
      : request_(request), first_(first) {
    if (kernels.positions) specs_.push_back(*kernels.positions);
    specs_.push_back(*kernels.forward);
  }

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override {
    if (kernels.size() > 1) positions_ = kernels[0].loaded;
    forward_ = kernels.back().loaded;
  }
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  const KernelSpec& spec() const { return specs_.back(); }
  // No row to write; or nothing to add, and nothing to begin.
  bool is_empty(const AttentionShape& shape) const {
    return shape.heads == 0 || shape.seq_q == 0 || (shape.seq_k == 0 && !first_);
  }
  Status check(const AttentionShape& shape) const;
  AttentionBlockParams params(const Call& call, const AttentionShape& shape) const;

  AttentionRequest request_;
  bool first_;
  std::vector<KernelSpec> specs_;  // that of positions before the forward's
  std::shared_ptr<const Kernel> positions_, forward_;
};

Status AttentionBlockWork::check(const AttentionShape& shape) const {
  LATHE_TRY(check_block_shape(shape));
  if (is_empty(shape) || attention_forward_blocks(spec(), shape) <= kMaxExtent) return {};
  return unsupported(text("q of ", shape.heads, " heads and ", shape.seq_q,
                          " tokens needs more than ", kMaxExtent, " blocks; split the heads"));
}

Result<size_t> AttentionBlockWork::workspace_bytes(const Call& call) const {
  const AttentionShape extent = block_shape(call.extents);
  LATHE_TRY(check(extent));
  if (is_empty(extent)) return size_t{0};
  return static_cast<size_t>(attention_block_workspace_bytes(spec(), extent.seq_k));
}

void fill_strides(const Tensor& tensor, long long* token, long long* head) {
  *token = tensor.stride[0];
  *head = tensor.stride[1];
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
  fill_strides(t[tensors::q], &f.q_token_stride, &f.q_head_stride);
  fill_strides(t[tensors::k], &f.k_token_stride, &f.k_head_stride);
  fill_strides(t[tensors::v], &f.v_token_stride, &f.v_head_stride);
  fill_strides(t[tensors::out], &f.out_token_stride, &f.out_head_stride);
  f.sequences = 1;
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
  p.pairs = t[tensors::pairs].data;
  p.q_positions = t[tensors::q_pos].data;
  p.k_positions = t[tensors::k_pos].data;
  p.key_ranges = call.workspace;
  const int64_t pairs = call.extents[Letter::NP];
  p.pair_count = static_cast<int>(pairs == kUnknown ? 0 : pairs);
  p.first = first_ ? 1 : 0;
  return p;
}

Status AttentionBlockWork::run(const Call& call) const {
  const AttentionShape extent = block_shape(call.extents);
  LATHE_TRY(check(extent));
  if (is_empty(extent)) return {};
  if (positions_) {
    LATHE_TRY(find_position_ranges(*positions_, specs_[0], call.tensors[tensors::k_pos].data,
                                   extent.seq_k, spec().constant("n"), call.workspace,
                                   call.stream));
  }
  const AttentionBlockParams p = params(call, extent);
  return forward_->launch(attention_forward_grid(spec(), extent), &p, call.stream);
}

// Which pairs are kept is on the device: the estimate takes them all.
Result<Estimate> AttentionBlockWork::estimate(const Call& call) const {
  const AttentionShape extent = block_shape(call.extents);
  LATHE_TRY(check(extent));
  Estimate out;
  if (is_empty(extent)) return out;
  AttentionMask all;
  all.queries = extent.seq_q, all.keys = extent.seq_k;
  const AttentionCost cost = attention_forward_cost(request_.problem, spec(), extent, {all});
  // out is float32 and, but for the first step, read as well.
  const uint64_t cells = static_cast<uint64_t>(extent.seq_q * extent.heads);
  const uint64_t width = static_cast<uint64_t>(request_.problem.value_dim);
  const uint64_t element = static_cast<uint64_t>(bytes_of(request_.problem.element));
  const uint64_t state = cells * (width * (4 - element) + (first_ ? 0 : 4 * width + 4));
  out.launches = positions_ || specs_.size() > 1 ? 2 : 1;
  out.cost = {cost.minimum_bytes + state, cost.bytes + state, cost.flops};
  return out;
}

}  // namespace

AttentionShape block_shape(const Extents& extents) {
  return {1, extents[Letter::H], extents[Letter::HK], extents[Letter::Tq], extents[Letter::Tk]};
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
  const std::pair<const char*, int64_t> all[] = {{"q has Tq", shape.seq_q},
                                                 {"k has Tk", shape.seq_k}};
  for (const auto& [name, tokens] : all) {
    if (tokens <= kMostTokens) continue;
    return unsupported(text(name, " = ", tokens, "; allowed are 0 to ", kMostTokens));
  }
  return {};
}

Status check_attention_block(const lathe_problem& problem, const Extents& promised) {
  const bool pairs = problem.has(find_tensor(*problem.op, "pairs"));
  const bool positions = problem.has(find_tensor(*problem.op, "q_pos"));
  if (pairs == positions) {
    return invalid(text(pairs ? "pairs is declared beside q_pos and k_pos"
                              : "neither pairs nor q_pos and k_pos are declared",
                        "; ", problem.op->info.name, " takes either pairs or positions"));
  }
  LATHE_TRY(check_head_width("q", "D", promised[Letter::D]));
  LATHE_TRY(check_head_width("v", "DV", promised[Letter::DV]));
  return check_heads(promised[Letter::H], promised[Letter::HK]);
}

Result<AttentionRequest> attention_block_request(const lathe_problem& problem,
                                                 const Extents& promised) {
  const char* name = problem.op->info.name;
  AttentionRequest out;
  LATHE_TRY(read_score_options(problem, promised[Letter::D], &out));
  AttentionProblem& asked = out.problem;
  asked.element = problem.tensors[find_tensor(*problem.op, "q")].dtype;
  if (problem.alignment < kRowAlignment) {
    return unsupported(text("alignment is ", problem.alignment, "; ", name, " needs ",
                            kRowAlignment, " bytes (lathe_problem_alignment)"));
  }
  asked.head_dim = static_cast<int>(promised[Letter::D]);
  asked.value_dim = static_cast<int>(promised[Letter::DV]);
  asked.local = out.window_left >= 0 || out.window_right >= 0;
  asked.softcap = out.softcap > 0;
  asked.alibi = problem.has(find_tensor(*problem.op, "alibi_slopes"));
  asked.pairs = problem.has(find_tensor(*problem.op, "pairs"));
  asked.positions = !asked.pairs;
  return out;
}

Result<std::unique_ptr<Work>> make_attention_block(const lathe_problem& problem,
                                                   const Extents& promised,
                                                   const DeviceFacts& facts) {
  LATHE_ASSIGN(AttentionRequest request, attention_block_request(problem, promised));
  request.problem.forward = true;
  LATHE_ASSIGN(const AttentionBlockKernels kernels,
               attention_block_kernels(request.problem, facts));
  const bool first = problem.option("first") == "1";
  return std::unique_ptr<Work>(std::make_unique<AttentionBlockWork>(request, kernels, first));
}

}  // namespace lathe
