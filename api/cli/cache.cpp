// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe cache`: what the cache holds, and whether it is sound. Bundles: bundle.cpp.
#include "api/cli/cache.h"

#include <cstdio>

#include "api/cli/options.h"
#include "api/cli/reports/progress.h"
#include "api/cli/verbs.h"

namespace lathe::cli {

Json lines_of(const std::string& text) {
  Json lines = Json::array();
  for (const auto& row : rows_of(text, 1)) lines.push_back(row[0]);
  return lines;
}

Context open_cache(const CacheOptions& options) {
  Context context = open_context({"none", "", options.cache_dir});
  const lathe_context_info about = context_info(context.get());
  if (about.cache_dir[0] == '\0') {
    fail("the cache directory cannot be used: " + std::string(about.cache_problem));
  }
  return context;
}

namespace {

lathe_tier_info tier_of(lathe_context* context, size_t index) {
  return told<lathe_tier_info>(lathe_cache_tier, context, index);
}

int stat_cache(const CacheOptions& options) {
  const Context context = open_context({"none", "", options.cache_dir});
  const size_t count = lathe_cache_tier_count(context.get());
  const lathe_tier_info first = tier_of(context.get(), 0);
  if (count == 1 && first.path[0] == '\0')
    fail("the cache directory cannot be used: " + std::string(first.problem));
  Json tiers = Json::array();
  for (size_t i = 0; i < count; ++i) {
    const lathe_tier_info tier = tier_of(context.get(), i);
    tiers.push_back(tier);
    if (options.json) continue;
    std::printf("%-9s  %s\n", tier.kind, tier.path[0] ? tier.path : "none");
    if (tier.problem[0]) {
      std::printf("not used   %s\n", tier.problem);
      continue;
    }
    std::printf("entries    %llu\nbytes      %llu\n", llu(tier.entries), llu(tier.bytes));
  }
  if (options.json) {
    print_json({{"directory", first.path},
                {"entries", first.entries},
                {"bytes", first.bytes},
                {"tiers", tiers}});
  }
  return kDone;
}

int verify_cache(const CacheOptions& options) {
  if (!options.bundle.empty()) return verify_bundle(options);
  const Context context = open_cache(options);
  Progress progress("verifying");
  uint64_t checked = 0, removed = 0;
  const char* problems = nullptr;
  check(lathe_cache_verify(context.get(), &checked, &removed, &problems));
  const std::string text = problems ? problems : "";
  if (options.json) {
    print_json({{"checked", checked}, {"removed", removed}, {"problems", lines_of(text)}});
  } else {
    if (!text.empty()) std::printf("%s%s", text.c_str(), text.back() == '\n' ? "" : "\n");
    std::printf("%llu entries checked, %llu bad ones removed\n", llu(checked), llu(removed));
  }
  return removed == 0 ? kDone : kFindings;
}

// 500, 500K, 20M, 2G: powers of 1024.
uint64_t parse_bytes(const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const bool scaled = unit != kUnits.npos;
  const int shift = scaled ? 10 * static_cast<int>(unit + 1) : 0;
  const std::string digits = scaled ? text.substr(0, text.size() - 1) : text;
  return static_cast<uint64_t>(parse_int("--max-bytes", digits, 0, INT64_MAX >> shift)) << shift;
}

int trim_cache(const CacheOptions& options) {
  const uint64_t max_bytes = parse_bytes(options.max_bytes);
  const Context context = open_cache(options);
  const auto report =
      told<lathe_trim_report>(lathe_cache_trim, context.get(), max_bytes, options.dry_run);
  if (report.busy) fail("another process is trimming this cache; nothing was done");
  if (options.json) {
    print_json(report);
    return kDone;
  }
  std::printf(
      "%s%s %llu entries of %llu bytes and %llu temporary files; "
      "%llu entries of %llu bytes are left\n",
      report.names, options.dry_run ? "would remove" : "removed", llu(report.removed),
      llu(report.freed), llu(report.temporaries), llu(report.entries), llu(report.bytes));
  return kDone;
}

}  // namespace

Action add_cache(CLI::App* app) {
  auto* verb = app->add_subcommand("cache", "the kernel cache: look at it, pack it, trim it");
  verb->require_subcommand(1);
  const auto options = std::make_shared<CacheOptions>();
  const auto chosen = std::make_shared<int (*)(const CacheOptions&)>(nullptr);
  const auto add = [&](const char* name, const char* sentence, int (*body)(const CacheOptions&)) {
    auto* sub = verb->add_subcommand(name, sentence);
    sub->add_option("--cache-dir", options->cache_dir, "which cache");
    add_json_flag(sub, &options->json);
    sub->callback([chosen, body] { *chosen = body; });
    return sub;
  };
  const auto bundle = [&](CLI::App* sub, const char* sentence) {
    return sub->add_option("BUNDLE", options->bundle, sentence);
  };
  add("stat", "the tiers of the cache: how many entries, how many bytes, what is wrong",
      stat_cache);
  auto* verify = add("verify", "read every entry; exit 1 if there were bad ones", verify_cache);
  bundle(verify, "the file to read; without it the user's directory, from which bad ones go");
  auto* list = add("list", "the kernels of all tiers, or of a bundle", list_kernels);
  bundle(list, "the file to list");
  auto* pack =
      add("pack", "kernels into one file, to be shipped or searched in place", pack_bundle);
  bundle(pack, "the file to write; a link is not followed")->required();
  pack->add_option("--key", options->keys, "only these, from whichever tier has them");
  pack->add_flag("--tiers", options->tiers, "all of every tier, not of the user's directory alone");
  auto* unpack = add("unpack", "a bundle's kernels into the user's directory", unpack_bundle);
  bundle(unpack, "the file to read")->required();
  auto* merge = add("merge", "several bundles into one", merge_bundles);
  bundle(merge, "the file to write; a link is not followed")->required();
  merge->add_option("FROM", options->from, "the files to read")->required();
  auto* trim = add("trim", "remove what was used longest ago", trim_cache);
  trim->add_option("--max-bytes", options->max_bytes, "what may stay: 500, 20M, 2G")->required();
  trim->add_flag("--dry-run", options->dry_run, "only say what would go");
  return [options, chosen] { return (*chosen)(*options); };
}

}  // namespace lathe::cli
