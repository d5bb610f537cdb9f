// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda, forward and backward. On a GPU: time of a call with nothing of it in the second cache, at
// the shapes of published figures. On the simulator: what is launched, moved and multiplied against
// the least of it; with --predict what a device would take for the published shapes at best, beside
// those figures; with --peers the bytes of flash-linear-attention's kernels, launch by launch,
// beside ours. Every case is checked before it is measured.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "bench/attn_work.h"
#include "bench/clock.h"
#include "bench/kda_call.h"
#ifdef LATHE_BENCH_SIM
#include "bench/kda_predict.h"
#endif
#include "bench/verbs.h"

namespace bench {
namespace {

constexpr size_t kCacheBytes = size_t{256} << 20;  // more than any second cache

const char* word(lathe_dtype dtype) {
  return dtype == LATHE_F32 ? "f32" : dtype == LATHE_F16 ? "f16" : "bf16";
}
std::string op_of(const KdaSize& size) { return size.backward ? "backward" : "forward"; }

std::vector<std::string> cells(const KdaSize& size) {
  return {op_of(size), size.text(), word(size.dtype)};
}

bool wanted(const KdaSize& size, const Settings& settings) {
  return (op_of(size) + " " + size.text()).find(settings.only) != std::string::npos;
}

std::vector<KdaSize> with_backward(const std::vector<KdaSize>& forward) {
  std::vector<KdaSize> sizes;
  for (KdaSize size : forward) {
    sizes.push_back(size);
    size.backward = true;
    sizes.push_back(size);
  }
  return sizes;
}

// As published, where options are not told: as given, and with all of them in the kernels.
std::vector<KdaSize> gpu_sizes() {
  std::vector<KdaSize> sizes = published_sizes();
  KdaSize few = sizes[7];  // one sequence, heads for a part of the device
  few.tokens = 65536, few.heads = 16;
  sizes.push_back(few);
  few.tokens = 1024, few.heads = 4;
  sizes.push_back(few);
  sizes.push_back(sizes[0]);
  sizes.back().fused = true;
  sizes.push_back(sizes[8]);
  sizes.back().fused = sizes.back().final_state = true;
  return with_backward(sizes);
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
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  const Clock clock(info.driver_path);
  const apitest::Memory cache(context, kCacheBytes);
  Table table({"op", "shape", "dtype", "us", "us_p10", "us_p90", "GB_per_s", "minimum_MB",
               "workspace_MB", "published", "gpu", "driver"});
  for (const KdaSize& size : gpu_sizes()) {
    if (!wanted(size, settings)) continue;
    const KdaCall call(context, size);
    call.check();
    const int samples = settings.runs > 0 ? settings.runs : 30;
    const Spread times = clock.time_cold(samples, cache, [&] { call.run(nullptr); });
    auto row = cells(size);
    for (const auto& cell : {number(times.median, 2), number(times.low, 2), number(times.high, 2),
                             number(size.minimum_bytes() / times.median / 1e3, 0),
                             number(size.minimum_bytes() / 1e6, 2),
                             number(static_cast<double>(call.workspace_bytes()) / 1e6, 2),
                             nearest_published(size, "h100"), std::string(info.device_name),
                             std::to_string(info.driver_version)}) {
      row.push_back(cell);
    }
    table.add(std::move(row));
  }
  return table;
}

// Runs under the simulator, checked, and hands back its lines about the launches.
std::vector<std::string> launches_of(const KdaCall& call) {
  apitest::take_report();
  call.check();
  const apitest::Report report = apitest::take_report();
  if (!report.findings.empty()) throw std::runtime_error(report.findings[0]);
  return report.launches;
}

Table on_simulator(lathe_context* context, const Settings& settings) {
  Table table({"op", "shape", "dtype", "launches", "tensor_Mop", "tensor_per_state",
               "tensor_per_least", "memory_MB", "minimum_MB", "memory_ratio", "cache_ratio",
               "workspace_MB", "conflicts", "local_requests"});
  for (const KdaSize& size : sim_sizes(settings.full)) {
    if (!wanted(size, settings)) continue;
    const KdaCall call(context, size);
    const AttnCounts counts = attn_counts(launches_of(call));
    const double least = size.minimum_bytes();
    auto row = cells(size);
    for (const auto& cell :
         {std::to_string(counts.launches), number(counts.tensor_ops / 1e6, 0),
          number(counts.tensor_ops / size.state_ops(), 3),
          number(counts.tensor_ops / (size.state_ops() + size.block_ops()), 3),
          number(counts.memory_bytes / 1e6, 3), number(least / 1e6, 3),
          number(counts.memory_bytes / least, 3), number(counts.asked_bytes / least, 2),
          number(static_cast<double>(call.workspace_bytes()) / 1e6, 3), number(counts.conflicts, 0),
          number(counts.local_requests, 0)}) {
      row.push_back(cell);
    }
    table.add(std::move(row));
  }
  return table;
}

#ifdef LATHE_BENCH_SIM
// What a warp issues and how long a thread block takes: for another 16 tokens where it walks, in
// all where the grid grows instead.
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

// Without counts, from the plan alone; of the device of the context.
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

// Lines of CSV without quoted cells that hold commas, but for the last of their kind.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// tests/peers/kda_bytes.py in the environment that scripts/test --peers has installed.
void add_fla(Table* table, const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path build = fs::path(folder).parent_path(), peers = build / "peers";
  const fs::path script = fs::path(LATHE_SOURCE_DIR) / "tests/peers/kda_bytes.py";
  if (!fs::exists(peers / "venv/bin/python")) {
    std::cerr << "lathe_bench: no peers in " << peers.string()
              << ": scripts/test --peers installs them; going on without\n";
    return;
  }
  const std::string sim = (build / "sim").string();
  const std::string command = "LD_LIBRARY_PATH='" + (peers / "standins").string() + ":" + sim +
                              "' TRITON_LIBCUDA_PATH='" + sim + "' '" +
                              (peers / "venv/bin/python").string() + "' '" + script.string() +
                              "' --work '" + peers.string() + "' 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no process for " + script.string());
  std::array<char, 4096> buffer{};
  bool first = true;
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) {
    std::string line = buffer.data();
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (!first) table->add(split(line));
    first = false;
  }
  if (pclose(pipe) != 0 || first) throw std::runtime_error(script.string() + " failed");
}

