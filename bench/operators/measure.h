// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the frame of an operator's bench: a table of timed calls on a GPU, and one of counted calls
// on the simulator.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "bench/operators/cases.h"
#include "bench/verbs.h"

namespace bench {

using Cells = std::vector<std::string>;

inline Cells joined(Cells row, const Cells& more) {
  row.insert(row.end(), more.begin(), more.end());
  return row;
}
// Returns the cells as the name of a case.
std::string case_name(const Cells& cells);

// Returns each size, and its backward behind it.
template <class Size>
std::vector<Size> with_backward(const std::vector<Size>& forward) {
  std::vector<Size> sizes;
  for (Size size : forward) {
    sizes.push_back(size);
    size.backward = true;
    sizes.push_back(size);
  }
  return sizes;
}

// A kernel's tile: its constants m and n, and its warps.
struct Tile {
  int64_t rows = 0, keys = 0, warps = 0;
  std::string spec;
  std::string text() const {
    return std::to_string(rows) + "x" + std::to_string(keys) + "/" + std::to_string(warps);
  }
};
// The first kernel of the plan that has one.
std::optional<Tile> first_tile(const lathe_plan* plan);

// Returns the family of the kernel that a plan is for: "sm90" or "portable".
std::string family_of(const lathe_plan* plan);

// Returns the simulator's lines about a call that is checked in so many samples.
template <class Call>
std::vector<std::string> counted_launches(const Call& call, int samples) {
  return apitest::counted_launches([&] { call.check(samples); });  // it runs once
}

// Says how an operator's sizes are named and measured.
template <class Size>
struct Measured {
  Cells names, results;  // the columns of `cells`, and those of a measurement
  Cells (*cells)(const Size&);
  std::vector<Size> sizes;
};

// Times each call, which is checked in so many samples first, with nothing of it in the second
// cache. `result` is given the median and makes the cells behind the times.
template <class Call, class Size>
Table time_calls(lathe_context* context, const Settings& settings, const Measured<Size>& of,
                 int checked,
                 const std::function<Cells(const Size&, const Call&, double)>& result) {
  constexpr size_t kCacheBytes = size_t{256} << 20;  // more than any second cache
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  const Clock clock(info.driver_path);
  const apitest::Memory cache(context, kCacheBytes);
  const Cells device = {info.device_name, std::to_string(info.driver_version)};
  Table table(
      joined(joined(of.names, {"us", "us_p10", "us_p90"}), joined(of.results, {"gpu", "driver"})));
  Cases cases(settings, &table);
  for (const Size& size : of.sizes) {
    cases.run(case_name(of.cells(size)), [&] {
      const Call call(context, size);
      call.check(checked);
      const int samples = settings.runs > 0 ? settings.runs : 30;
      const Spread times = clock.time_cold(samples, cache, [&] { call.run(nullptr); });
      const Cells row = joined(
          of.cells(size), {number(times.median, 2), number(times.low, 2), number(times.high, 2)});
      return joined(joined(row, result(size, call, times.median)), device);
    });
  }
  return table;
}

// Counts each call on the simulator.
template <class Size>
Table count_calls(const Settings& settings, const Measured<Size>& of,
                  const std::function<Cells(const Size&)>& count) {
  Table table(joined(of.names, of.results));
  Cases cases(settings, &table);
  for (const Size& size : of.sizes) {
    cases.run(case_name(of.cells(size)), [&] { return joined(of.cells(size), count(size)); });
  }
  return table;
}

// Makes the table of the device that there is.
using OnDevice = Table (*)(lathe_context* context, const Settings& settings);
Table measure(const Settings& settings, OnDevice on_simulator, OnDevice on_gpu);

}  // namespace bench
