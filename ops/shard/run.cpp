// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// shard and unshard: one launch from x to y; in place one into the workspace and one back.
#include "ops/shard/run.h"

#include "codegen/base/invalid.h"
#include "ops/check.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {
namespace {

// A tensor as tokens of rows: what copy_rows counts.
struct TokenView {
  char* data = nullptr;
  int64_t batch = 1, groups = 1, tokens = 1, heads = 1, row = 1;                  // row: elements
  int64_t batch_stride = 0, group_stride = 0, token_stride = 0, head_stride = 0;  // elements

  int64_t elements() const { return batch * groups * tokens * heads * row; }
};

// Behind the tokens: a row, and the heads before it; what lies before them is batch and groups.
TokenView view_of(const Tensor& tensor, int rank, int axis) {
  TokenView out;
  out.data = tensor.data;
  out.tokens = tensor.extent[axis];
  out.token_stride = tensor.stride[axis];
  int others[kMaxRank], count = 0;
  for (int d = 0; d < rank; ++d) {
    if (d != axis) others[count++] = d;
  }
  if (axis != rank - 1) out.row = tensor.extent[others[--count]];
  if (count > 0 && (others[count - 1] > axis || count == 3)) {
    const int d = others[--count];
    out.heads = tensor.extent[d], out.head_stride = tensor.stride[d];
  }
  if (count > 0) {
    const int d = others[--count];
    out.groups = tensor.extent[d], out.group_stride = tensor.stride[d];
  }
  if (count > 0) out.batch = tensor.extent[others[0]], out.batch_stride = tensor.stride[others[0]];
  return out;
}

TokenView dense_like(const TokenView& other, char* data) {
  TokenView out = other;
  out.data = data;
  out.head_stride = out.row;
  out.token_stride = out.heads * out.head_stride;
  out.group_stride = out.tokens * out.token_stride;
  out.batch_stride = out.groups * out.group_stride;
  return out;
}

class ShardRowsWork final : public Work {
 public:
  ShardRowsWork(const lathe_problem& problem, const Extents& promised);

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override {
    indexed_ = kernels[0].loaded;
    if (in_place_) plain_ = kernels[1].loaded;
  }
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  TokenView view(const Call& call, int tensor) const {
    return view_of(call.tensors[tensor], rank_, axis_);
  }
  Status check(const Call& call) const;
  int64_t workspace_of(const Call& call) const;
  Status copy(const Kernel& kernel, const KernelSpec& spec, const TokenView& from,
              const TokenView& to, int64_t limit, const Call& call) const;

