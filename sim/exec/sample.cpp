// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which clusters stand for a whole grid. Work often grows along an axis (causal attention), so
// every axis is cut into as many strata as clusters are wanted and each stratum gets one, in its
// middle: a Latin hypercube. Which stratum of one axis meets which of another follows the golden
// ratio, so that no two axes rise together.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/exec/grid_state.h"

namespace sim {
namespace {

// About `share` of n and without a common factor, so that its multiples reach every stratum.
uint64_t stride(uint64_t n, double share) {
  uint64_t step = std::max<uint64_t>(1, static_cast<uint64_t>(share * static_cast<double>(n)));
  while (std::gcd(step, n) != 1) ++step;
  return step;
}

}  // namespace

std::vector<uint64_t> sample_clusters(const uint32_t (&count)[3], uint64_t wanted) {
  const uint64_t steps[3] = {1, stride(wanted, 0.618), stride(wanted, 0.382)};
  std::vector<uint64_t> chosen;
  for (uint64_t i = 0; i < wanted; ++i) {
    uint64_t at[3];
    for (int axis = 0; axis < 3; ++axis) {
      const uint64_t stratum = i * steps[axis] % wanted;
      at[axis] = (2 * stratum + 1) * count[axis] / (2 * wanted);
    }
    chosen.push_back(at[0] + count[0] * (at[1] + count[1] * at[2]));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace sim