void add_ours(Table* table, lathe_context* context, const KdaSize& size) {
  const KdaCall call(context, size);
  double memory = 0, asked = 0, tensor = 0;
  size_t launches = 0;
  // Either in one segment, or in as many as the simulated device would be given.
  const std::string options = std::string(size.fused ? "fused" : "plain") +
                              (size.segments == 1 ? ", 1 segment" : ", segments as chosen");
  KdaSize bare = size;
  bare.fused = false, bare.segments = 0;
  const std::string shape = bare.text() + " " + word(size.dtype);
  const auto add = [&](const std::string& what, size_t count, double bytes, double sectors,
                       double ops) {
    table->add({"lathe", shape, options, op_of(size), what, std::to_string(count),
                number(bytes / 1e6, 3), number(sectors / 1e6, 3), number(ops / 1e6, 0)});
  };
  for (const std::string& line : launches_of(call)) {
    const AttnCounts one = attn_counts({line});
    lathe_kernel_info kernel{};
    kernel.size = sizeof kernel;
    API(lathe_plan_kernel(call.plan(), launches++, &kernel));  // all of them run, in this order
    add(kernel.name, 1, one.memory_bytes, one.asked_bytes, one.tensor_ops);
    memory += one.memory_bytes, asked += one.asked_bytes, tensor += one.tensor_ops;
  }
  add("total", launches, memory, asked, tensor);
  table->add({"lathe", shape, options, op_of(size), "workspace", "-",
              number(static_cast<double>(call.workspace_bytes()) / 1e6, 3), "-", "-"});
  if (size.segments == 1)
    table->add({"-", shape, size.fused ? "fused" : "plain", op_of(size), "least", "-",
                number(size.minimum_bytes() / 1e6, 3), number(size.minimum_bytes() / 1e6, 3),
                number((size.state_ops() + size.block_ops()) / 1e6, 0)});
}

// T 2048, H 4, K = V = 128, bf16: every byte counted, none scaled.
Table beside_peers(lathe_context* context, const Settings& settings) {
  Table table({"impl", "shape", "options", "pass", "what", "launches", "memory_MB", "asked_MB",
               "tensor_Mop"});
  KdaSize size;
  size.tokens = 2048, size.heads = 4;
  std::vector<KdaSize> sizes(4, size);
  sizes[0].segments = sizes[1].segments = 1;
  sizes[1].fused = sizes[3].fused = true;
  for (const KdaSize& each : with_backward(sizes)) add_ours(&table, context, each);
  add_fla(&table, settings.folder);
  return table;
}

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
  if (settings.peers) return beside_peers(context.get(), settings);
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
