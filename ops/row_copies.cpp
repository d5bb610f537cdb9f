// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes tables, launches and messages of rows that move between ranks.
#include "ops/row_copies.h"

#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

// Converts strides in elements to words of this kernel.
RowLayout places(const RowCopier::Side& side, int64_t word_bytes) {
  const auto words = [&](int64_t elements) {
    return static_cast<long long>(elements * side.view.element_bytes / word_bytes);
  };
  RowLayout out = {};
  out.data = side.view.data;
  out.index = side.index;
  out.token = words(side.view.token);
  out.batch = words(side.view.batch);
  out.head = words(side.view.head);
  out.group = words(side.group);
  out.heads = static_cast<int>(side.heads);
  out.skip_at = static_cast<int>(side.skip_at);
  out.skip = static_cast<int>(side.skip);
  return out;
}

}  // namespace

RowKernels RowKernels::make() { return {move_rows_spec(16), move_rows_spec(4)}; }

Result<RowRoute> RowRoute::make(const Device& device, RankCopies copies) {
  RowRoute out;
  LATHE_ASSIGN(out.send_rows, DeviceTable::upload(device, copies.send_rows));
  LATHE_ASSIGN(out.receive_rows, DeviceTable::upload(device, copies.receive_rows));
  LATHE_ASSIGN(out.own_from, DeviceTable::upload(device, copies.own_from));
  LATHE_ASSIGN(out.own_to, DeviceTable::upload(device, copies.own_to));
  out.copies = std::move(copies);
  return out;
}

Status RowCopier::add(const Side& from, const Side& to, int64_t tokens, int64_t batch,
                      int64_t heads, int64_t repeat) {
  const int64_t row_bytes = from.view.row_bytes();
  const bool wide = row_bytes % 16 == 0;
  const int64_t word_bytes = wide ? 16 : 4;
  LATHE_ASSIGN(const int64_t words,
               checked_product("rows", {tokens, batch, heads, row_bytes / word_bytes}));
  if (words == 0) return {};
  if (words > kMaxExtent) {
    return unsupported(text("a tensor of this rank has ", words, " words of ", word_bytes,
                            " bytes to exchange; allowed are 0 to ", kMaxExtent));
  }
  MoveRowsParams& params = wide ? wide_ : narrow_;
  const KernelSlot& kernel = wide ? kernels_.wide : kernels_.narrow;
  const int before = params.count == 0 ? 0 : params.moves[params.count - 1].last_block;
  const int64_t last = before + item_blocks(*kernel, words);
  if (params.count == kMaxRowMoves || last > kMaxExtent) {
    LATHE_TRY(launch(kernel, &params));
    return add(from, to, tokens, batch, heads, repeat);
  }
  RowMove& move = params.moves[params.count++];
  move.from = places(from, word_bytes);
  move.to = places(to, word_bytes);
  move.tokens = static_cast<int>(tokens);
  move.batch = static_cast<int>(batch);
  move.heads = static_cast<int>(heads);
  move.words = static_cast<int>(row_bytes / word_bytes);
  move.repeat = static_cast<int>(repeat);
  move.last_block = static_cast<int>(last);
  return {};
}

Status RowCopier::launch(const KernelSlot& kernel, MoveRowsParams* params) {
  if (params->count == 0) return {};
  const int64_t blocks = params->moves[params->count - 1].last_block;
  const Status status = kernel.launch(blocks, params, stream_);
  params->count = 0;
  return status;
}

Status RowCopier::launch() {
  LATHE_TRY(launch(kernels_.wide, &wide_));
  return launch(kernels_.narrow, &narrow_);
}

Status RowAdder::add(const RowSum& sum) {
  LATHE_ASSIGN(const int64_t columns,
               checked_product("a sum", {sum.tokens, sum.batch_rows, sum.heads, sum.columns}));
  if (columns == 0) return {};
  if (params_.count == kMaxRowSums) LATHE_TRY(launch());
  const int64_t before = params_.count == 0 ? 0 : params_.sums[params_.count - 1].last_block;
  const int64_t last = before + item_blocks(*kernel_, columns);
  if (columns > kMaxExtent || last > kMaxExtent) {
    return unsupported(
        text("a gradient of this rank has ", columns, " elements; allowed are 0 to ", kMaxExtent));
  }
  RowSum& added = params_.sums[params_.count++];
  added = sum;
  added.last_block = static_cast<int>(last);
  return {};
}

Status RowAdder::launch() {
  if (params_.count == 0) return {};
  const int64_t blocks = params_.sums[params_.count - 1].last_block;
  const Status status = kernel_.launch(blocks, &params_, stream_);
  params_.count = 0;
  return status;
}

Hop hop_of(std::span<const RowTransfer> tensors, const char* name, HopMessages* messages) {
  messages->clear();
  for (const RowTransfer& tensor : tensors) {
    const auto bytes = [&](int64_t rows) { return static_cast<size_t>(rows * tensor.row_bytes); };
    for (const Piece& piece : tensor.copies->sends) {
      messages->sends.push_back({piece.peer, tensor.from + bytes(piece.row), bytes(piece.rows)});
    }
    for (const Piece& piece : tensor.copies->receives) {
      messages->receives.push_back({piece.peer, tensor.to + bytes(piece.row), bytes(piece.rows)});
    }
  }
  return messages->hop(name);
}

}  // namespace lathe
