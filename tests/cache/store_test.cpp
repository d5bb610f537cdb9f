// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the store's invariant: the right kernel or a miss; never a wrong hit, crash,
// hang or leaked descriptor; and the next run is healthy.
#include "cache/store/store.h"

#include <thread>

#include "codegen/base/text.h"
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

TEST_CASE("an entry that was put is found, by this store and by another") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  const Entry entry = sample_entry("a", 5000);
  CHECK_FALSE(store->get(entry.key).has_value());
  store->put(entry);
  for (const auto& reader : {store, Store::open(place.path())}) {
    const auto found = reader->get(entry.key);
    REQUIRE(found.has_value());
    CHECK(same(*found, entry));
  }
  CHECK_FALSE(store->get(sample_key("b")).has_value());
  const StoreStat stat = store->stat();
  CHECK(stat.entries == 1);
  CHECK(stat.bytes == encode_entry(entry).size());
  CHECK(stat.hits == 1);
  CHECK(stat.misses == 2);
  CHECK(stat.published == 1);
  CHECK(stat.corrupt == 0);
  CHECK(count_files(place.path(), ".tmp.") == 0);
}

TEST_CASE("a bad entry is a miss, is removed, and is healed by the next put") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const std::string good = encode_entry(entry);
  std::string flipped = good;
  flipped[200] ^= 4;
  const std::string path = path_of(place.path(), entry.key);
  for (const std::string& bad :
       {std::string(), std::string("x"), flipped, good + "x", good.substr(0, good.size() - 1),
        std::string(good.size(), '\0'), encode_entry(sample_entry("b"))}) {
    write_file(path, bad);
    Log log;
    const auto store = Store::open(place.path());
    CHECK_FALSE(store->get(entry.key).has_value());
    CHECK_FALSE(files::exists(path));
    CHECK(store->stat().corrupt == 1);
    CHECK(log.warnings().size() == 1);
    store->put(entry);
    CHECK(store->get(entry.key).has_value());
  }
}

TEST_CASE("two entries whose files were swapped are misses") {
  const TemporaryDirectory place;
  const Entry a = sample_entry("a"), b = sample_entry("b");
  write_file(path_of(place.path(), a.key), encode_entry(b));
  write_file(path_of(place.path(), b.key), encode_entry(a));
  chmod((place / "v1").c_str(), 0700);
  const auto store = Store::open(place.path());
  CHECK_FALSE(store->get(a.key).has_value());
  CHECK_FALSE(store->get(b.key).has_value());
  CHECK(store->stat().corrupt == 2);
}

TEST_CASE("a collision of digests is a miss and harms nobody") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const auto store = Store::open(place.path());
  store->put(entry);
  Key other = entry.key;
  other.text += "option=-lineinfo\n";
  CHECK_FALSE(store->get(other).has_value());
  CHECK(store->get(entry.key).has_value());
  CHECK(store->stat().corrupt == 0);
}

TEST_CASE("an entry of a newer format is left in place") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const auto store = Store::open(place.path());
  store->put(entry);
  const std::string path = path_of(place.path(), entry.key);
  std::string newer = encode_entry(entry);
  newer[8] = 2;
  write_file(path, newer);
  CHECK_FALSE(store->get(entry.key).has_value());
  CHECK(store->verify().removed == 0);
  CHECK(read_file(path) == newer);
  CHECK(store->stat().corrupt == 0);
}

TEST_CASE("what is no regular file of ours is not followed and does not hang") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const std::string path = path_of(place.path(), entry.key);
  const auto store = Store::open(place.path());
  store->put(entry);

  files::rename(path, place / "real");
  files::create_symlink(place / "real", path);
  CHECK_FALSE(store->get(entry.key).has_value());
  CHECK(files::exists(place / "real"));
  store->put(entry);
  CHECK(store->get(entry.key).has_value());

  files::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(store->get(entry.key).has_value());
  store->put(entry);
  CHECK(store->get(entry.key).has_value());

  files::remove(path);
  files::create_directory(path);
  CHECK_FALSE(store->get(entry.key).has_value());
  store->put(entry);
  CHECK_FALSE(store->get(entry.key).has_value());
  files::remove(path);
  store->put(entry);
  CHECK(store->get(entry.key).has_value());

  if (geteuid() == 0) {
    REQUIRE(chown(path.c_str(), 12345, 12345) == 0);
    CHECK_FALSE(store->get(entry.key).has_value());
    store->put(entry);
    CHECK(store->get(entry.key).has_value());
  }
}

TEST_CASE("a hit renews an mtime that is older than an hour, and no other") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const auto store = Store::open(place.path());
  store->put(entry);
  const std::string path = path_of(place.path(), entry.key);
  const auto age_after_get = [&](long seconds) {
    const time_t now = time(nullptr);
    const struct timespec times[2] = {{now - seconds, 0}, {now - seconds, 0}};
    utimensat(AT_FDCWD, path.c_str(), times, 0);
    CHECK(store->get(entry.key).has_value());
    struct stat status = {};
    stat(path.c_str(), &status);
    return now - status.st_mtime;
  };
  CHECK(age_after_get(7200) <= 0);
  CHECK(age_after_get(600) == 600);
  CHECK(age_after_get(-7200) == -7200);  // a clock that was set back
}

TEST_CASE("the cache may be removed while it is in use") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const auto store = Store::open(place / "cache");
  store->put(entry);
  files::remove_all(place / "cache/v1");
  CHECK_FALSE(store->get(entry.key).has_value());
  CHECK(store->lock(entry.key).held());
  store->put(entry);
  CHECK(store->get(entry.key).has_value());

  files::remove_all(place / "cache");
  CHECK_FALSE(store->get(entry.key).has_value());
  store->put(entry);
  CHECK(store->stat().publish_failures == 1);
  check_healthy(place / "cache", entry);
}

TEST_CASE("readers, writers and a remover get along") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  std::vector<Entry> entries;
  for (int i = 0; i < 6; ++i) entries.push_back(sample_entry(text("k", i), 20000));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 40; ++round) {
        const Entry& entry = entries[static_cast<size_t>(t + round) % entries.size()];
        if (t < 3) {
          const auto found = store->get(entry.key);
          if (found && !same(*found, entry)) ++wrong;
        } else if (t < 5) {
          store->put(entry);
        } else if (round % 2 == 0) {
          std::error_code ignored;
          files::remove(path_of(place.path(), entry.key), ignored);
        } else {
          store->stat();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(store->stat().corrupt == 0);
  CHECK(store->stat().publish_failures == 0);
}
