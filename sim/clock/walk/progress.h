// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Progress says how far a path through a program has come in the track of a warp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/clock/walk/track.h"

namespace sim::clock {

// Cursors say where the free tokens of each anchor begin: no path that is still followed has free
// ones before.
class Cursors {
 public:
  explicit Cursors(const Track& track) : at_(track.first) {}
  void raise(uint32_t floor) { floor_ = floor; }
  uint32_t begin(const Track& track, uint32_t anchor) {
    uint32_t& at = at_[anchor];
    while (at != kNowhere && at < floor_) at = track.tokens[at].next;
    return at;
  }

 private:
  std::vector<uint32_t> at_;
  uint32_t floor_ = 0;
};

// It holds the tokens that a path has taken: all before `base`, and single ones after it, as
// instructions of the program are not in the order of PTX.
class Progress {
 public:
  // Returns what is wrong with the path so far: tokens that it passed by, and anchors that it did
  // without a token.
  int64_t cost() const { return spent_ + open_; }
  // Returns the cost if the path ends here.
  int64_t final_cost(const Track& track) const { return spent_ + track.weight.back() - taken_; }
  int64_t spent() const { return spent_; }
  uint64_t hash() const { return hash_; }
  uint32_t high() const { return weak_high_; }
  uint32_t base() const { return base_; }
  void spend(int64_t cost) { spent_ += cost; }

  // Does the anchors of a SASS block. `bound` gets the token of each turn of its uses, one use
  // after the other: kNowhere if there is none.
  void pass(const SassMap& map, const Track& track, const SassBlock& sass_block, Cursors* cursors,
            std::vector<uint32_t>* bound);

 private:
  bool has(uint32_t token) const;
  bool has_after(uint32_t token) const;
  void find(const SassMap& map, const Track& track, const SassBlock& sass_block, Cursors* cursors,
            std::vector<uint32_t>* bound) const;
  void leave_far(const SassMap& map, const Track& track, const SassBlock& sass_block,
                 std::vector<uint32_t>* bound) const;
  uint32_t end_of_round(const SassMap& map, const Track& track, const SassBlock& sass_block,
                        const std::vector<uint32_t>& bound, uint32_t anchor, bool* certain) const;
  void leave_optional(const SassMap& map, const Track& track, const SassBlock& sass_block,
                      std::vector<uint32_t>* bound) const;
  void take(const SassMap& map, const Track& track, uint32_t token);
  void raise(const SassMap& map, const Track& track, uint32_t high, uint32_t weak_high);
  void move_base(const Track& track);

  uint32_t base_ = 0, high_ = 0;  // tokens below `high` should have been taken
  uint32_t weak_high_ = 0;        // the same for branches and visits; not less than `high`
  uint32_t origin_ = 0;           // base / 64 when the bits were moved last
  std::vector<uint64_t> bits_;    // taken, from 64 * origin on
  std::vector<uint32_t> far_;     // taken, behind what the bits may have; sorted
  int64_t open_ = 0;              // weight of those below `high` that were not
  int64_t spent_ = 0, taken_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace sim::clock
