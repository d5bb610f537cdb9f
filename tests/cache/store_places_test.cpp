// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests damage the directory itself, before and while it is in use. The kernel at hand stays
// good; at worst it is compiled once more; and a later process finds a healthy cache.
#include <sched.h>
#include <sys/mount.h>

#include <thread>

#include "codegen/base/text.h"
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

constexpr uid_t kNobody = 65534;

// Everything a process does with a store, whatever has become of the directory. Whether each
// answer was the right entry or none.
bool survives(Store& store, const std::vector<Entry>& entries) {
  bool right = true;
  for (const Entry& entry : entries) {
    const auto look = [&](bool again) {
      const auto found = store.get(entry.key, again);
      right = right && (!found || same(*found, entry));
    };
    look(false);
    {
      const Store::Lock lock = store.lock(entry.key);
      look(true);
      store.put(entry);
    }
    look(false);
  }
  store.stat();
  store.verify();
  store.trim(1000, true);
  store.trim(1000, false);
  store.compilers();
  store.nearest_difference(sample_key("other"));
  return right;
}

std::vector<Entry> two() { return {sample_entry("a", 300), sample_entry("b", 300)}; }

}  // namespace

TEST_CASE("the root, the version or a shard removed or replaced while in use") {
  const std::vector<Entry> entries = two();
  const std::string shard = "v1/" + entries[0].key.digest.hex().substr(0, 2);
  enum class Become { nothing, file, link, empty, foreign };
  for (const std::string& part : {std::string("."), std::string("v1"), shard}) {
    for (const Become become :
         {Become::nothing, Become::file, Become::link, Become::empty, Become::foreign}) {
      CAPTURE(part);
      CAPTURE(static_cast<int>(become));
      const TemporaryDirectory place;
      const std::string root = place / "cache", victim = part == "." ? root : root + "/" + part;
      const size_t before = open_descriptors();
      {
        Log log;
        const auto store = Store::open(root, quick_fs());
        CHECK(survives(*store, entries));
        files::rename(victim, place / "moved");
        if (become == Become::file) write_file(victim, "x");
        if (become == Become::link) files::create_directory_symlink(place / "moved", victim);
        if (become == Become::empty) files::create_directory(victim);
        if (become == Become::foreign) {
          files::create_directory(victim);
          files::permissions(victim, files::perms::all);
        }
        CHECK(survives(*store, entries));
        CHECK(log.warnings().size() <= 2);
        files::remove_all(victim);
        files::rename(place / "moved", victim);
        CHECK(survives(*store, entries));
      }
      CHECK(open_descriptors() == before);
      check_next_run(root, entries);
    }
  }
}

