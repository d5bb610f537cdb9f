// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover counting, verifying, the compilers seen, and the nearest entry of a miss.
#include <doctest/doctest.h>

#include "cache/store/store.h"
#include "codegen/base/text.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

TEST_CASE("verify removes bad entries and names them") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  size_t bytes = 0;
  for (int i = 0; i < 20; ++i) {
    const Entry entry = sample_entry(text("k", i), 50);
    store->put(entry);
    bytes += encode_entry(entry).size();
  }
  CHECK(store->stat().entries == 20);
  CHECK(store->stat().bytes == bytes);
  CHECK(store->verify().problems.empty());

  const Key bad = sample_key("k7"), empty = sample_key("k9");
  std::string flipped = read_file(path_of(place.path(), bad));
  flipped.back() ^= 1;
  write_file(path_of(place.path(), bad), flipped);
  write_file(path_of(place.path(), empty), "");
  write_file(place / "v1/ab/notes.txt", "not an entry");
  const VerifyReport report = store->verify();
  CHECK(report.checked == 20);
  CHECK(report.removed == 2);
  CHECK(report.problems.find(bad.digest.hex() + ".lathe: ") != std::string::npos);
  CHECK(report.problems.find("checksum") != std::string::npos);
  CHECK(report.problems.find(empty.digest.hex()) != std::string::npos);
  CHECK(store->stat().entries == 18);
  CHECK(store->verify().checked == 18);
}

TEST_CASE("each compiler that published is listed once") {
  const TemporaryDirectory place;
  const auto publish = [&](const std::string& compiler, const std::string& name) {
    Entry entry = sample_entry(name);
    entry.key = sample_key(name, compiler);
    Store::open(place.path())->put(entry);
  };
  CHECK(Store::open(place.path())->compilers().empty());
  publish("nvrtc 13.0 aa", "a");
  publish("nvrtc 12.4 bb", "b");
  publish("nvrtc 13.0 aa", "c");
  using List = std::vector<std::string>;
  CHECK(Store::open(place.path())->compilers() == List{"nvrtc 13.0 aa", "nvrtc 12.4 bb"});

  // A line that a killed writer left unfinished is ignored and closed by the next.
  const std::string path = place / "v1/compilers";
  write_file(path, read_file(path) + "nvrtc 13");
  CHECK(Store::open(place.path())->compilers() == List{"nvrtc 13.0 aa", "nvrtc 12.4 bb"});
  publish("nvrtc 13.1 cc", "d");
  const List after = Store::open(place.path())->compilers();
  CHECK(after.front() == "nvrtc 13.0 aa");
  CHECK(after.back() == "nvrtc 13.1 cc");
}

TEST_CASE("a miss is explained by the entry most alike") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  CHECK(store->nearest_difference(sample_key("a")).empty());
  const auto put = [&](const std::string& text) {
    Entry entry = sample_entry("x");
    entry.key.text = text;
    entry.key.digest = digest(text);
    store->put(entry);
  };
  put("lathe-key 1\narch=sm_80\ncompiler=c\nspec=other\nunit=1\n");
  put("lathe-key 1\narch=sm_90a\ncompiler=c\nspec=conv width=4\nunit=1\n");
  Key asked;
  asked.text = "lathe-key 1\narch=sm_90a\ncompiler=c\nspec=conv width=3\nunit=1\n";
  asked.digest = digest(asked.text);
  CHECK(store->nearest_difference(asked) == "spec=conv width=3 (there: spec=conv width=4)");
}
