// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the order of the tiers, what is refused as a read-only one, and that nothing in
// one is changed.
#include "cache/tiers.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <map>

#include "codegen/base/text.h"
#include "tests/cache/bundle/bundles.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

// Returns an entry of the same key that tells where it came from.
Entry from(const std::string& tier, const std::string& name = "a") {
  Entry entry = sample_entry(name);
  entry.metadata.set("created", tier);
  return entry;
}

std::string where(Tiers& tiers, const std::string& name) {
  const auto hit = tiers.get(sample_key(name));
  if (!hit) return "miss";
  return text(word(hit->origin), " ", hit->entry.metadata.find("created").value_or(""));
}

// Everything below a directory: path, kind, size, times.
std::map<std::string, std::string> picture(const std::string& root) {
  std::map<std::string, std::string> out;
  for (const auto& item : files::recursive_directory_iterator(root)) {
    struct stat status;
    lstat(item.path().c_str(), &status);
    out[item.path()] = text(status.st_mode, " ", status.st_size, " ", status.st_mtim.tv_sec, ".",
                            status.st_mtim.tv_nsec, " ", status.st_ino);
  }
  return out;
}

struct Variables {
  Environment read_only, bundles;
  Variables(std::optional<std::string> directories, std::optional<std::string> files_)
      : read_only("LATHE_CACHE_READONLY", std::move(directories)),
        bundles("LATHE_BUNDLES", std::move(files_)) {}
};

}  // namespace

TEST_CASE("tiers are asked in order, and what is found is not copied up") {
  const TemporaryDirectory place;
  REQUIRE(Store::open(place / "mine")->put(from("mine", "a")));
  REQUIRE(Store::open(place / "theirs")->put(from("theirs", "a")));
  REQUIRE(Store::open(place / "theirs")->put(from("theirs", "b")));
  REQUIRE(Store::open(place / "more")->put(from("more", "b")));
  REQUIRE(Store::open(place / "more")->put(from("more", "c")));
  pack_all(place / "bundle", {{from("bundle", "a"), from("bundle", "c"), from("bundle", "d")}});
  pack_all(place / "last", {{from("last", "d"), from("last", "e")}});
  const Variables set(place / "theirs" + "::" + place / "more" + ":",
                      place / "bundle" + ":" + place / "last" + ":" + place / "last");
  Log log;
  const auto tiers = Tiers::open(place / "mine");
  REQUIRE(tiers->read_only().size() == 4);
  for (int round = 0; round < 2; ++round) {
    CHECK(where(*tiers, "a") == "disk mine");
    CHECK(where(*tiers, "b") == "disk theirs");
    CHECK(where(*tiers, "c") == "disk more");
    CHECK(where(*tiers, "d") == "bundle bundle");
    CHECK(where(*tiers, "e") == "bundle last");
    CHECK(where(*tiers, "f") == "miss");
  }
  CHECK(tiers->store().stat().entries == 1);
  const auto counts = [](const StoreStat& stat) {
    return text(stat.entries, " ", stat.hits, " ", stat.misses, " ", stat.corrupt);
  };
  CHECK(counts(tiers->store().stat()) == "1 2 10 0");
  CHECK(counts(tiers->read_only()[0]->stat()) == "2 2 8 0");
  CHECK(counts(tiers->read_only()[1]->stat()) == "2 2 6 0");
  CHECK(counts(tiers->read_only()[2]->stat()) == "3 2 4 0");
  CHECK(counts(tiers->read_only()[3]->stat()) == "2 2 2 0");
  CHECK(log.warnings().empty());
  CHECK(tiers->compilers() == std::vector<std::string>{"nvrtc 13.0 abc"});
  CHECK(tiers->sources().size() == 5);
  for (const char* name : {"mine", "theirs", "more", "bundle", "last"})
    CHECK(tiers->names().find(place / name) != std::string::npos);
}

TEST_CASE("of the code every tier gives what is asked for") {
  const TemporaryDirectory place;
  REQUIRE(Store::open(place / "mine")->put(sample_entry("a")));
  REQUIRE(Store::open(place / "theirs")->put(sample_entry("b")));
  pack_all(place / "bundle", {{sample_entry("c")}});
  const Variables set(place / "theirs", place / "bundle");
  const auto tiers = Tiers::open(place / "mine");
  for (const char* name : {"a", "b", "c"}) {
    for (const Keep keep : {Keep::all, Keep::cubin, Keep::no_code}) {
      const auto hit = tiers->get(sample_key(name), keep);
      REQUIRE(hit);
      Entry expected = sample_entry(name);
      keep_only(keep, expected);
      CHECK(same(hit->entry, expected));
      CHECK(hit->entry.partial == (keep != Keep::all));
    }
  }
}

