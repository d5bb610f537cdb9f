// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernels/attention_memory.h"

#include <algorithm>

namespace lathe {
namespace {

constexpr int kResidentWarps = 8;
constexpr int kReservedShared = 1024;  // of each block, by the driver

// What tiles can count on while the rest streams through: FlashAttention-3's scheduler groups heads
// by 32 MiB on a device of 50 MiB.
int64_t usable_cache(const DeviceFacts& facts) { return int64_t{facts.l2_bytes} * 16 / 25; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int attention_resident_blocks(const KernelSpec& spec, const DeviceFacts& facts) {
  const int by_shared = facts.shared_bytes_per_multiprocessor / (spec.smem_bytes + kReservedShared);
  const int by_warps = kResidentWarps * 32 / spec.threads;
  return std::max(1, std::min(by_shared, by_warps));
}

uint64_t attention_memory_bytes(const AttentionProblem& problem, const KernelSpec& spec,
                                const AttentionShape& shape,
                                const std::vector<AttentionMask>& sequences,
                                const DeviceFacts& facts) {
  const AttentionCost cost = attention_forward_cost(problem, spec, shape, sequences);
  const int64_t key_bytes = (problem.head_dim + problem.value_dim) * bytes_of(problem.element);
  const int64_t running =
      int64_t{attention_resident_blocks(spec, facts)} * std::max(facts.multiprocessors, 1);
  const int64_t group = shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 1;
  uint64_t bytes = cost.minimum_bytes;
  for (const AttentionMask& mask : sequences) {
    const int64_t tiles = ceil_div(mask.queries * group, spec.constant("m"));  // of a key head
    if (tiles == 0) continue;
    // Blocks are launched head after head: those that run belong to so many of them.
    const int64_t in_progress = std::min(ceil_div(running, tiles) + 1, shape.kv_heads);
    if (in_progress * mask.keys * key_bytes <= usable_cache(facts)) continue;
    bytes += (ceil_div(tiles, running) - 1) * shape.kv_heads * mask.keys * key_bytes;
  }
  return std::min(bytes, std::max(cost.bytes, cost.minimum_bytes));
}

}  // namespace lathe
