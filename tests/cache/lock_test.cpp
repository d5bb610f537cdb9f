// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover one lock per key between stores and processes; and the protocol that it makes
// cheap: look, lock, look again, compile, publish. Compiling is a stand-in here that counts itself
// in a file.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <chrono>
#include <thread>

#include "cache/store/store.h"
#include "codegen/base/text.h"
#include "tests/cache/faults.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

size_t compiles_of(int processes, int keys) {
  const TemporaryDirectory place;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i)
    children.push_back(in_child([&] {
      const auto store = Store::open(place / "cache");
      int wrong = 0;
      for (int k = 0; k < keys; ++k) {
        const std::string name = text("k", (i + k) % keys);
        wrong += find_or_compile(*store, sample_entry(name), place / "compiles");
      }
      return wrong;
    }));
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  return read_file(place / "compiles").size();
}

}  // namespace

TEST_CASE("one key excludes, in one process too, and others do not") {
  const TemporaryDirectory place;
  const Environment timeout("LATHE_LOCK_TIMEOUT_MS", "30");
  const auto one = Store::open(place.path()), two = Store::open(place.path());
  Log log;
  {
    const auto held = one->lock(sample_key("a"));
    CHECK(held.held());
    CHECK(two->lock(sample_key("b")).held());
    CHECK_FALSE(two->lock(sample_key("a")).held());
    CHECK_FALSE(one->lock(sample_key("a")).held());
    CHECK(log.mentions(sample_key("a").digest.hex()));
  }
  CHECK(two->lock(sample_key("a")).held());
}

TEST_CASE("a limit that is no number is named and the default holds") {
  const TemporaryDirectory place;
  for (const char* value : {"soon", "-1", "10s"}) {
    const Environment timeout("LATHE_LOCK_TIMEOUT_MS", value);
    Log log;
    CHECK(Store::open(place.path())->lock(sample_key("a")).held());
    CHECK(log.mentions(value));
  }
}

TEST_CASE("a file system without locks is answered at once") {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP, EIO}) {
    const TemporaryDirectory place;
    FaultyFileSystem faulty{Fault()};
    FileSystem table = faulty.table();
    static int answer;
    answer = error;
    table.lock = [](int, int, struct flock*) {
      errno = answer;
      return -1;
    };
    Log log;
    const auto store = Store::open(place.path(), table);
    CHECK_FALSE(store->lock(sample_key("a")).held());
    CHECK_FALSE(store->lock(sample_key("b")).held());
    CHECK(log.warnings().size() == 1);
  }
}

TEST_CASE("64 processes compile one key once, and 16 keys once each") {
  CHECK(compiles_of(64, 1) == 1);
  CHECK(compiles_of(64, 16) == 16);
}

TEST_CASE("64 threads with a store each compile one key once") {
  const TemporaryDirectory place;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 64; ++i)
    threads.emplace_back([&] {
      const auto store = Store::open(place / "cache");
      wrong += find_or_compile(*store, sample_entry("a"), place / "compiles");
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(read_file(place / "compiles").size() == 1);
}

TEST_CASE("a holder that is killed gives the lock free") {
  const TemporaryDirectory place;
  const Signal ready;
  const pid_t child = in_child([&] {
    const auto lock = Store::open(place.path())->lock(sample_key("a"));
    ready.send();
    pause();
    return 0;
  });
  ready.wait();
  {
    const Environment timeout("LATHE_LOCK_TIMEOUT_MS", "20");
    CHECK_FALSE(Store::open(place.path())->lock(sample_key("a")).held());
  }
  kill(child, SIGKILL);
  wait_for(child);
  CHECK(Store::open(place.path())->lock(sample_key("a")).held());
}

TEST_CASE("a child forked by the holder does not keep the lock") {
  const TemporaryDirectory place;
  const Environment timeout("LATHE_LOCK_TIMEOUT_MS", "2000");
  const auto store = Store::open(place.path());
  pid_t child = -1;
  {
    const auto lock = store->lock(sample_key("a"));
    child = in_child([&] {
      pause();
      return 0;
    });
  }
  CHECK(Store::open(place.path())->lock(sample_key("a")).held());
  kill(child, SIGKILL);
  wait_for(child);
}
