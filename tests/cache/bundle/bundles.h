// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tests of bundles share this file: a source of entries in memory, packing it, a bundle of
// three.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "cache/bundle/bundle.h"
#include "cache/tiers.h"
#include "cache/tuned.h"
#include "tests/cache/support.h"

namespace lathe::test {

class Entries : public EntrySource {
 public:
  explicit Entries(std::vector<Entry> entries) : entries_(std::move(entries)) {}
  std::vector<Digest> keys() override {
    std::vector<Digest> out;
    for (const Entry& entry : entries_) out.push_back(entry.key.digest);
    return out;
  }
  Result<Entry> read(const Digest& key) override {
    for (const Entry& entry : entries_)
      if (entry.key.digest == key) return entry;
    return Status(Code::not_cached, "no such entry");
  }

 private:
  std::vector<Entry> entries_;
};

// Returns a tuned choice as bundles have it: "h100 | k | c=1 | m=2 | gpu=h100 ...".
inline std::string tuned_line(const std::string& gpu, const std::string& choice, double us,
                              const std::string& shape = "x") {
  TunedRecord record;
  record.kernel = "k";
  record.problem_class = "c=1";
  record.choice = choice;
  record.gpu = gpu;
  record.arch = "sm_90a";
  record.multiprocessors = 132;
  record.shape = shape;
  record.us = us;
  record.default_us = 10;
  return gpu + " | " + text_of(record);
}

inline BundleReport pack_all(const std::string& path, const std::vector<std::vector<Entry>>& from,
                             const std::vector<std::string>& tuned = {}) {
  std::vector<Entries> sources;
  for (const std::vector<Entry>& entries : from) sources.emplace_back(entries);
  std::vector<EntrySource*> pointers;
  for (Entries& source : sources) pointers.push_back(&source);
  auto report = pack_bundle(path, pointers, nullptr, tuned);
  REQUIRE_MESSAGE(report.ok(), report.status().text());
  return *report;
}

// These functions give three entries, and a bundle "b" of them.
inline const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {sample_entry("a", 20), sample_entry("b", 20),
                                         sample_entry("c", 30)};
  return all;
}

inline std::string good_bundle(const TemporaryDirectory& place) {
  pack_all(place / "b", {entries()}, {tuned_line("h100", "m=2", 1)});
  return read_file(place / "b");
}

// Returns how many of the entries a tier has; -1 if one of them is not what was packed.
inline int right(ReadOnlyTier& tier) {
  int found = 0;
  for (const Entry& entry : entries()) {
    const auto got = tier.get(entry.key);
    if (got && !same(*got, entry)) return -1;
    found += got.has_value();
  }
  return found;
}

}  // namespace lathe::test
