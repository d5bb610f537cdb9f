// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Bundles that are damaged, forged, exchanged or cut while they are open, and file calls that fail:
// the right kernel, a miss or a clean refusal; never another kernel, a crash or half a file.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "cache/bundle.h"
#include "cache/tiers.h"
#include "codegen/base/text.h"
#include "tests/cache/bundles.h"
#include "tests/cache/faults.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {sample_entry("a", 20), sample_entry("b", 20),
                                         sample_entry("c", 30)};
  return all;
}

std::string good_bundle(const TemporaryDirectory& place) {
  pack_all(place / "b", {entries()}, {tuned_line("h100", "m=2", 1)});
  return read_file(place / "b");
}

// How many of the entries a tier has; -1 if one of them is not what was packed.
int right(ReadOnlyTier& tier) {
  int found = 0;
  for (const Entry& entry : entries()) {
    const auto got = tier.get(entry.key);
    if (got && !same(*got, entry)) return -1;
    found += got.has_value();
  }
  return found;
}

struct Outcome {
  bool refused = false;
  int found = 0;
  std::string problem;
};

// What a fresh process makes of these bytes.
Outcome outcome(const std::string& path, const std::string& bytes) {
  write_file(path, bytes);
  const auto tier = open_bundle_tier(path);
  Outcome out;
  out.problem = tier->problem();
  out.refused = !out.problem.empty();
  out.found = right(*tier);
  if (out.refused) CHECK(out.found == 0);
  return out;
}

// The head's checksum made to fit again, as whoever forges a bundle would.
std::string signed_again(std::string bytes, size_t head) {
  const std::string_view all(bytes);
  const std::string zeros(16, '\0');
  const Digest sum = digest(all.substr(0, 48), zeros, all.substr(64, head - 64));
  std::memcpy(&bytes[48], sum.bytes.data(), 16);
  return bytes;
}

void put(std::string& bytes, size_t at, uint64_t value, int count = 8) {
  for (int i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

uint64_t get(const std::string& bytes, size_t at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// Where the index begins, and where it ends.
size_t index_at(const std::string& bytes) { return 64 + get(bytes, 24); }
size_t head_of(const std::string& bytes) { return index_at(bytes) + 32 * get(bytes, 16); }

}  // namespace

TEST_CASE("every bit that flips is a refusal of the whole or a miss of one entry") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  const size_t head = head_of(good);
  Log log;
  REQUIRE(outcome(place / "x", good).found == 3);
  int wrong = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const Outcome out = outcome(place / "x", bad);
      wrong += at < head ? !out.refused : out.refused || out.found != 2;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every truncation and whatever is appended is refused") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  Log log;
  int wrong = 0;
  for (size_t length = 0; length < good.size(); ++length)
    wrong += !outcome(place / "x", good.substr(0, length)).refused;
  CHECK(wrong == 0);
  for (const std::string& more : {std::string("x"), std::string(1, '\0'), std::string(4096, '\0'),
                                  good, encode_entry(sample_entry("d"))})
    CHECK(outcome(place / "x", good + more).problem.find("follow its end") != std::string::npos);
  CHECK(outcome(place / "x", std::string(good.size(), '\0')).refused);
  CHECK(outcome(place / "x", encode_entry(entries()[0])).refused);
}

TEST_CASE("a forged head is refused with its reason, though its checksum fits") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  const size_t index = index_at(good), head = head_of(good);
  Log log;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    const Outcome out = outcome(place / "x", signed_again(bytes, head));
    CAPTURE(out.problem);
    CHECK(out.problem.find(part) != std::string::npos);
  };
  const auto changed = [&](size_t at, uint64_t value, int count = 8) {
    std::string bytes = good;
    put(bytes, at, value, count);
    return bytes;
  };
  CHECK(outcome(place / "x", signed_again(good, head)).found == 3);
  refused(changed(8, 2, 4), "bundle version 2, known is 1");
  refused(changed(8, 0, 4), "bundle version 0");
  refused(changed(12, 65, 4), "header of 65 bytes");
  refused(changed(32, 1), "reserved");
  for (const uint64_t count : {uint64_t{1} << 59, uint64_t{1} << 60, ~uint64_t{0}, uint64_t{1000}})
    refused(changed(16, count), "more than it holds");
  for (const uint64_t bytes : {uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 63})
    refused(changed(24, bytes), "more than it holds");

  // Rows of the index: key at 0, offset at 16, length at 24.
  refused(changed(index + 16, get(good, index + 16) + 1), "begins at byte");
  refused(changed(index + 16, 0), "begins at byte");
  refused(changed(index + 24, get(good, index + 24) + 1), "begins at byte");
  refused(changed(index + 24, get(good, index + 24) - 1), "begins at byte");
  refused(changed(index + 24, ~uint64_t{0}), "is not in the file");
  refused(changed(index + 24, 95), "is not in the file");
  refused(changed(index + 64 + 24, get(good, index + 64 + 24) - 1), "follow its end");
  refused(changed(index + 64 + 24, get(good, index + 64 + 24) + 1), "is not in the file");
  std::string swapped = good;
  std::swap_ranges(swapped.begin() + index, swapped.begin() + index + 32,
                   swapped.begin() + index + 32);
  refused(swapped, "begins at byte");
  std::string keys = good;
  std::swap_ranges(keys.begin() + index, keys.begin() + index + 16, keys.begin() + index + 32);
  refused(keys, "out of order");
  std::string twice = good;
  std::copy_n(good.begin() + index, 16, twice.begin() + index + 32);
  refused(twice, "is twice in the index");

  std::string text = good;
  text[64] = 'z';
  refused(text, "other than arch=");
  text = good;
  text[index - 1] = 'x';
  refused(text, "does not end in a newline");
  text = good;
  std::swap(text[64], text[good.find("compiler=")]);
  refused(text, "information");
}

