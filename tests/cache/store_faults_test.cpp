// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each call of looking at the whole cache and of cleaning it goes wrong once, from there on, by a
// signal, by single bytes and by the process's end. The faults that one entry meets are in
// store_entry_faults_test.
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

constexpr int kErrors[] = {EIO,    ENOSPC, EDQUOT, EACCES, EROFS, EMFILE,
                           ENOMEM, ESTALE, EBUSY,  ENOLCK, ENOENT};
constexpr int kEntries = 3;

// Makes a cache with work for every step of a trim: old entries, a fresh one, an abandoned
// temporary.
std::vector<Entry> messy_cache(const std::string& root) {
  std::vector<Entry> entries = fill(root, kEntries, 600);
  const std::string shard = root + "/v1/" + entries[0].key.digest.hex().substr(0, 2);
  write_file(shard + "/.tmp.1.2", "half an entry");
  age(shard + "/.tmp.1.2", 9999);
  return entries;
}

// Cleans and counts. Whether what it reports agrees with itself.
bool look_after(Store& store) {
  const TrimReport told = store.trim(1500, true);
  const TrimReport done = store.trim(1500, false);
  const StoreStat stat = store.stat();
  const VerifyReport seen = store.verify();
  store.compilers();
  return told.removed <= kEntries && done.removed <= kEntries && stat.entries <= kEntries &&
         seen.checked <= kEntries && seen.removed <= seen.checked;
}

// look_after with the fault at every `stride`-th call until it passes unharmed; calls of the last
// round.
int sweep(Fault fault, int stride) {
  for (;; fault.at += stride) {
    const TemporaryDirectory place;
    const std::vector<Entry> entries = messy_cache(place.path());
    const size_t before = open_descriptors();
    bool reached = false;
    {
      const FaultyFileSystem faulty(fault);
      Log log;
      CHECK(look_after(*Store::open(place.path(), faulty.table())));
      CHECK(log.warnings().size() <= 1);
      reached = faulty.reached();
    }
    CHECK(open_descriptors() == before);
    // No entry was harmed by a look at it that failed: a fault is no damage.
    for (const Entry& entry : entries) {
      const std::string bytes = read_file(path_of(place.path(), entry.key));
      if (!bytes.empty()) CHECK(bytes == encode_entry(entry));
    }
    CHECK(Store::open(place.path(), quick_fs())->trim(1500, false).bytes <= 1500);
    CHECK(count_files(place.path(), ".tmp.") == 0);
    check_next_run(place.path(), entries);
    if (!reached) return fault.at - 1;
  }
}

}  // namespace

TEST_CASE("a call that fails in counting, verifying or cleaning harms no entry") {
  // Most errnos are alike to the code: two go through every call, the others through every third,
  // beginning with another one each.
  for (const int error : kErrors) {
    CAPTURE(error);
    const bool all = error == EIO || error == ENOENT;
    CHECK(sweep({1 + (all ? 0 : error % 3), error, false}, all ? 1 : 3) > 60);
    sweep({1 + error % 5, error, true}, 5);
  }
}

TEST_CASE("interrupted calls and single bytes change nothing of what cleaning does") {
  for (const bool single_bytes : {false, true}) {
    for (Fault fault{1, EINTR, false, single_bytes};; ++fault.at) {
      const TemporaryDirectory place;
      const std::vector<Entry> entries = messy_cache(place.path());
      const FaultyFileSystem faulty(fault);
      Log log;
      const auto store = Store::open(place.path(), faulty.table());
      const TrimReport report = store->trim(2000, false);
      CHECK(report.removed == 1);
      CHECK(report.entries == 2);
      CHECK(report.temporaries == 1);
      CHECK_FALSE(there(place.path(), entries[0]));
      const VerifyReport seen = store->verify();
      CHECK(seen.checked == 2);
      CHECK(seen.problems == "");
      CHECK(store->stat().entries == 2);
      CHECK(store->get(entries[2].key).has_value());
      CHECK(log.warnings().empty());
      if (!faulty.reached()) break;
    }
  }
}

TEST_CASE("a process killed at any call of a trim leaves a cache that the next one trims") {
  for (Fault fault{1, 0, false, false, true};; ++fault.at) {
    const TemporaryDirectory place;
    const std::vector<Entry> entries = messy_cache(place.path());
    const int status = wait_for(in_child([&] {
      const FaultyFileSystem faulty(fault);
      const auto store = Store::open(place.path(), faulty.table());
      return store->trim(1500, false).busy ? 1 : 0;
    }));
    const TrimReport report = Store::open(place.path(), quick_fs())->trim(1500, false);
    CHECK_FALSE(report.busy);
    CHECK(report.bytes <= 1500);
    CHECK(count_files(place.path(), ".tmp.") == 0);
    check_next_run(place.path(), entries);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 0);
      CHECK(fault.at > 20);
      break;
    }
  }
}

TEST_CASE(
    "what a killed publisher leaves is swept by a publish an hour later, with or without a cap") {
  for (const char* cap : {"1000000", "0"}) {
    CAPTURE(cap);
    const Environment limit("LATHE_CACHE_MAX_BYTES", cap);
    const TemporaryDirectory place;
    const Entry entry = sample_entry("killed", 300);
    size_t left = 0;
    for (Fault fault{1, 0, false, false, true};; ++fault.at) {
      const int status = wait_for(in_child([&] {
        const FaultyFileSystem faulty(fault);
        Store::open(place.path(), faulty.table())->put(entry);
        return 0;
      }));
      if (WIFEXITED(status)) break;
    }
    for (const auto& item : files::recursive_directory_iterator(place.path())) {
      if (item.path().filename().string().substr(0, 5) != ".tmp.") continue;
      age(item.path().string(), 3700);
      ++left;
    }
    CHECK(left >= 2);  // killed before, in and after the write
    Store::open(place.path(), quick_fs())->put(sample_entry("later"));
    CHECK(count_files(place.path(), ".tmp.") == 0);
  }
}

TEST_CASE("a lock file that cannot be opened does not keep the cache full") {
  const TemporaryDirectory place;
  const std::vector<Entry> entries = fill(place.path(), kEntries);
  files::remove(place / "v1/lock");
  files::create_directory(place / "v1/lock");
  Log log;
  const auto store = Store::open(place.path(), quick_fs());
  const TrimReport report = store->trim(0, false);
  CHECK_FALSE(report.busy);
  CHECK(report.removed == kEntries);
  CHECK_FALSE(store->lock(entries[0].key).held());
  static const FileSystem refusing = [] {
    FileSystem table = quick_fs();
    table.openat = [](int dir, const char* path, int flags, mode_t mode) {
      if (std::string_view(path) != "lock") return real_fs().openat(dir, path, flags, mode);
      errno = EACCES;
      return -1;
    };
    return table;
  }();
  fill(place.path(), kEntries);
  CHECK(Store::open(place.path(), refusing)->trim(0, false).removed == kEntries);
}