TEST_CASE("the compilers and the nearest entry of every tier are known") {
  const TemporaryDirectory place;
  const auto entry_by = [](const std::string& name, const std::string& compiler) {
    Entry entry = sample_entry(name);
    entry.key = sample_key(name, compiler);
    return entry;
  };
  REQUIRE(Store::open(place / "mine")->put(entry_by("a", "one")));
  REQUIRE(Store::open(place / "theirs")->put(entry_by("b", "two")));
  pack_all(place / "bundle", {{entry_by("c", "three"), entry_by("c", "two")}});
  const Variables set(place / "theirs", place / "bundle");
  const auto tiers = Tiers::open(place / "mine");
  CHECK(tiers->compilers() == std::vector<std::string>{"one", "two", "three"});
  CHECK(tiers->nearest_difference(sample_key("c", "four")) ==
        "compiler=four (there: compiler=three)");
  CHECK(tiers->nearest_difference(sample_key("b", "three")) ==
        "compiler=three (there: compiler=two)");
  CHECK(tiers->read_only()[1]->nearest_difference(sample_key("b", "three")) ==
        "spec=b (there: spec=c)");
}

TEST_CASE("nothing in a read-only directory is changed, whatever is in it") {
  const TemporaryDirectory place;
  const auto theirs = Store::open(place / "theirs");
  for (const char* name : {"good", "bad", "link", "fifo", "old"})
    REQUIRE(theirs->put(sample_entry(name)));
  const auto path = [&](const char* name) { return path_of(place / "theirs", sample_key(name)); };
  write_file(path("bad"), "nonsense");
  files::rename(path("link"), place / "elsewhere");
  files::create_symlink(place / "elsewhere", path("link"));
  files::remove(path("fifo"));
  REQUIRE(mkfifo(path("fifo").c_str(), 0600) == 0);
  const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  utimensat(AT_FDCWD, path("old").c_str(), long_ago, 0);
  const auto before = picture(place / "theirs");

  const Variables set(place / "theirs", std::nullopt);
  Log log;
  const auto tiers = Tiers::open(place / "mine");
  ReadOnlyTier& tier = *tiers->read_only().at(0);
  CHECK(tier.get(sample_key("good")).has_value());
  CHECK(tier.get(sample_key("old")).has_value());
  for (const char* name : {"bad", "link", "fifo", "bad"})
    CHECK_FALSE(tier.get(sample_key(name)).has_value());
  CHECK(tier.stat().corrupt == 4);
  CHECK(log.warnings().size() == 3);
  CHECK(log.mentions("passed over"));
  const auto store = Store::open_read_only(place / "theirs");
  CHECK_FALSE(store->put(sample_entry("new")));
  CHECK_FALSE(store->lock(sample_key("new")).held());
  CHECK(store->trim(0, false).removed == 0);
  CHECK(store->verify().removed == 0);
  CHECK(store->verify().problems.find("not a regular file") != std::string::npos);
  CHECK(tier.keys().size() == 5);
  CHECK(tier.read(sample_key("old").digest).ok());
  CHECK(picture(place / "theirs") == before);
}

TEST_CASE("a read-only directory that others can write, or that is none, is refused once") {
  const TemporaryDirectory place;
  REQUIRE(Store::open(place / "theirs")->put(sample_entry("a")));
  const auto refused = [&](const std::string& path, const std::string& part) {
    CAPTURE(path);
    Log log;
    const Variables set(path, std::nullopt);
    const auto tiers = Tiers::open(place / "mine");
    REQUIRE(tiers->read_only().size() == 1);
    CHECK(where(*tiers, "a") == "miss");
    CHECK(where(*tiers, "a") == "miss");
    ReadOnlyTier& tier = *tiers->read_only()[0];
    CHECK(tier.problem().find(part) != std::string::npos);
    CHECK(tier.compilers().empty());
    CHECK(tier.keys().empty());
    CHECK(tier.stat().entries == 0);
    CHECK(log.warnings() == std::vector<std::string>{tier.problem()});
    CHECK(tiers->names().find("refused: ") != std::string::npos);
  };
  const auto opens = [&] {
    const Variables set(place / "theirs/", std::nullopt);
    return where(*Tiers::open(place / "mine"), "a") == "disk ";
  };
  CHECK(opens());
  for (const mode_t mode : {0777, 0770, 0702}) {
    REQUIRE(chmod((place / "theirs").c_str(), mode) == 0);
    refused(place / "theirs", "chmod go-w");
  }
  REQUIRE(chmod((place / "theirs").c_str(), 0555) == 0);
  CHECK(opens());
  files::create_symlink(place / "theirs", place / "link");
  write_file(place / "file", "x");
  refused(place / "link", "symbolic link");
  refused(place / "file", "not a directory");
  refused(place / "nowhere", "No such file");
  CHECK_FALSE(files::exists(place / "nowhere"));
  if (geteuid() == 0) {
    REQUIRE(chown((place / "theirs").c_str(), 12345, 12345) == 0);
    refused(place / "theirs", "12345");
  }
}

