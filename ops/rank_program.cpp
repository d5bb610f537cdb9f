// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies rows and checks shards, for all programs of ranks.
#include "ops/rank_program.h"

#include <cassert>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {

Result<RankStep> RankStep::make(const char* op, MadeExecutor executor) {
  LATHE_TRY(executor);
  Result<RankStep> step(std::in_place);
  step->executor_ = std::move(*executor);
  const std::span<const TensorInfo> tensors = find_operator(op)->tensors;
  step->shapes_.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int rank = 1; rank <= kMaxRank; ++rank) {
      step->shapes_[i][rank] = shape_of_rank(tensors[i].shape, rank);
    }
  }
  return step;
}

void RankStep::put(Call* call, int tensor, const void* data, std::initializer_list<int64_t> extents,
                   std::initializer_list<int64_t> strides) const {
  const Shape& shape = shapes_[tensor][extents.size()];
  assert(shape.rank == static_cast<int>(extents.size()));
  Tensor& out = call->tensors[tensor];
  out.data = static_cast<char*>(const_cast<void*>(data));
  std::copy(extents.begin(), extents.end(), out.extent.begin());
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    call->extents[shape.dims[i].dim] = out.extent[i] - shape.dims[i].plus;
    out.stride[i] = stride;
    stride *= std::max<int64_t>(out.extent[i], 1);
  }
  if (strides.size() > 0) std::copy(strides.begin(), strides.end(), out.stride.begin());
}

Status RankRun::reserve(const Executor& step, const Call& call) {
  LATHE_ASSIGN(const size_t bytes, step.workspace_bytes(call));
  reserve(static_cast<int64_t>(bytes));
  return {};
}

Status RankRun::lay_out_steps() {
  steps_ = section({steps_bytes_});
  return layout_.status();
}

Call RankRun::step_call() const {
  Call out;
  out.stream = call_.stream;
  out.workspace = steps_workspace();
  out.workspace_bytes = static_cast<size_t>(steps_bytes_);
  return out;
}

TokenRows TokenRows::dense_at(char* other) const {
  TokenRows out = *this;
  out.data = other;
  out.head_stride = width;
  out.token_stride = heads * out.head_stride;
  out.group_stride = tokens * out.token_stride;
  out.batch_stride = groups * out.group_stride;
  return out;
}

bool TokenRows::is_dense() const {
  const TokenRows dense = dense_at(data);
  return (heads < 2 || head_stride == dense.head_stride) &&
         (tokens < 2 || token_stride == dense.token_stride) &&
         (batch < 2 || batch_stride == dense.batch_stride);
}

Transfer TokenRows::message(int peer, int64_t first, int64_t count, int64_t element_bytes) const {
  const int64_t token = heads * width * element_bytes;
  return {peer, data + first * token, static_cast<size_t>(count * token), batch,
          static_cast<size_t>(batch_stride * element_bytes)};
}

TokenRows dense_rows(char* data, int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
  TokenRows out;
  out.batch = batch, out.tokens = tokens, out.heads = heads, out.width = width;
  return out.dense_at(data);
}

TokenRows rows_of(const Tensor& tensor, bool packed) {
  const int token = packed ? 0 : 1;
  TokenRows out;
  out.data = tensor.data;
  out.batch = packed ? 1 : tensor.extent[0];
  out.tokens = tensor.extent[token], out.heads = tensor.extent[token + 1];
  out.width = tensor.extent[token + 2];
  out.batch_stride = packed ? 0 : tensor.stride[0];
  out.token_stride = tensor.stride[token], out.head_stride = tensor.stride[token + 1];
  return out;
}

