// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe warm`: compiles a manifest of problems into the cache, on a machine that needs no GPU.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "api/cli/interrupt.h"
#include "api/cli/manifest.h"
#include "api/cli/options.h"
#include "api/cli/output.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/report.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

// Whom kernels are made for.
struct WarmTarget {
  std::string arch, gpu;  // gpu "": what stands for the architecture
  Context context;

  std::string word() const { return gpu.empty() ? arch : gpu + " (" + arch + ")"; }
};

// A line of the manifest for one target: an item of the warming, in the same order.
struct WarmLine {
  size_t number = 0;
  const WarmTarget* target = nullptr;
};

// Holds what was packed, if anything.
struct WarmBundle {
  std::string path;
  Json report;
};

struct WarmTotals {
  uint64_t kernels = 0, compiled = 0, hits = 0, left = 0;
};

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
              line.number, item.op, line.target->word().c_str(), llu(item.compiled), llu(item.hits),
              llu(item.shared), llu(item.failed));
  if (item.left > 0) std::printf("  %3llu left", llu(item.left));
  std::printf("  %8.1f ms\n", item.milliseconds);
}

// Estimates the seconds left from the time that compiles have taken so far; kernels that were found
// took none.
double seconds_left(double spent, size_t done, size_t total, size_t compiled) {
  const size_t counted = compiled > 0 ? compiled : done;
  if (counted == 0) return -1;
  return spent / static_cast<double>(counted) * static_cast<double>(total - done);
}

// Shows a bar on a terminal, elsewhere a line now and then.
class WarmProgress {
 public:
  void count(size_t done, size_t total, size_t compiled) {
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

 private:
  Progress bar_{"warming"};
  const bool lines_ = !isatty(STDERR_FILENO);
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double told_ = 0;
};

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

// Reports failures on standard error, the rest on standard output.
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

struct WarmOptions {
  std::string manifest, arch, gpu, cache_dir, jobs, bundle;
  bool json = false;
};

WarmTarget open_target(const std::string& arch, const std::string& gpu,
                       const std::string& cache_dir) {
  WarmTarget target;
  target.gpu = gpu;
  target.context = open_context({"none", gpu.empty() ? arch : gpu, cache_dir});
  const lathe_context_info about = context_info(target.context.get());
  target.arch = about.arch;
  if (about.cache_dir[0] == '\0') {
    fail("there is no cache to warm: " + std::string(about.cache_problem));
  }
  return target;
}

// GPUs by name, and the architectures that none of them has.
std::vector<WarmTarget> open_targets(const WarmOptions& options) {
  if (options.arch.empty() && options.gpu.empty()) {
    refuse("neither --arch nor --gpu is given, such as --arch sm_80,sm_90a or --gpu h100,a100");
  }
  std::vector<std::string> archs;
  if (!options.arch.empty()) archs = split(options.arch, ',');
  std::vector<WarmTarget> targets;
  std::vector<std::string> served;
  if (!options.gpu.empty()) {
    for (const std::string& gpu : split(options.gpu, ',')) {
      if (gpu.starts_with("sm_")) {
        refuse("--gpu is " + in_quotes(gpu) + ", expected a GPU's name, such as h100; " +
               "architectures are named by --arch");
      }
      targets.push_back(open_target("", gpu, options.cache_dir));
      const std::string& arch = served.emplace_back(targets.back().arch);
      if (archs.empty() || std::find(archs.begin(), archs.end(), arch) != archs.end()) continue;
      refuse("--gpu " + in_quotes(gpu) + " runs " + arch + ", which is not in --arch " +
             in_quotes(options.arch));
    }
  }
  for (const std::string& arch : archs) {
    if (std::find(served.begin(), served.end(), arch) != served.end()) continue;
    targets.push_back(open_target(arch, "", options.cache_dir));
  }
  return targets;
}

// True if every line has all its kernels.
bool all_there(const lathe_warming* warming) {
  for (size_t i = 0; i < lathe_warming_item_count(warming); ++i) {
    const auto item = told<lathe_warming_item_info>(lathe_warming_item, warming, i);
    if (item.status != LATHE_OK || item.left > 0) return false;
  }
  return true;
}

// The kernels of the manifest, wherever they were found, and nothing else.
WarmBundle pack(const lathe_warming* warming, lathe_context* context, const std::string& path) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < lathe_warming_kernel_count(warming); ++i) {
    keys.emplace_back(told<lathe_warming_kernel_info>(lathe_warming_kernel, warming, i).key);
  }
  const std::vector<const char*> names = pointers(keys);
  const auto report = told<lathe_bundle_report>(lathe_cache_pack, context, path.c_str(),
                                                names.data(), names.size());
  return {path, {{"path", path}, {"entries", report.entries}, {"bytes", report.bytes}}};
}