TEST_CASE("rm -rf again and again while threads use the cache") {
  const TemporaryDirectory place;
  const std::string root = place / "cache";
  const std::vector<Entry> entries = two();
  std::atomic<bool> wrong{false}, stop{false};
  Log log;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i)
        if (!survives(*Store::open(root, quick_fs()), entries)) wrong = true;
    });
  std::thread remover([&] {
    while (!stop) {
      std::error_code ignored;
      files::remove_all(root, ignored);
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  remover.join();
  CHECK_FALSE(wrong);
  check_next_run(root, entries);
}

TEST_CASE("a directory that turns read-only serves what it holds") {
  const TemporaryDirectory place;
  const std::vector<Entry> entries = two();
  Store::open(place.path(), quick_fs())->put(entries[0]);
  for (const int error : {EROFS, EACCES}) {
    static int answer;
    answer = error;
    FileSystem table = quick_fs();
    table.openat = [](int dir, const char* path, int flags, mode_t mode) {
      if ((flags & O_ACCMODE) == O_RDONLY) return real_fs().openat(dir, path, flags, mode);
      errno = answer;
      return -1;
    };
    table.mkdirat = [](int, const char*, mode_t) { return errno = answer, -1; };
    table.unlinkat = [](int, const char*, int) { return errno = answer, -1; };
    table.renameat = [](int, const char*, int, const char*) { return errno = answer, -1; };
    table.futimens = [](int, const struct timespec*) { return errno = answer, -1; };
    Log log;
    const auto store = Store::open(place.path(), table);
    CHECK(survives(*store, entries));
    CHECK(store->get(entries[0].key).has_value());
    CHECK_FALSE(store->get(entries[1].key).has_value());
    CHECK(store->stat().entries == 1);
    CHECK(store->stat().corrupt == 0);
    CHECK(log.warnings().size() == 1);
  }
}

// As root nothing is refused: a child that gives that up sees what users see.
TEST_CASE("a user without rights reads what may be read and writes nothing") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  const TemporaryDirectory place;
  files::permissions(place.path(), files::perms::all);
  const std::vector<Entry> entries = two();
  const auto as_nobody = [&](const std::function<int()>& body) {
    const int status = wait_for(in_child([&] {
      if (setgid(kNobody) != 0 || setuid(kNobody) != 0) return 99;
      return body();
    }));
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  const std::string root = place / "cache";
  REQUIRE(as_nobody([&] {
            Store::open(root, quick_fs())->put(entries[0]);
            return 0;
          }) == 0);
  const files::path shard = files::path(path_of(root, entries[0].key)).parent_path();
  const auto narrowed = [&](const files::path& which, files::perms mode) {
    files::permissions(which, mode);
    const int failed = as_nobody([&] {
      Log log;
      const auto store = Store::open(root, quick_fs());
      if (!survives(*store, entries)) return 1;
      if (log.warnings().size() > 2) return 2;
      return mode == files::perms::none || store->get(entries[0].key) ? 0 : 3;
    });
    files::permissions(which, files::perms::owner_all);
    return failed;
  };
  constexpr auto kReadable = files::perms::owner_read | files::perms::owner_exec;
  for (const files::path& which : {files::path(root), files::path(root) / "v1", shard}) {
    CAPTURE(which.string());
    CHECK(narrowed(which, kReadable) == 0);
    CHECK(narrowed(which, files::perms::none) == 0);
  }
  CHECK(narrowed(path_of(root, entries[0].key), files::perms::none) == 0);
  // Another user's directory is refused, for reading too, and root's own is not theirs.
  files::create_directory(place / "roots");
  files::permissions(place / "roots", files::perms::owner_all | files::perms::others_exec);
  CHECK(as_nobody([&] {
          Log log;
          const auto other = Store::open(place / "roots", quick_fs());
          const auto below = Store::open(place / "roots/below", quick_fs());
          return other->root().empty() && below->root().empty() && log.warnings().size() == 2 ? 0
                                                                                              : 1;
        }) == 0);
  CHECK(files::is_empty(place / "roots"));
}

TEST_CASE("missing parents are made, and what cannot be made is memory only with one warning") {
  const TemporaryDirectory place;
  const std::vector<Entry> entries = two();
  CHECK(Store::open(place / "a/b/c/d", quick_fs())->root() == place / "a/b/c/d");
  write_file(place / "file", "x");
  files::create_symlink(place / "nowhere", place / "dangling");
  const std::string endless = place / std::string(300, 'x');
  for (const std::string& root : {place / "file/below/it", place / "dangling", endless,
                                  std::string("/proc/lathe"), std::string("/dev/null/lathe")}) {
    CAPTURE(root);
    Log log;
    const auto store = Store::open(root, quick_fs());
    CHECK(store->root().empty());
    CHECK(store->problem().find("memory only") != std::string::npos);
    CHECK(survives(*store, entries));
    CHECK(log.warnings().size() == 1);
  }
  const Environment cache("LATHE_CACHE_DIR", std::nullopt), xdg("XDG_CACHE_HOME", std::nullopt);
  for (const auto& home : {std::optional<std::string>(), std::optional<std::string>("relative"),
                           std::optional<std::string>("")}) {
    const Environment variable("HOME", home);
    Log log;
    CHECK(survives(*Store::open("", quick_fs()), entries));
    CHECK(log.warnings().size() == 1);
  }
}

// In a child with mounts of its own, so that none outlives the test.
TEST_CASE("a disk that is really full costs one warning and no file") {
  const TemporaryDirectory place;
  constexpr int kNoRight = 77;
  const int status = wait_for(in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, "") != 0 ||
        mount("tmpfs", place.path().c_str(), "tmpfs", 0, "size=256k,mode=0700") != 0)
      return kNoRight;
    const std::string root = place / "cache";
    const Entry small = sample_entry("small", 1000);
    Log log;
    const auto store = Store::open(root);
    store->put(small);
    for (int i = 0; i < 20; ++i) store->put(sample_entry(text("big", i), 100000));
    if (store->stat().publish_failures != 1) return 1;  // after which none is tried
    if (!store->get(small.key) || log.warnings().size() != 1) return 2;
    if (count_files(root, ".tmp.") != 0 || !store->verify().problems.empty()) return 3;
    store->trim(0, false);
    const auto next = Store::open(root);
    next->put(small);
    return next->get(small.key) ? 0 : 4;
  }));
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoRight) {
    MESSAGE("skipped: no right to mount a small file system");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}
