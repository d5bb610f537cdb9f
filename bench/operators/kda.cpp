// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures kda, forward and backward. On a GPU: time of a call with nothing of it in the second
// cache, at the shapes of published figures (bench/results/published.csv). On the simulator: what
// is launched, moved and multiplied against the least of it; with --peers the bytes of
// flash-linear-attention's kernels, launch by launch, beside ours. Every case is checked before it
// is measured.
#include <cstdlib>
#include <stdexcept>

#include "bench/operators/attn_work.h"
#include "bench/operators/kda_call.h"
#include "bench/operators/kda_peers.h"
#include "bench/operators/measure.h"

namespace bench {
namespace {

Cells cells(const KdaSize& size) { return {size.op(), size.text(), size.dtype_word()}; }

// As published, where options are not told: as given, and with all of them in the kernels.
std::vector<KdaSize> gpu_sizes() {
  std::vector<KdaSize> sizes = published_sizes();
  KdaSize few = sizes[7];  // one sequence, heads for a part of the device
  few.tokens = 65536, few.heads = 16;
  sizes.push_back(few);
  few.tokens = 1024, few.heads = 4;
  sizes.push_back(few);
  few.batch = 8, few.tokens = 4096, few.heads = 32;  // two blocks for every multiprocessor
  sizes.push_back(few);
  sizes.push_back(sizes[0]);
  sizes.back().fused = true;
  sizes.push_back(sizes[8]);
  sizes.back().fused = sizes.back().final_state = true;
  return with_backward(sizes);
}

std::vector<KdaSize> tiny_sizes() {
  KdaSize plain;
  plain.tokens = 80, plain.heads = 1, plain.key_dim = plain.value_dim = 64;
  KdaSize packed = plain;
  packed.group = 2, packed.sequences = 3, packed.fused = true, packed.dtype = LATHE_F16;
  packed.gate = LATHE_F32;
  return with_backward<KdaSize>({plain, packed});
}

std::vector<KdaSize> sim_sizes(bool full) {
  KdaSize base;
  base.tokens = full ? 2048 : 512, base.heads = 4, base.segments = 1;
  std::vector<KdaSize> sizes(6, base);
  sizes[1].fused = true;
  sizes[2].gate = LATHE_F32, sizes[2].final_state = true;
  sizes[3].heads = 2, sizes[3].group = 2, sizes[3].fused = true;
  sizes[4].sequences = 3;
  sizes[5].key_dim = sizes[5].value_dim = 64;
  sizes = with_backward(sizes);
  KdaSize other = base;
  other.key_dim = other.value_dim = 256;
  sizes.push_back(other);
  other = base;
  other.dtype = other.gate = LATHE_F32;
  sizes.push_back(other);
  other = base;
  other.heads = 1, other.tokens *= 4, other.segments = 0;  // too few blocks for a device: more
  sizes.push_back(other);
  return sizes;
}

Table on_gpu(lathe_context* context, const Settings& settings) {
  const Measured<KdaSize> of = {{"op", "shape", "dtype"},
                                {"GB_per_s", "minimum_MB", "workspace_MB", "least_Gop"},
                                cells,
                                settings.tiny ? tiny_sizes() : gpu_sizes()};
  return time_calls<KdaCall, KdaSize>(
      context, settings, of, 2,
      [](const KdaSize& size, const KdaCall& call, double median) -> Cells {
        return {number(size.minimum_bytes() / median / 1e3, 0),
                number(size.minimum_bytes() / 1e6, 2),
                number(static_cast<double>(call.workspace_bytes()) / 1e6, 2),
                number((size.state_ops() + size.block_ops()) / 1e9, 3)};
      });
}

Table on_simulator(lathe_context* context, const Settings& settings) {
  const Measured<KdaSize> of = {
      {"op", "shape", "dtype"},
      {"launches", "tensor_Mop", "tensor_per_state", "tensor_per_least", "memory_MB", "minimum_MB",
       "memory_ratio", "cache_ratio", "workspace_MB", "conflicts", "local_requests"},
      cells,
      settings.tiny ? tiny_sizes() : sim_sizes(settings.full)};
  return count_calls<KdaSize>(settings, of, [&](const KdaSize& size) -> Cells {
    const KdaCall call(context, size);
    const AttnCounts counts = attn_counts(call.counted());
    const double least = size.minimum_bytes();
    return {std::to_string(counts.launches),
            number(counts.tensor_ops / 1e6, 0),
            number(counts.tensor_ops / size.state_ops(), 3),
            number(counts.tensor_ops / (size.state_ops() + size.block_ops()), 3),
            number(counts.memory_bytes / 1e6, 3),
            number(least / 1e6, 3),
            number(counts.memory_bytes / least, 3),
            number(counts.asked_bytes / least, 2),
            number(static_cast<double>(call.workspace_bytes()) / 1e6, 3),
            number(counts.conflicts, 0),
            number(counts.local_requests, 0)};
  });
}

}  // namespace

Table bench_kda(const Settings& settings) {
  // Enough to count distinct sectors; races and the like are for the tests to find.
  setenv("LATHE_SIM_CHECK", "memcheck", 0);
  const auto context = apitest::make_context();
  if (!apitest::on_simulator()) {
    if (settings.peers) throw std::runtime_error("--peers counts on the simulator: --device sim");
    return on_gpu(context.get(), settings);
  }
  if (settings.peers) return kda_beside_peers(context.get(), settings.folder);
  return on_simulator(context.get(), settings);
}

}  // namespace bench
