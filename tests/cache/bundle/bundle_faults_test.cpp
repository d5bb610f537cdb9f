// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover file calls that fail, and processes that are killed in them, while bundles and
// read-only directories are read, packed, merged and unpacked: the right kernel or a miss; the old
// file or the new one, never half of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cache/bundle/bundle.h"
#include "cache/tiers.h"
#include "codegen/base/text.h"
#include "tests/cache/bundle/bundles.h"
#include "tests/cache/faults.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

constexpr int kErrors[] = {EIO, ESTALE, EINTR, EACCES, EMFILE, ENOSPC, EROFS, ENOMEM};

// work(table) with a fault at each of its calls, until one run is not reached by it.
template <typename Work>
int at_every_call(Work work) {
  int most = 0;
  for (const int error : kErrors) {
    for (const bool persistent : {false, true}) {
      for (int at = 1;; ++at) {
        Fault fault;
        fault.at = at;
        fault.error = error;
        fault.persistent = persistent;
        fault.single_bytes = at % 2 == 0;
        const FaultyFileSystem faulty(fault);
        CAPTURE(at);
        CAPTURE(error);
        CAPTURE(persistent);
        // A call that is interrupted for ever is given up.
        work(faulty.table(), error == EINTR && !persistent);
        if (!faulty.reached()) break;
        REQUIRE(at < 5000);
        most = std::max(most, at);
      }
    }
  }
  return most;
}

}  // namespace

TEST_CASE("file calls that fail while a bundle is opened and read are misses") {
  const TemporaryDirectory place;
  good_bundle(place);
  Log log;
  const size_t before = open_descriptors();
  const int calls = at_every_call([&](const FileSystem& fs, bool harmless) {
    const auto tier = open_bundle_tier(place / "b", fs);
    const int found = right(*tier);
    if (found < 0 || (harmless && found != 3)) FAIL_CHECK("found " << found);
    tier->compilers();
    tier->nearest_difference(entries()[0].key);
    tier->keys();
    tier->read(entries()[1].key.digest).ok();
  });
  CHECK(calls > 10);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a file that a network file system has lost is opened anew, once") {
  const TemporaryDirectory place;
  good_bundle(place);
  static int stale = 0, opened = 0;
  FileSystem table = real_fs();
  table.pread = [](int fd, void* to, size_t bytes, off_t at) -> ssize_t {
    if (stale == 0) return real_fs().pread(fd, to, bytes, at);
    --stale;
    errno = ESTALE;
    return -1;
  };
  table.openat = [](int dir, const char* path, int flags, mode_t mode) {
    ++opened;
    return real_fs().openat(dir, path, flags, mode);
  };
  Log log;
  stale = opened = 0;
  const auto tier = open_bundle_tier(place / "b", table);
  CHECK(opened == 1);
  stale = 1;
  CHECK(right(*tier) == 3);
  CHECK(opened == 2);
  CHECK(log.warnings().empty());
  stale = 1 << 30;
  CHECK(right(*tier) == 0);
  CHECK(log.warnings().size() == 1);
  stale = 0;
  CHECK(right(*tier) == 3);
  CHECK(tier->stat().corrupt == 0);
}