TEST_CASE("a writable folder inside a read-only directory is a miss") {
  const TemporaryDirectory place;
  REQUIRE(Store::open(place / "theirs")->put(sample_entry("a")));
  const std::string shard = files::path(path_of(place / "theirs", sample_key("a"))).parent_path();
  for (const std::string& folder : {shard, place / "theirs/v1"}) {
    REQUIRE(chmod(folder.c_str(), 0777) == 0);
    Log log;
    const auto tier = open_read_only_directory(place / "theirs");
    CHECK_FALSE(tier->get(sample_key("a")).has_value());
    CHECK(log.warnings().size() == 1);
    REQUIRE(chmod(folder.c_str(), 0700) == 0);
    CHECK(tier->get(sample_key("a")).has_value());
  }
}

TEST_CASE("a directory of root's serves other users, one of theirs does not serve root") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give files away");
    return;
  }
  const TemporaryDirectory place;
  REQUIRE(chmod(place.path().c_str(), 0755) == 0);
  {
    const auto store = Store::open(place / "cache");
    REQUIRE(store->put(sample_entry("a")));
    REQUIRE(store->put(sample_entry("b")));
    pack_all(place / "bundle", {{sample_entry("c")}});
  }
  REQUIRE(chown(path_of(place / "cache", sample_key("b")).c_str(), 12345, 12345) == 0);
  for (const auto& item : files::recursive_directory_iterator(place.path()))
    chmod(item.path().c_str(), item.is_directory() ? 0755 : 0644);
  REQUIRE(chmod((place / "cache").c_str(), 0755) == 0);
  const pid_t child = in_child([&] {
    if (setgid(23456) != 0 || setuid(23456) != 0) return 9;
    const Variables set(place / "cache", place / "bundle");
    Log log;
    const auto tiers = Tiers::open("off");
    if (!tiers->get(sample_key("a"))) return 1;
    if (tiers->get(sample_key("b"))) return 2;  // neither ours nor root's
    if (!tiers->get(sample_key("c"))) return 3;
    if (!Store::open(place / "cache")->root().empty()) return 4;  // not to be written into
    return 0;
  });
  const int status = wait_for(child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("off is memory only, without a warning, beside other tiers") {
  const TemporaryDirectory place;
  pack_all(place / "bundle", {{from("bundle", "a")}});
  const Environment off("LATHE_CACHE_DIR", "off");
  const Variables set(std::nullopt, place / "bundle");
  Log log;
  for (const auto& tiers : {Tiers::open(""), Tiers::open("off")}) {
    CHECK(tiers->store().root().empty());
    CHECK(tiers->store().problem().find("off") != std::string::npos);
    CHECK(where(*tiers, "a") == "bundle bundle");
    CHECK_FALSE(tiers->store().put(from("mine", "b")));
  }
  CHECK(Tiers::open(place / "mine")->store().root() == place / "mine");
  CHECK(log.warnings().empty());
  CHECK_FALSE(files::exists("off"));
}

TEST_CASE("a refused bundle is one warning, and the others serve") {
  const TemporaryDirectory place;
  write_file(place / "bad", "nonsense");
  pack_all(place / "good", {{from("good", "a")}});
  const Variables set(std::nullopt, place / "bad" + ":" + place / "nowhere" + ":" + place / "good");
  Log log;
  const auto tiers = Tiers::open("off");
  CHECK(where(*tiers, "a") == "bundle good");
  CHECK(log.warnings().size() == 2);
  CHECK(log.mentions(place / "bad"));
  CHECK(log.mentions(place / "nowhere"));
  CHECK_FALSE(tiers->read_only()[0]->problem().empty());
  CHECK(tiers->read_only()[2]->problem().empty());
}

TEST_CASE("tuned choices are read from directories and bundles, per GPU") {
  const TemporaryDirectory place;
  REQUIRE(Store::open(place / "theirs")->put(sample_entry("a")));
  files::create_directory(place / "theirs/v1/tuned");
  chmod((place / "theirs/v1/tuned").c_str(), 0700);
  write_file(place / "theirs/v1/tuned/h100.txt", "one\ntwo\n");
  const auto directory = open_read_only_directory(place / "theirs");
  CHECK(directory->tuned("h100") == "one\ntwo\n");
  CHECK(directory->tuned("a100").empty());
  CHECK(directory->tuned("../tuned/h100").empty());
  chmod((place / "theirs/v1/tuned").c_str(), 0777);
  CHECK(directory->tuned("h100").empty());

  pack_all(place / "b", {{}}, {tuned_line("h100", "m=2", 1), tuned_line("a100", "m=4", 9)});
  const auto bundle = open_bundle_tier(place / "b");
  CHECK(bundle->tuned("h100") == tuned_line("h100", "m=2", 1).substr(7) + "\n");
  CHECK(bundle->tuned("h1").empty());
}
