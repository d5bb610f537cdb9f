// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe cache`: what the cache holds, and whether it is sound.
#include <cstdio>

#include "api/cli/options.h"
#include "api/cli/progress.h"
#include "api/cli/report.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct CacheOptions {
  std::string cache_dir;
  bool json = false;
};

Context open_cache(const CacheOptions& options) {
  Context context = open_context({"none", "", options.cache_dir});
  const lathe_context_info about = context_info(context.get());
  if (about.cache_dir[0] == '\0') {
    fail("the cache directory cannot be used: " + std::string(about.cache_problem));
  }
  return context;
}

int stat_cache(const CacheOptions& options) {
  const Context context = open_cache(options);
  lathe_cache_info about{};
  about.size = sizeof about;
  check(lathe_cache_stat(context.get(), &about));
  if (options.json) {
    print_json(
        {{"directory", about.directory}, {"entries", about.entries}, {"bytes", about.bytes}});
  } else {
    std::printf("directory  %s\nentries    %llu\nbytes      %llu\n", about.directory,
                static_cast<unsigned long long>(about.entries),
                static_cast<unsigned long long>(about.bytes));
  }
  return kDone;
}

int verify_cache(const CacheOptions& options) {
  const Context context = open_cache(options);
  Progress progress("verifying");
  uint64_t checked = 0, removed = 0;
  const char* problems = nullptr;
  check(lathe_cache_verify(context.get(), &checked, &removed, &problems));
  const std::string text = problems ? problems : "";
  if (options.json) {
    Json lines = Json::array();
    for (const std::string& line : split(text, '\n')) {
      if (!line.empty()) lines.push_back(line);
    }
    print_json({{"checked", checked}, {"removed", removed}, {"problems", lines}});
  } else {
    if (!text.empty()) std::printf("%s%s", text.c_str(), text.back() == '\n' ? "" : "\n");
    std::printf("%llu entries checked, %llu bad ones removed\n",
                static_cast<unsigned long long>(checked), static_cast<unsigned long long>(removed));
  }
  return removed == 0 ? kDone : kFindings;
}

}  // namespace

Action add_cache(CLI::App* app) {
  auto* verb = app->add_subcommand("cache", "look at the kernel cache");
  verb->require_subcommand(1);
  const auto options = std::make_shared<CacheOptions>();
  const auto chosen = std::make_shared<int (*)(const CacheOptions&)>(nullptr);
  const auto add = [&](const char* name, const char* sentence, int (*body)(const CacheOptions&)) {
    auto* sub = verb->add_subcommand(name, sentence);
    sub->add_option("--cache-dir", options->cache_dir, "which cache");
    add_json_flag(sub, &options->json);
    sub->callback([chosen, body] { *chosen = body; });
  };
  add("stat", "how many entries, how many bytes", stat_cache);
  add("verify", "read every entry and remove bad ones; exit 1 if there were any", verify_cache);
  return [options, chosen] { return (*chosen)(*options); };
}

}  // namespace lathe::cli
