// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check which directory becomes the cache, and which is refused.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "cache/store/store.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  stat(path.c_str(), &status);
  return status.st_mode & 07777;
}

// A store without a directory still serves: it misses, takes entries and gives no lock.
void check_memory_only(Store& store, const std::string& why) {
  CHECK(store.root().empty());
  CHECK(store.problem().find(why) != std::string::npos);
  const Entry entry = sample_entry("a");
  store.put(entry);
  CHECK_FALSE(store.get(entry.key).has_value());
  CHECK_FALSE(store.lock(entry.key).held());
  CHECK(store.stat().entries == 0);
  CHECK(store.verify().checked == 0);
  CHECK(store.compilers().empty());
}

}  // namespace

TEST_CASE("the root comes from the option, then from the environment in order") {
  const TemporaryDirectory place;
  const Environment cache("LATHE_CACHE_DIR", place / "chosen/deep");
  const Environment xdg("XDG_CACHE_HOME", place / "xdg");
  const Environment home("HOME", place / "home");
  CHECK(Store::open(place / "option")->root() == place / "option");
  CHECK(Store::open("")->root() == place / "chosen/deep");
  {
    const Environment none("LATHE_CACHE_DIR", std::nullopt);
    CHECK(Store::open("")->root() == place / "xdg/lathe");
    const Environment relative("XDG_CACHE_HOME", "xdg");
    CHECK(Store::open("")->root() == place / "home/.cache/lathe");
  }
  CHECK(mode_of(place / "chosen/deep") == 0700);
  CHECK(mode_of(place / "home/.cache/lathe") == 0700);
}

TEST_CASE("without any variable the cache is memory only, with one warning") {
  const Environment cache("LATHE_CACHE_DIR", std::nullopt);
  const Environment xdg("XDG_CACHE_HOME", std::nullopt);
  const Environment home("HOME", std::nullopt);
  Log log;
  const auto store = Store::open("");
  check_memory_only(*store, "LATHE_CACHE_DIR");
  CHECK(log.warnings().size() == 1);
}

TEST_CASE("directories and files are made for this user alone") {
  const TemporaryDirectory place;
  const auto store = Store::open(place / "cache/");
  CHECK(store->root() == place / "cache");
  const Entry entry = sample_entry("a");
  { const auto lock = store->lock(entry.key); }
  store->put(entry);
  const std::string path = path_of(place / "cache", entry.key);
  CHECK(mode_of(place / "cache") == 0700);
  CHECK(mode_of(place / "cache/v1") == 0700);
  CHECK(mode_of(path.substr(0, path.rfind('/'))) == 0700);
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(place / "cache/v1/lock") == 0600);
  CHECK(mode_of(place / "cache/v1/compilers") == 0600);
}

TEST_CASE("a root that others can write into is refused, for reading too") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  Store::open(place / "cache")->put(entry);
  for (mode_t mode : {0777, 0770, 0707}) {
    chmod((place / "cache").c_str(), mode);
    Log log;
    check_memory_only(*Store::open(place / "cache"), "chmod go-w");
    CHECK(log.warnings().size() == 1);
  }
  chmod((place / "cache").c_str(), 0755);
  CHECK(Store::open(place / "cache")->get(entry.key).has_value());
}

TEST_CASE("a shard or version directory that others can write into is not read") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const auto store = Store::open(place.path());
  store->put(entry);
  const std::string path = path_of(place.path(), entry.key);
  for (const std::string& part : {place / "v1", path.substr(0, path.rfind('/'))}) {
    chmod(part.c_str(), 0777);
    CHECK_FALSE(store->get(entry.key).has_value());
    chmod(part.c_str(), 0700);
    CHECK(store->get(entry.key).has_value());
  }
}

TEST_CASE("a root that is a link, a file or somebody else's is refused") {
  const TemporaryDirectory place;
  std::filesystem::create_directory(place / "real");
  std::filesystem::create_directory_symlink(place / "real", place / "link");
  write_file(place / "file", "x");
  check_memory_only(*Store::open(place / "link"), "symbolic link");
  check_memory_only(*Store::open(place / "link/"), "symbolic link");
  check_memory_only(*Store::open(place / "file"), "not a directory");
  check_memory_only(*Store::open(place / "file/below"), "");
  if (geteuid() == 0) {
    std::filesystem::create_directory(place / "theirs");
    REQUIRE(chown((place / "theirs").c_str(), 12345, 12345) == 0);
    check_memory_only(*Store::open(place / "theirs"), "12345");
  } else {
    std::filesystem::create_directory(place / "locked");
    std::filesystem::permissions(place / "locked", std::filesystem::perms::none);
    check_memory_only(*Store::open(place / "locked/lathe"), "locked/lathe");
    check_memory_only(*Store::open("/"), "belongs to user 0");
  }
}

TEST_CASE("a directory that appears later under a link is not followed") {
  const TemporaryDirectory place;
  const auto store = Store::open(place / "cache");
  std::filesystem::create_directory(place / "elsewhere");
  std::filesystem::create_directory_symlink(place / "elsewhere", place / "cache/v1");
  store->put(sample_entry("a"));
  CHECK(store->stat().publish_failures == 1);
  CHECK(std::filesystem::is_empty(place / "elsewhere"));
}
