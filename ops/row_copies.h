// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Moves rows between ranks: kernels that pack and unpack them, tables of rows on the device, and
// the messages of a hop that carries several tensors.
#pragma once

#include <span>

#include "collective/exchange.h"
#include "collective/plans/row_copies.h"
#include "ops/device_table.h"
#include "ops/rank_program.h"
#include "templates/params/rows.h"

namespace lathe {

// Holds one rank's part of a list of copies, with its tables on the device.
struct RowRoute {
  RankCopies copies;
  DeviceTable send_rows, receive_rows, own_from, own_to;

  static Result<RowRoute> make(const Device& device, RankCopies copies);
};

// Holds the kernels that move rows.
struct RowKernels {
  KernelSlot wide, narrow;  // words of 16 bytes, and of 4

  static RowKernels make();
};

// Says where rows [tokens, batch, heads] of one tensor lie. Strides and width are in elements.
struct RowView {
  void* data = nullptr;
  int64_t token = 0, batch = 0, head = 0;
  int64_t width = 1, element_bytes = 4;

  int64_t row_bytes() const { return width * element_bytes; }
};

// Collects copies for one launch. If there are more than a launch takes, a launch is made early.
// The object lives on the stack of a run and allocates nothing.
class RowCopier {
 public:
  RowCopier(const RowKernels& kernels, CUstream stream) : kernels_(kernels), stream_(stream) {}

  struct Side {
    RowView view;
    const void* index = nullptr;  // int32 rows
    int64_t heads = kMaxExtent;   // of a group
    int64_t group = 0;            // stride, in elements
    int64_t skip_at = kMaxExtent, skip = 0;
  };
  // Returns UNSUPPORTED for 2^31 words or more.
  Status add(const Side& from, const Side& to, int64_t tokens, int64_t batch, int64_t heads,
             int64_t repeat = 1);
  Status launch();

 private:
  Status launch(const KernelSlot& kernel, MoveRowsParams* params);

  const RowKernels& kernels_;
  CUstream stream_;
  MoveRowsParams wide_ = {}, narrow_ = {};
};

// Collects sums for one launch of kernel sum_rows. The object lives on the stack of a run.
class RowAdder {
 public:
  RowAdder(const KernelSlot& kernel, CUstream stream) : kernel_(kernel), stream_(stream) {}

  // Fills last_block. Returns UNSUPPORTED for 2^31 elements or more.
  Status add(const RowSum& sum);
  Status launch();

 private:
  const KernelSlot& kernel_;
  CUstream stream_;
  SumRowsParams params_ = {};
};

// Describes one tensor of a hop: rows of `row_bytes`, from the buffer that messages leave to the
// buffer where they arrive. A buffer that no message touches may be null.
struct RowTransfer {
  const RankCopies* copies = nullptr;
  char* from = nullptr;
  char* to = nullptr;
  int64_t row_bytes = 0;
};
// Fills `messages`, which has reserved room for them, and returns the hop.
Hop hop_of(std::span<const RowTransfer> tensors, const char* name, HopMessages* messages);

}  // namespace lathe
