// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the kernels of packed queries over pages by warpgroups: the
// portable kernel's parameters, and before them the maps. q's has five dimensions: column, head of
// a group, token, group, row again. Those of the caches have column, row, head, row again, page:
// they are ragged (common/box_coordinates.cuh), so that a copy ends where a sequence's keys do.
#pragma once
#include "templates/params/attention.h"
#include "templates/params/tensor_map.h"

namespace lathe {

// The order of a call's work: an entry for each sequence and one for the rows of padding, which is
// sequence B; long work comes first. An item is one split of one tile. The last entry has totals.
struct AttentionRaggedEntry {
  int items;     // of the entries before
  int groups;    // of kPartialRows rows of partial results: of the entries before
  int sequence;  // of the call
  int splits;    // of each tile
};

// decode.slots counts groups of partial rows, and combine_list has an entry for each of them.
struct AttentionRaggedOrderParams {
  AttentionDecodeParams decode;
  void* order;  // AttentionRaggedEntry [B + 2]
};

struct AttentionRaggedWarpgroupsParams {
  TensorMap q, k, v;
  AttentionDecodeParams decode;
  const void* order;  // AttentionRaggedEntry [B + 2]
  int section_keys;   // keys of so many heads side by side as L2 can hold
  int box_rows;       // of a copy, which divide a page and a block of keys
};

}  // namespace lathe
