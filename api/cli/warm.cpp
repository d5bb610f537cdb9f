// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe warm`: compiles a manifest of problems into the cache, on a machine that needs no GPU.
#include <algorithm>

#include "api/cli/interrupt.h"
#include "api/cli/manifest.h"
#include "api/cli/options.h"
#include "api/cli/output.h"
#include "api/cli/reports/warm_report.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

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

// Whether every line has all its kernels.
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
      // What it cannot choose kernels for is an item that the report tells of.
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
