// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/agreement.h"

#include <algorithm>

namespace sim::clock {
namespace {

// ptxas leaves out loads whose value it knows or nobody uses, and groups without copies.
bool may_vanish(AnchorKind kind) {
  return kind == AnchorKind::load || kind == AnchorKind::group_commit ||
         kind == AnchorKind::group_wait || kind == AnchorKind::bulk_commit ||
         kind == AnchorKind::wgmma_wait || kind == AnchorKind::cluster_wait;
}

// The tokens of one time that a walk goes through a SASS block, and where their middle is in the
// track.
struct Traversal {
  std::vector<uint32_t> tokens;
  uint32_t middle = 0;
};

// Returns how many tokens have to be left out so that the traversals are in the order of the track.
double out_of_order(const std::vector<Traversal>& traversals, size_t tokens) {
  std::vector<uint64_t> best(tokens + 1);  // a tree of the most tokens that end up to each place
  uint64_t all = 0, most = 0;
  for (const Traversal& traversal : traversals) {
    if (traversal.tokens.empty()) continue;
    uint64_t before = 0;
    for (size_t at = traversal.middle + 1; at > 0; at &= at - 1)
      before = std::max(before, best[at]);
    const uint64_t own = before + traversal.tokens.size();
    for (size_t at = traversal.middle + 1; at <= tokens; at += at & (~at + 1)) {
      best[at] = std::max(best[at], own);
    }
    all += traversal.tokens.size();
    most = std::max(most, own);
  }
  return static_cast<double>(all - most);
}

}  // namespace

double Agreement::share() const {
  const double off = missing + extra + misplaced;
  return wanted > 0 ? std::max(0.0, 1 - off / wanted) : 1;
}

void Agreement::add(const Agreement& other) {
  wanted += other.wanted;
  missing += other.missing;
  extra += other.extra;
  misplaced += other.misplaced;
}

Agreement compare(const SassMap& map, const WarpTrace& trace, const Steps& steps) {
  Agreement out;
  const Track track(map, trace);
  std::vector<uint32_t> token_of(trace.effects.size(), kNowhere);
  for (uint32_t at = 0; at < track.tokens.size(); ++at) {
    if (track.tokens[at].effect != kNowhere) token_of[track.tokens[at].effect] = at;
  }
  std::vector<uint32_t> done(trace.effects.size());
  std::vector<Traversal> traversals(1);
  for (Walk::Step step = steps(); step.op != kNowhere; step = steps()) {
    const SassBlock& sass_block = map.sass_blocks[map.sass_block_of[step.op]];
    if (sass_block.first == step.op) traversals.emplace_back();
    const uint32_t place = map.slot_of[step.op].use;
    if (place == kNowhere) continue;
    const AnchorUse& use = sass_block.uses[place];
    const Anchor& anchor = map.anchors[use.anchor];
    if (!anchor.traced) continue;
    if (step.effect == nullptr) {
      out.extra += use.optional ? 0 : 1;  // a load before the guard of its block
      continue;
    }
    if (step.effect->lanes == 0) continue;  // its guard held it back
    const auto effect = static_cast<size_t>(step.effect - trace.effects.data());
    if (done[effect]++ >= static_cast<uint32_t>(anchor.per_token)) out.extra += 1;
    if (!use.moved && token_of[effect] != kNowhere)
      traversals.back().tokens.push_back(token_of[effect]);
  }
  for (size_t k = 0; k < trace.effects.size(); ++k) {
    const Effect& e = trace.effects[k];
    const AnchorKind kind = map.kind_of[e.pc];
    if (e.missed || e.lanes == 0 || kind == AnchorKind::none) continue;
    if (map.anchor_of[e.pc] == kNowhere && may_vanish(kind)) continue;
    out.wanted += 1;
    if (done[k] == 0) out.missing += 1;
  }
  for (Traversal& traversal : traversals) {
    if (traversal.tokens.empty()) continue;
    const auto middle =
        traversal.tokens.begin() + static_cast<ptrdiff_t>(traversal.tokens.size() / 2);
    std::nth_element(traversal.tokens.begin(), middle, traversal.tokens.end());
    traversal.middle = *middle;
  }
  out.misplaced = out_of_order(traversals, track.tokens.size());
  return out;
}

double agreement(const SassMap& map, std::span<const BlockTrace> blocks) {
  Agreement all;
  for (const BlockTrace& block : blocks) {
    for (const WarpTrace& trace : block.warps) {
      Walk walk(map, trace);
      all.add(compare(map, trace, [&] { return walk.next(); }));
    }
  }
  return all.share();
}

}  // namespace sim::clock
