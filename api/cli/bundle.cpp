// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs `lathe cache pack | unpack | merge | list`, and `verify` of a bundle.
#include <cstdio>

#include "api/cli/cache.h"
#include "api/cli/options.h"

namespace lathe::cli {
namespace {

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

std::vector<std::string> keys_of_all_tiers(lathe_context* context) {
  const char* lines = nullptr;
  check(lathe_cache_list(context, &lines));
  std::vector<std::string> keys;
  for (const auto& row : rows_of(lines, kFields)) keys.push_back(row[0]);
  return keys;
}

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

}  // namespace

int pack_bundle(const CacheOptions& options) {
  const Context context = open_context({"none", "", options.cache_dir});
  std::vector<std::string> keys = options.keys;
  if (options.tiers) {
    if (!keys.empty()) refuse("--tiers packs everything, so it does not go with --key");
    keys = keys_of_all_tiers(context.get());
  }
  const std::vector<const char*> named = pointers(keys);
  const bool all = options.keys.empty() && !options.tiers;
  static const char* const kNone = nullptr;
  const char* const* which = all ? nullptr : named.empty() ? &kNone : named.data();
  return tell(told<lathe_bundle_report>(lathe_cache_pack, context.get(), options.bundle.c_str(),
                                        which, named.size()),
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
    context = open_context({"none", "", options.cache_dir});
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

}  // namespace lathe::cli
