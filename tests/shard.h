// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which part of a long list of cases this run has (lathe_parts in
// cmake/LatheTests.cmake).
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

namespace testing {

// LATHE_TEST_SHARD=3/15 chooses numbers 3, 18, 33 and so on of the list.
struct Shard {
  unsigned index = 0, count = 1;
  bool has(size_t number) const { return number % count == index; }
};

inline bool shard_is_chosen() { return std::getenv("LATHE_TEST_SHARD") != nullptr; }

// Returns the chosen part, or the first of `parts`.
inline Shard chosen_shard(unsigned parts) {
  Shard shard = {0, parts};
  const char* text = std::getenv("LATHE_TEST_SHARD");
  if (text == nullptr) return shard;
  const int found = std::sscanf(text, "%u/%u", &shard.index, &shard.count);
  REQUIRE_MESSAGE((found == 2 && shard.index < shard.count), "LATHE_TEST_SHARD is ", text);
  return shard;
}

}  // namespace testing
