// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover bundles that are damaged, forged, exchanged or cut while they are open: the
// right kernel, a miss or a clean refusal; never another kernel or a crash.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "cache/bundle/bundle.h"
#include "cache/tiers.h"
#include "codegen/base/text.h"
#include "tests/cache/bundle/bundles.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

struct Outcome {
  bool refused = false;
  int found = 0;
  std::string problem;
};

// Returns what a fresh process makes of these bytes.
Outcome outcome(const std::string& path, const std::string& bytes) {
  write_file(path, bytes);
  const auto tier = open_bundle_tier(path);
  Outcome out;
  out.problem = tier->problem();
  out.refused = !out.problem.empty();
  out.found = right(*tier);
  if (out.refused) CHECK(out.found == 0);
  return out;
}

// The head's checksum made to fit again, as whoever forges a bundle would.
std::string signed_again(std::string bytes, size_t head) {
  std::string all = bytes.substr(0, head);
  all.replace(48, 16, 16, '\0');
  const Digest sum = digest(all);
  std::memcpy(&bytes[48], sum.bytes.data(), 16);
  return bytes;
}

void put(std::string& bytes, size_t at, uint64_t value, int count = 8) {
  for (int i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

uint64_t get(const std::string& bytes, size_t at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// These functions return where the index begins, and where it ends.
size_t index_at(const std::string& bytes) { return 64 + get(bytes, 24); }
size_t head_of(const std::string& bytes) { return index_at(bytes) + 32 * get(bytes, 16); }

}  // namespace

TEST_CASE("every bit that flips is a refusal of the whole or a miss of one entry") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  const size_t head = head_of(good);
  Log log;
  REQUIRE(outcome(place / "x", good).found == 3);
  int wrong = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const Outcome out = outcome(place / "x", bad);
      wrong += at < head ? !out.refused : out.refused || out.found != 2;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every truncation and whatever is appended is refused") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  Log log;
  int wrong = 0;
  for (size_t length = 0; length < good.size(); ++length)
    wrong += !outcome(place / "x", good.substr(0, length)).refused;
  CHECK(wrong == 0);
  for (const std::string& more : {std::string("x"), std::string(1, '\0'), std::string(4096, '\0'),
                                  good, encode_entry(sample_entry("d"))})
    CHECK(outcome(place / "x", good + more).problem.find("follow its end") != std::string::npos);
  CHECK(outcome(place / "x", std::string(good.size(), '\0')).refused);
  CHECK(outcome(place / "x", encode_entry(entries()[0])).refused);
}

TEST_CASE("a forged head is refused with its reason, though its checksum fits") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  const size_t index = index_at(good), head = head_of(good);
  Log log;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    const Outcome out = outcome(place / "x", signed_again(bytes, head));
    CAPTURE(out.problem);
    CHECK(out.problem.find(part) != std::string::npos);
  };
  const auto changed = [&](size_t at, uint64_t value, int count = 8) {
    std::string bytes = good;
    put(bytes, at, value, count);
    return bytes;
  };
  CHECK(outcome(place / "x", signed_again(good, head)).found == 3);
  refused(changed(8, 2, 4), "bundle version 2, known is 1");
  refused(changed(8, 0, 4), "bundle version 0");
  refused(changed(12, 65, 4), "header of 65 bytes");
  refused(changed(32, 1), "reserved");
  for (const uint64_t count : {uint64_t{1} << 59, uint64_t{1} << 60, ~uint64_t{0}, uint64_t{1000}})
    refused(changed(16, count), "more than it holds");
  for (const uint64_t bytes : {uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 63})
    refused(changed(24, bytes), "more than it holds");

  // Rows of the index: key at 0, offset at 16, length at 24.
  refused(changed(index + 16, get(good, index + 16) + 1), "begins at byte");
  refused(changed(index + 16, 0), "begins at byte");
  refused(changed(index + 24, get(good, index + 24) + 1), "begins at byte");
  refused(changed(index + 24, get(good, index + 24) - 1), "begins at byte");
  refused(changed(index + 24, ~uint64_t{0}), "is not in the file");
  refused(changed(index + 24, 95), "is not in the file");
  refused(changed(index + 64 + 24, get(good, index + 64 + 24) - 1), "follow its end");
  refused(changed(index + 64 + 24, get(good, index + 64 + 24) + 1), "is not in the file");
  std::string swapped = good;
  std::swap_ranges(swapped.begin() + index, swapped.begin() + index + 32,
                   swapped.begin() + index + 32);
  refused(swapped, "begins at byte");
  std::string keys = good;
  std::swap_ranges(keys.begin() + index, keys.begin() + index + 16, keys.begin() + index + 32);
  refused(keys, "out of order");
  std::string twice = good;
  std::copy_n(good.begin() + index, 16, twice.begin() + index + 32);
  refused(twice, "is twice in the index");

  std::string text = good;
  text[64] = 'z';
  refused(text, "other than arch=");
  text = good;
  text[index - 1] = 'x';
  refused(text, "does not end in a newline");
  text = good;
  std::swap(text[64], text[good.find("compiler=")]);
  refused(text, "information");
}