TEST_CASE("two entries that changed places are two misses") {
  const TemporaryDirectory place;
  std::string bytes = good_bundle(place);
  // Those of equal length, whatever their order in the index.
  std::vector<size_t> at;
  for (const char* name : {"a", "b"}) {
    const std::string entry = encode_entry(sample_entry(name, 20));
    at.push_back(bytes.find(entry));
    REQUIRE(at.back() != bytes.npos);
  }
  const size_t length = encode_entry(entries()[0]).size();
  std::swap_ranges(bytes.begin() + at[0], bytes.begin() + at[0] + length, bytes.begin() + at[1]);
  Log log;
  const Outcome out = outcome(place / "x", bytes);
  CHECK_FALSE(out.refused);
  CHECK(out.found == 1);
  CHECK(log.mentions("another key"));
}

TEST_CASE("a damaged entry is a counted miss with one warning, and the others are served") {
  const TemporaryDirectory place;
  std::string bytes = good_bundle(place);
  bytes.back() ^= 1;
  write_file(place / "x", bytes);
  Log log;
  const auto tier = open_bundle_tier(place / "x");
  for (int round = 0; round < 3; ++round) CHECK(right(*tier) == 2);
  CHECK(tier->stat().hits == 6);
  CHECK(tier->stat().misses == 3);
  CHECK(tier->stat().corrupt == 3);
  CHECK(log.warnings().size() == 1);
  CHECK(log.mentions("passed over"));
  CHECK(read_file(place / "x") == bytes);
}

TEST_CASE("a collision of digests is a miss and no damage") {
  const TemporaryDirectory place;
  good_bundle(place);
  Log log;
  const auto tier = open_bundle_tier(place / "b");
  Key other = entries()[0].key;
  other.text += "option=-lineinfo\n";
  CHECK_FALSE(tier->get(other).has_value());
  CHECK(tier->stat().corrupt == 0);
  CHECK(log.warnings().empty());
  CHECK(right(*tier) == 3);
}

