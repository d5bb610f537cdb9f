// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements shard and unshard: one launch from x to y; in place, one launch into the workspace and
// one back.
#include "codegen/base/invalid.h"
#include "ops/rank_program.h"
#include "ops/row_kernels.h"
#include "ops/shard/schema.h"

namespace lathe {
namespace {

// Behind the tokens: a row, and the heads before it; what lies before them is batch and groups.
TokenRows view_of(const Tensor& tensor, int rank, int axis) {
  TokenRows out;
  out.data = tensor.data;
  out.heads = out.width = 1;
  out.tokens = tensor.extent[axis];
  out.token_stride = tensor.stride[axis];
  int others[kMaxRank], count = 0;
  for (int d = 0; d < rank; ++d) {
    if (d != axis) others[count++] = d;
  }
  if (axis != rank - 1) out.width = tensor.extent[others[--count]];
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

class ShardRowsExecutor final : public Executor {
 public:
  explicit ShardRowsExecutor(const Resolved& resolved);

  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  TokenRows view(const Call& call, int tensor) const {
    return view_of(call.tensors[tensor], rank_, axis_);
  }
  Status check(const Call& call) const;
  int64_t workspace_of(const Call& call) const;

  bool gathers_, in_place_;
  int rank_, axis_;
  Dtype dtype_;
  KernelSlot indexed_, plain_;  // by the index; of a call in place also as it is
};

ShardRowsExecutor::ShardRowsExecutor(const Resolved& resolved)
    : gathers_(resolved.problem.op->tensors.data() == shard_rows::kTensors),
      in_place_(resolved.has(shard_rows::buffer)),
      axis_(static_cast<int>(resolved.options_as<ShardOptions>().axis)) {
  const lathe_problem& problem = resolved.problem;
  const int tensor = in_place_ ? shard_rows::buffer : shard_rows::x;
  const Shape shape = problem.shape(tensor);
  rank_ = shape.rank;
  dtype_ = problem.tensors[tensor].dtype;
  const Dim last = shape.dims[rank_ - 1].dim;
  const int vector = axis_ == rank_ - 1 ? bytes_of(dtype_)
                                        : vector_bytes(dtype_, problem.alignment, resolved[last]);
  indexed_ = copy_rows_spec(gathers_ ? RowIndex::gather : RowIndex::scatter, vector);
  if (in_place_) plain_ = copy_rows_spec(RowIndex::none, vector);
  list({&indexed_, &plain_});
}

Status ShardRowsExecutor::check(const Call& call) const {
  const TokenRows whole = view(call, in_place_  ? shard_rows::buffer
                                     : gathers_ ? shard_rows::y
                                                : shard_rows::x);
  const char* name = in_place_ ? "buffer" : gathers_ ? "y" : "x";
  LATHE_ASSIGN(const int64_t cells,
               checked_product(name, {whole.batch, whole.groups, whole.tokens}));
  const auto bytes = checked_product(name, {cells, whole.heads, whole.width, bytes_of(dtype_)});
  LATHE_TRY(bytes.status());
  LATHE_ASSIGN(const int64_t vectors, checked_product(name, {whole.heads, whole.width}));
  if (cells > kMaxExtent || vectors > kMaxExtent) {
    return unsupported(text(name, " has ", cells, " tokens over all rows, of ", vectors,
                            " elements; allowed are 0 to ", kMaxExtent, " of either"));
  }
  const int64_t all = call.extents[Dim::T], some = call.extents[Dim::S];
  if (!in_place_ || all == some) return {};
  return invalid(text("buffer has T = ", all, " tokens and indices S = ", some,
                      "; in place they must be as many"));
}

int64_t ShardRowsExecutor::workspace_of(const Call& call) const {
  return in_place_ ? view(call, shard_rows::buffer).elements() * bytes_of(dtype_) : 0;
}

Result<size_t> ShardRowsExecutor::workspace_bytes(const Call& call) const {
  LATHE_TRY(check(call));
  return static_cast<size_t>(workspace_of(call));
}

Result<Estimate> ShardRowsExecutor::estimate(const Call& call) const {
  LATHE_TRY(check(call));
  Estimate out;
  const TokenRows moved = view(call, in_place_  ? shard_rows::buffer
                                     : gathers_ ? shard_rows::y
                                                : shard_rows::x);
  if (moved.elements() == 0) return out;
  out.launches = in_place_ ? 2 : 1;
  out.cost.minimum_bytes =
      static_cast<uint64_t>(2 * moved.elements() * bytes_of(dtype_) + 4 * call.extents[Dim::S]);
  out.cost.bytes = out.cost.minimum_bytes * out.launches;
  return out;
}

Status ShardRowsExecutor::run(const Call& call) const {
  LATHE_TRY(check(call));
  LATHE_TRY(call.check_workspace(workspace_of(call)));
  const int64_t tokens = call.extents[Dim::T], element = bytes_of(dtype_);
  const TokenIndex index{call.tensors[shard_rows::indices].data, tokens};
  // The side that is walked has as many tokens as there are indices.
  const auto indexed = [&](const TokenRows& from, const TokenRows& to) {
    return copy_rows(indexed_, from, to, gathers_ ? to : from, index, element, call.stream);
  };
  if (!in_place_) return indexed(view(call, shard_rows::x), view(call, shard_rows::y));
  const TokenRows buffer = view(call, shard_rows::buffer);
  const TokenRows aside = buffer.dense_at(call.workspace);
  LATHE_TRY(copy_rows(plain_, buffer, aside, buffer, {nullptr, tokens}, element, call.stream));
  return indexed(aside, buffer);
}

}  // namespace

Status check_shard_rows(const Resolved& resolved) {
  const lathe_problem& problem = resolved.problem;
  const bool in_place = problem.has(shard_rows::buffer);
  if (in_place && problem.has(shard_rows::x)) {
    return invalid("x and y are declared, and buffer as well; allowed are x and y, or buffer");
  }
  const int tensor = in_place ? shard_rows::buffer : shard_rows::x;
  const int rank = problem.tensors[tensor].shape.rank;
  const int64_t axis = resolved.options_as<ShardOptions>().axis;
  const char* name = problem.op->tensors[tensor].name;
  if (axis >= rank) {
    return invalid(text("option axis is ", axis, ", but ", name, " has rank ", rank,
                        "; allowed are 0 to ", rank - 1));
  }
  if (in_place || problem.tensors[shard_rows::y].shape.rank == rank) return {};
  return invalid(text("y has rank ", problem.tensors[shard_rows::y].shape.rank, ", but x has rank ",
                      rank, "; they must be the same"));
}

MadeExecutor make_shard_rows(const Resolved& resolved, const DeviceFacts&) {
  return executor_of<ShardRowsExecutor>(resolved);
}

}  // namespace lathe
