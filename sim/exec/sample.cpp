// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file chooses which clusters stand for a whole grid. Work often grows along an axis (causal
// attention), and what looks like one axis is often several folded into it (tiles, then heads), in
// an order that nobody here knows: steps that divide the inner one would always meet the same tile.
// So the sample is the lattice of linear numbers, of about two thousand, that is most even on the
// whole and modulo every divisor of the grid's size at once.
#include <algorithm>
#include <numeric>

#include "sim/exec/grid_state.h"

namespace sim {
namespace {

constexpr uint64_t kMostDivisors = 48, kSteps = 512, kOffsets = 4;

// Those that leave an inner axis worth looking at, the grid itself among them.
std::vector<uint64_t> inner_sizes(uint64_t all, uint64_t wanted) {
  std::vector<uint64_t> sizes = {all};
  for (uint64_t size = std::max<uint64_t>(2, wanted);
       size < all && size <= 4096 && sizes.size() < kMostDivisors; ++size) {
    if (all % size == 0) sizes.push_back(size);
  }
  return sizes;
}

// Returns how far the numbers modulo `size` are from even steps, summed over squares.
double unevenness(const std::vector<uint64_t>& numbers, uint64_t size, std::vector<double>* room) {
  room->clear();
  for (const uint64_t number : numbers) {
    room->push_back((static_cast<double>(number % size) + 0.5) / static_cast<double>(size));
  }
  std::sort(room->begin(), room->end());
  double sum = 0;
  for (size_t i = 0; i < room->size(); ++i) {
    const double off =
        (*room)[i] - (static_cast<double>(i) + 0.5) / static_cast<double>(room->size());
    sum += off * off;
  }
  return sum;
}

std::vector<uint64_t> lattice(uint64_t all, uint64_t wanted, uint64_t step, uint64_t first) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < wanted; ++i) numbers.push_back((first + i * step) % all);
  return numbers;
}

}  // namespace

std::vector<uint64_t> sample_clusters(uint64_t all, uint64_t wanted) {
  const std::vector<uint64_t> sizes = inner_sizes(all, wanted);
  std::vector<uint64_t> best;
  std::vector<double> room;
  double least = 0;
  for (uint64_t i = 0; i < kSteps; ++i) {
    uint64_t step = 1 + (2 * i + 1) * (all - 1) / (2 * kSteps);
    while (std::gcd(step, all) != 1) ++step;
    for (uint64_t offset = 0; offset < kOffsets; ++offset) {
      auto numbers = lattice(all, wanted, step, (2 * offset + 1) * all / (2 * kOffsets * wanted));
      double sum = 0;
      for (const uint64_t size : sizes) sum += unevenness(numbers, size, &room);
      if (!best.empty() && sum >= least) continue;
      least = sum;
      best = std::move(numbers);
    }
  }
  std::sort(best.begin(), best.end());
  return best;
}

}  // namespace sim
