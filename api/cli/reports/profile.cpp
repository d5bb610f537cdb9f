// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

namespace lathe::cli {
namespace {

using Json = nlohmann::json;

constexpr const char* kCounts[] = {
    "executions",      "thread_instructions", "global_requests",   "global_bytes", "global_sectors",
    "shared_requests", "shared_bytes",        "shared_wavefronts", "tensor_ops",   "barrier_waits"};

uint64_t number(const Json& entry, const char* name) { return entry.value(name, uint64_t{0}); }

// Kernels share the name of their entry point, so a line is told by its text and place as well.
using Place = std::tuple<std::string, std::string, int, std::string>;

Place place_of(const std::string& kernel, const Json& line) {
  return {kernel, line.value("source", ""), line.value("ptx_line", 0), line.value("text", "")};
}

std::string launch_shape(const Json& launch) {
  const Json grid = launch.value("grid", Json::array()),
             block = launch.value("block", Json::array());
  return grid.dump() + " x " + block.dump();
}

}  // namespace

Json profile_of(const Json& launches, size_t most) {
  std::map<Place, Json> lines;
  Json predicted = Json::array();
  for (const Json& launch : launches) {
    const std::string kernel = launch.value("kernel", "");
    if (launch.contains("predicted")) {
      Json each = launch["predicted"];
      each["kernel"] = kernel;
      each["shape"] = launch_shape(launch);
      predicted.push_back(std::move(each));
    }
    for (const Json& line : launch.value("lines", Json::array())) {
      Json& sum = lines.emplace(place_of(kernel, line), line).first->second;
      if (sum.contains("kernel")) {
        for (const char* name : kCounts) sum[name] = number(sum, name) + number(line, name);
      }
      sum["kernel"] = kernel;
    }
  }
  std::vector<Json> sorted;
  uint64_t all = 0;
  for (auto& [place, line] : lines) {
    all += number(line, "executions");
    sorted.push_back(std::move(line));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Json& a, const Json& b) {
    return number(a, "executions") > number(b, "executions");
  });
  if (sorted.size() > most) sorted.resize(most);
  for (Json& line : sorted) {
    const double share = static_cast<double>(number(line, "executions"));
    line["share"] = all == 0 ? 0.0 : share / static_cast<double>(all);
  }
  return {{"launches", launches.size()},
          {"warp_instructions", all},
          {"predicted", std::move(predicted)},
          {"lines", std::move(sorted)}};
}

void print_profile(const Json& profile) {
  for (const Json& each : profile["predicted"]) {
    std::printf("%s %s: at best %.2f us on %s (%llu cycles), bound: %s\n",
                each.value("kernel", "").c_str(), each.value("shape", "").c_str(),
                each.value("seconds", 0.0) * 1e6, each.value("gpu", "").c_str(),
                static_cast<unsigned long long>(number(each, "cycles")),
                each.value("bound", "").c_str());
  }
  std::printf("%6s %12s %12s %12s %14s  %s\n", "share", "executions", "sectors", "wavefronts",
              "tensor ops", "line");
  for (const Json& line : profile["lines"]) {
    const std::string source = line.value("source", "");
    std::printf("%5.1f%% %12llu %12llu %12llu %14llu  %d: %s%s%s\n", 100 * line.value("share", 0.0),
                static_cast<unsigned long long>(number(line, "executions")),
                static_cast<unsigned long long>(number(line, "global_sectors")),
                static_cast<unsigned long long>(number(line, "shared_wavefronts")),
                static_cast<unsigned long long>(number(line, "tensor_ops")),
                line.value("ptx_line", 0), line.value("text", "").c_str(),
                source.empty() ? "" : "  ", source.c_str());
  }
}

}  // namespace lathe::cli
