// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/findings.h"

#include <algorithm>

namespace sim {

bool Findings::wanted(Place place, uint64_t cluster) const {
  const auto it = kept_.find(place);
  if (it == kept_.end() || it->second.size() < static_cast<size_t>(share_)) return share_ > 0;
  return it->second.back().cluster > cluster;
}

void Findings::add(Place place, uint64_t cluster, Finding finding) {
  if (!wanted(place, cluster)) return;
  auto& list = kept_[place];
  const auto at = std::upper_bound(list.begin(), list.end(), cluster,
                                   [](uint64_t c, const Kept& k) { return c < k.cluster; });
  list.insert(at, {cluster, next_++, std::move(finding)});
  if (list.size() > static_cast<size_t>(share_)) list.pop_back();
}

std::vector<Finding> Findings::take(uint64_t last) {
  std::vector<Kept> all;
  for (auto& [place, list] : kept_) {
    for (Kept& k : list) {
      if (k.cluster <= last) all.push_back(std::move(k));
    }
  }
  // Numbers of one cluster are its own order; those of several are compared by cluster alone.
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
    return std::pair(a.cluster, a.number) < std::pair(b.cluster, b.number);
  });
  std::vector<Finding> findings;
  for (Kept& k : all) findings.push_back(std::move(k.finding));
  return findings;
}

}  // namespace sim
