// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what an entry says of its kernel: a sorted map in the form of its text.
#include "cache/metadata.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

using namespace lathe;

TEST_CASE("metadata is a sorted map of lines, in whatever order it was filled") {
  std::mt19937 random(7);
  const auto below = [&](unsigned end) { return random() % end; };
  for (int round = 0; round < 300; ++round) {
    Metadata metadata;
    std::map<std::string, std::string> model;
    for (unsigned i = below(20); i > 0; --i) {
      // Names that begin each other, values with and without "=" and of no length.
      const std::string name(1 + below(3), static_cast<char>('a' + below(3)));
      std::string value = below(2) == 0 ? std::string(below(3), '=') : std::to_string(random());
      metadata.set(name, value + "\n" + value);
      model[name] = value + " " + value;
    }
    std::string lines;
    for (const auto& [name, value] : model) {
      lines += name + "=" + value + "\n";
      CHECK(metadata.find(name) == value);
    }
    CHECK(metadata.lines() == lines);
    CHECK(metadata.size() == model.size());
    for (const char* other : {"", "A", "aaaa", "b=", "z"}) CHECK_FALSE(metadata.find(other));
    const auto back = Metadata::parse(lines);
    REQUIRE(back.ok());
    CHECK(*back == metadata);
  }
}

TEST_CASE("text that is no metadata is refused") {
  for (const char* wrong : {"a", "a\n", "a=1", "\n", "a=1\nb\n", "a=1\nb=2", "a\nb=1\n"}) {
    CAPTURE(wrong);
    const auto read = Metadata::parse(wrong);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().code() == Code::cache_io);
    CHECK(read.status().text().find("not name=value") != std::string::npos);
  }
  for (const char* wrong : {"b=1\na=1\n", "a=1\na=1\n", "=1\n=2\n"}) {
    CAPTURE(wrong);
    const auto read = Metadata::parse(wrong);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().text().find("not sorted") != std::string::npos);
  }
  CHECK(Metadata::parse("").ok());
  CHECK(Metadata::parse("=\n").ok());
}
