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

namespace lathe::cli {
namespace {

// Whom kernels are made for.
struct WarmTarget {
  std::string arch, gpu;  // gpu "": what stands for the architecture
  Context context;

  std::string word() const { return gpu.empty() ? arch : gpu + " (" + arch + ")"; }
};

// A problem of the manifest for one target: an item of the warming, in the same order.
struct WarmLine {
  size_t number = 0;
  const WarmTarget* target = nullptr;
};

lathe_warming_item_info item_of(const lathe_warming* warming, size_t index) {
  return told<lathe_warming_item_info>(lathe_warming_item, warming, index);
}

// What the report tells of a line: its problems of one operator and one target together.
struct WarmRow {
  WarmLine line;
  size_t problems = 0;
  lathe_warming_item_info sum{};  // the first failure's status and text
};

std::vector<WarmRow> rows_of(const lathe_warming* warming, const std::vector<WarmLine>& lines) {
  std::vector<WarmRow> rows;
  for (size_t i = 0; i < lines.size(); ++i) {
    const lathe_warming_item_info item = item_of(warming, i);
    const bool same = !rows.empty() && rows.back().line.number == lines[i].number &&
                      rows.back().line.target == lines[i].target &&
                      std::string_view(rows.back().sum.op) == item.op;
    if (!same) {
      rows.push_back({lines[i], 1, item});
      continue;
    }
    WarmRow& row = rows.back();
    ++row.problems;
    row.sum.kernels += item.kernels, row.sum.compiled += item.compiled;
    row.sum.hits += item.hits, row.sum.shared += item.shared;
    row.sum.failed += item.failed, row.sum.left += item.left;
    row.sum.milliseconds += item.milliseconds;
    if (row.sum.status == LATHE_OK) row.sum.status = item.status, row.sum.error = item.error;
  }
  return rows;
}

Json row_json(const WarmRow& row) {
  const lathe_warming_item_info& item = row.sum;
  Json out = {{"line", row.line.number},   {"op", item.op},
              {"arch", item.arch},         {"gpu", nullptr},
              {"problems", row.problems},  {"kernels", item.kernels},
              {"compiled", item.compiled}, {"hits", item.hits},
              {"shared", item.shared},     {"failed", item.failed},
              {"left", item.left},         {"ms", item.milliseconds}};
  if (!row.line.target->gpu.empty()) out["gpu"] = row.line.target->gpu;
  if (item.status != LATHE_OK) out["error"] = item.error;
  return out;
}

void print_row(const WarmRow& row) {
  const WarmLine& line = row.line;
  const lathe_warming_item_info& item = row.sum;
  std::printf("line %-4zu %-25s %-15s %3llu compiled  %3llu found  %3llu shared  %3llu failed",
              line.number, item.op, line.target->word().c_str(), llu(item.compiled), llu(item.hits),
              llu(item.shared), llu(item.failed));
  if (item.left > 0) std::printf("  %3llu left", llu(item.left));
  std::printf("  %8.1f ms\n", item.milliseconds);
}

// Shows a bar on a terminal, elsewhere a line now and then.
class WarmProgress {
 public:
  explicit WarmProgress(const Interrupt& interrupt) : interrupt_(interrupt) {}