TEST_CASE("a bundle that is exchanged or removed while it is open goes on as it was") {
  const TemporaryDirectory place;
  good_bundle(place);
  Log log;
  const auto tier = open_bundle_tier(place / "b");
  Entry other = entries()[0];
  other.cubin += "other";
  pack_all(place / "other", {{other, sample_entry("d")}});
  files::rename(place / "b", place / "aside");
  files::rename(place / "other", place / "b");
  CHECK(right(*tier) == 3);
  CHECK_FALSE(tier->get(sample_key("d")).has_value());
  const auto after = open_bundle_tier(place / "b");
  CHECK(same(*after->get(other.key), other));
  files::remove(place / "aside");
  files::remove(place / "b");
  CHECK(right(*tier) == 3);
  CHECK(same(*after->get(other.key), other));
  CHECK(log.warnings().empty());
}

TEST_CASE("a bundle that is cut or overwritten while it is open is misses") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  Log log;
  const auto tier = open_bundle_tier(place / "b");
  for (size_t length = 0; length <= good.size(); length += 13) {
    REQUIRE(truncate((place / "b").c_str(), static_cast<off_t>(good.size() - length)) == 0);
    CHECK(right(*tier) == (length == 0 ? 3 : length <= 13 ? 2 : std::max(0, right(*tier))));
  }
  REQUIRE(truncate((place / "b").c_str(), 0) == 0);
  CHECK(right(*tier) == 0);
  write_file(place / "b", std::string(good.size(), 'x'));
  CHECK(right(*tier) == 0);
  write_file(place / "b", good);
  CHECK(right(*tier) == 3);
}

namespace {

constexpr int kErrors[] = {EIO, ESTALE, EINTR, EACCES, EMFILE, ENOSPC, EROFS, ENOMEM};

// work(table) with a fault at each of its calls, until one run is not reached by it.
template <typename Work>
int at_every_call(Work work) {
  int most = 0;
  for (const int error : kErrors) {
    for (const bool persistent : {false, true}) {
      if (persistent && error == EINTR)
        continue;  // a signal at every call there is: see store_test
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
        work(faulty.table(), error == EINTR);
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
    // What cannot be read is left out and told.
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

TEST_CASE("kill -9 at any call of packing leaves the old file or the new one") {
  const TemporaryDirectory place;
  const auto store = Store::open(place / "cache");
  for (const Entry& entry : entries()) REQUIRE(store->put(entry));
  REQUIRE(pack_bundle(place / "new", {store.get()}, nullptr, {}).ok());
  const std::string whole = read_file(place / "new");
  files::create_directory(place / "out");
  const std::string path = place / "out/b";
  int kept = 0, replaced = 0;
  bool killed = true;
  for (int at = 1; killed; ++at) {
    REQUIRE(at < 1000);
    // Every second time nothing is there before.
    const std::string old = at % 2 ? "an older file" : "";
    for (const auto& item : files::directory_iterator(place / "out")) files::remove(item.path());
    if (!old.empty()) write_file(path, old);
    const pid_t child = in_child([&] {
      Fault fault;
      fault.at = at;
      fault.kill = true;
      const FaultyFileSystem faulty(fault);
      const auto from = Store::open(place / "cache", faulty.table());
      return pack_bundle(path, {from.get()}, nullptr, {}, faulty.table()).ok() ? 0 : 1;
    });
    const int status = wait_for(child);
    killed = WIFSIGNALED(status);
    if (!killed) CHECK(WEXITSTATUS(status) == 0);
    const std::string now = read_file(path);
    CHECK((now == whole || (now == old && files::exists(path) == !old.empty())));
    ++(now == whole ? replaced : kept);
    REQUIRE(pack_bundle(path, {store.get()}, nullptr, {}).ok());
    CHECK(read_file(path) == whole);
  }
  CHECK(kept > 20);
  CHECK(replaced > 1);
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