  bool gathers_, in_place_;
  int rank_, axis_;
  Dtype dtype_;
  std::vector<KernelSpec> specs_;  // by the index; of a call in place also as it is
  std::shared_ptr<const Kernel> indexed_, plain_;
};

ShardRowsWork::ShardRowsWork(const lathe_problem& problem, const Extents& promised)
    : gathers_(std::string_view(problem.op->info.name) == "shard"),
      in_place_(problem.has(shard_rows::buffer)),
      axis_(std::stoi(problem.option("axis"))) {
  const int tensor = in_place_ ? shard_rows::buffer : shard_rows::x;
  const Shape shape = problem.shape(tensor);
  rank_ = shape.rank;
  dtype_ = problem.tensors[tensor].dtype;
  const Letter last = shape.dims[rank_ - 1].letter;
  const int vector = axis_ == rank_ - 1 ? bytes_of(dtype_)
                                        : vector_bytes(dtype_, problem.alignment, promised[last]);
  specs_.push_back(copy_rows_spec(gathers_ ? RowIndex::gather : RowIndex::scatter, vector));
  if (in_place_) specs_.push_back(copy_rows_spec(RowIndex::none, vector));
}

Status ShardRowsWork::check(const Call& call) const {
  const TokenView whole = view(call, in_place_  ? shard_rows::buffer
                                     : gathers_ ? shard_rows::y
                                                : shard_rows::x);
  const char* name = in_place_ ? "buffer" : gathers_ ? "y" : "x";
  LATHE_ASSIGN(const int64_t cells,
               checked_product(name, {whole.batch, whole.groups, whole.tokens}));
  const auto bytes = checked_product(name, {cells, whole.heads, whole.row, bytes_of(dtype_)});
  LATHE_TRY(bytes.status());
  LATHE_ASSIGN(const int64_t vectors, checked_product(name, {whole.heads, whole.row}));
  if (cells > kMaxExtent || vectors > kMaxExtent) {
    return Status(Code::unsupported,
                  text(name, " has ", cells, " tokens over all rows, of ", vectors,
                       " elements; allowed are 0 to ", kMaxExtent, " of either"));
  }
  const int64_t all = call.extents[Letter::T], some = call.extents[Letter::S];
  if (!in_place_ || all == some) return {};
  return invalid(text("buffer has T = ", all, " tokens and indices S = ", some,
                      "; in place they must be as many"));
}

int64_t ShardRowsWork::workspace_of(const Call& call) const {
  return in_place_ ? view(call, shard_rows::buffer).elements() * bytes_of(dtype_) : 0;
}

Result<size_t> ShardRowsWork::workspace_bytes(const Call& call) const {
  LATHE_TRY(check(call));
  return static_cast<size_t>(workspace_of(call));
}

Result<Estimate> ShardRowsWork::estimate(const Call& call) const {
  LATHE_TRY(check(call));
  Estimate out;
  const TokenView moved = view(call, in_place_  ? shard_rows::buffer
                                     : gathers_ ? shard_rows::y
                                                : shard_rows::x);
  if (moved.elements() == 0) return out;
  out.launches = in_place_ ? 2 : 1;
  out.cost.minimum_bytes =
      static_cast<uint64_t>(2 * moved.elements() * bytes_of(dtype_) + 4 * call.extents[Letter::S]);
  out.cost.bytes = out.cost.minimum_bytes * out.launches;
  return out;
}

// `limit`: tokens on the side that the index speaks of.
Status ShardRowsWork::copy(const Kernel& kernel, const KernelSpec& spec, const TokenView& from,
                           const TokenView& to, int64_t limit, const Call& call) const {
  // The side that is walked: as many tokens as there are indices.
  const TokenView& walked = gathers_ ? to : from;
  const int64_t element = bytes_of(dtype_);
  const int64_t vectors = walked.row * element / spec.constant("vector");
  const int64_t cells = walked.batch * walked.groups * walked.tokens;
  if (cells == 0 || walked.heads == 0 || vectors == 0) return {};
  CopyRowsParams p = {};
  p.from = from.data;
  p.index = call.tensors[shard_rows::indices].data;
  p.to = to.data;
  p.from_batch_stride = from.batch_stride * element;
  p.from_group_stride = from.group_stride * element;
  p.from_token_stride = from.token_stride * element;
  p.from_head_stride = from.head_stride * element;
  p.to_batch_stride = to.batch_stride * element;
  p.to_group_stride = to.group_stride * element;
  p.to_token_stride = to.token_stride * element;
  p.to_head_stride = to.head_stride * element;
  p.cells = static_cast<int>(cells);
  p.groups = static_cast<int>(walked.groups);
  p.tokens = static_cast<int>(walked.tokens);
  p.heads = static_cast<int>(walked.heads);
  p.vectors = static_cast<int>(vectors);
  p.limit = static_cast<int>(limit);
  p.lane_bits = lane_bits_of(spec, walked.heads * vectors);
  const auto blocks = static_cast<unsigned>(row_blocks(spec, cells, p.lane_bits));
  return kernel.launch({blocks, 1, 1}, &p, call.stream);
}

Status ShardRowsWork::run(const Call& call) const {
  LATHE_TRY(check(call));
  LATHE_TRY(call.check_workspace(workspace_of(call)));
  const int64_t tokens = call.extents[Letter::T];
  if (!in_place_) {
    return copy(*indexed_, specs_[0], view(call, shard_rows::x), view(call, shard_rows::y), tokens,
                call);
  }
  const TokenView buffer = view(call, shard_rows::buffer);
  const TokenView aside = dense_like(buffer, call.workspace);
  LATHE_TRY(copy(*plain_, specs_[1], buffer, aside, tokens, call));
  return copy(*indexed_, specs_[0], aside, buffer, tokens, call);
}

}  // namespace

Status check_shard_rows(const lathe_problem& problem, const Extents&) {
  const bool in_place = problem.has(shard_rows::buffer);
  if (in_place && problem.has(shard_rows::x)) {
    return invalid("x and y are declared, and buffer as well; allowed are x and y, or buffer");
  }
  const int tensor = in_place ? shard_rows::buffer : shard_rows::x;
  const int rank = problem.tensors[tensor].shape.rank, axis = std::stoi(problem.option("axis"));
  const char* name = problem.op->info.tensors[tensor].name;
  if (axis >= rank) {
    return invalid(text("option axis is ", axis, ", but ", name, " has rank ", rank,
                        "; allowed are 0 to ", rank - 1));
  }
  if (in_place || problem.tensors[shard_rows::y].shape.rank == rank) return {};
  return invalid(text("y has rank ", problem.tensors[shard_rows::y].shape.rank, ", but x has rank ",
                      rank, "; they must be the same"));
}

Result<std::unique_ptr<Work>> make_shard_rows(const lathe_problem& problem, const Extents& promised,
                                              const DeviceFacts&) {
  return std::unique_ptr<Work>(std::make_unique<ShardRowsWork>(problem, promised));
}

}  // namespace lathe
