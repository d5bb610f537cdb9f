// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover bundles that are well: what is packed is found, and the same entries are the
// same bytes.
#include "cache/bundle/bundle.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "cache/store/store.h"
#include "codegen/base/text.h"
#include "tests/cache/bundle/bundles.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

const std::vector<std::string> kNames = {"a", "b", "c", "d", "e"};

}  // namespace

TEST_CASE("what is packed is found, whatever its size, and nothing else") {
  const TemporaryDirectory place;
  std::vector<Entry> entries;
  for (size_t i = 0; i < 40; ++i) entries.push_back(sample_entry(text("k", i), i * i * 7));
  const BundleReport report = pack_all(place / "b", {entries});
  CHECK(report.entries == 40);
  CHECK(report.bad == 0);
  CHECK(report.bytes == files::file_size(place / "b"));
  const auto bundle = Bundle::open(place / "b");
  REQUIRE(bundle.ok());
  CHECK((*bundle)->bytes() == report.bytes);
  for (const Entry& entry : entries) {
    const BundleItem* item = (*bundle)->find(entry.key.digest);
    REQUIRE(item);
    const auto found = (*bundle)->read(*item);
    REQUIRE(found.entry.has_value());
    CHECK(same(*found.entry, entry));
  }
  CHECK_FALSE((*bundle)->find(sample_key("other").digest));
  struct stat status;
  REQUIRE(stat((place / "b").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777 & ~0644) == 0);
  CHECK(count_files(place.path(), ".tmp.") == 0);
}

TEST_CASE("a bundle of nothing is a bundle") {
  const TemporaryDirectory place;
  CHECK(pack_all(place / "b", {{}}).entries == 0);
  const auto bundle = Bundle::open(place / "b");
  REQUIRE(bundle.ok());
  CHECK((*bundle)->items().empty());
  CHECK((*bundle)->bytes() == kBundleHeaderBytes);
}

TEST_CASE("the same entries are the same bytes, from wherever and in whatever order") {
  const TemporaryDirectory place;
  std::vector<Entry> entries;
  for (const std::string& name : kNames) entries.push_back(sample_entry(name));
  pack_all(place / "one", {entries}, {tuned_line("g", "m=1", 2), tuned_line("f", "m=1", 2)});
  std::reverse(entries.begin(), entries.end());
  pack_all(place / "two", {entries}, {tuned_line("f", "m=1", 2), tuned_line("g", "m=1", 2)});
  const std::string bytes = read_file(place / "one");
  CHECK(bytes == read_file(place / "two"));

  for (const char* root : {"cache", "another/cache"}) {
    files::create_directories(place / "another");
    const auto store = Store::open(place / root);
    for (const Entry& entry : entries) REQUIRE(store->put(entry));
    REQUIRE(pack_bundle(place / "three", {store.get()}, nullptr,
                        {tuned_line("f", "m=1", 2), tuned_line("g", "m=1", 2)})
                .ok());
    CHECK(bytes == read_file(place / "three"));
  }
  // Halves that overlap, merged either way.
  pack_all(place / "left", {{entries[0], entries[1], entries[2]}}, {tuned_line("f", "m=1", 2)});
  pack_all(place / "right", {{entries[2], entries[3], entries[4]}}, {tuned_line("g", "m=1", 2)});
  REQUIRE(merge_bundles(place / "four", {place / "left", place / "right"}).ok());
  REQUIRE(merge_bundles(place / "five", {place / "right", place / "left"}).ok());
  CHECK(bytes == read_file(place / "four"));
  CHECK(bytes == read_file(place / "five"));
  // Onto one of its parts.
  REQUIRE(merge_bundles(place / "left", {place / "left", place / "right"}).ok());
  CHECK(bytes == read_file(place / "left"));
}

TEST_CASE("the information names architectures, compilers and tuned choices, each once") {
  const TemporaryDirectory place;
  Entry old = sample_entry("old");
  old.key = sample_key("old", "nvrtc 12.4 x");
  pack_all(
      place / "b", {{sample_entry("a"), sample_entry("b"), old}},
      {tuned_line("h100", "m=4", 9), tuned_line("h100", "m=2", 1), tuned_line("a100", "m=4", 9),
       tuned_line("h100", "m=8", 5, "y"), "of a later grammar | whatever"});
  const auto bundle = Bundle::open(place / "b");
  REQUIRE(bundle.ok());
  using List = std::vector<std::string>;
  CHECK((*bundle)->information().archs == List{"sm_90a"});
  CHECK((*bundle)->information().compilers == List{"nvrtc 12.4 x", "nvrtc 13.0 abc"});
  // Two records with the same key give the faster one; another shape has a key of its own.
  const List tuned = {tuned_line("a100", "m=4", 9), tuned_line("h100", "m=2", 1),
                      tuned_line("h100", "m=8", 5, "y"), "of a later grammar | whatever"};
  CHECK((*bundle)->information().tuned == tuned);

  // United by merging as well, in whatever order.
  pack_all(place / "c", {{}}, {tuned_line("h100", "m=16", 0.5)});
  REQUIRE(merge_bundles(place / "one", {place / "b", place / "c"}).ok());
  REQUIRE(merge_bundles(place / "two", {place / "c", place / "b"}).ok());
  CHECK(read_file(place / "one") == read_file(place / "two"));
  const List merged = (*Bundle::open(place / "one"))->information().tuned;
  CHECK(merged.size() == 4);
  CHECK(merged[1] == tuned_line("h100", "m=16", 0.5));
}

