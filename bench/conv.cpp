// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d at the shapes of reference causal_conv1d.md, section 9. On a GPU: time per call,
// launches back to back, against the floor of bytes and the device's own copy speed. On the
// simulator: bytes moved against the minimum. Every case is checked before it is measured.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "bench/call.h"
#include "bench/clock.h"
#include "bench/verbs.h"

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
    {Direction::update, LATHE_BF16, 256, 1, 4096, 4, 0},
    {Direction::update, LATHE_BF16, 512, 1, 4096, 4, 0},
};

std::vector<std::string> cells(const Shape& shape) {
  return {word(shape.direction), shape.text(), word(shape.dtype)};
}

Table on_gpu(lathe_context* context, const lathe_context_info& info, int runs) {
  Clock clock(info.driver_path);
  Table table({"op", "shape", "dtype", "us", "us_p10", "us_p90", "minimum_MB", "GB_per_s",
               "share_of_copy", "gpu", "driver"});
  const auto row = [&](std::vector<std::string> name, const Spread& times, double bytes,
                       double copy_rate) {
    const double rate = bytes / times.median / 1e3;
    for (const auto& cell : {number(times.median, 2), number(times.low, 2), number(times.high, 2),
                             number(bytes / 1e6, 2), number(rate, 0),
                             copy_rate > 0 ? number(rate / copy_rate, 3) : std::string("1"),
                             std::string(info.device_name), std::to_string(info.driver_version)}) {
      name.push_back(cell);
    }
    table.add(std::move(name));
    return rate;
  };
  const apitest::Memory from(context, 1ul << 29), to(context, 1ul << 29);
  const Spread copy = clock.time(runs, 4, [&] { clock.copy(to, from); });
  const double rate = row({"copy", "512 MiB", "-"}, copy, 2.0 * (1ul << 29), 0);
  for (const Shape& shape : kShapes) {
    const Call call(context, shape);
    call.check();
    const Spread times = clock.time(runs, 20, [&] { call.run(nullptr); });
    row(cells(shape), times, shape.minimum_bytes(), rate);
  }
  return table;
}

Table on_simulator(lathe_context* context, bool full) {
  Table table({"op", "shape", "dtype", "launches", "moved_MB", "minimum_MB", "ratio",
               "sectors_ratio", "warp_instructions"});
  std::set<std::string> seen;
  for (Shape shape : kShapes) {
    if (!full) {  // the ratios hardly depend on these
      shape.tokens = std::min<int64_t>(shape.tokens, 1024);
      shape.channels = std::min<int64_t>(shape.channels, 1024);
      shape.batch = std::min<int64_t>(shape.batch, 64);
    }
    if (!seen.insert(word(shape.direction) + shape.text() + word(shape.dtype)).second) continue;
    const Call call(context, shape);
    call.check();
    apitest::take_report();
    call.run(nullptr);
    API(lathe_stream_synchronize(context, nullptr));
    const auto report = apitest::take_report();
    if (!report.findings.empty()) throw std::runtime_error(report.findings[0]);
    double sectors = 0, least = 0, instructions = 0;
    for (const auto& line : report.launches) {
      const auto launch = nlohmann::json::parse(line);
      for (const char* kind : {"global_load", "global_store", "global_atomic"}) {
        sectors += launch.at(std::string(kind) + "_sectors").get<double>();
        least += launch.at(std::string(kind) + "_minimum_sectors").get<double>();
      }
      instructions += launch.at("warp_instructions").get<double>();
    }
    auto row = cells(shape);
    for (const auto& cell :
         {std::to_string(report.launches.size()), number(32 * sectors / 1e6, 3),
          number(shape.minimum_bytes() / 1e6, 3), number(32 * sectors / shape.minimum_bytes(), 3),
          number(sectors / least, 3), number(instructions, 0)}) {
      row.push_back(cell);
    }
    table.add(std::move(row));
  }
  return table;
}

}  // namespace

Table bench_conv(const Settings& settings) {
  const auto context = apitest::make_context();
  if (apitest::on_simulator()) return on_simulator(context.get(), settings.full);
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context.get(), &info));
  return on_gpu(context.get(), info, settings.runs > 0 ? settings.runs : 50);
}

}  // namespace bench
