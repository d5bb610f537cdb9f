// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/search.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sim/clock/walk/progress.h"

namespace sim::clock {
namespace {

// A search is wide at first. If it takes long, because much of a track is not in the program, it
// goes on with few paths that are close together. So do all searches once those of a kernel have
// taken too long.
struct Width {
  size_t paths;
  uint32_t tokens_behind;
};
constexpr Width kWide = {1024, 1024}, kNarrow = {64, 512};
constexpr uint64_t kStepsOfToken = 16, kStepsOfTrack = 50'000, kStepsOfKernel = 1'500'000;
constexpr int64_t kOtherWayCost = 4 * kFixedWeight;
constexpr int64_t kTokensToLearn = 64, kMostUsual = kWeakWeight / 4;
// These costs only decide between paths that agree with the track equally well: the shorter one,
// without the functions that divide what is out of the ordinary.
constexpr int64_t kSassBlockCost = 1, kCallCost = 8, kSplitCost = 4;

class Search {
 public:
  // `wide`: steps in which it may be wide.
  Search(const SassMap& map, const Track& track, uint64_t wide)
      : map_(map), track_(track), cursors_(track), wide_(wide) {}

  SassPath run() {
    SassPath out;
    if (map_.sass_blocks.empty()) return out;
    Branch start;
    enter(std::move(start), 0);
    const uint64_t most = wide_ + 64 * (track_.tokens.size() + 10'000);
    while (!live_.empty() && steps_ < most) {
      step();
    }
    if (!done_ && !live_.empty()) {  // the one that came farthest
      finish(*std::max_element(live_.begin(), live_.end(), [](const Branch& a, const Branch& b) {
        return a.progress.high() < b.progress.high();
      }));
    }
    out.sass_blocks = std::move(best_);
    out.cost = best_cost_;
    out.steps = steps_;
    return out;
  }

 private:
  using Goes = Track::Token::Goes;
  struct Branch {
    uint32_t sass_block = 0;  // that it has done last
    uint32_t node = kNowhere;
    Progress progress;
    std::vector<uint32_t> others;  // SASS blocks where other lanes will go
    std::vector<uint32_t> calls;   // SASS blocks to come back to
    Track::Token::Goes goes = {};  // from the end of the SASS block
  };
  struct Node {
    uint32_t sass_block, before;
  };

  // Says whether a path that came to the same place and as far did at most as much wrong, both now
  // and for good.
  bool known(const Branch& b, uint32_t sass_block) {
    uint64_t key = b.progress.hash() * 0x9E3779B97F4A7C15ull + sass_block;
    for (const uint32_t other : b.others) key = key * 1'000'003 + other + 1;
    for (const uint32_t call : b.calls) key = key * 998'244'353 + call + 7;
    const Costs own = {b.progress.cost(), b.progress.spent()};
    const auto older = older_.find(key);
    if (older != older_.end() && older->second.below(own)) return true;
    const auto [found, first] = newer_.try_emplace(key, own);
    if (!first && found->second.below(own)) return true;
    if (own.all < found->second.all) found->second = own;
    if (newer_.size() > 4096) older_ = std::exchange(newer_, {});
    return false;
  }

  // `b` goes into a SASS block and does its anchors.
  void enter(Branch&& b, uint32_t sass_block) {
    if (sass_block >= map_.sass_blocks.size()) return;
    const SassBlock& p = map_.sass_blocks[sass_block];
    b.progress.pass(map_, track_, p, &cursors_, &bound_);
    b.progress.spend(kSassBlockCost);
    if (done_ && b.progress.cost() >= best_cost_) return;
    if (known(b, sass_block)) return;
    b.goes = direction(p);
    b.sass_block = sass_block;
    nodes_.push_back({sass_block, b.node});
    b.node = static_cast<uint32_t>(nodes_.size() - 1);
    live_.push_back(std::move(b));
    std::push_heap(live_.begin(), live_.end(), later());
  }

  // Returns where the track goes from the end of a SASS block whose anchors were done just now.
  Goes direction(const SassBlock& sass_block) const {
    Goes goes = Goes::unknown;
    size_t at = 0;
    for (const AnchorUse& use : sass_block.uses) {
      at += use.tokens;
      const uint32_t token = bound_[at - 1];
      if (map_.anchors[use.anchor].kind == AnchorKind::branch && token != kNowhere) {
        goes = track_.tokens[token].goes;
      }
    }
    if (goes == Goes::both) return goes;
    if (sass_block.sense == SassBlock::Sense::unknown) return Goes::unknown;
    if (goes == Goes::unknown || sass_block.sense == SassBlock::Sense::same) return goes;
    return goes == Goes::on ? Goes::jumps : Goes::on;
  }

  void finish(const Branch& b) {
    const int64_t cost = b.progress.final_cost(track_);
    if (done_ && cost >= best_cost_) return;
    done_ = true;
    best_cost_ = cost;
    best_.clear();
    for (uint32_t n = b.node; n != kNowhere; n = nodes_[n].before)
      best_.push_back(nodes_[n].sass_block);
    std::reverse(best_.begin(), best_.end());
  }

  // Estimates what a path will cost at its end, up to a number that is the same for all paths. Some
  // of a track is not in the program: without `usual_` for the tokens to come, paths that are
  // behind would look better than the right one.
  int64_t estimate(const Branch& b) const {
    return b.progress.cost() - usual_ * static_cast<int64_t>(b.progress.high());
  }
  struct Later {
    const Search& search;
    bool operator()(const Branch& a, const Branch& b) const {
      const int64_t of_a = search.estimate(a), of_b = search.estimate(b);
      return of_a != of_b ? of_a > of_b : a.progress.high() < b.progress.high();
    }
  };
  Later later() const { return {*this}; }
  // Says whether an end is known that is at least as good as that of `b` will be.
  bool beaten(const Branch& b) const {
    const auto all = static_cast<int64_t>(track_.tokens.size());
    return done_ && estimate(b) + usual_ * all >= best_cost_;
  }
  void learn_usual(const Branch& farthest) {
    const int64_t high = farthest.progress.high();
    if (high >= kTokensToLearn) usual_ = std::min(kMostUsual, farthest.progress.cost() / high);
  }

  const Width& width() const { return steps_ < wide_ ? kWide : kNarrow; }

  // Gives up paths that are far behind the one that is left and came farthest.
  void tidy() {
    const Width& most = width();
    const Branch* farthest = nullptr;
    for (const Branch& b : live_) {
      if (!farthest || b.progress.high() > farthest->progress.high()) farthest = &b;
    }
    farthest_ = farthest ? farthest->progress.high() : 0;
    if (farthest) learn_usual(*farthest);
    std::erase_if(
        live_, [&](const Branch& b) { return b.progress.high() + most.tokens_behind < farthest_; });
    if (live_.size() > most.paths) {
      std::sort(live_.begin(), live_.end(),
                [&](const auto& a, const auto& b) { return later()(b, a); });
      live_.resize(most.paths / 2);
    }
    std::make_heap(live_.begin(), live_.end(), later());
    uint32_t floor = kNowhere;
    for (const Branch& b : live_) floor = std::min(floor, b.progress.base());
    if (!live_.empty()) cursors_.raise(floor);
  }

  // The cheapest path goes on.
  void step() {
    if (++steps_ % 256 == 0 || live_.size() > width().paths) tidy();
    std::pop_heap(live_.begin(), live_.end(), later());
    Branch b = std::move(live_.back());
    live_.pop_back();
    if (beaten(b)) {
      live_.clear();
      return;
    }
    farthest_ = live_.empty() ? b.progress.high() : std::max(farthest_, b.progress.high());
    if (track_.cut && b.progress.high() == track_.tokens.size()) finish(b);
    if (b.progress.high() + width().tokens_behind < farthest_) return;
    leave(std::move(b));
  }

  // Takes a path that the track may not take.
  void go(const Branch& b, uint32_t sass_block, bool other = false) {
    Branch copy = b;
    if (other) copy.progress.spend(kOtherWayCost);
    enter(std::move(copy), sass_block);
  }

  // Some lanes go to `sass_block`, and later the others to `other`.
  void split(const Branch& b, uint32_t sass_block, uint32_t other) {
    if (b.others.size() > 8) return;
    Branch copy = b;
    if (copy.others.empty() || copy.others.back() != other) copy.others.push_back(other);
    copy.progress.spend(kSplitCost);
    enter(std::move(copy), sass_block);
  }

  void end(Branch&& b) {
    if (b.others.empty()) {
      finish(b);
      return;
    }
    const uint32_t other = b.others.back();
    b.others.pop_back();
    enter(std::move(b), other);
  }

  void leave(Branch&& b) {
    const SassBlock& sass_block = map_.sass_blocks[b.sass_block];
    const uint32_t on = b.sass_block + 1;
    using End = SassBlock::End;
    switch (sass_block.how) {
      case End::falls:
        return enter(std::move(b), on);
      case End::jumps:
        for (size_t k = 1; k < sass_block.targets.size(); ++k) go(b, sass_block.targets[k]);
        return enter(std::move(b), sass_block.targets[0]);
      case End::forks:
        for (const uint32_t target : sass_block.targets) {
          go(b, target, b.goes == Goes::on);
          if (b.goes != Goes::both) continue;
          split(b, on, target);
          split(b, target, on);
        }
        return go(b, on, b.goes == Goes::jumps);
      case End::may_exit:
        go(b, on, b.goes == Goes::jumps);
        if (b.goes == Goes::on) b.progress.spend(kOtherWayCost);
        return end(std::move(b));
      case End::exits:
        return end(std::move(b));
      case End::may_call:
        go(b, on);
        [[fallthrough]];
      case End::calls:
        b.progress.spend(kCallCost);
        b.calls.push_back(on);
        return enter(std::move(b), sass_block.targets[0]);
      case End::returns: {
        if (b.calls.empty()) return end(std::move(b));
        const uint32_t back = b.calls.back();
        b.calls.pop_back();
        return enter(std::move(b), back);
      }
      case End::meets:
        return b.others.empty() ? enter(std::move(b), on) : end(std::move(b));
    }
  }

  const SassMap& map_;
  const Track& track_;
  Cursors cursors_;
  std::vector<Branch> live_;  // a heap, the cheapest first
  uint32_t farthest_ = 0;     // token that one of them came to
  int64_t usual_ = 0;         // cost of a token, as far as the farthest path came
  std::vector<Node> nodes_;
  std::vector<uint32_t> best_, bound_;
  struct Costs {
    int64_t all, spent;
    bool below(const Costs& other) const { return all <= other.all && spent <= other.spent; }
  };
  std::unordered_map<uint64_t, Costs> newer_, older_;  // of paths by where they came
  int64_t best_cost_ = 0;
  bool done_ = false;
  uint64_t steps_ = 0;
  const uint64_t wide_;
};

// Returns all that the search looks at.
std::vector<uint32_t> key_of(const Track& track) {
  std::vector<uint32_t> out;
  out.reserve(track.tokens.size() + 1);
  for (const Track::Token& t : track.tokens) {
    out.push_back(8 * t.anchor + (t.empty ? 4 : 0) + static_cast<uint32_t>(t.goes));
  }
  out.push_back(track.cut ? 1 : 0);
  return out;
}

}  // namespace

const SassPath& SassPaths::of(const SassMap& map, const Track& track) {
  std::vector<uint32_t> key = key_of(track);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  const uint64_t wide =
      std::min(kStepsOfToken * track.tokens.size() + kStepsOfTrack, kStepsOfKernel - steps_);
  SassPath path = Search(map, track, wide).run();
  steps_ = std::min(kStepsOfKernel, steps_ + path.steps);
  return known_.emplace(std::move(key), std::move(path)).first->second;
}

}  // namespace sim::clock
