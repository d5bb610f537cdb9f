// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/progress.h"

#include <algorithm>
#include <utility>

namespace sim::clock {
namespace {

constexpr size_t kMostWords = 1024;  // of bits
constexpr int64_t kMostPassedBy = 64 * kFixedWeight, kMostLate = 512 * kFixedWeight;
constexpr int64_t kNear = 8 * kFixedWeight;
// This cost decides between two paths that do the same as often, where one does it later than the
// PTX: two rounds of a loop in the next round of the loop around it are as many as one in each.
constexpr int64_t kLateCost = 16;

uint64_t mixed(uint64_t x) {
  x = (x + 1) * 0x9E3779B97F4A7C15ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ x >> 29;
}

}  // namespace

bool Progress::has(uint32_t token) const { return token < base_ || has_after(token); }

bool Progress::has_after(uint32_t token) const {
  const size_t word = token / 64 - origin_;
  if (word < bits_.size()) return bits_[word] >> token % 64 & 1;
  return !far_.empty() && std::binary_search(far_.begin(), far_.end(), token);
}

// Finds the next free tokens of each anchor.
void Progress::find(const SassMap& map, const Track& track, const SassBlock& sass_block,
                    Cursors* cursors, std::vector<uint32_t>* bound) const {
  bound->clear();
  for (const AnchorUse& use : sass_block.uses) {
    uint32_t token = cursors->begin(track, use.anchor);
    const bool weak = map.anchors[use.anchor].weak();
    const auto gone = [&](uint32_t t) {
      if (has(t) || (use.skips_empty && track.tokens[t].empty)) return true;
      return weak && t < weak_high_ && track.weight[weak_high_] - track.weight[t] > kNear;
    };
    for (uint32_t turn = 0; turn < use.tokens; ++turn) {
      while (token != kNowhere && gone(token)) token = track.tokens[token].next;
      bound->push_back(token);
      if (token != kNowhere) token = track.tokens[token].next;
    }
  }
}

// A token that lies behind many that nobody has taken belongs to something else.
void Progress::leave_far(const SassMap& map, const Track& track, const SassBlock& sass_block,
                         std::vector<uint32_t>* bound) const {
  std::vector<std::pair<uint32_t, size_t>> own, weak;  // token, place in `bound`
  size_t at = 0;
  for (const AnchorUse& use : sass_block.uses) {
    for (uint32_t turn = 0; turn < use.tokens; ++turn, ++at) {
      const uint32_t token = (*bound)[at];
      if (token == kNowhere || use.moved || use.optional) continue;
      (map.anchors[use.anchor].weak() ? weak : own).emplace_back(token, at);
    }
  }
  std::sort(own.begin(), own.end());
  uint32_t high = weak_high_;
  int64_t mine = 0;
  for (const auto& [token, place] : own) {
    if (token < high_) continue;
    if (track.weight[token] - track.weight[high_] - mine > kMostPassedBy) {
      (*bound)[place] = kNowhere;
      continue;
    }
    mine += track.weight_of(map, token);
    high = std::max(high, token + 1);
  }
  for (const auto& [token, place] : weak) {
    const bool far = token > high && track.weight[token] - track.weight[high] > kNear;
    if (far) (*bound)[place] = kNowhere;
  }
}

// Returns the token before which what may be held back has happened, if it has: that of the next
// instruction of PTX that the SASS block does for certain, or else of the first one in the next
// round.
uint32_t Progress::end_of_round(const SassMap& map, const Track& track, const SassBlock& sass_block,
                                const std::vector<uint32_t>& bound, uint32_t anchor,
                                bool* certain) const {
  const uint32_t pc = map.anchors[anchor].pc;
  uint32_t before = kNowhere, after = kNowhere;  // their instructions
  uint32_t before_token = kNowhere, after_token = kNowhere;
  size_t at = 0;
  for (const AnchorUse& use : sass_block.uses) {
    at += use.tokens;
    const uint32_t other = map.anchors[use.anchor].pc;
    if (use.optional || use.moved || other == kNowhere || bound[at - 1] == kNowhere) continue;
    if (other > pc && other < after) after = other, after_token = bound[at - 1];
    if (other <= pc && (before == kNowhere || other > before)) {
      before = other;
      before_token = bound[at - 1];
    }
  }
  *certain = after != kNowhere || before != kNowhere;
  const bool turned = after != kNowhere && before != kNowhere && after_token < before_token;
  if (after != kNowhere && !turned) return after_token;
  uint32_t token = after != kNowhere ? after_token : before_token;
  while (token != kNowhere && (has(token) || token == after_token || token == before_token)) {
    token = track.tokens[token].next;
  }
  return token;
}

// An instruction that a guard may hold back has happened if its token comes before the end of the
// round; otherwise its token is given up.
void Progress::leave_optional(const SassMap& map, const Track& track, const SassBlock& sass_block,
                              std::vector<uint32_t>* bound) const {
  uint32_t high = high_;
  bool any_certain = false;
  std::vector<std::pair<uint32_t, size_t>> own;
  size_t at = 0;
  for (const AnchorUse& use : sass_block.uses) {
    bool certain = false;
    uint32_t end = kNowhere;
    if (use.optional) end = end_of_round(map, track, sass_block, *bound, use.anchor, &certain);
    for (uint32_t turn = 0; turn < use.tokens; ++turn, ++at) {
      uint32_t& token = (*bound)[at];
      if (token == kNowhere) continue;
      if (!use.optional) {
        if (!use.moved && !map.anchors[use.anchor].weak()) high = std::max(high, token + 1);
      } else if (token > end) {
        token = kNowhere;
      } else {
        own.emplace_back(token, at);
      }
    }
    if (use.optional && certain) any_certain = true;
  }
  std::sort(own.begin(), own.end());
  const int64_t most = any_certain ? kMostPassedBy : 2 * kFixedWeight;
  int64_t mine = 0;
  for (const auto& [token, place] : own) {
    if (token < high) continue;
    if (track.weight[token] - track.weight[high] - mine > most) {
      (*bound)[place] = kNowhere;
    } else {
      mine += track.weight_of(map, token);
    }
  }
}

void Progress::take(const SassMap& map, const Track& track, uint32_t token) {
  if (token < base_) return;
  const size_t word = token / 64 - origin_;
  if (word < kMostWords) {
    if (word >= bits_.size()) {
      const size_t before = bits_.size();
      bits_.resize(word + 1);
      // A token that was far away may be near now.
      while (!far_.empty() && far_.front() / 64 - origin_ < bits_.size()) {
        const uint32_t near = far_.front();
        if (near / 64 >= origin_ + before) bits_[near / 64 - origin_] |= 1ull << near % 64;
        far_.erase(far_.begin());
      }
    }
    bits_[word] |= 1ull << token % 64;
  } else {
    far_.insert(std::lower_bound(far_.begin(), far_.end(), token), token);
  }
  hash_ ^= mixed(token);
  const int64_t weight = track.weight_of(map, token);
  taken_ += weight;
  if (token < (map.anchors[track.tokens[token].anchor].weak() ? weak_high_ : high_))
    open_ -= weight;
}

// Branches and visits are not in the order of accesses, which ptxas moves over them: so they only
// say of one another what was passed by.
void Progress::raise(const SassMap& map, const Track& track, uint32_t high, uint32_t weak_high) {
  weak_high = std::max(weak_high, high);
  const auto pass_by = [&](uint32_t from, uint32_t to, bool weak) {
    for (uint32_t token = from; token < to; ++token) {
      if (map.anchors[track.tokens[token].anchor].weak() == weak && !has(token)) {
        open_ += track.weight_of(map, token);
      }
    }
  };
  pass_by(high_, high, false);
  pass_by(weak_high_, weak_high, true);
  high_ = std::max(high_, high);
  weak_high_ = std::max(weak_high_, weak_high);
}

void Progress::move_base(const Track& track) {
  // The path will not come back for a token that it passed by so long ago.
  while (base_ < high_ && track.weight[high_] - track.weight[base_] > kMostLate) ++base_;
  while (has_after(base_)) ++base_;
  high_ = std::max(high_, base_);
  weak_high_ = std::max(weak_high_, base_);
  const uint32_t words = base_ / 64 - origin_;
  if (words == 0) return;
  bits_.erase(bits_.begin(),
              bits_.begin() + static_cast<ptrdiff_t>(std::min<size_t>(words, bits_.size())));
  origin_ += words;
}

void Progress::pass(const SassMap& map, const Track& track, const SassBlock& sass_block,
                    Cursors* cursors, std::vector<uint32_t>* bound) {
  if (sass_block.uses.empty()) {
    bound->clear();
    return;
  }
  find(map, track, sass_block, cursors, bound);
  leave_far(map, track, sass_block, bound);
  leave_optional(map, track, sass_block, bound);
  uint32_t high = high_, weak_high = weak_high_;
  size_t at = 0;
  for (const AnchorUse& use : sass_block.uses) {
    const bool weak = map.anchors[use.anchor].weak();
    for (uint32_t turn = 0; turn < use.tokens; ++turn, ++at) {
      const uint32_t token = (*bound)[at];
      if (token == kNowhere) {
        if (!use.optional) spent_ += weak || use.moved ? kWeakWeight : kFixedWeight;
        continue;
      }
      take(map, track, token);
      if (use.moved || use.optional) continue;
      if (!weak && token < high_) spent_ += kLateCost;
      (weak ? weak_high : high) = std::max(weak ? weak_high : high, token + 1);
    }
  }
  raise(map, track, high, weak_high);
  move_base(track);
}

}  // namespace sim::clock
