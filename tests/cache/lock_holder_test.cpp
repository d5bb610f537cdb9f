// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check processes that wait for a lock whose holder is killed, stopped, or done but
// slow to let go, and processes that wait for a compile slot. Compiling is a stand-in that counts
// itself in a file.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cache/store/store.h"
#include "tests/cache/faults.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

// Starts a child that takes the lock, does `first`, says so and goes no further.
pid_t holder(const std::string& root, const Entry& entry, const Signal& ready,
             const std::function<void(Store&)>& first) {
  return in_child([&] {
    const auto store = Store::open(root);
    const Store::Lock lock = store->lock(entry.key);
    if (!lock.held()) return 3;
    first(*store);
    ready.send();
    pause();
    return 0;
  });
}

void end(pid_t child) {
  kill(child, SIGKILL);
  wait_for(child);
}

}  // namespace

TEST_CASE("a holder killed while it compiles costs one compile more, however many wait") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const std::string root = place / "cache", compiles = place / "compiles";
  const Signal ready;
  const pid_t first = holder(root, entry, ready, [&](Store&) { note_compile(compiles); });
  ready.wait();
  std::vector<pid_t> waiting;
  const Signal begun;
  for (int i = 0; i < 12; ++i)
    waiting.push_back(in_child([&] {
      const auto store = Store::open(root);
      begun.send();
      return find_or_compile(*store, entry, compiles);
    }));
  for (size_t i = 0; i < waiting.size(); ++i) begun.wait();
  end(first);
  for (const pid_t child : waiting) CHECK(wait_for(child) == 0);
  CHECK(read_file(compiles).size() == 2);
}

TEST_CASE("a holder killed in the middle of publishing leaves nothing to trip over") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const Signal ready;
  const pid_t first = holder(place / "cache", entry, ready, [&](Store&) {
    const std::string hex = entry.key.digest.hex();
    write_file(place / ("cache/v1/" + hex.substr(0, 2) + "/.tmp.1.2"), "half an entry");
  });
  ready.wait();
  std::filesystem::permissions(place / ("cache/v1/" + entry.key.digest.hex().substr(0, 2)),
                               std::filesystem::perms::owner_all);
  end(first);
  const auto store = Store::open(place / "cache");
  CHECK(find_or_compile(*store, entry, place / "compiles") == 0);
  CHECK(store->get(entry.key).has_value());
  CHECK(store->stat().entries == 1);
}

TEST_CASE("a holder stopped past the limit makes others compile privately, and may go on later") {
  const TemporaryDirectory place;
  const Environment limit("LATHE_LOCK_TIMEOUT_MS", "30");
  const Entry entry = sample_entry("a");
  const std::string root = place / "cache", compiles = place / "compiles";
  const Signal ready, go_on, published;
  const pid_t child = in_child([&] {
    const auto store = Store::open(root);
    const Store::Lock lock = store->lock(entry.key);
    note_compile(compiles);
    ready.send();
    go_on.wait();
    store->put(entry);
    published.send();
    return lock.held() ? 0 : 3;
  });
  ready.wait();
  kill(child, SIGSTOP);
  {
    Log log;
    CHECK(find_or_compile(*Store::open(root), entry, compiles) == 0);
    CHECK(log.mentions("compiling privately"));
    CHECK(log.mentions(entry.key.digest.hex()));
  }
  CHECK(read_file(compiles).size() == 2);
  // It is published now: nobody waits for the stopped one any more.
  CHECK(find_or_compile(*Store::open(root), entry, compiles) == 0);
  kill(child, SIGCONT);
  go_on.send();
  published.wait();
  CHECK(wait_for(child) == 0);
  CHECK(read_file(compiles).size() == 2);
  CHECK(Store::open(root)->verify().problems == "");
}

TEST_CASE("who waits reads what is published although the lock is still held") {
  const TemporaryDirectory place;
  const Environment limit("LATHE_LOCK_TIMEOUT_MS", "20000");
  const Entry entry = sample_entry("a");
  const Signal ready;
  const pid_t child = holder(place.path(), entry, ready, [&](Store& store) { store.put(entry); });
  ready.wait();
  Log log;
  const auto store = Store::open(place.path());
  CHECK_FALSE(store->lock(entry.key).held());
  CHECK(same(*store->get(entry.key, true), entry));
  CHECK(log.warnings().empty());
  // A damaged entry is looked at once and is then waited for like a missing one.
  write_file(path_of(place.path(), entry.key), "damage");
  CHECK_FALSE(store->get(entry.key).has_value());
  const Environment soon("LATHE_LOCK_TIMEOUT_MS", "20");
  CHECK_FALSE(Store::open(place.path())->lock(entry.key).held());
  CHECK(log.mentions("compiling privately"));
  end(child);
  CHECK(Store::open(place.path())->lock(entry.key).held());
}