Status copy_rows(const VectorSlot& kernel, const TokenRows& from, const TokenRows& to,
                 const TokenRows& walked, const TokenIndex& index, int64_t element_bytes,
                 CUstream stream) {
  const int64_t vectors = walked.width * element_bytes / kernel.numbers().vector;
  const int64_t cells = walked.batch * walked.groups * walked.tokens;
  if (cells == 0 || walked.heads == 0 || vectors == 0) return {};
  CopyRowsParams p = {};
  p.from = from.data;
  p.index = index.rows;
  p.to = to.data;
  p.from_batch_stride = from.batch_stride * element_bytes;
  p.from_group_stride = from.group_stride * element_bytes;
  p.from_token_stride = from.token_stride * element_bytes;
  p.from_head_stride = from.head_stride * element_bytes;
  p.to_batch_stride = to.batch_stride * element_bytes;
  p.to_group_stride = to.group_stride * element_bytes;
  p.to_token_stride = to.token_stride * element_bytes;
  p.to_head_stride = to.head_stride * element_bytes;
  p.cells = static_cast<int>(cells);
  p.groups = static_cast<int>(walked.groups);
  p.tokens = static_cast<int>(walked.tokens);
  p.heads = static_cast<int>(walked.heads);
  p.vectors = static_cast<int>(vectors);
  p.limit = static_cast<int>(index.limit);
  p.lane_bits = lane_bits_of(*kernel, walked.heads * vectors);
  return kernel.launch(row_blocks(*kernel, cells, p.lane_bits), &p, stream);
}

Status check_shard_form(const Layout& layout, bool packed, const char* offsets) {
  if (layout.packed == packed) return {};
  return invalid(text(offsets, " is ", packed ? "" : "not ", "declared, but the shard was made ",
                      layout.packed ? "with" : "without",
                      " lengths; allowed are both or neither (lathe_shard_options.cu_seqlens)"));
}

Status check_shard_sequences(const Call& call, bool packed, int64_t sequences,
                             const char* offsets) {
  const int64_t found = call.extents[Dim::N];
  if (!packed || found == sequences) return {};
  return invalid(text(offsets, " has N + 1 = ", found + 1, " offsets; the shard was made with ",
                      sequences + 1));
}

LayoutExecutor::LayoutExecutor(std::unique_ptr<Executor> contiguous,
                               std::unique_ptr<Executor> pieces)
    : contiguous_(std::move(contiguous)), pieces_(std::move(pieces)) {
  list(*contiguous_);
  list(*pieces_);
}

MadeExecutor executor_of_layouts(MadeExecutor contiguous, MadeExecutor pieces) {
  LATHE_TRY(contiguous);
  LATHE_TRY(pieces);
  return executor_of<LayoutExecutor>(std::move(*contiguous), std::move(*pieces));
}

Result<const void*> PieceOffsets::of_batch(int64_t batch, char* workspace, CUstream stream) const {
  if (batch <= 1) return row;
  RepeatOffsetsParams p = {};
  p.offsets = row, p.to = workspace;
  p.batch = static_cast<int>(batch), p.pieces = static_cast<int>(pieces);
  p.tokens = static_cast<int>(tokens);
  LATHE_TRY(repeat.launch(ceil_div(batch * pieces + 1, repeat->threads), &p, stream));
  return static_cast<const void*>(workspace);
}

Status check_rows_follow(const char* name, const Tensor& tensor) {
  const int64_t batch = tensor.extent[0], tokens = tensor.extent[1];
  if (tensor.data == nullptr || batch < 2 || tokens == 0) return {};
  const int64_t follows = tokens * tensor.stride[1];
  if (tensor.stride[0] == follows) return {};
  return invalid(text(name, " has a batch stride of ", tensor.stride[0], " elements; allowed is ",
                      follows, ", T times the token stride, over a shard of several pieces"));
}

Status check_pieces_capacity(bool canonical) {
  if (!canonical) return {};
  return unsupported(
      "the group has LATHE_RANK_INVARIANT, whose pieces end at every 64 tokens; allowed with "
      "capacity_tokens is a group without it");
}

Status check_one_row(const char* name, int64_t batch) {
  if (batch <= 1) return {};
  return unsupported(text(name, " has B = ", batch,
                          " rows; allowed over a shard with capacity_tokens is 1: pack the rows "
                          "(cu_seqlens)"));
}

Status clear(const Group& group, char* data, int64_t bytes, CUstream stream) {
  if (bytes == 0) return {};
  const Driver& driver = group.device().driver();
  return check(driver,
               driver.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(data), 0,
                                      static_cast<size_t>(bytes), stream),
               "cuMemsetD8Async");
}

}  // namespace lathe
