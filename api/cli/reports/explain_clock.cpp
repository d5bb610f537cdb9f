// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file reports the clock's times of a call: its launches, replayed kernel by kernel.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "api/cli/reports/explained.h"

namespace lathe::cli {
namespace {

constexpr size_t kShown = 5;  // reasons, resources and lines that people get to see
constexpr double kWorthTelling = 0.03;

double number(const Json& object, const char* name) { return object.at(name).get<double>(); }
std::string word(const Json& object, const char* name) {
  return object.at(name).get<std::string>();
}

// Launches of one kernel are summed; of the longest everything is kept.
void add_launch(Json* kernels, const Json& launch, const std::string& name, size_t index) {
  for (Json& kernel : *kernels) {
    if (kernel.at("kernel").get<size_t>() != index) continue;
    const int64_t launches = kernel.at("launches").get<int64_t>() + 1;
    const double sum = number(kernel, "microseconds_of_all") + number(launch, "microseconds");
    if (number(launch, "microseconds") > number(kernel, "microseconds")) kernel.update(launch);
    kernel["kernel"] = index;
    kernel["name"] = name;
    kernel["launches"] = launches;
    kernel["microseconds_of_all"] = sum;
    return;
  }
  Json kernel = launch;
  kernel["kernel"] = index;
  kernel["name"] = name;
  kernel["launches"] = 1;
  kernel["microseconds_of_all"] = launch.at("microseconds");
  kernels->push_back(std::move(kernel));
}

// Returns the largest members of an object of shares, as "barrier 22 %, wait 20 %".
std::string largest(const Json& shares, const char* but) {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, share] : shares.items()) {
    if (name != but && share.get<double>() >= kWorthTelling) {
      order.emplace_back(-share.get<double>(), name);
    }
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kShown) order.resize(kShown);
  std::string out;
  for (const auto& [share, name] : order) {
    out += formatted("%s%s %.0f %%", out.empty() ? "" : ", ", name.c_str(), -100 * share);
  }
  return out;
}

void print_lines(const Json& kernel) {
  double all = 0;
  for (const Json& line : kernel.at("lines")) all += number(line, "cycles");
  size_t shown = 0;
  for (const Json& line : kernel.at("lines")) {
    if (shown++ == kShown) break;
    const std::string source = word(line, line.contains("called_from") ? "called_from" : "source");
    std::printf("  %-15s %s  %s: %s\n", shown == 1 ? "most time at" : "",
                source.empty() ? formatted("PTX line %d", line.at("ptx_line").get<int>()).c_str()
                               : source.c_str(),
                word(line, "text").substr(0, 40).c_str(), largest(line.at("stalls"), "").c_str());
  }
}

// One line where all warps do the same.
void print_roles(const Json& kernel) {
  for (const Json& role : kernel.at("roles")) {
    const int first = role.at("first_warp").get<int>(), last = role.at("last_warp").get<int>();
    std::string round;
    if (number(role, "period_cycles") > 0) {
      round = formatted("a round of %.0f cycles; ", number(role, "period_cycles"));
    }
    std::printf("  %-15s warps %d to %d: %swaits for %s\n", word(role, "name").c_str(), first, last,
                round.c_str(), largest(role.at("stalls"), "selected").c_str());
  }
}

}  // namespace

Json clock_json(const lathe_plan* plan, const Json& launches, const std::string& gpu) {
  const std::vector<std::string> digests = digests_of(plan);
  Json kernels = Json::array();
  double work = 0, start = 0, operations = 0, bytes = 0;
  bool machine_code = true;
  for (const Json& launch : launches) {
    const auto found = std::find(digests.begin(), digests.end(), word(launch, "module"));
    if (found == digests.end()) return nullptr;
    const auto index = static_cast<size_t>(found - digests.begin());
    add_launch(&kernels, launch, kernel_info(plan, index).name, index);
    work += number(launch, "microseconds");
    start += number(launch, "launch_microseconds");
    operations += number(launch, "tflop_per_s") * number(launch, "microseconds");
    bytes += number(launch, "gigabytes_per_s") * number(launch, "microseconds");
    machine_code &= launch.at("from") == "sass";
  }
  if (kernels.empty()) return nullptr;
  const auto longest =
      std::max_element(kernels.begin(), kernels.end(), [](const Json& a, const Json& b) {
        return number(a, "microseconds_of_all") < number(b, "microseconds_of_all");
      });
  const double all = work + start;
  return {{"gpu", gpu},
          {"microseconds", all},
          {"launch_microseconds", start},
          {"tflop_per_s", operations / all},
          {"gigabytes_per_s", bytes / all},
          {"bound", start > work ? "launch" : longest->at("bound")},
          {"from", machine_code ? "sass" : "ptx"},
          {"kernels", std::move(kernels)}};
}

void print_clock_details(const Json& kernel) {
  const bool machine_code = kernel.at("from") == "sass";
  std::printf("  replayed from   %s (%s)\n", machine_code ? "machine code" : "PTX",
              word(kernel, "made_by").c_str());
  std::printf(
      "  blocks          %d on a multiprocessor, %.1f for each place, %.0f %% of the time "
      "with places empty\n",
      kernel.at("resident_blocks").get<int>(), number(kernel, "waves"),
      100 * number(kernel, "tail"));
  if (kernel.value("waits_left_out", 0) != 0) {
    std::printf("  left out        what blocks wait for one another\n");
  }
  std::printf("  busiest         %s\n", largest(kernel.at("use"), "").c_str());
  print_roles(kernel);
  print_lines(kernel);
}

void print_clock_times(const Json& clock) {
  std::vector<Row> rows = {{"us, by the clock", "longest", "all", "TFLOP/s", "GB/s", "bound"}};
  for (const Json& kernel : clock.at("kernels")) {
    rows.push_back({word(kernel, "name") + " x" + kernel.at("launches").dump(),
                    formatted("%.2f", number(kernel, "microseconds")),
                    formatted("%.2f", number(kernel, "microseconds_of_all")),
                    formatted("%.0f", number(kernel, "tflop_per_s")),
                    formatted("%.0f", number(kernel, "gigabytes_per_s")),
                    resource_word(word(kernel, "bound"))});
  }
  rows.push_back({"starting kernels", "", formatted("%.2f", number(clock, "launch_microseconds")),
                  "", "", ""});
  print_table(rows);
}

void print_clock(const Json& clock) {
  for (const Json& kernel : clock.at("kernels")) {
    std::printf("\n%s x%d on %s  %.2f us at %.2f GHz\n", word(kernel, "name").c_str(),
                kernel.at("launches").get<int>(), word(clock, "gpu").c_str(),
                number(kernel, "microseconds"), number(kernel, "clock_hz") / 1e9);
    print_clock_details(kernel);
  }
}

}  // namespace lathe::cli