struct WarmWatch {
  WarmProgress* progress;
  const Interrupt* interrupt;
};

int count_kernel(void* user, size_t done, size_t total, size_t compiled) {
  const WarmWatch& watch = *static_cast<WarmWatch*>(user);
  watch.progress->count(done, total, compiled);
  return watch.interrupt->asked();
}

int warm(const WarmOptions& options) {
  const int jobs =
      options.jobs.empty() ? 0 : static_cast<int>(parse_int("--jobs", options.jobs, 1, 1024));
  const std::vector<ManifestLine> manifest = read_manifest(options.manifest);
  if (manifest.empty() && !options.bundle.empty()) {
    refuse("manifest " + in_quotes(options.manifest) +
           " has no problem, so there is nothing for --bundle");
  }
  if (!options.bundle.empty()) check_output("--bundle", options.bundle);
  const Interrupt interrupt;
  const std::vector<WarmTarget> targets = open_targets(options);
  const Warming warming = made<Warming>(lathe_warming_create);
  std::vector<WarmLine> lines;
  for (const WarmTarget& target : targets) {
    for (const ManifestLine& line : manifest) {
      // A problem that it cannot choose kernels for is an item that the report tells of.
      (void)lathe_warming_add(warming.get(), target.context.get(), line.problem.get());
      lines.push_back({line.number, &target});
    }
  }
  {
    WarmProgress progress;
    WarmWatch watch = {&progress, &interrupt};
    (void)lathe_warming_run(warming.get(), jobs, count_kernel, &watch);
  }
  const bool good = all_there(warming.get());
  WarmBundle bundle;
  std::string why_not;
  if (good && !options.bundle.empty()) {
    try {
      bundle = pack(warming.get(), targets.front().context.get(), options.bundle);
    } catch (const Failure& failure) {
      why_not = failure.what();
    }
  }
  report_warming(warming.get(), lines, bundle, options.json);
  if (!why_not.empty()) fail(why_not);
  if (!good && !options.bundle.empty()) {
    say("bundle " + in_quotes(options.bundle) +
        " is not written: not all of its kernels are there");
  }
  if (interrupt.asked()) {
    say("interrupted: the next run finds what is done, and does the rest");
    return kInterrupted;
  }
  return good ? kDone : kFailed;
}

}  // namespace

Action add_warm(CLI::App* app) {
  auto* verb = app->add_subcommand("warm", "compile a manifest into the cache; needs no GPU");
  const auto options = std::make_shared<WarmOptions>();
  verb->add_option(
          "MANIFEST", options->manifest,
          "JSON Lines, one problem a line, as LATHE_RECORD=FILE writes them; - is standard "
          "input")
      ->required();
  verb->add_option("--arch", options->arch, "architectures, such as sm_80,sm_90a");
  verb->add_option("--gpu", options->gpu,
                   "GPUs, such as h100,a100: choices depend on their size; an architecture without "
                   "one is compiled for its usual GPU");
  verb->add_option("--cache-dir", options->cache_dir, "which cache to fill");
  verb->add_option("--jobs", options->jobs,
                   "compile this many kernels at once (default: by cores and memory)");
  verb->add_option(
      "--bundle", options->bundle,
      "and pack the kernels of the manifest into this file, if all of them are there; a link "
      "is not followed");
  add_json_flag(verb, &options->json);
  return [options] { return warm(*options); };
}

}  // namespace lathe::cli
