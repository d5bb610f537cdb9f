// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each call on the way of one entry goes wrong: once, from there on, by a signal, by single bytes
// and by the process's end. The store gives the right kernel or a miss, and the next run is
// healthy.
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;

namespace {

enum class Start { cold, warm, corrupt };

void prepare(const std::string& root, const Entry& entry, Start start) {
  if (start == Start::cold) return;
  const auto store = Store::open(root, quick_fs());
  store->put(entry);
  if (start == Start::corrupt) write_file(path_of(root, entry.key), "LATHE\r\n\x1a no entry");
}

// Does with a store what the miss path does. Returns whether every answer was the right entry or
// none.
bool use(const std::string& root, const Entry& entry, const FileSystem& fs) {
  const auto store = Store::open(root, fs);
  bool right = true;
  const auto look = [&](bool again) {
    const auto found = store->get(entry.key, again);
    if (found && !same(*found, entry)) right = false;
    return found.has_value();
  };
  if (!look(false)) {
    const Store::Lock lock = store->lock(entry.key);
    if (!look(true)) store->put(entry);
  }
  store->stat();
  store->verify();
  store->compilers();
  store->nearest_difference(entry.key);
  return right;
}

// Runs `use` with the fault at call 1, 2, ... until it passes unharmed.
void sweep(Start start, Fault fault, size_t max_warnings) {
  const Entry entry = sample_entry("swept", 300);
  const size_t before = open_descriptors();
  for (fault.at = 1;; ++fault.at) {
    const TemporaryDirectory place;
    prepare(place.path(), entry, start);
    bool reached = false;
    {
      const FaultyFileSystem faulty(fault);
      Log log;
      CHECK(use(place.path(), entry, faulty.table()));
      CHECK(log.warnings().size() <= max_warnings);
      reached = faulty.reached();
    }
    if (!fault.persistent) CHECK(count_files(place.path(), ".tmp.") == 0);
    check_healthy(place.path(), entry);
    if (!reached) break;
  }
  CHECK(fault.at > 15);
  CHECK(open_descriptors() == before);
}

}  // namespace

TEST_CASE("a call that fails costs one warning and the next run is healthy") {
  const int errors[] = {EIO, ENOSPC, EDQUOT, EACCES, EROFS, EMFILE, ENOMEM, ESTALE, EBUSY, ENOLCK};
  for (const int error : errors) {
    for (const bool persistent : {false, true}) {
      CAPTURE(error);
      CAPTURE(persistent);
      Fault fault;
      fault.error = error;
      fault.persistent = persistent;
      sweep(Start::cold, fault, 1);
      sweep(Start::warm, fault, 1);
      sweep(Start::corrupt, fault, 2);  // the other tells of the bad entry
    }
  }
}

TEST_CASE("interrupted and partial calls make no difference") {
  const Entry entry = sample_entry("interrupted", 300);
  for (const bool single_bytes : {false, true}) {
    for (Fault fault{1, EINTR, false, single_bytes};; ++fault.at) {
      const TemporaryDirectory place;
      const FaultyFileSystem faulty(fault);
      Log log;
      const auto store = Store::open(place.path(), faulty.table());
      { CHECK(store->lock(entry.key).held()); }
      store->put(entry);
      const auto found = store->get(entry.key);
      REQUIRE(found.has_value());
      CHECK(same(*found, entry));
      CHECK(store->compilers().size() == 1);
      CHECK(log.warnings().empty());
      if (!faulty.reached()) break;
    }
  }
}

TEST_CASE("a file handle that went stale once is opened anew") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("stale");
  prepare(place.path(), entry, Start::warm);
  for (Fault fault{1, ESTALE};; ++fault.at) {
    const FaultyFileSystem healthy{Fault()};
    const auto store = Store::open(place.path(), healthy.table());
    const FaultyFileSystem faulty(fault);
    CHECK(store->get(entry.key).has_value());
    CHECK(store->stat().corrupt == 0);
    if (!faulty.reached()) break;
  }
}

TEST_CASE("a write that only close reports as failed is not published") {
  const TemporaryDirectory place;
  FileSystem table = quick_fs();
  // Only the temporary file is open for writing.
  table.close = [](int fd) {
    const bool written = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
    real_fs().close(fd);
    errno = EIO;
    return written ? -1 : 0;
  };
  Log log;
  const auto store = Store::open(place.path(), table);
  const Entry entry = sample_entry("a");
  store->put(entry);
  CHECK(store->stat().publish_failures == 1);
  CHECK_FALSE(store->get(entry.key).has_value());
  CHECK(count_files(place.path(), ".tmp.") == 0);
  CHECK(log.mentions("close"));
}

TEST_CASE("a process killed at any call leaves a healthy cache") {
  const Entry entry = sample_entry("killed", 300);
  for (const Start start : {Start::cold, Start::corrupt}) {
    for (Fault fault{1, 0, false, false, true};; ++fault.at) {
      const TemporaryDirectory place;
      prepare(place.path(), entry, start);
      const int status = wait_for(in_child([&] {
        const FaultyFileSystem faulty(fault);
        return use(place.path(), entry, faulty.table()) ? 0 : 1;
      }));
      check_healthy(place.path(), entry);
      if (WIFEXITED(status)) {
        CHECK(WEXITSTATUS(status) == 0);
        break;
      }
    }
  }
}

TEST_CASE("a full disk switches publishing off for the process, and reading stays") {
  for (const int error : {ENOSPC, EDQUOT, EROFS}) {
    const TemporaryDirectory place;
    const Entry kept = sample_entry("kept");
    Store::open(place.path())->put(kept);
    Log log;
    Fault fault{1, error, true};
    auto store = Store::open(place.path());
    {
      // The table is copied at open, the fault is shared: the store sees it come and go.
      const FaultyFileSystem healthy{Fault()};
      store = Store::open(place.path(), healthy.table());
      const FaultyFileSystem full(fault);
      store->put(sample_entry("a"));
    }
    store->put(sample_entry("b"));
    CHECK(store->stat().publish_failures == 1);
    CHECK(store->stat().entries == 1);
    CHECK(store->get(kept.key).has_value());
    CHECK(log.warnings().size() == 1);
  }
}
