// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures sparse_flash_attention at the shapes of absorbed latent attention: one key head of 512
// columns that are the values too and 64 rotary ones, 128, 64 and 16 query heads, lists of 512 to
// 2048 keys. On a GPU: time of a call, in operations as FlashMLA counts them. On the simulator, at
// fewer rows: what is multiplied and read against what must be. Every case is checked before it is
// measured.
#include <stdexcept>

#include "bench/operators/attn_work.h"
#include "bench/operators/measure.h"
#include "bench/operators/sparse_call.h"

namespace bench {
namespace {

SparseSize latent(int64_t rows, int64_t keys, int64_t heads, int64_t topk) {
  SparseSize size;
  size.rows = rows, size.keys = keys, size.heads = heads, size.topk = topk;
  return size;
}

// Puts each backward behind its forward, and adds the first of them again as deterministic.
std::vector<SparseSize> with_gradients(const std::vector<SparseSize>& forward) {
  std::vector<SparseSize> sizes = with_backward(forward);
  sizes.push_back(sizes[1]);
  sizes.back().deterministic = true;
  return sizes;
}

std::vector<SparseSize> gpu_sizes() {
  std::vector<SparseSize> sizes;
  for (const int64_t keys : {8192, 32768, 131072}) sizes.push_back(latent(4096, keys, 128, 2048));
  sizes.push_back(latent(4096, 32768, 64, 512));
  sizes.push_back(latent(4096, 32768, 16, 2048));
  sizes.push_back(latent(4096, 32768, 128, 1024));
  sizes.back().head_dim = 448;  // 512 columns in all
  sizes.back().value_dim = 448;
  return with_gradients(sizes);
}

std::vector<SparseSize> tiny_sizes() {
  SparseSize split = latent(4, 128, 16, 48);
  split.latent = false;
  split.head_dim = split.value_dim = 64, split.rope_dim = 16;
  return with_gradients({split});
}

std::vector<SparseSize> sim_sizes(bool full) {
  const int64_t rows = full ? 64 : 8, keys = full ? 8192 : 1024, topk = full ? 2048 : 512;
  std::vector<SparseSize> sizes = {latent(rows, keys, 128, topk), latent(rows, keys, 64, topk),
                                   latent(rows, keys, 16, topk)};
  sizes.push_back(latent(rows, keys, 64, topk));
  sizes.back().latent = false;
  sizes.back().head_dim = sizes.back().value_dim = 128;
  return with_gradients(sizes);
}

Cells cells(const SparseSize& size) {
  return {size.backward ? "backward" : "forward", size.text()};
}

Table on_gpu(lathe_context* context, const Settings& settings) {
  const Measured<SparseSize> of = {{"op", "shape"},
                                   {"TFLOP_per_s", "listed_GB_per_s", "minimum_MB"},
                                   cells,
                                   settings.tiny ? tiny_sizes() : gpu_sizes()};
  return time_calls<SparseCall, SparseSize>(
      context, settings, of, 4,
      [](const SparseSize& size, const SparseCall&, double median) -> Cells {
        return {number(size.flops() / median / 1e6, 1),
                number(size.listed_bytes() / median / 1e3, 0),
                number(size.minimum_bytes() / 1e6, 2)};
      });
}

// The tile: heads and keys of a block's products, and its warps.
Cells counted(lathe_context* context, const SparseSize& size) {
  const SparseCall call(context, size);
  const AttnCounts counts = attn_counts(counted_launches(call, 4));
  const auto tile = first_tile(call.plan());
  if (!tile) throw std::runtime_error("no kernel has a tile");
  return {tile->text(),
          std::to_string(counts.launches),
          number(counts.tensor_ops / size.flops(), 3),
          number(counts.asked_bytes / size.listed_bytes(), 2),
          number(counts.memory_bytes / 1e6, 3),
          number(size.minimum_bytes() / 1e6, 3),
          number(counts.conflicts, 0),
          number(counts.local_requests, 0)};
}

Table on_simulator(lathe_context* context, const Settings& settings) {
  const Measured<SparseSize> of = {{"op", "shape"},
                                   {"tile", "launches", "tensor_per_listed", "asked_per_listed",
                                    "memory_MB", "minimum_MB", "conflicts", "local_requests"},
                                   cells,
                                   settings.tiny ? tiny_sizes() : sim_sizes(settings.full)};
  return count_calls<SparseSize>(settings, of,
                                 [&](const SparseSize& size) { return counted(context, size); });
}

}  // namespace

Table bench_sparse(const Settings& settings) { return measure(settings, on_simulator, on_gpu); }

}  // namespace bench
