// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the kernel that decodes with tensor maps: the portable
// kernel's parameters, and before them the map of the keys, of four dimensions: column, row of a
// page, key head, page.
#pragma once
#include "templates/params/attention.h"
#include "templates/params/tensor_map.h"

namespace lathe {

struct AttentionDecodeWarpgroupsParams {
  TensorMap k;
  AttentionDecodeParams decode;
  int reserved;
  int box_rows;  // of a copy, which divide a page and a block of keys
};

}  // namespace lathe
