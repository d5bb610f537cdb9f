// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the size cap: what goes, in which order, what stays whatever the cap, and what
// is swept.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <thread>

#include "cache/store/store.h"
#include "codegen/base/text.h"
#include "tests/cache/faults.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

// As a user that comes back after `seconds`: mtime is what eviction goes by.
void used_before(const std::string& path, int64_t seconds) {
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {now.tv_sec - seconds, now.tv_nsec}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

// Entries "0" to "n - 1", the first used longest ago, hours apart.
std::vector<Entry> fill(const std::string& root, int n) {
  const auto store = Store::open(root);
  std::vector<Entry> entries;
  for (int i = 0; i < n; ++i) {
    entries.push_back(sample_entry(std::to_string(i), 1000));
    store->put(entries.back());
    used_before(path_of(root, entries.back().key), 7200 * (n - i));
  }
  return entries;
}

bool there(const std::string& root, const Entry& entry) {
  return files::exists(path_of(root, entry.key));
}

uint64_t bytes_of(const std::string& root, const std::vector<Entry>& entries) {
  uint64_t sum = 0;
  for (const Entry& entry : entries) sum += files::file_size(path_of(root, entry.key));
  return sum;
}

}  // namespace

TEST_CASE("what was used longest ago goes, down to nine tenths of the cap") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 10);
  const auto store = Store::open(place.path());
  const uint64_t all = bytes_of(place.path(), entries), one = all / 10;
  TrimReport report = store->trim(all, false);
  CHECK(report.removed == 0);
  CHECK(report.entries == 10);
  report = store->trim(8 * one, true);
  CHECK(report.removed == 3);  // 7.2 entries are allowed
  CHECK(report.entries == 7);
  CHECK(there(place.path(), entries[0]));
  report = store->trim(8 * one, false);
  CHECK(report.removed == 3);
  CHECK(report.freed + report.bytes == all);
  CHECK(report.names.find(entries[2].key.digest.hex()) != std::string::npos);
  for (int i = 0; i < 10; ++i) CHECK(there(place.path(), entries[i]) == (i >= 3));
  CHECK(store->trim(0, false).entries == 0);
  CHECK(store->stat().entries == 0);
}

TEST_CASE("a hit makes an entry young") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 4);
  const auto store = Store::open(place.path());
  CHECK(store->get(entries[0].key).has_value());
  const uint64_t all = bytes_of(place.path(), entries);
  CHECK(store->trim(all - 1, false).removed == 1);
  CHECK(there(place.path(), entries[0]));
  CHECK_FALSE(there(place.path(), entries[1]));
}

TEST_CASE("an entry whose key is locked stays, and the next one goes") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 3);
  const auto store = Store::open(place.path()), other = Store::open(place.path());
  const Store::Lock lock = other->lock(entries[0].key);
  REQUIRE(lock.held());
  CHECK(store->trim(bytes_of(place.path(), entries) - 1, false).removed == 1);
  CHECK(there(place.path(), entries[0]));
  CHECK_FALSE(there(place.path(), entries[1]));
}

TEST_CASE("publishing keeps the directory below its cap, and leaves fresh entries alone") {
  const TemporaryDirectory place;
  const auto old = fill(place.path(), 5);
  const Environment cap("LATHE_CACHE_MAX_BYTES", std::to_string(bytes_of(place.path(), old)));
  const auto store = Store::open(place.path());
  const Entry fresh = sample_entry("fresh", 1000);
  store->put(fresh);
  CHECK(there(place.path(), fresh));
  CHECK_FALSE(there(place.path(), old[0]));
  CHECK(there(place.path(), old[4]));
  const Environment tiny("LATHE_CACHE_MAX_BYTES", "1");
  const Entry next = sample_entry("next", 1000);
  Store::open(place.path())->put(next);
  CHECK(there(place.path(), fresh));
  CHECK(there(place.path(), next));
  CHECK_FALSE(there(place.path(), old[4]));
}

TEST_CASE("without a limit nothing goes; a limit that is no number is told") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 3);
  {
    const Environment none("LATHE_CACHE_MAX_BYTES", "0");
    Store::open(place.path())->put(sample_entry("more"));
    for (const Entry& entry : entries) CHECK(there(place.path(), entry));
  }
  const Environment wrong("LATHE_CACHE_MAX_BYTES", "2GB");
  Log log;
  CHECK(Store::open(place.path())->max_bytes() == uint64_t{2} << 30);
  CHECK(log.mentions("LATHE_CACHE_MAX_BYTES is '2GB'"));
}

