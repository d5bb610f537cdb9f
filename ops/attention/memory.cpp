// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/memory.h"

#include <algorithm>

#include "codegen/base/integers.h"

namespace lathe {
namespace {

using Wide = unsigned __int128;

constexpr int kResidentWarps = 8;
constexpr int kReservedShared = 1024;  // of each block, by the driver

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

uint64_t attention_backward_memory_bytes(const AttentionProblem& problem,
                                         const AttentionBackwardKernels& kernels,
                                         const AttentionShape& shape,
                                         const AttentionBackwardLaunch& launch,
                                         const std::vector<AttentionSequences>& sequences,
                                         const AttentionCost& cost, const DeviceFacts& facts) {
  // Data that one launch leaves for another is written and read once more.
  const int64_t row_bytes = 2 * 4 + launch.accumulators * 4 * problem.head_dim;
  Wide bytes = static_cast<Wide>(cost.minimum_bytes) + 2 * launch.rows * shape.heads * row_bytes;
  if (launch.apart) {
    bytes += 2 * launch.keys * shape.heads * (problem.head_dim + problem.value_dim) * 4;
  }
  if (problem.backward) {
    const KernelSpec& main = kernels.main();
    const int64_t walked = (problem.head_dim + problem.value_dim) * bytes_of(problem.element) +
                           2 * 4 + (launch.accumulators > 0 ? 2 * 4 * problem.head_dim : 0);
    for (const AttentionSequences& mask : sequences) {
      const int64_t tiles = ceil_div(mask.keys, main.constant("n"));
      bytes +=
          static_cast<Wide>(mask.count) * read_again({shape.heads, tiles, mask.queries * walked},
                                                     running_blocks(main, facts), facts);
    }
  }
  return std::min(attention_bounded(bytes), std::max(cost.bytes, cost.minimum_bytes));
}

}  // namespace lathe
