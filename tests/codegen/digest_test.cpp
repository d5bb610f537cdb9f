// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the digest's form, and that no set of instructions gives another one: caches
// move between machines.
#include "codegen/base/digest.h"

#include <doctest/doctest.h>

#include <random>

#include "codegen/base/xxh3.h"

using namespace lathe;

namespace {

std::string noise(size_t bytes) {
  std::mt19937 random(static_cast<unsigned>(bytes));
  std::string out(bytes, '\0');
  for (char& each : out) each = static_cast<char>(random());
  return out;
}

}  // namespace

TEST_CASE("the digest is canonical XXH3-128") {
  // `xxhsum -H2` prints these values.
  CHECK(digest("").hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(digest("lathe").hex() == "7a13ec99e8ae3441b2e647a0bd0e048a");
  CHECK(digest(std::string(100'000, 'x')).hex() == "0fe996a84987456bd8b99a30e426ac41");
  CHECK(parse_digest(digest("lathe").hex()) == digest("lathe"));
}

TEST_CASE("pieces are hashed as what they make together") {
  for (const size_t bytes : {0, 1, 16, 17, 128, 129, 240, 241, 256, 1023, 1024, 1025, 70'000}) {
    CAPTURE(bytes);
    const std::string all = noise(bytes);
    const std::string_view view = all;
    const size_t first = bytes / 3, second = bytes / 2;
    Digester pieces;
    pieces.add(view.substr(0, first));
    pieces.add(view.substr(first, second - first));
    pieces.add(view.substr(second));
    CHECK(pieces.end() == digest(all));
  }
}

#if defined(__x86_64__)
TEST_CASE("every set of instructions gives the same digest") {
  if (!__builtin_cpu_supports("avx2")) {
    MESSAGE("skipped: this processor has no AVX2");
    return;
  }
  const std::string all = noise(70'000);
  const auto in_parts = [&](const Xxh3& with, size_t bytes) {
    XXH3_state_t state;
    with.begin(&state);
    with.add(&state, all.data(), bytes / 3);
    with.add(&state, all.data() + bytes / 3, bytes - bytes / 3);
    return with.end(&state);
  };
  const auto same = [&](size_t bytes) {
    const XXH128_hash_t expected = kXxh3Here.hash(all.data(), bytes);
    return XXH128_isEqual(xxh3_avx2.hash(all.data(), bytes), expected) &&
           XXH128_isEqual(in_parts(kXxh3Here, bytes), expected) &&
           XXH128_isEqual(in_parts(xxh3_avx2, bytes), expected);
  };
  for (size_t bytes = 0; bytes <= 1300; ++bytes) REQUIRE_MESSAGE(same(bytes), bytes);
  for (const size_t bytes : {4095, 4096, 65'535, 65'536, 70'000}) CHECK(same(bytes));
}
#endif
