// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures kda, forward and backward. On a GPU: time of a call with nothing of it in the second
// cache, at the shapes of published figures. On the simulator: what is launched, moved and
// multiplied against the least of it; with --predict what a device would take for the published
// shapes at best, beside those figures; with --peers the bytes of flash-linear-attention's kernels,
// launch by launch, beside ours. Every case is checked before it is measured.
#include <cstdlib>
#include <stdexcept>

#include "bench/operators/attn_work.h"
#include "bench/operators/kda_call.h"
#include "bench/operators/kda_peers.h"
#include "bench/operators/measure.h"
#ifdef LATHE_BENCH_SIM
#include "bench/operators/kda_predict.h"
#endif

namespace bench {
namespace {

Cells cells(const KdaSize& size) { return {size.op(), size.text(), size.dtype_word()}; }

bool wanted(const KdaSize& size, const Settings& settings) {
  return case_name(cells(size)).find(settings.only) != std::string::npos;
}

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
  const Measured<KdaSize> of = {
      {"op", "shape", "dtype"},
      {"GB_per_s", "minimum_MB", "workspace_MB", "least_Gop", "estimate_us", "published"},
      cells,
      settings.tiny ? tiny_sizes() : gpu_sizes()};
  return time_calls<KdaCall, KdaSize>(
      context, settings, of, 2,
      [](const KdaSize& size, const KdaCall& call, double median) -> Cells {
        return {number(size.minimum_bytes() / median / 1e3, 0),
                number(size.minimum_bytes() / 1e6, 2),
                number(static_cast<double>(call.workspace_bytes()) / 1e6, 2),
                number((size.state_ops() + size.block_ops()) / 1e9, 3),
                number(call.estimate().microseconds, 2),
                nearest_published(size, "h100")};
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

#ifdef LATHE_BENCH_SIM
// Makes a table of what a warp issues and how long a thread block takes: for another 16 tokens
// where it walks, in all where the grid grows instead.
Table instructions(lathe_context* context, const Settings& settings) {
  Table table({"op", "shape", "dtype", "kernel", "threads", "registers", "spill_bytes",
               "shared_bytes", "per", "instructions_of_a_warp", "cycles_alone", "cycles_of_2_warps",
               "cycles_of_4_warps"});
  std::vector<KdaSize> sizes;
  for (const int64_t width : {32, 64, 128, 192, 256}) {
    for (const bool fused : {false, true}) {
      KdaSize size;
      size.key_dim = size.value_dim = width;
      size.fused = fused;
      sizes.push_back(size);
    }
  }
  for (KdaSize size : with_backward(sizes)) {
    if (!wanted(size, settings)) continue;
    size.tokens = 1024;
    const auto low = kda_counts(context, size);
    size.tokens = 2048;
    const auto high = kda_counts(context, size);
    for (size_t i = 0; i < high.size(); ++i) {
      const bool walks = high[i].blocks == low[i].blocks;
      const auto per = [&](double few, double many, double warps_few, double warps_many) {
        return walks ? (many / warps_many - few / warps_few) / 64 : many / warps_many;
      };
      const double warps = high[i].threads / 32;
      auto row = cells(size);
      row[1] = "K" + std::to_string(size.key_dim) + " V" + std::to_string(size.value_dim) +
               (size.fused ? " fused" : "");
      for (const auto& cell :
           {high[i].kernel, number(high[i].threads, 0), std::to_string(high[i].registers),
            std::to_string(high[i].spill_bytes), std::to_string(high[i].shared_bytes),
            std::string(walks ? "16 tokens" : "block"),
            number(per(low[i].issue, high[i].issue, warps * low[i].blocks, warps * high[i].blocks),
                   0),
            number(per(low[i].chain[0], high[i].chain[0], 1, 1), 0),
            number(per(low[i].chain[1], high[i].chain[1], 1, 1), 0),
            number(per(low[i].chain[3], high[i].chain[3], 1, 1), 0)}) {
        row.push_back(cell);
      }
      table.add(std::move(row));
    }
  }
  return table;
}

// Predicts without counts, from the plan alone, for the device of the context.
double estimated(lathe_context* context, const KdaSize& size) {
  return KdaCall(context, size, true).estimate().microseconds;
}

Table predicted(lathe_context* context, const Settings& settings) {
  Table table({"op", "shape", "dtype", "segments", "launches", "memory_MB", "minimum_MB",
               "floor_us", "predicted_us", "busy_us", "chain_us", "bound", "explain_us",
               "published", "gpu"});
  for (const KdaSize& size : with_backward(published_sizes())) {
    if (!wanted(size, settings)) continue;
    const double estimate = estimated(context, size);
    for (const char* gpu : {"h100", "h200", "a100"}) {
      KdaSize cut = size;
      cut.segments = kda_chosen_segments(size, gpu);
      const auto launches = kda_counts(context, cut);
      double bytes = 0;
      for (const auto& one : launches) bytes += one.memory_bytes;
      const KdaPrediction told = kda_predict(launches, gpu);
      auto row = cells(size);
      for (const auto& cell :
           {std::to_string(cut.segments), std::to_string(launches.size()), number(bytes / 1e6, 2),
            number(size.minimum_bytes() / 1e6, 2),
            number(1e6 * size.minimum_bytes() / memory_rate(gpu), 1), number(told.microseconds, 1),
            number(told.busy_microseconds, 1), number(told.chain_microseconds, 1), told.bound,
            std::string(gpu) == "h100" ? number(estimate, 1) : std::string("-"),
            nearest_published(size, gpu), std::string(gpu)}) {
        row.push_back(cell);
      }
      table.add(std::move(row));
    }
  }
  return table;
}
#endif

}  // namespace

Table bench_kda(const Settings& settings) {
  // Enough to count distinct sectors; races and the like are for the tests to find.
  setenv("LATHE_SIM_CHECK", "memcheck", 0);
  if (settings.predict || settings.instructions) setenv("LATHE_SIM_PROFILE", "1", 0);
  const auto context = apitest::make_context();
  if (!apitest::on_simulator()) {
    if (settings.predict || settings.peers || settings.instructions) {
      throw std::runtime_error(
          "--predict, --peers and --instructions count on the simulator: --device sim");
    }
    return on_gpu(context.get(), settings);
  }
  if (settings.peers) return kda_beside_peers(context.get(), settings.folder);
#ifdef LATHE_BENCH_SIM
  if (settings.predict) return predicted(context.get(), settings);
  if (settings.instructions) return instructions(context.get(), settings);
#else
  if (settings.predict || settings.instructions)
    throw std::runtime_error("--predict and --instructions need a build with the simulator");
#endif
  return on_simulator(context.get(), settings);
}

}  // namespace bench
