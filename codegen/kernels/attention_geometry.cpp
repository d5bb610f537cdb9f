// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Grids, workspace and costs of the flash attention kernels: arithmetic on shapes alone.
#include <algorithm>

#include "codegen/base/integers.h"
#include "codegen/kernels/attention.h"

namespace lathe {
namespace {

constexpr uint64_t kPartAlignment = 256;  // of each part of a workspace

// Query heads that are rows of one tile, and columns of tiles in the grid.
int64_t packed_ratio(const KernelSpec& spec, const AttentionShape& shape) {
  return spec.constant("pack_gqa") != 0 && shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
}
int64_t grid_heads(const KernelSpec& spec, const AttentionShape& shape) {
  return spec.constant("pack_gqa") != 0 ? shape.kv_heads : shape.heads;
}

// Kept pairs of one head of a sequence.
uint64_t kept_pairs(const AttentionMask& mask) {
  uint64_t pairs = 0;
  for (int64_t row = 0; row < mask.queries; ++row) {
    pairs += std::max<int64_t>(0, mask.last_key(row) - mask.first_key(row) + 1);
  }
  return pairs;
}

// Over the tiles of one column of a sequence: keys read, counting those of each tile.
struct Visits {
  uint64_t keys = 0, blocks = 0;
};
Visits visits(const KernelSpec& spec, const AttentionMask& mask, int64_t ratio) {
  const int64_t rows = spec.constant("m"), block = spec.constant("n");
  Visits sum;
  for (int64_t tile = 0; tile * rows < mask.queries * ratio; ++tile) {
    const BlockRange own = attention_tile_rows(tile, rows, ratio, mask.queries);
    const BlockRange all = attention_key_blocks(mask, own.begin, own.end, block).all;
    sum.blocks += all.size();
    sum.keys += std::max<int64_t>(0, std::min(all.end * block, mask.keys) - all.begin * block);
  }
  return sum;
}

}  // namespace

int64_t attention_tiles(const KernelSpec& spec, const AttentionShape& shape) {
  return ceil_div(shape.seq_q * packed_ratio(spec, shape), spec.constant("m"));
}

int64_t attention_forward_blocks(const KernelSpec& spec, const AttentionShape& shape) {
  return attention_tiles(spec, shape) * grid_heads(spec, shape) * shape.sequences;
}

Grid attention_forward_grid(const KernelSpec& spec, const AttentionShape& shape) {
  return {static_cast<unsigned>(attention_forward_blocks(spec, shape)), 1, 1};
}

uint64_t attention_forward_workspace_bytes(const AttentionProblem& problem,
                                           const AttentionShape& shape, int64_t splits) {
  if (splits <= 1) return 0;
  const uint64_t rows = shape.seq_q * (problem.packed ? 1 : shape.sequences);
  const uint64_t bytes = splits * shape.heads * rows * (problem.value_dim + 1) * 4;
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

AttentionCost attention_forward_cost(const AttentionProblem& problem, const KernelSpec& spec,
                                     const AttentionShape& shape,
                                     const std::vector<AttentionMask>& sequences) {
  const uint64_t widths = problem.head_dim + problem.value_dim, element = bytes_of(problem.element);
  const uint64_t padded = spec.constant("width") + spec.constant("value_width");
  const int64_t ratio = packed_ratio(spec, shape);
  const uint64_t columns = grid_heads(spec, shape),
                 tile_pairs = spec.constant("m") * spec.constant("n");
  AttentionCost cost;
  for (const AttentionMask& mask : sequences) {
    const uint64_t rows = shape.heads * mask.queries;
    const uint64_t own = rows * (widths * element + 4);  // q, out and lse
    const Visits visited = visits(spec, mask, ratio);
    cost.minimum_bytes += own + shape.kv_heads * mask.keys * widths * element;
    cost.bytes += own + columns * visited.keys * widths * element;
    cost.flops += 2 * widths * shape.heads * kept_pairs(mask);
    cost.tile_flops += 2 * padded * columns * visited.blocks * tile_pairs;
  }
  const uint64_t options = 4 * shape.heads * ((problem.sinks ? 1 : 0) + (problem.alibi ? 1 : 0));
  cost.minimum_bytes += options;
  cost.bytes += options;
  return cost;
}

}  // namespace lathe
