// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes the workspace of the backward of flash attention, and its cost, from shapes alone.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/attention/backward/step.h"
#include "ops/workspace.h"

namespace lathe {

Result<AttentionBackwardWorkspace> attention_backward_workspace(
    const AttentionProblem& problem, const AttentionShape& shape,
    const AttentionBackwardLaunch& launch) {
  AttentionBackwardWorkspace out;
  const int64_t heads = shape.heads, rows = launch.rows;
  const bool dk = launch.dk_blocks > 0, dv = launch.dv_blocks > 0;
  WorkspaceLayout layout;
  out.lse2 = layout.add({4, heads, rows});
  out.delta = layout.add({4, heads, rows});
  out.dq_sums = layout.add({4, launch.dq.accumulators, launch.dq.rows, heads, launch.dq.width});
  out.dq_order = layout.add({8, launch.dq.turns});
  out.dk_parts = layout.add({4, dk ? launch.keys : 0, heads, problem.head_dim});
  out.dv_parts = layout.add({4, dv ? launch.keys : 0, heads, problem.value_dim});
  out.dsinks_parts = layout.add({4, problem.dsinks ? launch.prepare_tiles : 0, heads});
  out.total = layout.total();
  LATHE_TRY(layout.status());
  return out;
}

using Wide = unsigned __int128;

AttentionCost attention_backward_cost(const AttentionProblem& problem,
                                      const AttentionBackward& backward,
                                      const AttentionShape& shape,
                                      const AttentionBackwardLaunch& launch,
                                      const std::vector<AttentionSequences>& sequences) {
  const uint64_t element = bytes_of(problem.element), head = problem.head_dim,
                 value = problem.value_dim;
  const uint64_t rows = launch.rows * shape.heads, keys = launch.keys * shape.kv_heads;
  AttentionCost cost;
  const uint64_t row_values = problem.dlse ? 2 : 1;                              // lse, and dlse
  cost.minimum_bytes = rows * (2 * (head + value) * element + row_values * 4) +  // q dq out dout
                       keys * 2 * (head + value) * element +                     // k dk v dv
                       4 * shape.heads * ((problem.dsinks ? 2 : 0) + (problem.alibi ? 1 : 0));
  // Beyond that: lse2 and delta written and read, dout read again, dq accumulated, zeroed and read.
  cost.bytes = cost.minimum_bytes + rows * (2 * 2 * 4 + launch.dq.accumulators * 2 * head * 4);
  if (!problem.backward) return cost;
  const AttentionTiling& main = backward.tiling();
  const int64_t block = main.m, tile = main.n;
  const uint64_t columns = launch.apart ? shape.heads : shape.kv_heads;
  const uint64_t padded =
      static_cast<uint64_t>(2 * main.width + launch.dq.multiplied_width + 2 * main.value_width);
  if (launch.apart) {  // parts of dk and dv written and read; k and v read for each query head
    cost.bytes += launch.keys * shape.heads * (head + value) * 2 * 4 +
                  launch.keys * (columns - shape.kv_heads) * (head + value) * element;
  }
  Wide seen = 0, flops = 0, tile_flops = 0;  // seen: rows of all heads by the blocks that walk them
  const Wide heads = static_cast<uint64_t>(shape.heads);
  for (const AttentionSequences& mask : sequences) {
    const Wide count = static_cast<uint64_t>(mask.count);
    flops += count * 2 * (3 * head + 2 * value) * heads * attention_kept_pairs(mask);
    const int64_t tiles = ceil_div(mask.keys, tile), stride = attention_tile_stride(tiles);
    for (int64_t at = 0; at < tiles; at += stride) {
      const int64_t alike = std::min(stride, tiles - at), first = (at + alike / 2) * tile;
      const int64_t end = std::min(first + tile, mask.keys);
      const BlockRange range = attention_query_blocks(mask, first, end, block);
      if (range.size() == 0) continue;
      const Wide all = count * static_cast<uint64_t>(alike) * heads;
      const int64_t rows_seen = std::min(range.end * block, mask.queries) - range.begin * block;
      seen += all * static_cast<uint64_t>(rows_seen);
      tile_flops += all * 2 * padded * static_cast<uint64_t>(range.size() * block * tile);
    }
  }
  cost.flops = attention_bounded(flops);
  cost.tile_flops = attention_bounded(tile_flops);
  // Each visit reads q, dout, lse2 and delta of its rows and adds to their dq.
  const uint64_t visit = (head + value) * element + 2 * 4 + (launch.dq.accumulators ? head * 4 : 0);
  const uint64_t once = rows * (head + value) * element;
  cost.bytes = attention_bounded(cost.bytes + seen * visit + rows * value * element);
  cost.bytes -= std::min(cost.bytes, once);  // q and dout are in the minimum once
  return cost;
}

uint64_t attention_backward_memory_bytes(const AttentionProblem& problem,
                                         const AttentionBackward& backward,
                                         const AttentionShape& shape,
                                         const AttentionBackwardLaunch& launch,
                                         const std::vector<AttentionSequences>& sequences,
                                         const AttentionCost& cost, const DeviceFacts& facts) {
  // Data that one launch leaves for another is written and read once more.
  const int64_t row_bytes = 2 * 4 + launch.dq.accumulators * 4 * problem.head_dim;
  Wide bytes = static_cast<Wide>(cost.minimum_bytes) + 2 * launch.rows * shape.heads * row_bytes;
  if (launch.apart) {
    bytes += 2 * launch.keys * shape.heads * (problem.head_dim + problem.value_dim) * 4;
  }
  if (problem.backward) {
    const KernelSpec& main = *backward.main();
    const int64_t walked = (problem.head_dim + problem.value_dim) * bytes_of(problem.element) +
                           2 * 4 + (launch.dq.accumulators > 0 ? 2 * 4 * problem.head_dim : 0);
    for (const AttentionSequences& mask : sequences) {
      const int64_t tiles = ceil_div(mask.keys, backward.tiling().n);
      bytes += static_cast<Wide>(mask.count) *
               attention_bytes_again(main, facts, shape.heads, tiles, mask.queries * walked);
    }
  }
  return std::min(attention_bounded(bytes), std::max(cost.bytes, cost.minimum_bytes));
}

}  // namespace lathe
