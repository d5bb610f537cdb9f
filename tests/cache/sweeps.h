// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The fault tests share this file: a populated cache, files made old, the look at a cache
// afterwards.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "cache/store/store.h"
#include "tests/cache/faults.h"
#include "tests/cache/support.h"

namespace lathe::test {

// Returns the real calls without the syncs, which are most of the time and prove nothing without a
// power cut.
inline const FileSystem& quick_fs() {
  static const FileSystem table = [] {
    FileSystem quick = real_fs();
    quick.fsync = [](int) { return 0; };
    return quick;
  }();
  return table;
}

// Ages a file as if a user came back after `seconds`: eviction goes by mtime.
inline void age(const std::string& path, int64_t seconds) {
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {now.tv_sec - seconds, now.tv_nsec}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

// Stores entries "0" to "n - 1", the first used longest ago, two hours apart.
inline std::vector<Entry> fill(const std::string& root, int n, size_t bytes = 1000) {
  const auto store = Store::open(root, quick_fs());
  std::vector<Entry> entries;
  for (int i = 0; i < n; ++i) {
    entries.push_back(sample_entry(std::to_string(i), bytes));
    store->put(entries.back());
    age(path_of(root, entries.back().key), 7200 * (n - i));
  }
  return entries;
}

inline bool there(const std::string& root, const Entry& entry) {
  return std::filesystem::exists(path_of(root, entry.key));
}

// Checks that a process that comes later finds each entry as it was or not at all, takes it again,
// and sees nothing wrong.
inline void check_next_run(const std::string& root, const std::vector<Entry>& entries) {
  Log log;
  const auto store = Store::open(root, quick_fs());
  REQUIRE(store->root() == root);
  for (const Entry& entry : entries) {
    const auto found = store->get(entry.key);
    if (found) CHECK(same(*found, entry));
    store->put(entry);
    const auto again = store->get(entry.key);
    REQUIRE(again.has_value());
    CHECK(same(*again, entry));
  }
  const VerifyReport report = store->verify();
  CHECK(report.problems == "");
  CHECK(report.checked >= entries.size());
  CHECK(store->lock(entries.front().key).held());
  CHECK(log.warnings().empty());
}

// Checks that the store finds the entry as it was or not at all, takes it again, and sees nothing
// wrong.
inline void check_healthy(const std::string& root, const Entry& entry) {
  Log log;
  const auto store = Store::open(root, quick_fs());
  const auto found = store->get(entry.key);
  if (found) CHECK(same(*found, entry));
  store->put(entry);
  REQUIRE(store->get(entry.key).has_value());
  CHECK(store->verify().problems.empty());
}

}  // namespace lathe::test
