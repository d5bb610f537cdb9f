// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe cache`: what the cache and its bundles hold, whether they are sound, and what moves
// between them.
#include <cstdio>

#include "api/cli/options.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {
namespace {

struct CacheOptions {
  std::string cache_dir;
  std::string max_bytes;
  std::string bundle;             // the file that is written, unpacked, verified or listed
  std::vector<std::string> from;  // bundles to merge
  std::vector<std::string> keys;  // kernels to pack
  bool tiers = false;             // all that is found, not only the user's directory
  bool dry_run = false;
  bool json = false;
};

// The lines of a text that ends each with a newline.
Json lines_of(const std::string& text) {
  Json lines = Json::array();
  for (const auto& row : rows_of(text, 1)) lines.push_back(row[0]);
  return lines;
}

// Opens whatever is found; open_cache needs the user's directory.
Context open_tiers(const CacheOptions& options) {
  return open_context({"none", "", options.cache_dir});
}

Context open_cache(const CacheOptions& options) {
  Context context = open_tiers(options);
  const lathe_context_info about = context_info(context.get());
  if (about.cache_dir[0] == '\0') {
    fail("the cache directory cannot be used: ", about.cache_problem);
  }
  return context;
}

Json information_of(const lathe_bundle_report& report) {
  Json out = {{"archs", Json::array()}, {"compilers", Json::array()}, {"tuned", Json::array()}};
  for (const std::string& line : split(report.information, '\n')) {
    const size_t equals = line.find('=');
    if (equals != line.npos) out[line.substr(0, equals) + "s"].push_back(line.substr(equals + 1));
  }
  return out;
}

// Prints the report, in a sentence that begins with `did`, or as an object.
int tell(const lathe_bundle_report& report, const CacheOptions& options, const char* did) {
  if (options.json) {
    Json json = {{"bundle", options.bundle}, {"entries", report.entries}, {"bytes", report.bytes}};
    json.update(information_of(report));
    json["bad"] = report.bad;
    json["problems"] = lines_of(report.problems);
    print_json(json);
  } else {
    std::printf("%s%s %s: %llu kernels, %llu bytes, %llu damaged ones%s\n", report.problems, did,
                options.bundle.c_str(), llu(report.entries), llu(report.bytes), llu(report.bad),
                report.bad ? ", named above" : "");
  }
  return report.bad == 0 ? kDone : kFindings;
}

constexpr size_t kFields = 6;  // of a line of lathe_cache_list or lathe_bundle_list

void print_row(const std::vector<std::string>& row) {
  std::printf("%s  %-8s %9s  %s%s%s\n", row[0].c_str(), row[2].c_str(), row[3].c_str(),
              row[4].c_str(), row[5].empty() ? "" : "  in ", row[5].c_str());
}

Json json_of(const std::vector<std::string>& row) {
  Json json = {{"key", row[0]}, {"kernel", row[1]}, {"arch", row[2]}};
  json["bytes"] = parse_int("bytes", row[3], 0, INT64_MAX);
  json["spec"] = row[4];
  if (!row[5].empty()) json["tier"] = row[5];
  return json;
}

int pack_bundle(const CacheOptions& options) {
  const Context context = open_tiers(options);
  std::vector<std::string> keys = options.keys;
  if (options.tiers) {
    if (!keys.empty()) refuse("--tiers packs everything, so it does not go with --key");
    const char* lines = nullptr;
    check(lathe_cache_list(context.get(), &lines));
    for (const auto& row : rows_of(lines, kFields)) keys.push_back(row[0]);
  }
  std::vector<const char*> named = pointers(keys);
  named.push_back(nullptr);  // an empty list of keys is not NULL, which packs the user's directory
  const bool all = options.keys.empty() && !options.tiers;
  return tell(told<lathe_bundle_report>(lathe_cache_pack, context.get(), options.bundle.c_str(),
                                        all ? nullptr : named.data(), keys.size()),
              options, "packed");
}

int unpack_bundle(const CacheOptions& options) {
  const Context context = open_cache(options);
  const auto report =
      told<lathe_bundle_report>(lathe_cache_unpack, context.get(), options.bundle.c_str());
  const std::string directory = context_info(context.get()).cache_dir;
  if (options.json) {
    print_json({{"directory", directory},
                {"added", report.added},
                {"present", report.present},
                {"bad", report.bad},
                {"problems", lines_of(report.problems)}});
  } else {
    std::printf("%s%llu kernels added to %s, %llu were there, %llu damaged ones%s\n",
                report.problems, llu(report.added), directory.c_str(), llu(report.present),
                llu(report.bad), report.bad ? ", named above" : "");
  }
  return report.bad == 0 ? kDone : kFindings;
}

int merge_bundles(const CacheOptions& options) {
  const std::vector<const char*> from = pointers(options.from);
  return tell(told<lathe_bundle_report>(lathe_bundle_merge, options.bundle.c_str(), from.data(),
                                        from.size()),
              options, "merged into");
}

int verify_bundle(const CacheOptions& options) {
  return tell(told<lathe_bundle_report>(lathe_bundle_verify, options.bundle.c_str()), options,
              "read");
}

int list_kernels(const CacheOptions& options) {
  lathe_bundle_report report{};
  const char* lines = nullptr;
  Context context;
  if (options.bundle.empty()) {
    context = open_tiers(options);
    check(lathe_cache_list(context.get(), &lines));
  } else {
    report = told<lathe_bundle_report>(lathe_bundle_list, options.bundle.c_str(), &lines);
  }
  const auto rows = rows_of(lines, kFields);
  if (options.json) {
    Json kernels = Json::array();
    for (const auto& row : rows) kernels.push_back(json_of(row));
    Json json = options.bundle.empty() ? Json::object() : information_of(report);
    json["kernels"] = kernels;
    print_json(json);
  } else {
    for (const auto& row : rows) print_row(row);
    if (!options.bundle.empty()) std::printf("%s", report.information);
  }
  return report.bad == 0 ? kDone : kFindings;
}

lathe_tier_info tier_of(lathe_context* context, size_t index) {
  return told<lathe_tier_info>(lathe_cache_tier, context, index);
}

int stat_cache(const CacheOptions& options) {
  const Context context = open_tiers(options);
  const size_t count = lathe_cache_tier_count(context.get());
  const lathe_tier_info first = tier_of(context.get(), 0);
  if (count == 1 && first.path[0] == '\0') {
    fail("the cache directory cannot be used: ", first.problem);
  }
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
