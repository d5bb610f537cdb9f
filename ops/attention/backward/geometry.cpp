// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes grids, workspace and cost of the backward of flash attention from shapes alone.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/attention/backward/kernels.h"
#include "ops/attention/sm90/backward_kernels.h"
#include "ops/workspace.h"

namespace lathe {
namespace {

constexpr int64_t kColumnsOfThread = 8;  // in finish
// With an order of dq no bit depends on the device, so what decides about sums is that of an H100.
constexpr int64_t kOrderedMultiprocessors = 132;

// Says whether blocks add to one dq in a fixed order, and not to accumulators of their own.
bool is_ordered(const AttentionProblem& problem, const KernelNumbers& main) {
  return problem.deterministic && main.mapped;
}

// Returns the blocks of one head of a sequence: one for each tile of keys or, if each has its own
// accumulator of dq, as many as fill the device.
int64_t slices_of(const AttentionProblem& problem, const KernelNumbers& main,
                  const DeviceFacts& facts, const AttentionShape& shape) {
  const int64_t tiles = ceil_div(shape.seq_k, main.n);
  const int64_t columns = bounded_product({shape.sequences, shape.heads});
  const bool sliced = problem.deterministic && !is_ordered(problem, main);
  if (!sliced || columns == 0 || tiles == 0) return tiles;
  return std::clamp<int64_t>(ceil_div(facts.multiprocessors, columns), 1, tiles);
}

// Returns the words of an order of dq: of each tile, and a ticket, in chunks of 16 bytes.
int64_t turns_of(const AttentionBackwardLaunch& launch, int64_t columns) {
  const int64_t tiles = bounded_product({columns, launch.dq_tiles});
  return tiles == 0 ? 0 : (tiles / 2 + 1) * 2;
}

}  // namespace

bool attention_heads_apart(const AttentionProblem& problem, const KernelNumbers& main,
                           const DeviceFacts& facts, const AttentionShape& shape) {
  if (shape.heads <= shape.kv_heads) return false;
  // Packed, the capacity is that of all sequences: most blocks of a grid by sequences are empty.
  const bool ordered = is_ordered(problem, main);
  const int64_t parts = problem.packed && (ordered || !problem.deterministic) ? 1 : shape.sequences;
  const int64_t blocks =
      bounded_product({parts, shape.kv_heads, slices_of(problem, main, facts, shape)});
  return blocks * 10 < (ordered ? kOrderedMultiprocessors : facts.multiprocessors) * 8;
}

AttentionBackwardLaunch attention_backward_launch(const AttentionProblem& problem,
                                                  const AttentionBackwardKernels& kernels,
                                                  const DeviceFacts& facts,
                                                  const AttentionShape& shape,
                                                  const AttentionGradients& wanted) {
  AttentionBackwardLaunch out;
  const int64_t parts = problem.packed ? 1 : shape.sequences;
  out.rows = parts * shape.seq_q, out.keys = parts * shape.seq_k;
  out.prepare_tiles = ceil_div(out.rows, kernels.prepare.numbers().m);
  out.prepare_blocks = bounded_product({out.prepare_tiles, shape.heads});
  if (problem.backward) {
    const KernelNumbers& main = kernels.main_numbers();
    out.apart =
        !kernels.together || (kernels.apart && attention_heads_apart(problem, main, facts, shape));
    out.slices = slices_of(problem, main, facts, shape);
    out.main_blocks =
        bounded_product({out.slices, out.apart ? shape.heads : shape.kv_heads, shape.sequences});
    out.in_tiles = main.mapped;
    out.accumulators = !wanted.dq                               ? 0
                       : problem.deterministic && !out.in_tiles ? std::max<int64_t>(out.slices, 1)
                                                                : 1;
    out.dq_rows = out.rows, out.dq_width = problem.head_dim;
    if (out.in_tiles) {
      out.dq_tiles = attention_dq_tiles(main, problem.packed, shape);
      out.dq_rows = bounded_product({parts, out.dq_tiles, main.m});
      out.dq_width = main.width;
      if (problem.deterministic && wanted.dq) {
        out.dq_turns = turns_of(out, bounded_product({parts, shape.heads}));
      }
      out.dq_section = attention_dq_section(main, facts, shape);
    }
  }
  const int threads = kernels.finish->threads;
  const auto blocks = [&](int64_t rows, int64_t heads, int64_t width) {
    return ceil_div(bounded_product({rows, heads, width / kColumnsOfThread}), threads);
  };
  if (wanted.dq) {
    out.dq_blocks = out.in_tiles ? bounded_product({parts, out.dq_tiles, shape.heads})
                                 : blocks(out.rows, shape.heads, problem.head_dim);
  }
  if (out.apart && wanted.dk) out.dk_blocks = blocks(out.keys, shape.kv_heads, problem.head_dim);
  if (out.apart && wanted.dv) out.dv_blocks = blocks(out.keys, shape.kv_heads, problem.value_dim);
  if (wanted.dsinks) out.dsinks_blocks = ceil_div(shape.heads, threads / 32);
  return out;
}

Result<AttentionBackwardWorkspace> attention_backward_workspace(
    const AttentionProblem& problem, const AttentionShape& shape,
    const AttentionBackwardLaunch& launch) {
  AttentionBackwardWorkspace out;
  const int64_t heads = shape.heads, rows = launch.rows;
  const bool dk = launch.dk_blocks > 0, dv = launch.dv_blocks > 0;
  WorkspaceLayout layout;
  out.lse2 = layout.add({4, heads, rows});
  out.delta = layout.add({4, heads, rows});
  out.dq_sums = layout.add({4, launch.accumulators, launch.dq_rows, heads, launch.dq_width});
  out.dq_order = layout.add({8, launch.dq_turns});
  out.dk_parts = layout.add({4, dk ? launch.keys : 0, heads, problem.head_dim});
  out.dv_parts = layout.add({4, dv ? launch.keys : 0, heads, problem.value_dim});
  out.dsinks_parts = layout.add({4, problem.dsinks ? launch.prepare_tiles : 0, heads});
  out.total = layout.total();
  LATHE_TRY(layout.status());
  return out;
}

using Wide = unsigned __int128;

AttentionCost attention_backward_cost(const AttentionProblem& problem,
                                      const AttentionBackwardKernels& kernels,
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
  cost.bytes = cost.minimum_bytes + rows * (2 * 2 * 4 + launch.accumulators * 2 * head * 4);
  if (!problem.backward) return cost;
  const KernelSpec& main = kernels.main();
  const int64_t block = main.constant("m"), tile = main.constant("n");
  const uint64_t columns = launch.apart ? shape.heads : shape.kv_heads;
  // By warpgroups dq has whole panels of 64 columns.
  const int width = static_cast<int>(main.constant("width"));
  const int dq_width = launch.in_tiles ? round_up(width, 64) : width;
  const uint64_t padded = 2 * width + dq_width + 2 * main.constant("value_width");
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
  const uint64_t visit = (head + value) * element + 2 * 4 + (launch.accumulators ? head * 4 : 0);
  const uint64_t once = rows * (head + value) * element;
  cost.bytes = attention_bounded(cost.bytes + seen * visit + rows * value * element);
  cost.bytes -= std::min(cost.bytes, once);  // q and dout are in the minimum once
  return cost;
}

}  // namespace lathe
