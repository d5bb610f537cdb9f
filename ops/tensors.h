// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks the DLPack tensors of one call against the table and the problem. Nothing here allocates
// or locks unless it fails.
#pragma once

#include <cuda.h>
#include <dlpack/dlpack.h>

#include <cstring>

#include "ops/problem.h"
#include "ops/schema.h"

struct lathe_shard;

namespace lathe {

class ShardState;
struct Resolved;

// Holds a declared tensor, with everything that a run checks prepared.
struct Slot {
  int tensor = 0;  // index in the table
  const char* name = "";
  Dtype dtype = Dtype::f32;
  Shape shape;
  bool strided = false;
  bool free_columns = false;  // if strided: the last stride need not be 1
  bool written = false;
  bool in_place = false;  // written and read: the operator changes it
  bool repeats = false;   // only read, by kernels that take a stride of 0
  int alignment = 1;      // of the address; of strides as well if strided

  // These follow from the others: no run works them out again.
  DLDataType type{};     // as the tensor must have it
  int element = 1;       // bytes
  bool offsets = false;  // an extent is a dim and a number: "N+1"

  Slot() = default;
  Slot(const char* its_name, Dtype its_dtype, const Shape& its_shape);
};

// Holds one tensor of a call. Strides are in elements; those of extents 0 and 1 are made
// contiguous.
struct Tensor {
  char* data;
  std::array<int64_t, kMaxRank> extent;
  std::array<int64_t, kMaxRank> stride;
};

struct Call {
  Call() : Call(kMaxTensors) {}
  // Clears the first `count` tensors alone: to clear what no table has takes a tenth of a launch.
  explicit Call(size_t count) { std::memset(tensors.data(), 0, count * sizeof(Tensor)); }

  Extents extents;
  std::array<Tensor, kMaxTensors> tensors;  // as in the table; all zero if not declared
  const lathe_shard* shard = nullptr;       // null: the whole axis is here
  const ShardState* shard_state = nullptr;  // what the plan made of the shard; null: nothing
  char* workspace = nullptr;
  size_t workspace_bytes = 0;
  CUstream stream = nullptr;

  // Returns INVALID_ARGUMENT unless the workspace is aligned and has `needed` bytes.
  Status check_workspace(int64_t needed) const;
};

std::vector<Slot> make_slots(const Resolved& resolved);

// Checks that the dtype and the rank of a tensor are those of its slot.
Status check_slot_kind(const Slot& slot, const DLTensor& tensor);

// Says which properties of a tensor are checked.
enum class Checks { shapes, all };

// `slots` and `tensors` are in the order of lathe_plan_slot. On one rank of several, T is that of
// the rank's shard. `ordinal` is the device that the tensors must be on.
Status read_call(const Operator& op, const std::vector<Slot>& slots, const Extents& declared,
                 const DLTensor* const* tensors, Checks checks, int ordinal, Call* call);

// Returns a * b * ... in bytes, or INVALID_ARGUMENT naming `what` if the product passes 2^63.
Result<int64_t> checked_product(const char* what, std::initializer_list<int64_t> factors);

}  // namespace lathe