TEST_CASE("two entries that changed places are two misses") {
  const TemporaryDirectory place;
  std::string bytes = good_bundle(place);
  // Those of equal length, whatever their order in the index.
  std::vector<size_t> at;
  for (const char* name : {"a", "b"}) {
    const std::string entry = encode_entry(sample_entry(name, 20));
    at.push_back(bytes.find(entry));
    REQUIRE(at.back() != bytes.npos);
  }
  const size_t length = encode_entry(entries()[0]).size();
  std::swap_ranges(bytes.begin() + at[0], bytes.begin() + at[0] + length, bytes.begin() + at[1]);
  Log log;
  const Outcome out = outcome(place / "x", bytes);
  CHECK_FALSE(out.refused);
  CHECK(out.found == 1);
  CHECK(log.mentions("another key"));
}

TEST_CASE("a damaged entry is a counted miss with one warning, and the others are served") {
  const TemporaryDirectory place;
  std::string bytes = good_bundle(place);
  bytes.back() ^= 1;
  write_file(place / "x", bytes);
  Log log;
  const auto tier = open_bundle_tier(place / "x");
  for (int round = 0; round < 3; ++round) CHECK(right(*tier) == 2);
  CHECK(tier->stat().hits == 6);
  CHECK(tier->stat().misses == 3);
  CHECK(tier->stat().corrupt == 3);
  CHECK(log.warnings().size() == 1);
  CHECK(log.mentions("passed over"));
  CHECK(read_file(place / "x") == bytes);
}

TEST_CASE("a collision of digests is a miss and no damage") {
  const TemporaryDirectory place;
  good_bundle(place);
  Log log;
  const auto tier = open_bundle_tier(place / "b");
  Key other = entries()[0].key;
  other.text += "option=-lineinfo\n";
  CHECK_FALSE(tier->get(other).has_value());
  CHECK(tier->stat().corrupt == 0);
  CHECK(log.warnings().empty());
  CHECK(right(*tier) == 3);
}

TEST_CASE("a bundle that is exchanged or removed while it is open goes on as it was") {
  const TemporaryDirectory place;
  good_bundle(place);
  Log log;
  const auto tier = open_bundle_tier(place / "b");
  Entry other = entries()[0];
  other.cubin += "other";
  pack_all(place / "other", {{other, sample_entry("d")}});
  files::rename(place / "b", place / "aside");
  files::rename(place / "other", place / "b");
  CHECK(right(*tier) == 3);
  CHECK_FALSE(tier->get(sample_key("d")).has_value());
  const auto after = open_bundle_tier(place / "b");
  CHECK(same(*after->get(other.key), other));
  files::remove(place / "aside");
  files::remove(place / "b");
  CHECK(right(*tier) == 3);
  CHECK(same(*after->get(other.key), other));
  CHECK(log.warnings().empty());
}

TEST_CASE("a bundle that is cut or overwritten while it is open is misses") {
  const TemporaryDirectory place;
  const std::string good = good_bundle(place);
  Log log;
  const auto tier = open_bundle_tier(place / "b");
  for (size_t length = 0; length <= good.size(); length += 13) {
    REQUIRE(truncate((place / "b").c_str(), static_cast<off_t>(good.size() - length)) == 0);
    CHECK(right(*tier) == (length == 0 ? 3 : length <= 13 ? 2 : std::max(0, right(*tier))));
  }
  REQUIRE(truncate((place / "b").c_str(), 0) == 0);
  CHECK(right(*tier) == 0);
  write_file(place / "b", std::string(good.size(), 'x'));
  CHECK(right(*tier) == 0);
  write_file(place / "b", good);
  CHECK(right(*tier) == 3);
}
