// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the C functions of bundles.
#include "cache/bundle/bundle.h"

#include <algorithm>
#include <set>

#include "api/boundary.h"
#include "api/context.h"
#include "api/tune/tune_choices.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

// Holds the texts that the calling thread was last lent.
thread_local struct { std::string problems, information, lines; } lent;

std::string information_text(const BundleInformation& information) {
  std::string out;
  for (const std::string& value : information.archs) out += "arch=" + value + "\n";
  for (const std::string& value : information.compilers) out += "compiler=" + value + "\n";
  for (const std::string& value : information.tuned) out += "tuned=" + value + "\n";
  return out;
}

Status give(const BundleReport& report, std::string information, lathe_bundle_report* out) {
  if (!out) return {};
  lent.problems = report.problems;
  lent.information = std::move(information);
  return give_sized({.entries = report.entries,
                     .bytes = report.bytes,
                     .added = report.added,
                     .present = report.present,
                     .bad = report.bad,
                     .problems = lent.problems.c_str(),
                     .information = lent.information.c_str()},
                    out);
}

// Reports on a file just written.
Status give_of(const BundleReport& report, const char* path, lathe_bundle_report* out) {
  if (!out) return {};
  LATHE_ASSIGN(const auto bundle, Bundle::open(path));
  return give(report, information_text(bundle->information()), out);
}

std::string line_of(const Entry& entry, uint64_t bytes) {
  const auto named = [&](const char* name) {
    return one_line(entry.metadata.find(name).value_or("?"));
  };
  return text(entry.key.digest.hex(), "\t", named("kernel"), "\t",
              one_line(value_of(entry.key.text, "arch")), "\t", bytes, "\t", named("spec"));
}

std::string list_tiers(lathe_context& context) {
  std::string lines;
  const Tiers::List& read_only = context.tiers->read_only();
  const std::vector<EntrySource*> sources = context.tiers->sources();
  std::set<std::string> told;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string& where = i == 0 ? context.store->root() : read_only[i - 1]->name();
    for (const Digest& key : sources[i]->keys()) {
      const Result<Entry> entry = sources[i]->read(key);
      if (!entry.ok() || !told.insert(key.hex()).second) continue;
      lines += line_of(*entry, encode_entry(*entry).size()) + "\t" + one_line(where) + "\n";
    }
  }
  return lines;
}

Result<std::vector<Digest>> parse_keys(const char* const* keys, size_t count) {
  std::vector<Digest> out;
  for (size_t i = 0; i < count; ++i) {
    LATHE_TRY(require(keys[i], text("keys[", i, "]").c_str()));
    const auto key = parse_digest(keys[i]);
    if (!key) {
      return invalid(text("keys[", i, "] is ", in_quotes(keys[i]),
                          ", but a key has 32 hexadecimal digits (0-9, a-f)"));
    }
    out.push_back(*key);
  }
  return out;
}

Status list_bundle(const char* path, std::string* lines, lathe_bundle_report* out) {
  LATHE_ASSIGN(const auto bundle, Bundle::open(path));
  BundleReport report;
  report.bytes = bundle->bytes();
  for (const BundleItem& item : bundle->items()) {
    ++report.entries;
    const Bundle::Found found = bundle->read(item);
    if (found.entry) {
      *lines += line_of(*found.entry, item.length) + "\n";
      continue;
    }
    ++report.bad;
    report.problems += item.key.hex() + ": " + found.why + "\n";
    *lines += text(item.key.hex(), "\t?\t?\t", item.length, "\t", one_line("damaged: " + found.why),
                   "\n");
  }
  return give(report, information_text(bundle->information()), out);
}

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_cache_list(lathe_context* context, const char** lines) {
  return boundary({{context, "context"}, {lines, "lines"}}, [&] {
    lent.lines = list_tiers(*context);
    *lines = lent.lines.c_str();
  });
}

lathe_status lathe_cache_pack(lathe_context* context, const char* path, const char* const* keys,
                              size_t key_count, lathe_bundle_report* out) {
  return boundary({{context, "context"}, {path, "path"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    if (!keys) LATHE_TRY(require_directory(*context));
    LATHE_ASSIGN(const auto named, parse_keys(keys, keys ? key_count : 0));
    const std::vector<Digest>* chosen = keys ? &named : nullptr;
    const std::vector<EntrySource*> sources =
        keys ? context->tiers->sources() : std::vector<EntrySource*>{context->store.get()};
    LATHE_ASSIGN(const auto report,
                 pack_bundle(path, sources, chosen, tuned_lines(*context, sources, chosen)));
    return give_of(report, path, out);
  });
}

lathe_status lathe_cache_unpack(lathe_context* context, const char* path,
                                lathe_bundle_report* out) {
  return boundary({{context, "context"}, {path, "path"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    LATHE_TRY(require_directory(*context));
    LATHE_ASSIGN(const auto bundle, Bundle::open(path));
    LATHE_ASSIGN(const auto report, unpack_bundle(*bundle, *context->store));
    const std::string information = information_text(bundle->information());
    LATHE_TRY(take_tuned_lines(*context, information));
    return give(report, information, out);
  });
}

lathe_status lathe_bundle_merge(const char* path, const char* const* from, size_t count,
                                lathe_bundle_report* out) {
  return boundary({{path, "path"}, {from, "from"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    std::vector<std::string> paths;
    for (size_t i = 0; i < count; ++i) {
      LATHE_TRY(require(from[i], text("from[", i, "]").c_str()));
      paths.emplace_back(from[i]);
    }
    if (paths.empty()) return invalid("count is 0, but there must be a bundle to merge");
    LATHE_ASSIGN(const auto report, merge_bundles(path, paths));
    return give_of(report, path, out);
  });
}

lathe_status lathe_bundle_verify(const char* path, lathe_bundle_report* out) {
  return boundary({{path, "path"}}, [&]() -> Status {
    LATHE_TRY(check_sized(out));
    std::string lines;
    return list_bundle(path, &lines, out);
  });
}

lathe_status lathe_bundle_list(const char* path, const char** lines, lathe_bundle_report* out) {
  return boundary({{path, "path"}, {lines, "lines"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    std::string& all = lent.lines;
    all.clear();
    LATHE_TRY(list_bundle(path, &all, out));
    *lines = all.c_str();
    return {};
  });
}

}  // extern "C"
