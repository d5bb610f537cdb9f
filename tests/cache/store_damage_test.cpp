// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover files on disk that are not what was published: each is a miss (or, for what is
// not damage, a hit), never another kernel, and the next publish heals it.
#include "codegen/base/text.h"
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

// One entry in a directory of its own, and its file for writing anything into.
struct Victim {
  TemporaryDirectory place;
  Entry entry = sample_entry("victim", 60);
  std::string good = encode_entry(entry);
  std::string path = path_of(place.path(), entry.key);
  std::shared_ptr<Store> store;
  Log log;

  Victim() {
    store = Store::open(place.path(), quick_fs());
    store->put(entry);
  }
  // Returns whether the store answers with a miss that leaves no file, after which a publish is a
  // hit.
  bool heals(const std::string& bytes) {
    write_file(path, bytes);
    if (store->get(entry.key) || files::exists(path)) return false;
    store->put(entry);
    const auto found = store->get(entry.key);
    return found && same(*found, entry);
  }
};

}  // namespace

TEST_CASE("every bit of an entry's file flipped is a miss, or a newer format, and heals") {
  Victim victim;
  REQUIRE(read_file(victim.path) == victim.good);
  constexpr size_t kVersionAt = 8, kVersionBytes = 4;
  size_t failed = 0, newer = 0;
  for (size_t bit = 0; bit < 8 * victim.good.size(); ++bit) {
    std::string bytes = victim.good;
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    if (bit / 8 >= kVersionAt && bit / 8 < kVersionAt + kVersionBytes && bit != 8 * kVersionAt) {
      // The file of a version to come, which it is not ours to remove.
      write_file(victim.path, bytes);
      failed += victim.store->get(victim.entry.key).has_value();
      newer += read_file(victim.path) == bytes;
      victim.store->put(victim.entry);
      failed += !victim.store->get(victim.entry.key);
    } else {
      failed += !victim.heals(bytes);
    }
  }
  CHECK(failed == 0);
  CHECK(newer == 8 * kVersionBytes - 1);
  CHECK(victim.store->stat().entries == 1);
  CHECK(victim.log.warnings().size() == 1);  // one for the entry, however often it was bad
}

TEST_CASE("every truncation, appended bytes, zeros and an empty file are misses and heal") {
  Victim victim;
  size_t failed = 0;
  for (size_t bytes = 0; bytes < victim.good.size(); ++bytes)
    failed += !victim.heals(victim.good.substr(0, bytes));
  for (size_t more : {1, 2, 100, 5000}) failed += !victim.heals(victim.good + std::string(more, 0));
  failed += !victim.heals(victim.good + victim.good);
  failed += !victim.heals(std::string(victim.good.size(), '\0'));
  failed += !victim.heals(std::string(victim.good.size(), '\xff'));
  // A block that never reached the disk, as after a power cut.
  for (size_t at = 0; at + 16 <= victim.good.size(); at += 16) {
    std::string hole = victim.good;
    hole.replace(at, 16, 16, '\0');
    if (hole != victim.good) failed += !victim.heals(hole);
  }
  CHECK(failed == 0);
}

TEST_CASE("verify finds and removes each kind of damage, and nothing else") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path(), quick_fs());
  std::vector<Entry> entries;
  for (int i = 0; i < 8; ++i) {
    entries.push_back(sample_entry(text("e", i), 100));
    store->put(entries.back());
  }
  const auto path = [&](int i) { return path_of(place.path(), entries[i].key); };
  write_file(path(0), "");
  write_file(path(1), encode_entry(entries[2]));
  write_file(path(3), encode_entry(entries[3]).substr(0, 200));
  files::remove(path(4));
  files::create_symlink(path(5), path(4));
  const VerifyReport report = store->verify();
  CHECK(report.checked == 8);
  CHECK(report.removed == 4);
  for (int i : {0, 1, 3, 4})
    CHECK(report.problems.find(entries[i].key.digest.hex()) != std::string::npos);
  for (int i : {2, 5, 6, 7}) CHECK(store->get(entries[i].key).has_value());
  CHECK(store->verify().problems == "");
}

