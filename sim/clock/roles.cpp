// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/roles.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace sim::clock {
namespace {

constexpr double kAlike = 0.9;         // of the instructions of two warps of one role
constexpr uint32_t kWarpgroup = 4;     // warps
constexpr size_t kIdle = 64;           // instructions of a warp that has nothing to do, at most
constexpr uint32_t kShortestLoop = 8;  // instructions; a shorter one asks again for something

using Ran = std::vector<bool>;  // by instruction: the warp issued it

bool alike(const Ran& a, const Ran& b) {
  size_t both = 0, either = 0;
  for (size_t k = 0; k < a.size(); ++k) both += a[k] && b[k], either += a[k] || b[k];
  return static_cast<double>(both) >= kAlike * static_cast<double>(either);
}

bool multiplies(const Op& op) { return op.unit == Unit::wgmma || op.unit == Unit::tensor; }
bool copies(const Op& op) { return op.unit == Unit::tma || op.unit == Unit::copy; }

template <class Does>
bool any(const Program& program, const Ran& ran, Does does) {
  for (size_t k = 0; k < ran.size(); ++k) {
    if (ran[k] && does(program.ops[k])) return true;
  }
  return false;
}

// The loop in which a warp issued most; the distance of its rounds.
void find_period(const Program& program, const std::vector<BackEdge>& back_edges, RoleTime* role) {
  std::map<uint32_t, std::vector<float>> loops;  // by branch
  for (const BackEdge& edge : back_edges) {
    if (edge.warp == role->first_warp) loops[edge.op].push_back(edge.time);
  }
  const std::vector<float>* most = nullptr;
  double issued = 0;
  for (const auto& [op, times] : loops) {
    const uint32_t length = op - program.ops[op].target;
    const double own = static_cast<double>(times.size()) * length;
    if (length < kShortestLoop || times.size() < 3 || own <= issued) continue;
    issued = own, most = &times;
  }
  if (most == nullptr) return;
  std::vector<float> distances;
  for (size_t k = 1; k < most->size(); ++k) distances.push_back((*most)[k] - (*most)[k - 1]);
  // Without the longest and the shortest tenth: rounds around the end of a tile are no steady
  // state.
  std::sort(distances.begin(), distances.end());
  const auto cut = static_cast<long>(distances.size() / 10);
  const auto count = static_cast<double>(distances.size()) - 2.0 * static_cast<double>(cut);
  role->period = std::accumulate(distances.begin() + cut, distances.end() - cut, 0.0) / count;
  role->rounds = distances.size();
}

void number_names(std::vector<RoleTime>* roles) {
  std::map<std::string, int> count, next;
  for (const RoleTime& role : *roles) ++count[role.name];
  for (RoleTime& role : *roles) {
    if (count[role.name] > 1) role.name += " " + std::to_string(next[role.name]++);
  }
}

}  // namespace

std::vector<RoleTime> find_roles(const Program& program, const ReplayResult& replay) {
  std::vector<RoleTime> roles;
  std::vector<const Ran*> of_role;
  for (uint32_t w = 0; w < replay.ran.size(); ++w) {
    const Ran& ran = replay.ran[w];
    const bool group = any(program, ran, [](const Op& op) { return op.unit == Unit::wgmma; });
    const bool same = !roles.empty() && alike(*of_role.back(), ran);
    if (!same || (group && w % kWarpgroup == 0)) {
      roles.push_back({"", w, w, {}, 0, 0});
      of_role.push_back(&ran);
    }
    roles.back().last_warp = w;
    for (size_t s = 0; s < kStalls; ++s) roles.back().stalls[s] += replay.warps[w][s];
  }
  const auto some = [&](auto does) {
    return std::any_of(of_role.begin(), of_role.end(),
                       [&](const Ran* ran) { return any(program, *ran, does); });
  };
  const bool products = some(multiplies), fetched = some(copies);
  for (size_t k = 0; k < roles.size(); ++k) {
    const Ran& ran = *of_role[k];
    const auto issued = static_cast<size_t>(std::count(ran.begin(), ran.end(), true));
    const bool multiplier = any(program, ran, multiplies), copier = any(program, ran, copies);
    roles[k].name = roles.size() == 1                          ? "all"
                    : multiplier && fetched && !copier         ? "consumer"
                    : copier && products && !multiplier        ? "producer"
                    : !multiplier && !copier && issued < kIdle ? "idle"
                                                               : "role";
    find_period(program, replay.back_edges, &roles[k]);
  }
  number_names(&roles);
  return roles;
}

}  // namespace sim::clock
