// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/placing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>

namespace sim::clock {

// The correlation of the two decides.
int main_axis(const std::vector<BlockTrace>& traces, const std::vector<double>& cycles) {
  int best = 0;
  double most = -1;
  const auto n = static_cast<double>(traces.size());
  for (int axis = 0; axis < 3; ++axis) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    for (size_t k = 0; k < traces.size(); ++k) {
      const double x = traces[k].id[axis], y = cycles[k];
      sx += x, sy += y, sxx += x * x, sxy += x * y, syy += y * y;
    }
    const double vx = n * sxx - sx * sx, vy = n * syy - sy * sy;
    const double r = vx > 0 && vy > 0 ? std::abs(n * sxy - sx * sy) / std::sqrt(vx * vy) : 0;
    if (r > most) most = r, best = axis;
  }
  return best;
}

std::vector<double> along_axis(const std::vector<BlockTrace>& traces,
                               const std::vector<double>& cycles, int axis, uint32_t size) {
  std::map<uint32_t, std::pair<double, int>> known;
  for (size_t k = 0; k < traces.size(); ++k) {
    auto& [sum, count] = known[traces[k].id[axis]];
    sum += cycles[k];
    ++count;
  }
  std::vector<double> all(size);
  for (uint32_t at = 0; at < size; ++at) {
    const auto above = known.lower_bound(at);
    const auto value = [](auto it) { return it->second.first / it->second.second; };
    if (above == known.begin()) {
      all[at] = value(above);
    } else if (above == known.end()) {
      all[at] = value(std::prev(above));
    } else {
      const auto below = std::prev(above);
      const double part = static_cast<double>(at - below->first) / (above->first - below->first);
      all[at] = value(below) + part * (value(above) - value(below));
    }
  }
  return all;
}

Placed place(const Grid& grid, const std::vector<double>& of_axis, int axis, uint64_t places,
             double start, const Tail& tail) {
  const uint64_t blocks = count_of(grid.grid);
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (uint64_t k = 0; k < std::min(places, blocks); ++k) free.push(0);
  double first_empty = 0, last = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t x = block % grid.grid[0], y = block / grid.grid[0] % grid.grid[1],
                   z = block / grid.grid[0] / grid.grid[1];
    const uint64_t at = axis == 0 ? x : axis == 1 ? y : z;
    const double begin = free.top();
    free.pop();
    free.push(begin + of_axis[at] + (begin > 0 ? start : 0));
  }
  first_empty = free.top();
  double few_since = 0;
  while (!free.empty()) {
    last = free.top();
    free.pop();
    if (free.size() == tail.blocks) few_since = last;
  }
  last = few_since + (last - few_since) / tail.speed;
  return {last, last > 0 ? 1 - first_empty / last : 0};
}

}  // namespace sim::clock