TEST_CASE("threads share a bundle that is lost and found again under them") {
  const TemporaryDirectory place;
  good_bundle(place);
  static std::atomic<int> reads{0};
  FileSystem table = real_fs();
  table.pread = [](int fd, void* to, size_t bytes, off_t at) -> ssize_t {
    if (++reads % 5 != 0) return real_fs().pread(fd, to, bytes, at);
    errno = ESTALE;
    return -1;
  };
  Log log;
  reads = 0;
  const auto tier = open_bundle_tier(place / "b", table);
  const Tiers::List list = {tier};
  Tiers tiers(Store::open("off"), list);
  std::atomic<int> wrong{0}, found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 60; ++round) {
        const Entry& entry = entries()[static_cast<size_t>(t + round) % entries().size()];
        const auto hit = tiers.get(entry.key);
        if (hit && !same(hit->entry, entry)) ++wrong;
        found += hit.has_value();
        if (round % 10 == 0) tier->stat();
        if (round % 10 == 5) tiers.nearest_difference(entry.key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(found > 100);
  CHECK(tier->stat().hits == static_cast<uint64_t>(found));
  CHECK(tier->stat().hits + tier->stat().misses == 360);
}

TEST_CASE("file calls that fail while packing and merging leave the old file or the new one") {
  const TemporaryDirectory place;
  const auto store = Store::open(place / "cache");
  for (const Entry& entry : entries()) REQUIRE(store->put(entry));
  files::create_directory(place / "out");
  pack_all(place / "half", {{entries()[0]}});
  pack_all(place / "rest", {{entries()[1], entries()[2]}});
  pack_all(place / "old", {{sample_entry("old")}});
  const std::string old = read_file(place / "old");
  REQUIRE(pack_bundle(place / "new", {store.get()}, nullptr, {}).ok());
  const std::string whole = read_file(place / "new");
  const std::string path = place / "out/b";
  Log log;
  const size_t before = open_descriptors();

  const auto check = [&](bool ok, bool harmless) {
    const std::string now = read_file(path);
    if (ok ? now != whole : now != old && now != whole) FAIL_CHECK("half a file, or none");
    if (harmless && !ok) FAIL_CHECK("an interrupted call was not repeated");
    // A temporary file may stay only where the call that removes it failed.
    for (const auto& item : files::directory_iterator(place / "out"))
      if (item.path() != path) files::remove(item.path());
  };
  const int packing = at_every_call([&](const FileSystem& fs, bool harmless) {
    write_file(path, old);
    const auto from = Store::open(place / "cache", fs);
    std::vector<Digest> keys;
    for (const Entry& entry : entries()) keys.push_back(entry.key.digest);
    check(pack_bundle(path, {from.get()}, &keys, {}, fs).ok(), harmless);
  });
  const int merging = at_every_call([&](const FileSystem& fs, bool harmless) {
    write_file(path, old);
    const auto report = merge_bundles(path, {place / "half", place / "rest"}, fs);
    // An entry that cannot be read is left out and reported.
    if (report.ok() && report->bad > 0) return;
    check(report.ok(), harmless);
  });
  CHECK(packing > 30);
  CHECK(merging > 20);
  CHECK(open_descriptors() == before);
  REQUIRE(pack_bundle(path, {store.get()}, nullptr, {}).ok());
  CHECK(read_file(path) == whole);
}

TEST_CASE("file calls that fail while unpacking leave right entries or none, then all") {
  const TemporaryDirectory place;
  good_bundle(place);
  const size_t before = open_descriptors();
  Log log;
  const int calls = at_every_call([&](const FileSystem& fs, bool harmless) {
    files::remove_all(place / "cache");
    {
      const auto bundle = Bundle::open(place / "b", fs);
      const auto store = Store::open(place / "cache", fs);
      const bool all = bundle.ok() && [&] {
        const auto report = unpack_bundle(**bundle, *store);
        return report.ok() && report->added == 3;
      }();
      if (harmless && !all) FAIL_CHECK("an interrupted call was not repeated");
    }
    const auto bundle = Bundle::open(place / "b");
    const auto store = Store::open(place / "cache");
    for (const Entry& entry : entries()) {
      const auto found = store->get(entry.key);
      if (found && !same(*found, entry)) FAIL_CHECK("another entry");
    }
    const auto report = unpack_bundle(**bundle, *store);
    if (!report.ok() || report->added + report->present != 3) FAIL_CHECK("not healthy");
    for (const Entry& entry : entries())
      if (!store->get(entry.key)) FAIL_CHECK("an entry is missing");
  });
  CHECK(calls > 30);
  CHECK(open_descriptors() == before);
}

namespace {

// For n = 1, 2, ... prepare(n), then work(table) in a process that is killed at its n-th call, then
// check(); until one is not reached. Gives how many were killed.
template <typename Prepare, typename Work, typename Check>
int killed_at_every_call(Prepare prepare, Work work, Check check) {
  for (int at = 1;; ++at) {
    REQUIRE(at < 1000);
    CAPTURE(at);
    prepare(at);
    const pid_t child = in_child([&] {
      Fault fault;
      fault.at = at;
      fault.kill = true;
      const FaultyFileSystem faulty(fault);
      return work(faulty.table()) ? 0 : 1;
    });
    const int status = wait_for(child);
    if (!WIFSIGNALED(status)) CHECK(WEXITSTATUS(status) == 0);
    check();
    if (!WIFSIGNALED(status)) return at - 1;
  }
}

}  // namespace

TEST_CASE("kill -9 at any call of packing or merging leaves the old file or the new one") {
  const TemporaryDirectory place;
  const auto store = Store::open(place / "cache");
  for (const Entry& entry : entries()) REQUIRE(store->put(entry));
  pack_all(place / "half", {{entries()[0]}});
  pack_all(place / "rest", {{entries()[1], entries()[2]}});
  files::create_directory(place / "out");
  const std::string path = place / "out/b";
  const auto pack = [&](const FileSystem& fs) {
    const auto from = Store::open(place / "cache", fs);
    return pack_bundle(path, {from.get()}, nullptr, {}, fs).ok();
  };
  const auto merge = [&](const FileSystem& fs) {
    return merge_bundles(path, {place / "half", place / "rest"}, fs).ok();
  };
  const std::function<bool(const FileSystem&)> works[] = {pack, merge};
  for (const auto& work : works) {
    REQUIRE(work(real_fs()));
    const std::string whole = read_file(path);
    std::string old;
    int kept = 0, replaced = 0;
    const auto prepare = [&](int at) {
      // Every second time nothing is there before.
      old = at % 2 ? "an older file" : "";
      for (const auto& item : files::directory_iterator(place / "out")) files::remove(item.path());
      if (!old.empty()) write_file(path, old);
    };
    const int killed = killed_at_every_call(prepare, work, [&] {
      const std::string now = read_file(path);
      CHECK((now == whole || (now == old && files::exists(path) == !old.empty())));
      ++(now == whole ? replaced : kept);
      REQUIRE(work(real_fs()));
      CHECK(read_file(path) == whole);
    });
    CHECK(killed > 20);
    CHECK(kept > 15);
    CHECK(replaced > 1);
  }
}

TEST_CASE("kill -9 at any call of unpacking leaves right entries or none, and the next one all") {
  const TemporaryDirectory place;
  good_bundle(place);
  const auto unpack = [&](const FileSystem& fs) {
    const auto bundle = Bundle::open(place / "b", fs);
    const auto store = Store::open(place / "cache", fs);
    return bundle.ok() && unpack_bundle(**bundle, *store).ok();
  };
  int most = 0;
  const int killed = killed_at_every_call(
      [&](int) { files::remove_all(place / "cache"); }, unpack,
      [&] {
        const auto tier = open_read_only_directory(place / "cache", real_fs());
        const int found = right(*tier);
        CHECK(found >= 0);
        most = std::max(most, found);
        CHECK(tier->stat().corrupt == 0);
        REQUIRE(unpack(real_fs()));
        CHECK(right(*open_read_only_directory(place / "cache", real_fs())) == 3);
      });
  CHECK(killed > 30);
  CHECK(most == 3);
}

TEST_CASE("file calls that fail in a read-only directory are misses") {
  const TemporaryDirectory place;
  for (const Entry& entry : entries()) REQUIRE(Store::open(place / "theirs")->put(entry));
  Log log;
  const size_t before = open_descriptors();
  const int calls = at_every_call([&](const FileSystem& fs, bool harmless) {
    const auto tier = open_read_only_directory(place / "theirs", fs);
    const int found = right(*tier);
    if (found < 0 || (harmless && found != 3)) FAIL_CHECK("found " << found);
    tier->compilers();
    tier->keys();
    tier->stat();
    tier->tuned("h100");
  });
  CHECK(calls > 20);
  CHECK(open_descriptors() == before);
  CHECK(right(*open_read_only_directory(place / "theirs")) == 3);
}
