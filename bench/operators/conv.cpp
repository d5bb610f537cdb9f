// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures causal_conv1d at shapes of models and of its peers' benches. On a GPU: time per
// call, launches back to back, against the floor of bytes and the device's own copy speed. On the
// simulator: bytes moved against the minimum. Every case is checked before it is measured.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "bench/operators/attn_work.h"
#include "bench/operators/call.h"
#include "bench/operators/measure.h"

namespace bench {
namespace {

const Shape kShapes[] = {
    {Direction::forward, LATHE_BF16, 1, 8192, 12288, 4, 0},
    {Direction::backward, LATHE_BF16, 1, 8192, 12288, 4, 0},
    {Direction::forward, LATHE_BF16, 1, 8192, 4096, 4, 0},
    {Direction::backward, LATHE_BF16, 1, 8192, 4096, 4, 0},
    {Direction::forward, LATHE_BF16, 1, 8192, 4096, 4, 16},
    {Direction::backward, LATHE_BF16, 1, 8192, 4096, 4, 16},
    {Direction::forward, LATHE_F16, 1, 2048, 2048, 3, 0},
    {Direction::forward, LATHE_BF16, 1, 4096, 2048, 4, 0},
    {Direction::forward, LATHE_BF16, 1, 4096, 4096, 4, 0},
    {Direction::forward, LATHE_F32, 1, 4096, 4096, 4, 0},
    {Direction::forward, LATHE_BF16, 4, 8192, 4096, 4, 0},
    {Direction::backward, LATHE_BF16, 4, 8192, 4096, 4, 0},
    {Direction::update, LATHE_BF16, 256, 1, 4096, 4, 0},
    {Direction::update, LATHE_BF16, 512, 1, 4096, 4, 0},
};

const Shape kTinyShapes[] = {
    {Direction::forward, LATHE_BF16, 1, 300, 256, 4, 0},
    {Direction::backward, LATHE_BF16, 1, 300, 256, 4, 0},
    {Direction::forward, LATHE_F32, 1, 300, 136, 3, 3},
    {Direction::update, LATHE_F16, 4, 1, 256, 4, 0},
};

std::vector<Shape> shapes(const Settings& settings) {
  if (settings.tiny) return {std::begin(kTinyShapes), std::end(kTinyShapes)};
  return {std::begin(kShapes), std::end(kShapes)};
}

Cells cells(const Shape& shape) { return {word(shape.direction), shape.text(), word(shape.dtype)}; }

Table on_gpu(lathe_context* context, const lathe_context_info& info, const Settings& settings) {
  Clock clock(info.driver_path);
  const int runs = settings.runs > 0 ? settings.runs : 50;
  Table table({"op", "shape", "dtype", "us", "us_p10", "us_p90", "minimum_MB", "GB_per_s",
               "share_of_copy", "gpu", "driver"});
  const auto row = [&](std::vector<std::string> name, const Spread& times, double bytes,
                       double copy_rate) {
    const double rate = bytes / times.median / 1e3;
    for (const auto& cell : {number(times.median, 2), number(times.low, 2), number(times.high, 2),
                             number(bytes / 1e6, 2), number(rate, 0), number(rate / copy_rate, 3),
                             std::string(info.device_name), std::to_string(info.driver_version)}) {
      name.push_back(cell);
    }
    return name;
  };
  const apitest::Memory from(context, 1ul << 29), to(context, 1ul << 29);
  const double bytes = 2.0 * (1ul << 29);
  const Spread copy = clock.time(runs, 4, [&] { clock.copy(to, from); });
  const double rate = bytes / copy.median / 1e3;
  Cases cases(settings, &table);
  cases.run("copy 512 MiB -", [&] { return row({"copy", "512 MiB", "-"}, copy, bytes, rate); });
  for (const Shape& shape : shapes(settings)) {
    cases.run(case_name(cells(shape)), [&] {
      const Call call(context, shape);
      call.check();
      const Spread times = clock.time(runs, 20, [&] { call.run(nullptr); });
      return row(cells(shape), times, shape.minimum_bytes(), rate);
    });
  }
  return table;
}

std::vector<std::string> counted(lathe_context* context, const Shape& shape) {
  const Call call(context, shape);
  call.check();
  const auto launches = apitest::counted_launches([&] {
    call.run(nullptr);
    API(lathe_stream_synchronize(context, nullptr));
  });
  double sectors = 0, least = 0;
  for (const auto& line : launches) {
    const auto launch = nlohmann::json::parse(line);
    for (const char* kind : {"global_load", "global_store", "global_atomic"}) {
      sectors += launch.at(std::string(kind) + "_sectors").get<double>();
      least += launch.at(std::string(kind) + "_minimum_sectors").get<double>();
    }
  }
  const AttnCounts counts = attn_counts(launches);
  auto row = cells(shape);
  for (const auto& cell :
       {std::to_string(launches.size()), number(32 * sectors / 1e6, 3),
        number(shape.minimum_bytes() / 1e6, 3), number(32 * sectors / shape.minimum_bytes(), 3),
        number(sectors / least, 3), number(counts.warp_instructions, 0)}) {
    row.push_back(cell);
  }
  return row;
}

Table on_simulator(lathe_context* context, const Settings& settings) {
  Table table({"op", "shape", "dtype", "launches", "moved_MB", "minimum_MB", "ratio",
               "sectors_ratio", "warp_instructions"});
  std::set<std::string> seen;
  Cases cases(settings, &table);
  for (Shape shape : shapes(settings)) {
    if (!settings.full) {  // the ratios hardly depend on these
      shape.tokens = std::min<int64_t>(shape.tokens, 1024);
      shape.channels = std::min<int64_t>(shape.channels, 1024);
      shape.batch = std::min<int64_t>(shape.batch, 64);
    }
    if (!seen.insert(case_name(cells(shape))).second) continue;
    cases.run(case_name(cells(shape)), [&] { return counted(context, shape); });
  }
  return table;
}

}  // namespace

Table bench_conv(const Settings& settings) {
  const auto context = apitest::make_context();
  if (apitest::on_simulator()) return on_simulator(context.get(), settings);
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context.get(), &info));
  return on_gpu(context.get(), info, settings);
}

}  // namespace bench