TEST_CASE("the lock file removed or replaced costs a compile more and no error") {
  const TemporaryDirectory place;
  const auto one = Store::open(place.path()), two = Store::open(place.path());
  const Key key = sample_key("a");
  {
    const Store::Lock held = one->lock(key);
    REQUIRE(held.held());
    std::filesystem::remove(place / "v1/lock");
    CHECK(two->lock(key).held());  // another file: both compile
  }
  std::filesystem::remove(place / "v1/lock");
  REQUIRE(symlink("elsewhere", (place / "v1/lock").c_str()) == 0);
  CHECK_FALSE(one->lock(key).held());
  CHECK_FALSE(std::filesystem::exists(place / "v1/elsewhere"));
  std::filesystem::remove(place / "v1/lock");
  CHECK(one->lock(key).held());
}

namespace {

// Takes all compile slots of this machine but `free` of them, each with a key of its own.
std::vector<Store::Lock> take_slots(Store& store, long free = 0) {
  std::vector<Store::Lock> taken;
  for (long i = free; i < sysconf(_SC_NPROCESSORS_ONLN); ++i) {
    taken.push_back(store.lock_to_compile(sample_key("slot " + std::to_string(i))));
    CHECK(taken.back().has_slot());
  }
  return taken;
}

}  // namespace

TEST_CASE("there is a compile slot per core, and who waits for one holds nothing") {
  const TemporaryDirectory place;
  const Environment limit("LATHE_LOCK_TIMEOUT_MS", "20000");
  const auto store = Store::open(place.path()), other = Store::open(place.path());
  std::vector<Store::Lock> taken = take_slots(*store);
  const Entry entry = sample_entry("a"), late = sample_entry("b");
  CHECK(store->lock(entry.key).held());  // what compiles nothing needs none

  std::atomic<int> done{0};
  std::atomic<bool> has_slot{false}, found{false};
  std::thread compiles([&] {
    const auto mine = Store::open(place.path());
    const Store::Lock lock = mine->lock_to_compile(late.key);
    has_slot = lock.has_slot();
    ++done;
  });
  std::thread reads([&] {
    const auto mine = Store::open(place.path());
    const Store::Lock lock = mine->lock_to_compile(entry.key);
    found = !lock.held() && mine->get(entry.key).has_value();
    ++done;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(done == 0);
  // The key of one that waits is free for others, and what they publish ends the waiting.
  CHECK(other->lock(entry.key).held());
  CHECK(other->put(entry));
  reads.join();
  CHECK(found);
  CHECK(done == 1);
  taken.pop_back();
  compiles.join();
  CHECK(has_slot);
}

TEST_CASE("a killed holder frees its compile slot, a stopped one is waited for ever shorter") {
  const TemporaryDirectory place;
  const Environment limit("LATHE_LOCK_TIMEOUT_MS", "40");
  const auto store = Store::open(place.path());
  const std::vector<Store::Lock> taken = take_slots(*store, 1);
  const Signal ready;
  const pid_t child = in_child([&] {
    const auto mine = Store::open(place.path());
    const Store::Lock lock = mine->lock_to_compile(sample_key("a"));
    ready.send();
    pause();
    return lock.has_slot() ? 0 : 3;
  });
  ready.wait();
  {
    Log log;
    for (int i = 0; i < 70; ++i) {
      const Store::Lock lock = store->lock_to_compile(sample_key("b"));
      CHECK(lock.held());
      CHECK_FALSE(lock.has_slot());
    }
    CHECK(log.mentions("compile slots"));
  }
  end(child);
  CHECK(store->lock_to_compile(sample_key("b")).has_slot());
}

TEST_CASE("who has compiled for long leaves the slot to those who wait") {
  const TemporaryDirectory place;
  const Environment limit("LATHE_LOCK_TIMEOUT_MS", "60000");
  const auto store = Store::open(place.path());
  const std::vector<Store::Lock> taken = take_slots(*store, 1);
  std::atomic<bool> over{false};
  std::thread busy([&] {
    for (int i = 0; !over; ++i) {
      const Store::Lock lock = store->lock_to_compile(sample_key("busy " + std::to_string(i)));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(store->lock_to_compile(sample_key("a")).has_slot());
  over = true;
  busy.join();
}

TEST_CASE("where locks do not work nobody waits for a compile slot") {
  const TemporaryDirectory place;
  FaultyFileSystem faulty{Fault()};
  FileSystem table = faulty.table();
  // Locks of keys work here, and locks of slots fail: the slots lie behind the byte of eviction.
  table.lock = [](int fd, int command, struct flock* what) {
    if (what->l_start <= int64_t{1} << 62) return real_fs().lock(fd, command, what);
    errno = ENOLCK;
    return -1;
  };
  const auto store = Store::open(place.path(), table);
  Log log;
  const Store::Lock lock = store->lock_to_compile(sample_key("a"));
  CHECK(lock.held());
  CHECK_FALSE(lock.has_slot());
  CHECK(log.warnings().empty());
}