TEST_CASE("entries whose files changed places are misses, and both heal") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path(), quick_fs());
  const Entry a = sample_entry("a"), b = sample_entry("b", 5000);
  store->put(a);
  store->put(b);
  const std::string one = path_of(place.path(), a.key), two = path_of(place.path(), b.key);
  files::rename(one, place / "swap");
  files::rename(two, one);
  files::rename(place / "swap", two);
  Log log;
  CHECK_FALSE(store->get(a.key).has_value());
  CHECK_FALSE(store->get(b.key).has_value());
  CHECK(store->stat().corrupt == 2);
  check_next_run(place.path(), {a, b});
}

TEST_CASE("a hard link under another name is no entry of that name") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path(), quick_fs());
  const Entry a = sample_entry("a"), b = sample_entry("b");
  store->put(a);
  store->put(b);
  files::remove(path_of(place.path(), b.key));
  files::create_hard_link(path_of(place.path(), a.key), path_of(place.path(), b.key));
  Log log;
  CHECK_FALSE(store->get(b.key).has_value());
  CHECK(store->get(a.key).has_value());
  check_next_run(place.path(), {a, b});
}

TEST_CASE("what stands in an entry's place is no kernel: links, pipes, sockets, folders") {
  Victim victim;
  const auto refused = [&] {
    const bool missed = !victim.store->get(victim.entry.key);
    victim.store->verify();
    victim.store->nearest_difference(sample_key("other"));
    victim.store->trim(0, false);
    return missed;
  };
  files::rename(victim.path, victim.place / "real");
  for (const std::string& target : {victim.place / "real", victim.place / "nothing", victim.path}) {
    files::create_symlink(target, victim.path);
    CHECK(refused());
    files::remove(victim.path);
  }
  CHECK(read_file(victim.place / "real") == victim.good);  // a link is not followed to harm
  REQUIRE(mkfifo(victim.path.c_str(), 0600) == 0);
  CHECK(refused());
  files::remove(victim.path);
  if (mknod(victim.path.c_str(), S_IFSOCK | 0600, 0) == 0) {
    CHECK(refused());
    files::remove(victim.path);
  }
  files::create_directory(victim.path);
  write_file(victim.path + "/inside", "x");
  CHECK(refused());
  victim.store->put(victim.entry);  // cannot replace a folder, which is no error either
  CHECK_FALSE(victim.store->get(victim.entry.key).has_value());
  CHECK(count_files(victim.place.path(), ".tmp.") == 0);
  files::remove_all(victim.path);
  victim.store->put(victim.entry);
  CHECK(victim.store->get(victim.entry.key).has_value());
}

TEST_CASE("another user's entry is not run, and is replaced") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give a file away");
    return;
  }
  Victim victim;
  REQUIRE(chown(victim.path.c_str(), 12345, 12345) == 0);
  CHECK_FALSE(victim.store->get(victim.entry.key).has_value());
  victim.store->put(victim.entry);
  CHECK(victim.store->get(victim.entry.key).has_value());
}

TEST_CASE("an absurd size is refused before memory is asked for") {
  Victim victim;
  files::resize_file(victim.path, uint64_t{1} << 40);  // sparse: takes no room
  CHECK_FALSE(victim.store->get(victim.entry.key).has_value());
  CHECK_FALSE(files::exists(victim.path));
}

TEST_CASE("the list of compilers may be anything") {
  Victim victim;
  const std::string list = victim.place / "v1/compilers";
  const Entry other = [] {
    Entry entry = sample_entry("other");
    entry.key = sample_key("other", "nvrtc 13.2 def");
    return entry;
  }();
  for (const std::string& bytes :
       {std::string(), std::string("\n\n\n"), std::string(1000, '\0'), std::string(200000, 'x'),
        std::string("half a li"), std::string("nvrtc 13.0 abc\n\xff\xfe\n")}) {
    write_file(list, bytes);
    const auto store = Store::open(victim.place.path(), quick_fs());
    store->compilers();
    store->put(other);
    CHECK(store->get(other.key).has_value());
    CHECK(store->compilers().size() < 64);
  }
  files::remove(list);
  REQUIRE(mkfifo(list.c_str(), 0600) == 0);
  const auto store = Store::open(victim.place.path(), quick_fs());
  CHECK(store->compilers().empty());
  store->put(other);
  CHECK(store->get(other.key).has_value());
}