TEST_CASE("keys choose, from the first source that has each; a missing one is named") {
  const TemporaryDirectory place;
  Entry late = sample_entry("b");
  late.metadata.set("created", "2");
  Entries first({sample_entry("a"), sample_entry("b")}), second({late, sample_entry("c")});
  std::vector<Digest> keys = {sample_key("c").digest, sample_key("b").digest,
                              sample_key("c").digest};
  REQUIRE(pack_bundle(place / "b", {&first, &second}, &keys, {}).ok());
  const auto bundle = Bundle::open(place / "b");
  REQUIRE(bundle.ok());
  CHECK((*bundle)->items().size() == 2);
  CHECK(same(*(*bundle)->read(sample_key("b").digest), sample_entry("b")));
  CHECK_FALSE((*bundle)->find(sample_key("a").digest));

  const std::string before = read_file(place / "b");
  keys.push_back(sample_key("nowhere").digest);
  const auto missing = pack_bundle(place / "b", {&first, &second}, &keys, {});
  CHECK(missing.status().code() == Code::not_cached);
  CHECK(missing.status().text().find(sample_key("nowhere").digest.hex()) != std::string::npos);
  CHECK(read_file(place / "b") == before);
  CHECK(count_files(place.path(), ".tmp.") == 0);
}

TEST_CASE("unpacking adds what is missing, leaves what is there and tells what is damaged") {
  const TemporaryDirectory place;
  pack_all(place / "b", {{sample_entry("a"), sample_entry("b"), sample_entry("c")}});
  const auto store = Store::open(place / "cache");
  Entry mine = sample_entry("a");
  mine.metadata.set("created", "mine");
  REQUIRE(store->put(mine));
  std::string bytes = read_file(place / "b");
  const size_t at = bytes.find(encode_entry(sample_entry("c")));
  REQUIRE(at != bytes.npos);
  bytes[at + 120] ^= 1;
  write_file(place / "b", bytes);
  const auto report = unpack_bundle(**Bundle::open(place / "b"), *store);
  REQUIRE(report.ok());
  CHECK(report->added == 1);
  CHECK(report->present == 1);
  CHECK(report->bad == 1);
  CHECK(report->problems.find(sample_key("c").digest.hex()) == 0);
  CHECK(same(*store->get(mine.key), mine));
  CHECK(same(*store->get(sample_key("b")), sample_entry("b")));
  CHECK(store->compilers() == std::vector<std::string>{"nvrtc 13.0 abc"});
  const auto off = unpack_bundle(**Bundle::open(place / "b"), *Store::open("off"));
  CHECK(off.status().code() == Code::cache_io);
}

TEST_CASE("a damaged entry is left out of a bundle of all, and refused where it was asked for") {
  const TemporaryDirectory place;
  const auto store = Store::open(place / "cache");
  for (const std::string& name : kNames) REQUIRE(store->put(sample_entry(name)));
  const std::string path = path_of(place / "cache", sample_key("c"));
  std::string bytes = read_file(path);
  bytes[150] ^= 1;
  write_file(path, bytes);
  const auto report = pack_bundle(place / "b", {store.get()}, nullptr, {});
  REQUIRE(report.ok());
  CHECK(report->entries == 4);
  CHECK(report->bad == 1);
  CHECK(report->problems.find(sample_key("c").digest.hex()) == 0);
  CHECK(files::exists(path));
  const std::vector<Digest> keys = {sample_key("c").digest};
  const auto refused = pack_bundle(place / "c", {store.get()}, &keys, {});
  CHECK(refused.status().code() == Code::cache_io);
  CHECK(refused.status().text().find("checksum") != std::string::npos);
  CHECK_FALSE(files::exists(place / "c"));
}

TEST_CASE("bundles that disagree about a key are not merged; date and compile time do not count") {
  const TemporaryDirectory place;
  Entry early = sample_entry("a"), late = early, other = early;
  early.metadata.set("created", "1");
  late.metadata.set("created", "2");
  other.cubin[0] ^= 1;
  pack_all(place / "early", {{early, sample_entry("b")}});
  pack_all(place / "late", {{late}});
  pack_all(place / "other", {{other}});
  for (const char* second : {"early", "late"}) {
    const char* first = second[0] == 'e' ? "late" : "early";
    REQUIRE(merge_bundles(place / "m", {place / first, place / second}).ok());
    const auto merged = Bundle::open(place / "m");
    REQUIRE(merged.ok());
    CHECK((*merged)->items().size() == 2);
    CHECK((*merged)->read(early.key.digest)->metadata.find("created") == "1");
  }
  const std::string before = read_file(place / "m");
  const auto refused =
      merge_bundles(place / "m", {place / "late", place / "early", place / "other"});
  CHECK(refused.status().code() == Code::invalid_argument);
  CHECK(refused.status().text().find(early.key.digest.hex()) != std::string::npos);
  CHECK(refused.status().text().find(place / "other") != std::string::npos);
  CHECK(read_file(place / "m") == before);
}

TEST_CASE("an entry that changes while it is packed fails the packing and leaves nothing") {
  const TemporaryDirectory place;
  struct Changing : Entries {
    using Entries::Entries;
    int reads = 0;
    Result<Entry> read(const Digest& key) override {
      Result<Entry> entry = Entries::read(key);
      if (++reads > 1) entry->metadata.set("created", text(reads));
      return entry;
    }
  } changing({sample_entry("a")});
  const auto report = pack_bundle(place / "b", {&changing}, nullptr, {});
  CHECK(report.status().code() == Code::cache_io);
  CHECK(report.status().text().find("changed meanwhile") != std::string::npos);
  CHECK(files::is_empty(place.path()));
}
