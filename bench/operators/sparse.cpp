// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention at the shapes of absorbed latent attention: one key head of 512 columns
// that are the values too and 64 rotary ones, 128, 64 and 16 query heads, lists of 512 to 2048
// keys. On a GPU: time of a call, in operations as FlashMLA counts them. On the simulator, at fewer
// rows: what is multiplied and read against what must be, and the time that its model of the device
// predicts for so few. Every case is checked before it is measured.
#include <cstdlib>
#include <stdexcept>

#include "bench/clock.h"
#include "bench/operators/attn_work.h"
#include "bench/operators/cases.h"
#include "bench/operators/sparse_call.h"
#include "bench/verbs.h"

namespace bench {
namespace {

constexpr size_t kCacheBytes = size_t{256} << 20;  // more than any second cache

SparseSize latent(int64_t rows, int64_t keys, int64_t heads, int64_t topk) {
  SparseSize size;
  size.rows = rows, size.keys = keys, size.heads = heads, size.topk = topk;
  return size;
}

// Each backward behind its forward, and the first of them deterministic.
std::vector<SparseSize> with_backward(const std::vector<SparseSize>& forward) {
  std::vector<SparseSize> sizes;
  for (SparseSize size : forward) {
    sizes.push_back(size);
    size.backward = true;
    sizes.push_back(size);
  }
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
  return with_backward(sizes);
}

// Those that some blocks of a grid can stand for: the deterministic backward follows lists that its
// own kernels sort, and what blocks that did not run would have sorted is not there.
std::vector<SparseSize> predicted_sizes() {
  std::vector<SparseSize> sizes = gpu_sizes();
  std::erase_if(sizes, [](const SparseSize& size) { return size.deterministic; });
  return sizes;
}

std::vector<SparseSize> tiny_sizes() {
  SparseSize split = latent(4, 128, 16, 48);
  split.latent = false;
  split.head_dim = split.value_dim = 64, split.rope_dim = 16;
  return with_backward({split});
}

std::vector<SparseSize> sim_sizes(bool full) {
  const int64_t rows = full ? 64 : 8, keys = full ? 8192 : 1024, topk = full ? 2048 : 512;
  std::vector<SparseSize> sizes = {latent(rows, keys, 128, topk), latent(rows, keys, 64, topk),
                                   latent(rows, keys, 16, topk)};
  sizes.push_back(latent(rows, keys, 64, topk));
  sizes.back().latent = false;
  sizes.back().head_dim = sizes.back().value_dim = 128;
  return with_backward(sizes);
}

std::vector<std::string> cells(const SparseSize& size) {
  return {size.backward ? "backward" : "forward", size.text()};
}
std::string name_of(const SparseSize& size) { return cells(size)[0] + " " + size.text(); }

Table on_gpu(lathe_context* context, const Settings& settings) {
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  const Clock clock(info.driver_path);
  const apitest::Memory cache(context, kCacheBytes);
  Table table({"op", "shape", "us", "us_p10", "us_p90", "TFLOP_per_s", "listed_GB_per_s",
               "minimum_MB", "estimate_us", "gpu", "driver"});
  Cases cases(settings, &table);
  for (const SparseSize& size : settings.tiny ? tiny_sizes() : gpu_sizes()) {
    cases.run(name_of(size), [&] {
      const SparseCall call(context, size);
      call.check(4);
      const int samples = settings.runs > 0 ? settings.runs : 30;
      const Spread times = clock.time_cold(samples, cache, [&] { call.run(nullptr); });
      auto row = cells(size);
      for (const auto& cell :
           {number(times.median, 2), number(times.low, 2), number(times.high, 2),
            number(size.flops() / times.median / 1e6, 1),
            number(size.listed_bytes() / times.median / 1e3, 0),
            number(size.minimum_bytes() / 1e6, 2), number(call.estimate().microseconds, 2),
            std::string(info.device_name), std::to_string(info.driver_version)}) {
        row.push_back(cell);
      }
      return row;
    });
  }
  return table;
}

// Heads and keys of a block's products, and its warps.
std::string tile_of(const SparseCall& call) {
  for (size_t i = 0; i < lathe_plan_kernel_count(call.plan()); ++i) {
    lathe_kernel_info kernel{};
    kernel.size = sizeof kernel;
    API(lathe_plan_kernel(call.plan(), i, &kernel));
    const auto heads = spec_constant(kernel.spec, "m"), keys = spec_constant(kernel.spec, "n");
    if (!heads || !keys) continue;
    return std::to_string(*heads) + "x" + std::to_string(*keys) + "/" +
           std::to_string(kernel.threads / 32);
  }
  throw std::runtime_error("no kernel has a tile");
}

std::vector<std::string> counted(lathe_context* context, const SparseSize& size, bool sampled) {
  const SparseCall call(context, size);
  apitest::take_report();
  if (sampled) {
    call.run(nullptr);
    API(lathe_stream_synchronize(context, nullptr));
  } else {
    call.check(4);  // runs it once
  }
  const auto report = apitest::take_report();
  if (!report.findings.empty()) throw std::runtime_error(report.findings[0]);
  const AttnCounts counts = attn_counts(report.launches);
  auto row = cells(size);
  for (const auto& cell :
       {tile_of(call), std::to_string(counts.launches), number(counts.tensor_ops / size.flops(), 3),
        number(counts.asked_bytes / size.listed_bytes(), 2), number(counts.memory_bytes / 1e6, 3),
        number(size.minimum_bytes() / 1e6, 3), number(counts.conflicts, 0),
        number(counts.local_requests, 0), number(counts.seconds * 1e6, 2), counts.bound,
        counts.gpu}) {
    row.push_back(cell);
  }
  return row;
}

Table on_simulator(lathe_context* context, const Settings& settings) {
  Table table({"op", "shape", "tile", "launches", "tensor_per_listed", "asked_per_listed",
               "memory_MB", "minimum_MB", "conflicts", "local_requests", "predicted_us",
               "predicted_bound", "predicted_gpu"});
  Cases cases(settings, &table);
  for (const SparseSize& size : settings.tiny      ? tiny_sizes()
                                : settings.predict ? predicted_sizes()
                                                   : sim_sizes(settings.full)) {
    cases.run(name_of(size), [&] { return counted(context, size, settings.predict); });
  }
  return table;
}

}  // namespace

Table bench_sparse(const Settings& settings) {
  // Enough to count distinct sectors; races and the like are for the tests to find.
  setenv("LATHE_SIM_CHECK", "memcheck", 0);
  if (settings.predict) sample_blocks();
  const auto context = apitest::make_context();
  return apitest::on_simulator() ? on_simulator(context.get(), settings)
                                 : on_gpu(context.get(), settings);
}

}  // namespace bench
