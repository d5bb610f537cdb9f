// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Says whether two tensors of a call have an element in common. Views of one buffer may lie in one
// another without that: keys and values that alternate, or the gradients of a packed projection.
#pragma once

#include "ops/tensors.h"

namespace lathe {

// Returns whether an element of `a` shares a byte with one of `b`, whose address ranges overlap.
// Exact for tensors whose dimensions lie one in another and whose outer strides are equal, as views
// of one buffer have; else it may take neighbours for overlapping. Allocates nothing.
bool share_elements(const Slot& slot_a, const Tensor& a, const Slot& slot_b, const Tensor& b);

}  // namespace lathe
