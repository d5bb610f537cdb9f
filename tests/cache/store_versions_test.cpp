// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover several versions of the library in one root: another format of entries (v2 and
// its files), another text of keys. None reads the other's, all of them count towards the cap, and
// any trims any.
#include "codegen/base/text.h"
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

// Makes an entry as version `version` may store it: the same layout of names, bytes that we cannot
// read.
std::string foreign(const std::string& root, const std::string& version, int number,
                    int64_t seconds_ago) {
  const std::string hex = digest(text(version, number)).hex();
  const std::string shard = text(root, "/", version, "/", hex.substr(0, 2));
  const std::string path = text(shard, "/", hex, ".lathe");
  write_file(path, "LATHE\r\n\x1a" + std::string(1000, 'z'));
  files::permissions(files::path(root) / version, files::perms::owner_all);
  files::permissions(shard, files::perms::owner_all);
  age(path, seconds_ago);
  return path;
}

}  // namespace

TEST_CASE("what another version stored is never a hit and never damage") {
  const TemporaryDirectory place;
  const Entry entry = sample_entry("a");
  const auto store = Store::open(place.path(), quick_fs());
  // Our very bytes under v2, and v2's bytes under our name's twin.
  write_file(
      place / "v2/" + entry.key.digest.hex().substr(0, 2) + "/" + entry.key.digest.hex() + ".lathe",
      encode_entry(entry));
  CHECK_FALSE(store->get(entry.key).has_value());
  store->put(entry);
  CHECK(store->get(entry.key).has_value());
  CHECK(store->verify().checked == 1);
  CHECK(store->stat().corrupt == 0);
}

TEST_CASE("keys of another text version live side by side") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path(), quick_fs());
  const Entry ours = sample_entry("a");
  Entry theirs = ours;
  theirs.key.text.replace(0, 11, "lathe-key 2");
  theirs.key.digest = digest(theirs.key.text);
  theirs.cubin = "another build of the same kernel";
  store->put(ours);
  store->put(theirs);
  CHECK(same(*store->get(ours.key), ours));
  CHECK(same(*store->get(theirs.key), theirs));
  CHECK(store->verify().problems == "");
}

TEST_CASE("a newer format under our version is left to its owner, until it is the oldest") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 4);
  const std::string path = path_of(place.path(), entries[0].key);
  std::string newer = encode_entry(entries[0]);
  newer[8] = 7;
  write_file(path, newer);
  age(path, 99999);
  const auto store = Store::open(place.path(), quick_fs());
  Log log;
  CHECK_FALSE(store->get(entries[0].key).has_value());
  CHECK(store->verify().removed == 0);
  CHECK(read_file(path) == newer);
  CHECK(log.warnings().empty());
  CHECK(store->trim(4000, false).removed == 1);
  CHECK_FALSE(files::exists(path));
}

TEST_CASE("all versions count towards the cap, and the oldest goes whosever it is") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 4);  // 8, 6, 4 and 2 hours old
  const std::string oldest = foreign(place.path(), "v2", 1, 9 * 3600);
  const std::string middle = foreign(place.path(), "v10", 2, 5 * 3600);
  const std::string young = foreign(place.path(), "v2", 3, 3600);
  const auto store = Store::open(place.path(), quick_fs());
  CHECK(store->stat().entries == 7);
  const uint64_t all = store->stat().bytes;
  CHECK(store->trim(all, false).removed == 0);
  CHECK(store->trim(all - 1, false).removed == 1);
  CHECK_FALSE(files::exists(oldest));
  CHECK(store->trim(4700, false).removed == 3);  // two of ours and one of theirs
  CHECK(there(place.path(), entries[2]));
  CHECK_FALSE(there(place.path(), entries[1]));
  CHECK_FALSE(files::exists(middle));
  CHECK(files::exists(young));
  const Environment cap("LATHE_CACHE_MAX_BYTES", "2500");
  Store::open(place.path(), quick_fs())->put(sample_entry("new", 1000));
  CHECK_FALSE(there(place.path(), entries[3]));
}

TEST_CASE("temporary files of every version are swept, by the time of the files here") {
  const TemporaryDirectory place;
  fill(place.path(), 1);
  foreign(place.path(), "v2", 1, 0);
  files::create_directory(place / "v2/cd");
  files::permissions(place / "v2/cd", files::perms::owner_all);
  for (const auto& [name, seconds] :
       {std::pair("/v2/cd/.tmp.1.2", 9999), {"/v2/cd/.tmp.3.4", 10}}) {
    write_file(place.path() + name, "half");
    age(place.path() + name, seconds);
  }
  CHECK(Store::open(place.path(), quick_fs())->trim(1 << 20, false).temporaries == 1);
  CHECK(count_files(place / "v2", ".tmp.") == 1);
}

TEST_CASE("a trim leaves alone what only looks like a version") {
  const TemporaryDirectory place, elsewhere;
  fill(place.path(), 1);
  const std::string outside = foreign(elsewhere.path(), "v2", 1, 9999);
  files::create_directory_symlink(elsewhere.path() + "/v2", place / "v2");
  const std::string open = foreign(place.path(), "v3", 1, 9999);
  files::permissions(place / "v3", files::perms::all);
  const std::string word = foreign(place.path(), "version", 1, 9999);
  const std::string tuned = foreign(place.path(), "v", 1, 9999);
  write_file(place / "v4", "a file");
  CHECK(Store::open(place.path(), quick_fs())->trim(0, false).removed == 1);
  for (const std::string& path : {outside, open, word, tuned}) CHECK(files::exists(path));
}
