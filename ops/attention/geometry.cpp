// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes grids and costs of the flash attention kernels, and the bytes that they read from memory
// behind L2, from shapes alone.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/attention/kernels.h"

namespace lathe {
namespace {

// Return the query heads that are rows of one tile, and the columns of tiles in the grid.
int64_t packed_ratio(const AttentionTiling& kernel, const AttentionShape& shape) {
  return kernel.pack_gqa != 0 && shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
}
int64_t grid_heads(const AttentionTiling& kernel, const AttentionShape& shape) {
  return kernel.pack_gqa != 0 ? shape.kv_heads : shape.heads;
}

// Returns the rows of a tile that are somebody's: in Hopper's tiles no group of heads is divided.
int64_t used_rows(const AttentionTiling& kernel, int64_t ratio) {
  return kernel.whole_groups != 0 && ratio <= kernel.m ? kernel.m / ratio * ratio : kernel.m;
}

using Wide = unsigned __int128;

// Counts the pairs of rows and keys whose key is at most `limit` behind the row.
uint64_t pairs_up_to(int64_t rows, int64_t keys, int64_t limit) {
  // Row i has min(keys, i + limit + 1) of them, where that is positive.
  const int64_t first = std::clamp<int64_t>(-limit, 0, rows);  // the first row with any
  const int64_t whole = std::clamp<int64_t>(keys - limit - 1, first, rows);  // with all
  const uint64_t sums = static_cast<uint64_t>(first + limit + 1 + whole + limit);
  return static_cast<uint64_t>(whole - first) * sums / 2 +
         static_cast<uint64_t>(rows - whole) * static_cast<uint64_t>(keys);
}

// Counts the keys that the tiles of one column of a sequence read, each tile's separately.
struct Visits {
  Wide keys = 0, blocks = 0;
};
Visits visits(const AttentionTiling& kernel, const AttentionMask& mask, int64_t ratio) {
  const int64_t rows = used_rows(kernel, ratio), block = kernel.n;
  const int64_t tiles = ceil_div(mask.queries * ratio, rows), stride = attention_tile_stride(tiles);
  const bool short_first =
      kernel.short_first != 0 && (mask.window_left < 0 || mask.window_left >= mask.keys);
  Visits sum;
  for (int64_t tile = 0; tile < tiles; tile += stride) {
    const int64_t count = std::min(stride, tiles - tile);
    const BlockRange own =
        attention_tile_rows(tile + count / 2, rows, ratio, mask.queries, short_first);
    const BlockRange all = attention_key_blocks(mask, own.begin, own.end, block).all;
    const int64_t keys =
        std::max<int64_t>(0, std::min(all.end * block, mask.keys) - all.begin * block);
    sum.blocks += static_cast<Wide>(all.size()) * static_cast<Wide>(count);
    sum.keys += static_cast<Wide>(keys) * static_cast<Wide>(count);
  }
  return sum;
}

constexpr int kResidentWarps = 8;

// Returns the bytes of L2 that tiles can use while other data streams through: FlashAttention-3's
// scheduler groups heads by 32 MiB on a device of 50 MiB.
int64_t usable_cache(const DeviceFacts& facts) { return int64_t{facts.l2_bytes} * 16 / 25; }

// Describes the blocks of `heads` heads, launched head after head. All blocks of a head walk the
// same bytes.
struct Walk {
  int64_t heads = 0, blocks = 0, bytes = 0;  // blocks and bytes of one head
};
// Returns the bytes that are read from memory again after the first time.
Wide read_again(const Walk& walk, int64_t running, const DeviceFacts& facts) {
  if (walk.blocks == 0) return 0;
  // The running blocks belong to this many heads.
  const int64_t in_progress = std::min(ceil_div(running, walk.blocks) + 1, walk.heads);
  const Wide bytes = static_cast<Wide>(walk.bytes);
  if (static_cast<Wide>(in_progress) * bytes <= static_cast<Wide>(usable_cache(facts))) return 0;
  return static_cast<Wide>(ceil_div(walk.blocks, running) - 1) * static_cast<Wide>(walk.heads) *
         bytes;
}

int64_t running_blocks(const KernelSpec& spec, const DeviceFacts& facts) {
  return int64_t{attention_resident_blocks(spec, facts)} * std::max(facts.multiprocessors, 1);
}

}  // namespace

uint64_t attention_kept_pairs(const AttentionMask& mask) {
  if (mask.queries <= 0 || mask.keys <= 0) return 0;
  const int64_t most = mask.queries + mask.keys;  // a wider window keeps no more
  const int64_t left = std::min(mask.window_left, most), right = std::min(mask.window_right, most);
  const auto up_to = [&](int64_t limit) { return pairs_up_to(mask.queries, mask.keys, limit); };
  const uint64_t behind = right < 0 ? up_to(most) : up_to(mask.offset() + right);
  return behind - (left < 0 ? 0 : up_to(mask.offset() - left - 1));
}

int64_t attention_tile_stride(int64_t tiles) {
  constexpr int64_t kMostTiles = int64_t{1} << 18;
  return tiles <= kMostTiles ? 1 : ceil_div(tiles, kMostTiles);
}

uint64_t attention_bounded(unsigned __int128 count) {
  return static_cast<uint64_t>(std::min<Wide>(count, UINT64_MAX));
}

int64_t attention_tiles(const AttentionTiling& kernel, const AttentionShape& shape) {
  const int64_t ratio = packed_ratio(kernel, shape);
  return ceil_div(shape.seq_q * ratio, used_rows(kernel, ratio));
}

int64_t attention_forward_blocks(const AttentionTiling& kernel, const AttentionShape& shape) {
  return attention_tiles(kernel, shape) * grid_heads(kernel, shape) * shape.sequences;
}

int attention_key_width(const AttentionProblem& problem) {
  return problem.head_dim + (problem.latent ? 0 : problem.value_dim);
}

AttentionCost attention_forward_cost(const AttentionProblem& problem, const KernelSpec& spec,
                                     const AttentionShape& shape,
                                     const std::vector<AttentionSequences>& sequences) {
  const uint64_t widths = problem.head_dim + problem.value_dim, element = bytes_of(problem.element);
  const uint64_t key_width = attention_key_width(problem);
  const uint64_t padded = spec.constant("width") + spec.constant("value_width");
  const AttentionTiling kernel(spec);
  const int64_t ratio = packed_ratio(kernel, shape);
  const uint64_t columns = grid_heads(kernel, shape), tile_pairs = kernel.m * kernel.n;
  Wide minimum = 0, bytes = 0, flops = 0, tile_flops = 0;
  for (const AttentionSequences& mask : sequences) {
    const Wide count = static_cast<uint64_t>(mask.count);
    const Wide rows = static_cast<Wide>(shape.heads) * static_cast<uint64_t>(mask.queries);
    const Wide own = rows * (widths * element + 4);  // q, out and lse
    const Wide keys = static_cast<Wide>(shape.kv_heads) * static_cast<uint64_t>(mask.keys);
    const Visits visited = visits(kernel, mask, ratio);
    minimum += count * (own + keys * key_width * element);
    bytes += count * (own + columns * visited.keys * key_width * element);
    flops += count * 2 * widths * static_cast<uint64_t>(shape.heads) * attention_kept_pairs(mask);
    tile_flops += count * 2 * padded * columns * visited.blocks * tile_pairs;
  }
  const uint64_t options = 4 * shape.heads * ((problem.sinks ? 1 : 0) + (problem.alibi ? 1 : 0));
  AttentionCost cost;
  cost.minimum_bytes = attention_bounded(minimum + options);
  cost.bytes = attention_bounded(bytes + options);
  cost.flops = attention_bounded(flops);
  cost.tile_flops = attention_bounded(tile_flops);
  return cost;
}

int attention_resident_blocks(const KernelSpec& spec, const DeviceFacts& facts) {
  const int by_shared = facts.shared_bytes_per_multiprocessor / (spec.smem_bytes + kReservedShared);
  const int by_warps = kResidentWarps * 32 / spec.threads;
  return std::max(1, std::min(by_shared, by_warps));
}

int attention_product_terms(const AttentionProblem& problem) {
  return problem.element == Dtype::f32 ? 6 : 1;
}

uint64_t attention_bytes_again(const KernelSpec& spec, const DeviceFacts& facts, int64_t heads,
                               int64_t blocks, int64_t bytes) {
  return attention_bounded(read_again({heads, blocks, bytes}, running_blocks(spec, facts), facts));
}

uint64_t attention_memory_bytes(const AttentionProblem& problem, const KernelSpec& spec,
                                const AttentionShape& shape,
                                const std::vector<AttentionSequences>& sequences,
                                const DeviceFacts& facts) {
  const AttentionCost cost = attention_forward_cost(problem, spec, shape, sequences);
  const int64_t key_bytes = (problem.head_dim + problem.value_dim) * bytes_of(problem.element);
  const int64_t group = shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
  Wide bytes = cost.minimum_bytes;
  for (const AttentionSequences& mask : sequences) {
    const int64_t tiles = ceil_div(mask.queries * group, spec.constant("m"));  // of a key head
    bytes +=
        static_cast<Wide>(mask.count) * read_again({shape.kv_heads, tiles, mask.keys * key_bytes},
                                                   running_blocks(spec, facts), facts);
  }
  return std::min(attention_bounded(bytes), std::max(cost.bytes, cost.minimum_bytes));
}

}  // namespace lathe
