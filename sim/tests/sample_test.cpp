// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover samples of grids: distinct, and even along both of two axes that are folded
// into one number.
#include <doctest/doctest.h>

#include <set>

#include "sim/exec/grid_state.h"

TEST_CASE("samples are distinct clusters of the grid") {
  for (const uint64_t all : {2, 3, 7, 64, 97, 512, 2310}) {
    for (uint64_t wanted = 1; wanted < all; wanted = 2 * wanted + 1) {
      const auto sample = sim::sample_clusters(all, wanted);
      CHECK(std::set<uint64_t>(sample.begin(), sample.end()).size() == wanted);
      CHECK(sample.back() < all);
    }
  }
}

TEST_CASE("samples are even along folded axes, whichever is the inner one") {
  for (const uint64_t tiles : {16, 128}) {
    for (const uint64_t heads : {8, 64}) {
      for (const uint64_t wanted : {4, 16}) {
        CAPTURE(tiles);
        CAPTURE(heads);
        CAPTURE(wanted);
        const auto sample = sim::sample_clusters(tiles * heads, wanted);
        double inner = 0, outer = 0;
        for (const uint64_t number : sample) {
          inner += (static_cast<double>(number % tiles) + 0.5) / static_cast<double>(tiles);
          outer += (static_cast<double>(number / heads) + 0.5) / static_cast<double>(tiles);
        }
        CHECK(inner / static_cast<double>(wanted) == doctest::Approx(0.5).epsilon(0.12));
        CHECK(outer / static_cast<double>(wanted) == doctest::Approx(0.5).epsilon(0.12));
      }
    }
  }
}
