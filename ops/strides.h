// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads the shape and the strides of a tensor of a call: extents must fit those of the other
// tensors, elements must not overlap, and rows must be aligned as the problem declares.
#pragma once

#include "ops/tensors.h"

namespace lathe {

// Fills the extents and strides of `tensor`, and `extents` where an extent is not known yet: two
// tensors have the same extent in a dim, and so has the problem that declares it. The kind of
// `from` has been checked. Sets `bytes` from the first element to one past the last; 0: there is no
// element, and strides are not looked at.
Status read_layout(const Slot& slot, const DLTensor& from, const Extents& declared,
                   Extents* extents, Tensor* tensor, int64_t* bytes);

}  // namespace lathe