  // Tells the library to end if the user asked for it.
  static int count_kernel(void* self, size_t done, size_t total, size_t compiled) {
    static_cast<WarmProgress*>(self)->count(done, total, compiled);
    return static_cast<WarmProgress*>(self)->interrupt_.asked();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetweenLines{10};

  void count(size_t done, size_t total, size_t compiled) {
    // Kernels that were found took no time.
    const double left = bar_.count(done, total, compiled > 0 ? compiled : done);
    const auto now = Clock::now();
    if (!lines_ || now - told_ < kBetweenLines || done == total) return;
    told_ = now;
    say(text("warming: ", done, " of ", total, " kernels, ", compiled, " compiled",
             left < 0 ? "" : formatted(", %.0f s left", left)));
  }

  const Interrupt& interrupt_;
  Progress bar_{"warming"};
  const bool lines_ = !isatty(STDERR_FILENO);
  Clock::time_point told_ = Clock::now();
};

// Reports failures on standard error, the rest on standard output. `bundle` tells what was packed;
// null: nothing was.
void report_warming(const lathe_warming* warming, const std::vector<WarmLine>& lines,
                    const Json& bundle, bool json) {
  const size_t kernels = lathe_warming_kernel_count(warming);
  uint64_t compiled = 0, hits = 0, left = 0;
  for (size_t i = 0; i < kernels; ++i) {
    const auto kernel = told<lathe_warming_kernel_info>(lathe_warming_kernel, warming, i);
    const std::string_view from = kernel.from;
    if (kernel.status != LATHE_OK) continue;
    ++(from.empty() ? left : from == "compiler" ? compiled : hits);
  }
  Json all = Json::array(), errors = Json::array();
  const std::vector<WarmRow> rows = rows_of(warming, lines);
  for (const WarmRow& row : rows) {
    all.push_back(row_json(row));
    if (!json) print_row(row);
    if (row.sum.status == LATHE_OK) continue;
    say(text("line ", row.line.number, " for ", row.line.target->word(), ": ", row.sum.error));
    errors.push_back({{"line", row.line.number}, {"arch", row.sum.arch}, {"error", row.sum.error}});
  }
  if (json) {
    Json out = {{"kernels", kernels},      {"compiled", compiled}, {"hits", hits},
                {"failed", errors.size()}, {"left", left},         {"lines", all},
                {"errors", errors}};
    if (!bundle.is_null()) out["bundle"] = bundle;
    print_json(out);
    return;
  }
  std::printf("%zu lines, %zu kernels: %llu compiled, %llu found in the cache; %zu lines failed\n",
              rows.size(), kernels, llu(compiled), llu(hits), errors.size());
  if (bundle.is_null()) return;
  std::printf("bundle %s: %s entries, %s bytes\n", bundle["path"].get<std::string>().c_str(),
              bundle["entries"].dump().c_str(), bundle["bytes"].dump().c_str());
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
    fail("there is no cache to warm: ", about.cache_problem);
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
        refuse("--gpu is ", in_quotes(gpu), ", expected a GPU's name, such as h100; ",
               "architectures are named by --arch");
      }
      targets.push_back(open_target("", gpu, options.cache_dir));
      const std::string& arch = served.emplace_back(targets.back().arch);
      if (archs.empty() || std::ranges::find(archs, arch) != archs.end()) continue;
      refuse("--gpu ", in_quotes(gpu), " runs ", arch, ", which is not in --arch ",
             in_quotes(options.arch));
    }
  }
  for (const std::string& arch : archs) {
    if (std::ranges::find(served, arch) != served.end()) continue;
    targets.push_back(open_target(arch, "", options.cache_dir));
  }
  return targets;
}

// True if every line has all its kernels.
bool all_there(const lathe_warming* warming) {
  for (size_t i = 0; i < lathe_warming_item_count(warming); ++i) {
    const lathe_warming_item_info item = item_of(warming, i);
    if (item.status != LATHE_OK || item.left > 0) return false;
  }
  return true;
}

// The kernels of the manifest, wherever they were found, and nothing else.
Json pack(const lathe_warming* warming, lathe_context* context, const std::string& path) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < lathe_warming_kernel_count(warming); ++i) {
    keys.emplace_back(told<lathe_warming_kernel_info>(lathe_warming_kernel, warming, i).key);
  }
  const std::vector<const char*> names = pointers(keys);
  const auto report = told<lathe_bundle_report>(lathe_cache_pack, context, path.c_str(),
                                                names.data(), names.size());
  return {{"path", path}, {"entries", report.entries}, {"bytes", report.bytes}};
}

int warm(const WarmOptions& options) {
  const int jobs =
      options.jobs.empty() ? 0 : static_cast<int>(parse_int("--jobs", options.jobs, 1, 1024));
  const std::vector<ManifestLine> manifest = read_manifest(options.manifest);
  if (manifest.empty() && !options.bundle.empty()) {
    refuse("manifest ", in_quotes(options.manifest),
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
    WarmProgress progress(interrupt);
    (void)lathe_warming_run(warming.get(), jobs, WarmProgress::count_kernel, &progress);
  }
  const bool good = all_there(warming.get());
  Json bundle;
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
  verb->add_option("MANIFEST", options->manifest,
                   "JSON Lines: a problem, as LATHE_RECORD=FILE writes them, or a model and its "
                   "layers; - is "
                   "standard input")
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
