// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads the shape and the strides of a tensor of a call: elements must not overlap, and rows must
// be aligned as the problem declares.
#pragma once

#include "ops/tensors.h"

namespace lathe {

// Fills the extents and strides of `tensor`. The kind and the extents of `from` have been checked.
// Sets `empty` if there is no element, whose strides are then not looked at.
Status read_layout(const Slot& slot, const DLTensor& from, Tensor* tensor, bool* empty);

}  // namespace lathe
