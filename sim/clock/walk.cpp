// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk.h"

#include <algorithm>
#include <limits>

namespace sim::clock {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

const Effect kHeldBack;

// Lanes that went different ways take turns in the simulator, as its seed wants. A multiprocessor
// does one way up to where the lanes meet, then the other: here the longer one first.
struct Strands {
  struct Strand {
    uint32_t lanes;
    std::vector<uint32_t> blocks;
  };
  std::vector<Strand> apart;
  std::vector<uint32_t> order;  // of blocks

  void flush() {
    std::stable_sort(apart.begin(), apart.end(), [](const Strand& a, const Strand& b) {
      return a.blocks.size() > b.blocks.size();
    });
    for (const Strand& strand : apart) {
      order.insert(order.end(), strand.blocks.begin(), strand.blocks.end());
    }
    apart.clear();
  }
  void visit(uint32_t block, uint32_t lanes) {
    const auto meets = [&](const Strand& strand) { return (strand.lanes & lanes) != 0; };
    if (std::count_if(apart.begin(), apart.end(), meets) > 1) flush();
    const auto found = std::find_if(apart.begin(), apart.end(), meets);
    if (found == apart.end()) {
      apart.push_back({lanes, {block}});
    } else if (apart.size() == 1 && (lanes & ~found->lanes) == 0 && lanes != found->lanes) {
      flush();  // some of the lanes leave the others
      apart.push_back({lanes, {block}});
    } else {
      found->lanes |= lanes;
      found->blocks.push_back(block);
    }
  }
};

}  // namespace

Walk::Walk(const Map& map, const WarpTrace& trace) : map_(map), trace_(trace) {
  visit_blocks();
  uint64_t steps = 0;
  for (const TraceRun& run : trace.runs) steps += run.count;
  left_ = 4 * steps + 10'000;
  for (size_t k = 0; k < trace.effects.size(); ++k) {
    const Effect& effect = trace.effects[k];
    if (effect.missed) continue;  // the wait is tried again
    effects_[map.line_of[effect.pc]].push_back(static_cast<uint32_t>(k));
  }
  enter(0);
}

// Numbers the visits of blocks. A wait that found its phase unfinished is tried again: how often is
// up to the schedule of the simulator and means nothing, so all from such a try to the next is left
// out.
void Walk::visit_blocks() {
  std::unordered_map<uint32_t, std::vector<bool>> tries;  // by instruction: whether each missed
  for (const Effect& effect : trace_.effects) {
    if (effect.missed) tries[effect.pc];
  }
  for (const Effect& effect : trace_.effects) {
    const auto found = tries.find(effect.pc);
    if (found != tries.end()) found->second.push_back(effect.missed);
  }
  std::unordered_map<uint32_t, std::pair<std::vector<bool>, size_t>> of_block;
  for (auto& [pc, missed] : tries) of_block[map_.block_of[pc]] = {std::move(missed), 0};
  visits_.resize(map_.blocks);
  uint32_t until = kNowhere, waiting = 0;  // the block that is tried again, and by which lanes
  Strands strands;
  for (const TraceRun& run : trace_.runs) {
    for (uint32_t pc = run.first; pc < run.first + run.count; ++pc) {
      if (!map_.leads[pc]) continue;
      const uint32_t block = map_.block_of[pc];
      if (until != kNowhere && (run.lanes & waiting) != 0) {
        if (block != until) continue;
        until = kNowhere;
      }
      const auto waits = of_block.find(block);
      if (waits != of_block.end()) {
        auto& [missed, next] = waits->second;
        if (next < missed.size() && missed[next++]) {
          until = block;
          waiting = run.lanes;
          continue;
        }
      }
      strands.visit(block, run.lanes);
    }
  }
  strands.flush();
  for (const uint32_t block : strands.order) visits_[block].push_back(count_++);
  for (const Map::Piece& piece : map_.pieces) {
    for (const int home : piece.homes) {
      const auto& visits = visits_[static_cast<size_t>(home)];
      if (piece.fixed && !visits.empty()) last_fixed_ = std::max(last_fixed_, visits.back());
    }
  }
}

int64_t Walk::next_visit(int block, int64_t after) const {
  const auto& all = visits_[static_cast<size_t>(block)];
  const auto found = std::upper_bound(all.begin(), all.end(), after);
  return found == all.end() ? kNever : *found;
}

// Returns the visit of a piece that comes next: the one that the walk is in, if the piece stands
// behind those of it that were done and does not do their lines again.
int64_t Walk::visit_of(uint32_t k) const {
  bool again = in_ != kNowhere && k <= in_;
  if (in_ != kNowhere && !again) {
    const auto &here = map_.lines[in_], &there = map_.lines[k];
    again = std::any_of(there.begin(), there.end(), [&](int line) {
      return std::binary_search(here.begin(), here.end(), line);
    });
  }
  int64_t first = kNever;
  for (const int home : map_.pieces[k].homes) {
    first = std::min(first, next_visit(home, again ? now_ : now_ - 1));
  }
  return first;
}

// Returns the visit that the way through `op` leads to next.
int64_t Walk::position(uint32_t op) const {
  if (op >= map_.program.ops.size()) return kNever;
  int64_t first = kNever;
  for (const uint32_t k : map_.ahead[map_.piece_of[op]]) first = std::min(first, visit_of(k));
  return first;
}

