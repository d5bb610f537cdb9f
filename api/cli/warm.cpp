// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe warm`: compiles a manifest of problems into the cache, on a machine that needs no GPU.
#include <algorithm>
#include <csignal>

#include "api/cli/options.h"
#include "api/cli/verbs.h"
#include "api/cli/warm_manifest.h"
#include "api/cli/warm_report.h"

namespace lathe::cli {
namespace {

constexpr int kInterrupted = 128 + SIGINT;

struct WarmOptions {
  std::string manifest, arch, gpu, cache_dir, jobs;
  bool json = false;
};

using Warming = std::unique_ptr<lathe_warming, Destroyer<lathe_warming_destroy>>;

volatile std::sig_atomic_t interrupted = 0;

// The first one ends the work behind the kernels that are being compiled, the second the program.
class OnInterrupt {
 public:
  OnInterrupt() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &action, &before_);
  }
  ~OnInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  struct sigaction before_ = {};
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
      refuse("--gpu " + gpu + " runs " + arch + ", which is not in --arch " + options.arch);
    }
  }
  for (const std::string& arch : archs) {
    if (std::find(served.begin(), served.end(), arch) != served.end()) continue;
    targets.push_back(open_target(arch, "", options.cache_dir));
  }
  return targets;
}

int count_kernel(void* progress, size_t done, size_t total, size_t compiled) {
  static_cast<WarmProgress*>(progress)->count(done, total, compiled);
  return interrupted;
}

int warm(const WarmOptions& options) {
  const int jobs =
      options.jobs.empty() ? 0 : static_cast<int>(parse_int("--jobs", options.jobs, 1, 1024));
  const std::vector<ManifestLine> manifest = read_manifest(options.manifest);
  const std::vector<WarmTarget> targets = open_targets(options);
  lathe_warming* raw = nullptr;
  check(lathe_warming_create(&raw));
  const Warming warming(raw);
  std::vector<WarmLine> lines;
  for (const WarmTarget& target : targets) {
    for (const ManifestLine& line : manifest) {
      // What it cannot choose kernels for is an item that the report tells of.
      (void)lathe_warming_add(raw, target.context.get(), line.problem.get());
      lines.push_back({line.number, &target});
    }
  }
  {
    const OnInterrupt on_interrupt;
    WarmProgress progress;
    (void)lathe_warming_run(raw, jobs, count_kernel, &progress);
  }
  bool good = true;
  for (size_t i = 0; i < lathe_warming_item_count(raw); ++i) {
    lathe_warming_item_info item = {};
    item.size = sizeof(item);
    check(lathe_warming_item(raw, i, &item));
    good = good && item.status == LATHE_OK;
  }
  report_warming(raw, lines, {}, options.json);
  if (interrupted) {
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
  add_json_flag(verb, &options->json);
  return [options] { return warm(*options); };
}

}  // namespace lathe::cli
