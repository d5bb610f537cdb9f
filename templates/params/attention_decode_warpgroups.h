// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the kernel that decodes with tensor maps: the portable
// kernel's parameters, and before them the map of the keys, of four dimensions: column, row of a
// page, key head, page. params/attention.h and params/tensor_map.h come before this file.
#pragma once

namespace lathe {

struct AttentionDecodeWarpgroupsParams {
  TensorMap k;
  AttentionDecodeParams decode;
  int reserved;
  int box_rows;  // of a copy, which divide a page and a block of keys
};

}  // namespace lathe
