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

// The order of a call's work has an entry for each sequence and one for the rows of padding, which
// is sequence B; long work comes first. An item is one split of one tile. The last entry has
// totals.
struct AttentionRaggedEntry {
  int items;     // of the entries before
  int slots;     // of kPartialRows rows of partial results: of the entries before
  int sequence;  // of the call
  int splits;    // of each tile
};

// The work of a block of threads in a turn.
struct AttentionRaggedItem {
  int sequence;       // below 0: nothing
  int head, tile;     // of a key head, in the sequence
  int split, splits;  // which one of how many
  int partial;        // its first row of partial results
  int reserved[2];
};

// decode.slots counts slots of kPartialRows rows of partial results.
struct AttentionRaggedOrderParams {
  AttentionDecodeParams decode;
  void* entries;     // AttentionRaggedEntry [B + 2]
  void* items;       // AttentionRaggedItem [turns, blocks]
  int most_turns;    // that there is room for
  int blocks;        // of threads that items are dealt out to
  int section_keys;  // keys of so many heads side by side as L2 can hold
  int reserved;
};

struct AttentionRaggedWarpgroupsParams {
  TensorMap q, k, v;
  AttentionDecodeParams decode;
  const void* entries;
  const void* items;
  int reserved;
  int box_rows;  // of a copy, which divide a page and a block of keys
};

}  // namespace lathe
