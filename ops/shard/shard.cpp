// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators shard and unshard, which bring tensors to their ranks and back: one launch
// from x to y; in place, one launch into the workspace and one back.
#include "codegen/base/invalid.h"
#include "ops/options.h"
#include "ops/rank_program.h"
#include "ops/row_kernels.h"
#include "ops/shapes.h"

namespace lathe {
namespace {

namespace shard_rows {

constexpr const char* kAnyType = "f32|f16|bf16|i32|i64";
// These are the shapes of a tensor with all T tokens, by the axis of tokens, and of one with the S
// indexed tokens.
constexpr const char *kWhole = "T,B,H,D|B,T,H,D|B,H,T,D|B,H,D,T|T,H,D|B,T,D|B,H,T|T,D|B,T|T",
                     *kSome = "S,B,H,D|B,S,H,D|B,H,S,D|B,H,D,S|S,H,D|B,S,D|B,H,S|S,D|B,S|S";

constexpr TensorInfo kBuffer =
    inout("buffer", kWhole, kAnyType,
          "Given in place of x and y, and rearranged in place; S must be T.")
        .optional()
        .strided();

constexpr TensorInfo kTensors[] = {
    input("x", kWhole, kAnyType, "A tensor with all tokens.").needs("y").strided(),
    input("indices", "S", "i32",
          "The token of x that each token of y is; an index outside 0 to T - 1 gives 0."),
    output("y", kSome, "=x", "y[s] = x[indices[s]].").needs("x").strided(),
    kBuffer,
};
constexpr TensorInfo kUnshardTensors[] = {
    input("x", kSome, kAnyType, "The tokens to put back.").needs("y").strided(),
    input("indices", "S", "i32",
          "The token of y that each token of x becomes, none twice; an index outside 0 to T - 1 is "
          "left out."),
    inout("y", kWhole, "=x", "y[indices[s]] = x[s]; other tokens stay as they are.")
        .needs("x")
        .strided(),
    kBuffer,
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
constexpr int x = at("x"), indices = at("indices"), y = at("y"), buffer = at("buffer");

}  // namespace shard_rows

struct ShardOptions {
  int64_t axis = 0;
};

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

// Holds what follows from the shapes of a call.
struct ShardRowsPlan {
  TokenRows whole;    // the side with all tokens
  int64_t bytes = 0;  // of the workspace
  int64_t total() const { return bytes; }
};

class ShardRowsExecutor final : public PlannedExecutor<ShardRowsExecutor, ShardRowsPlan> {
 public:
  explicit ShardRowsExecutor(const Resolved& resolved);

  Result<ShardRowsPlan> plan(const Call& call) const;
  Status launch(const Call& call, const ShardRowsPlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const ShardRowsPlan& plan) const;

 private:
  TokenRows view(const Call& call, int tensor) const {
    return view_of(call.tensors[tensor], rank_, axis_);
  }

  bool gathers_, in_place_;
  int rank_, axis_;
  Dtype dtype_;
  VectorSlot indexed_, plain_;  // by the index; of a call in place also as it is
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

Result<ShardRowsPlan> ShardRowsExecutor::plan(const Call& call) const {
  const int tensor = in_place_ ? shard_rows::buffer : gathers_ ? shard_rows::y : shard_rows::x;
  const char* name = shard_rows::kTensors[tensor].name;
  ShardRowsPlan out{view(call, tensor)};
  const TokenRows& whole = out.whole;
  LATHE_ASSIGN(const int64_t cells,
               checked_product(name, {whole.batch, whole.groups, whole.tokens}));
  LATHE_ASSIGN(const int64_t bytes,
               checked_product(name, {cells, whole.heads, whole.width, bytes_of(dtype_)}));
  LATHE_ASSIGN(const int64_t vectors, checked_product(name, {whole.heads, whole.width}));
  if (cells > kMaxExtent || vectors > kMaxExtent) {
    return unsupported(text(name, " has ", cells, " tokens over all rows, of ", vectors,
                            " elements; allowed are 0 to ", kMaxExtent, " of either"));
  }
  const int64_t all = call.extents[Dim::T], some = call.extents[Dim::S];
  if (in_place_ && all != some) {
    return invalid(text("buffer has T = ", all, " tokens and indices S = ", some,
                        "; in place they must be as many"));
  }
  if (in_place_) out.bytes = bytes;
  return out;
}

Result<Estimate> ShardRowsExecutor::estimate_plan(const Call& call,
                                                  const ShardRowsPlan& plan) const {
  Estimate out;
  const int64_t elements = plan.whole.elements();
  if (elements == 0) return out;
  out.launches = in_place_ ? 2 : 1;
  out.cost.minimum_bytes =
      static_cast<uint64_t>(2 * elements * bytes_of(dtype_) + 4 * call.extents[Dim::S]);
  out.cost.bytes = out.cost.minimum_bytes * out.launches;
  return out;
}

Status ShardRowsExecutor::launch(const Call& call, const ShardRowsPlan& plan) const {
  const int64_t tokens = call.extents[Dim::T], element = bytes_of(dtype_);
  const TokenIndex index{call.tensors[shard_rows::indices].data, tokens};
  // The side that is walked has as many tokens as there are indices.
  const auto indexed = [&](const TokenRows& from, const TokenRows& to) {
    return copy_rows(indexed_, from, to, gathers_ ? to : from, index, element, call.stream);
  };
  if (!in_place_) return indexed(view(call, shard_rows::x), view(call, shard_rows::y));
  const TokenRows& buffer = plan.whole;
  const TokenRows aside = buffer.dense_at(call.workspace);
  LATHE_TRY(copy_rows(plain_, buffer, aside, buffer, {nullptr, tokens}, element, call.stream));
  return indexed(aside, buffer);
}

// Refuses problems that the tables cannot exclude.
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

constexpr OptionInfo kShardOptions[] = {
    Bind<ShardOptions>::integer<&ShardOptions::axis>(
        "axis", "0", "0|1|2|3", "The dimension that counts tokens; it is below the rank."),
};

// Both operators differ in their tensors alone.
constexpr Operator rows_operator(const char* name, const char* sentence,
                                 std::span<const TensorInfo> tensors) {
  return {.name = name,
          .sentence = sentence,
          .tensors = tensors,
          .options = kShardOptions,
          .produces = "y,buffer",
          .shape_option = "axis",
          .new_options = new_options<ShardOptions>,
          .check = check_shard_rows,
          .make = make_shard_rows};
}
constexpr Operator kOperators[] = {
    rows_operator("shard", "Takes tokens of a tensor by index, such as those of a rank's shard.",
                  shard_rows::kTensors),
    rows_operator("unshard", "Puts tokens back to where shard took them from.",
                  shard_rows::kUnshardTensors),
};

}  // namespace

std::span<const Operator> shard_operators() { return kOperators; }

}  // namespace lathe
