// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A tensor map as the driver makes it (cuTensorMapEncodeTiled): a tensor in global memory and the
// box that one copy brings to shared memory, in a form that the hardware reads. A parameter struct
// begins with its maps, so that each keeps the alignment that the hardware asks for.
#pragma once

namespace lathe {

constexpr int kRaggedRows = 1 << 30;  // rows of a ragged map, more than any tensor has

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace lathe
