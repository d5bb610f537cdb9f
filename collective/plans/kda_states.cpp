// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds local sequences, the other ranks that hold them, and the messages between these ranks.
#include "collective/plans/kda_states.h"

#include <algorithm>

namespace lathe {
namespace {

// Returns the ranks other than `own` with tokens of [begin, end), ascending.
std::vector<int> holders(const Partition& partition, int own, Interval of) {
  std::vector<int> out;
  for (int rank = 0; rank < partition.world(); ++rank) {
    const Interval part = partition.part(rank);
    const bool meets = std::max(part.begin, of.begin) < std::min(part.end, of.end);
    if (meets && rank != own) out.push_back(rank);
  }
  return out;
}

}  // namespace

KdaStatesPlan kda_states_plan(const Layout& layout, int rank) {
  const std::vector<int64_t>& cu = layout.cu_seqlens;
  const auto count = static_cast<int64_t>(cu.size()) - 1;
  KdaStatesPlan out;
  out.part = layout.partition.part(rank);
  const auto [begin, end] = out.part;
  if (layout.length == 0) {
    out.cu_seqlens.assign(cu.size(), 0);
    return out;
  }
  out.cu_seqlens = {0};
  if (begin == end) return out;
  // The local sequences go from the first that ends behind `begin` or is empty there, to the last
  // that begins before `end` or is empty behind the last token.
  const auto is_before = [&](int64_t n) {
    return cu[n + 1] <= begin && !(cu[n] == begin && cu[n + 1] == begin);
  };
  while (out.first < count && is_before(out.first)) ++out.first;
  int64_t behind = out.first;
  const bool has_last_token = end == layout.length;
  while (behind < count && (cu[behind] < end || has_last_token)) {
    out.cu_seqlens.push_back(std::clamp(cu[behind + 1], begin, end) - begin);
    ++behind;
  }
  if (behind == out.first) return out;
  const Interval first = {cu[out.first], cu[out.first + 1]}, last = {cu[behind - 1], cu[behind]};
  out.carried = first.begin < begin;
  out.open = last.end > end;
  if (out.carried) {
    out.carried_tokens = begin - first.begin;
    out.before = holders(layout.partition, rank, {first.begin, begin});
  }
  if (out.open) out.after = holders(layout.partition, rank, {end, last.end});
  return out;
}

KdaMessages kda_messages(const KdaStatesPlan& plan, bool states, bool grads) {
  KdaMessages out;
  const auto exchange = [&](const std::vector<int>& from, const std::vector<int>& to, bool forth) {
    const KdaMessage::Kind kind = forth ? KdaMessage::end : KdaMessage::grad;
    for (const int peer : to) {
      out.sends.push_back({peer, kind, forth, 0});
      if (plan.whole()) out.sends.push_back({peer, KdaMessage::map, forth, 0});
    }
    for (size_t i = 0; i < from.size(); ++i) {
      // The farthest one is where the sequence begins, or ends.
      const bool farthest = i == (forth ? 0 : from.size() - 1);
      const int slot = static_cast<int>(i);
      out.receives.push_back({from[i], kind, forth, slot});
      if (!farthest) out.receives.push_back({from[i], KdaMessage::map, forth, slot});
    }
  };
  if (states) exchange(plan.before, plan.after, true);
  if (grads) exchange(plan.after, plan.before, false);
  return out;
}

}  // namespace lathe
