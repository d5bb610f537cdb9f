// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/warm_report.h"

#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "api/cli/options.h"

namespace lathe::cli {
namespace {

constexpr double kSecondsBetweenLines = 10;

lathe_warming_item_info item_of(const lathe_warming* warming, size_t index) {
  return told<lathe_warming_item_info>(lathe_warming_item, warming, index);
}

Json line_json(const WarmLine& line, const lathe_warming_item_info& item) {
  Json out = {{"line", line.number}, {"op", item.op},           {"arch", item.arch},
              {"gpu", nullptr},      {"kernels", item.kernels}, {"compiled", item.compiled},
              {"hits", item.hits},   {"shared", item.shared},   {"failed", item.failed},
              {"left", item.left},   {"ms", item.milliseconds}};
  if (!line.target->gpu.empty()) out["gpu"] = line.target->gpu;
  if (item.status != LATHE_OK) out["error"] = item.error;
  return out;
}

void print_line(const WarmLine& line, const lathe_warming_item_info& item) {
  std::printf("line %-4zu %-25s %-15s %3llu compiled  %3llu found  %3llu shared  %3llu failed",
              line.number, item.op, line.target->word().c_str(), llu(item.compiled),
              llu(item.hits), llu(item.shared), llu(item.failed));
  if (item.left > 0) std::printf("  %3llu left", llu(item.left));
  std::printf("  %8.1f ms\n", item.milliseconds);
}

}  // namespace

double seconds_left(double spent, size_t done, size_t total, size_t compiled) {
  const size_t counted = compiled > 0 ? compiled : done;
  if (counted == 0) return -1;
  return spent / static_cast<double>(counted) * static_cast<double>(total - done);
}

WarmProgress::WarmProgress()
    : lines_(!isatty(STDERR_FILENO)), start_(std::chrono::steady_clock::now()) {}

void WarmProgress::count(size_t done, size_t total, size_t compiled) {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  const double left = seconds_left(spent.count(), done, total, compiled);
  bar_.count(done, total, left);
  if (!lines_ || spent.count() - told_ < kSecondsBetweenLines || done == total) return;
  told_ = spent.count();
  char seconds[32] = "";
  if (left >= 0) std::snprintf(seconds, sizeof seconds, ", %.0f s left", left);
  say("warming: " + std::to_string(done) + " of " + std::to_string(total) + " kernels, " +
      std::to_string(compiled) + " compiled" + seconds);
}

WarmTotals totals_of(const lathe_warming* warming) {
  WarmTotals out;
  out.kernels = lathe_warming_kernel_count(warming);
  for (size_t i = 0; i < out.kernels; ++i) {
    const auto kernel = told<lathe_warming_kernel_info>(lathe_warming_kernel, warming, i);
    const std::string_view from = kernel.from;
    if (kernel.status != LATHE_OK) continue;
    ++(from.empty() ? out.left : from == "compiler" ? out.compiled : out.hits);
  }
  return out;
}

void report_warming(const lathe_warming* warming, const std::vector<WarmLine>& lines,
                    const WarmBundle& bundle, bool json) {
  const WarmTotals totals = totals_of(warming);
  Json all = Json::array(), errors = Json::array();
  for (size_t i = 0; i < lines.size(); ++i) {
    const lathe_warming_item_info item = item_of(warming, i);
    const WarmLine& line = lines[i];
    all.push_back(line_json(line, item));
    if (!json) print_line(line, item);
    if (item.status == LATHE_OK) continue;
    say("line " + std::to_string(line.number) + " for " + line.target->word() + ": " + item.error);
    errors.push_back({{"line", line.number}, {"arch", item.arch}, {"error", item.error}});
  }
  if (json) {
    Json out = {{"kernels", totals.kernels}, {"compiled", totals.compiled}, {"hits", totals.hits},
                {"failed", errors.size()},   {"left", totals.left},         {"lines", all},
                {"errors", errors}};
    if (!bundle.path.empty()) out["bundle"] = bundle.report;
    print_json(out);
    return;
  }
  std::printf("%zu lines, %llu kernels: %llu compiled, %llu found in the cache; %zu lines failed\n",
              lines.size(), llu(totals.kernels), llu(totals.compiled), llu(totals.hits),
              errors.size());
  if (bundle.path.empty()) return;
  std::printf("bundle %s: %s entries, %s bytes\n", bundle.path.c_str(),
              bundle.report["entries"].dump().c_str(), bundle.report["bytes"].dump().c_str());
}

}  // namespace lathe::cli