TEST_CASE("temporary files go once nobody can still be writing them") {
  const TemporaryDirectory place;
  fill(place.path(), 1);
  const std::string shard = place.path() + "/v1/ab";
  write_file(shard + "/.tmp.1.2", "half an entry");
  write_file(shard + "/.tmp.3.4", "another");
  chmod(shard.c_str(), 0700);
  used_before(shard + "/.tmp.1.2", 3700);
  const TrimReport report = Store::open(place.path())->trim(1 << 20, false);
  CHECK(report.temporaries == 1);
  CHECK_FALSE(files::exists(shard + "/.tmp.1.2"));
  CHECK(files::exists(shard + "/.tmp.3.4"));
}

TEST_CASE("entries of other versions are trimmed like ours, other files are left") {
  const TemporaryDirectory place;
  fill(place.path(), 1);
  const std::string shard = place.path() + "/v1/cd";
  const std::string other = shard + "/cd" + std::string(30, '7') + ".lathe";
  write_file(other, "an entry of version 9, as it may be");
  write_file(shard + "/.nfs0001", "held by another machine");
  write_file(shard + "/notes.txt", "a user's");
  chmod(shard.c_str(), 0700);
  used_before(other, 100000);
  CHECK(Store::open(place.path())->trim(0, false).removed == 2);
  CHECK_FALSE(files::exists(other));
  CHECK(files::exists(shard + "/.nfs0001"));
  CHECK(files::exists(shard + "/notes.txt"));
}

TEST_CASE("a clock that was set back neither empties the directory nor keeps it full") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 6);
  // As if every entry but the oldest had been used in what is the future now.
  for (int i = 1; i < 6; ++i) used_before(path_of(place.path(), entries[i].key), -86400 * i);
  const uint64_t all = bytes_of(place.path(), entries);
  {
    const Environment cap("LATHE_CACHE_MAX_BYTES", std::to_string(all - 1));
    Store::open(place.path())->put(sample_entry("new"));
  }
  CHECK_FALSE(there(place.path(), entries[0]));
  for (int i = 1; i < 6; ++i) CHECK(there(place.path(), entries[i]));
  CHECK(Store::open(place.path())->trim(all / 2, false).removed > 0);
}

TEST_CASE("while one process trims another does nothing, and says so") {
  const TemporaryDirectory place;
  fill(place.path(), 3);
  // Holds the trim's byte, as a process in the middle of it does.
  const int fd = ::open((place.path() + "/v1/lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  struct flock what = {};
  what.l_type = F_WRLCK;
  what.l_whence = SEEK_SET;
  what.l_start = int64_t{1} << 62;
  what.l_len = 1;
  REQUIRE(fcntl(fd, F_OFD_SETLK, &what) == 0);
  const auto store = Store::open(place.path());
  CHECK(store->trim(0, false).busy);
  CHECK(store->stat().entries == 3);
  ::close(fd);
  CHECK_FALSE(store->trim(0, false).busy);
  CHECK(store->stat().entries == 0);
}

TEST_CASE("readers that meet eviction get the right entry or none") {
  const TemporaryDirectory place;
  std::vector<Entry> entries;
  for (int i = 0; i < 8; ++i) entries.push_back(sample_entry(std::to_string(i), 5000));
  std::atomic<bool> stop = false, wrong = false;
  std::atomic<int> read = 0;
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      const auto store = Store::open(place.path());
      for (int i = 0; !stop; ++i) {
        const auto found = store->get(entries[i % 8].key);
        if (found) ++read;
        if (found && !same(*found, entries[i % 8])) wrong = true;
      }
      if (store->stat().corrupt > 0) wrong = true;
    });
  }
  const auto store = Store::open(place.path());
  for (int round = 0; round < 40 || read < 200; ++round) {
    for (const Entry& entry : entries) store->put(entry);
    store->trim(20000, false);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK_FALSE(wrong);
}

TEST_CASE("whatever call of a trim fails, no entry is damaged and the next trim is whole") {
  for (const int error : {EIO, ENOENT, ESTALE, EBUSY, EACCES, ENOLCK, EMFILE}) {
    for (Fault fault{1, error, false, false, false};; ++fault.at) {
      const TemporaryDirectory place;
      const auto entries = fill(place.path(), 4);
      write_file(place.path() + "/v1/ab/.tmp.1.2", "old");
      chmod((place.path() + "/v1/ab").c_str(), 0700);
      used_before(place.path() + "/v1/ab/.tmp.1.2", 9999);
      const size_t before = open_descriptors();
      bool reached = false;
      {
        const FaultyFileSystem faulty(fault);
        Store::open(place.path(), faulty.table())->trim(2500, false);
        reached = faulty.reached();
      }
      CHECK(open_descriptors() == before);
      const auto store = Store::open(place.path());
      for (const Entry& entry : entries) {
        const auto found = store->get(entry.key);
        if (found) CHECK(same(*found, entry));
      }
      CHECK(store->trim(2500, false).bytes <= 2500);
      if (!reached) break;
    }
  }
}