// Where a way is arithmetic up to where it meets the other way, its main home has to do.
int64_t Walk::guess(uint32_t op) const {
  const Map::Piece& piece = map_.pieces[map_.piece_of[op]];
  return piece.homes.empty() ? kNever : next_visit(piece.homes[0], now_);
}

// Where ptxas made one piece of several blocks, with guards for branches, the piece does a visit of
// each, up to the next one of the first.
int64_t Walk::last_of_round(const Map::Piece& piece, int64_t first) const {
  int64_t limit = kNever, last = first;
  for (const int home : piece.homes) {
    const auto& all = visits_[static_cast<size_t>(home)];
    if (std::binary_search(all.begin(), all.end(), first)) limit = next_visit(home, first);
  }
  for (const int home : piece.homes) {
    const int64_t visit = next_visit(home, first);
    if (visit < limit) last = std::max(last, visit);
  }
  return last;
}

void Walk::enter(uint32_t op) {
  at_ = op;
  if (op >= map_.program.ops.size()) return;
  const uint32_t k = map_.piece_of[op];
  const Map::Piece& piece = map_.pieces[k];
  if (piece.first != op || !piece.fixed) return;
  int64_t visit = visit_of(k);
  if (visit == kNever) return;
  for (int copy = 1; copy < piece.copies; ++copy) {
    const int64_t more = next_visit(piece.homes[0], visit);
    if (more == kNever) break;
    visit = more;
  }
  now_ = last_of_round(piece, visit);
  in_ = k;
}

// Lanes that went another way come to where the others wait for them.
uint32_t Walk::meet(uint32_t at) {
  const int64_t join = position(at + 1);
  while (!other_ways_.empty()) {
    const Way way = other_ways_.back();
    other_ways_.pop_back();
    const int64_t there = position(way.op);
    if (there < join && there > way.since) return way.op;
  }
  return at + 1;
}

// One loop in two pieces, of which one does several rounds at once: that one is taken if there are
// as many rounds without another block between them.
bool Walk::takes_copies(uint32_t on, uint32_t there, int64_t visit) const {
  const Map::Piece &a = map_.pieces[map_.piece_of[on]], &b = map_.pieces[map_.piece_of[there]];
  if (a.copies == b.copies || a.homes.empty() || b.homes.empty()) return false;
  int rounds = 1;
  const int most = std::max(a.copies, b.copies);
  while (rounds < most && next_visit(b.homes[0], visit) == visit + 1) ++visit, ++rounds;
  return (b.copies > a.copies) == (rounds >= most);
}

// Decides the guarded branch or exit at `at`.
uint32_t Walk::choose(uint32_t at) {
  const Op& op = map_.program.ops[at];
  if (op.act == Act::exit) return now_ >= last_fixed_ ? kNowhere : at + 1;
  if (op.target >= map_.program.ops.size() || at + 1 >= map_.program.ops.size()) return at + 1;
  const int64_t on = position(at + 1), there = position(op.target);
  bool jump = there < on;
  if (there == on) {
    // Both lead to the same piece, or to nothing: the straight way, if one is.
    const size_t wide_on = map_.ahead[map_.piece_of[at + 1]].size();
    const size_t wide_there = map_.ahead[map_.piece_of[op.target]].size();
    const int64_t guess_on = guess(at + 1), guess_there = guess(op.target);
    jump =
        wide_there != wide_on ? wide_there < wide_on : guess_there < guess_on && guess_there < on;
    if (takes_copies(at + 1, op.target, there)) jump = true;
    if (jump && op.target <= at && guess_there < on) now_ = guess_there;  // a loop of arithmetic
  } else if (const int64_t other = std::max(on, there); other != kNever) {
    other_ways_.push_back({jump ? at + 1 : op.target, std::min(on, there)});
    if (other_ways_.size() > 16) other_ways_.erase(other_ways_.begin());
  }
  return jump ? op.target : at + 1;
}

Walk::Step Walk::next() {
  const auto& ops = map_.program.ops;
  if (at_ >= ops.size() || left_ == 0) return {};
  --left_;
  const uint32_t at = at_;
  const Op& op = ops[at];
  Step step = {at, nullptr};
  const auto list = effects_.find(map_.line_of_op[at]);
  if (list != effects_.end() && op.act != Act::branch && op.act != Act::call &&
      (op.unit >= Unit::tensor || op.act != Act::none)) {
    uint32_t& used = used_[map_.line_of_op[at]];
    step.effect = &trace_.effects[list->second[std::min<size_t>(used, list->second.size() - 1)]];
    ++used;
  } else if (op.guarded && stays(op)) {
    step.effect = &kHeldBack;  // of a branch that this warp never took
  }
  uint32_t to = at + 1;
  if (op.act == Act::reconverge) {
    to = meet(at);
  } else if (op.act == Act::exit) {
    to = op.guarded ? choose(at) : kNowhere;
  } else if (op.act == Act::branch || op.act == Act::call) {
    to = op.guarded ? choose(at) : op.target;
    if (op.act == Act::call && to == op.target) calls_.push_back(at + 1);
    if (to == kNowhere) to = at + 1;  // a function that the listing does not have
  } else if (op.act == Act::give_back && !calls_.empty()) {
    to = calls_.back();
    calls_.pop_back();
  }
  enter(to);
  return step;
}

}  // namespace sim::clock
