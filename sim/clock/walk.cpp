// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk.h"

#include <algorithm>
#include <limits>
#include <map>

namespace sim::clock {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

bool ends_piece(const Op& op) {
  return op.act == Act::branch || op.act == Act::exit || op.act == Act::reconverge;
}

// Instructions that a compiler seldom copies or moves to another block say more about a home.
int weight(const Op& op) {
  const bool fixed = op.unit >= Unit::tensor && op.unit <= Unit::tma;
  return fixed || op.act == Act::barrier ? 4 : 1;
}

}  // namespace

Map::Map(const Function& f, const Program& p) : function(f), program(p) {
  find_blocks();
  find_pieces();
  find_homes();
}

void Map::find_blocks() {
  const auto& code = function.code;
  leads.assign(code.size() + 1, false);
  leads[0] = true;
  for (size_t pc = 0; pc < code.size(); ++pc) {
    const Inst& in = code[pc];
    line_of.push_back(function.infos[in.info].ptx_line);
    const bool jumps = in.kind == Kind::branch || in.kind == Kind::branch_table ||
                       in.kind == Kind::exit || in.kind == Kind::ret || in.kind == Kind::call;
    if (in.kind == Kind::branch && in.aux < code.size()) leads[in.aux] = true;
    if (in.kind == Kind::branch_table && in.aux < function.tables.size()) {
      for (const uint32_t target : function.tables[in.aux]) leads[target] = true;
    }
    if (jumps || in.kind == Kind::join) leads[pc + 1] = true;
  }
  for (size_t pc = 0; pc < code.size(); ++pc) {
    blocks += leads[pc] ? 1 : 0;
    block_of.push_back(blocks - 1);
  }
}

void Map::find_pieces() {
  const auto& ops = program.ops;
  std::vector<bool> starts(ops.size() + 1, false);
  starts[0] = true;
  for (size_t at = 0; at < ops.size(); ++at) {
    if (ends_piece(ops[at])) starts[at + 1] = true;
    if (ops[at].target < ops.size()) starts[ops[at].target] = true;
  }
  for (uint32_t at = 0; at < ops.size(); ++at) {
    if (starts[at]) pieces.push_back({at, at, {}, 1, false});
    pieces.back().end = at + 1;
    piece_of.push_back(static_cast<uint32_t>(pieces.size() - 1));
  }
}

void Map::find_homes() {
  std::map<int, uint32_t> block_of_line;
  for (size_t pc = 0; pc < line_of.size(); ++pc) block_of_line.emplace(line_of[pc], block_of[pc]);
  lines.resize(pieces.size());
  fixed_lines.resize(pieces.size());
  for (size_t k = 0; k < pieces.size(); ++k) {
    Piece& piece = pieces[k];
    std::map<uint32_t, int> votes;
    for (uint32_t at = piece.first; at < piece.end; ++at) {
      const auto block = block_of_line.find(program.ops[at].line);
      if (program.ops[at].unit == Unit::control && weight(program.ops[at]) == 1) continue;
      if (block != block_of_line.end()) votes[block->second] += weight(program.ops[at]);
    }
    int most = 0, home = -1;
    for (const auto& [block, count] : votes) {
      if (count > most) home = static_cast<int>(block), most = count;
    }
    std::map<int, int> copies;
    for (uint32_t at = piece.first; at < piece.end; ++at) {
      const Op& op = program.ops[at];
      const auto block = block_of_line.find(op.line);
      if (block == block_of_line.end() || static_cast<int>(block->second) != home) continue;
      lines[k].push_back(op.line);
      if (weight(op) > 1) {
        fixed_lines[k].push_back(op.line);
        ++copies[op.line];
      }
    }
    // One line may become two instructions, so most lines decide.
    std::vector<int> counts;
    for (const auto& [line, count] : copies) counts.push_back(count);
    std::sort(counts.begin(), counts.end());
    if (!counts.empty()) {
      piece.copies = counts[counts.size() / 2];
      piece.homes = {home};
      piece.fixed = true;
    } else {
      for (const auto& [block, count] : votes) piece.homes.push_back(static_cast<int>(block));
    }
    std::sort(lines[k].begin(), lines[k].end());
    std::sort(fixed_lines[k].begin(), fixed_lines[k].end());
  }
}

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
  enter(0, 0, true);
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
  uint32_t until = kNowhere;  // the block that is tried again
  for (const TraceRun& run : trace_.runs) {
    for (uint32_t pc = run.first; pc < run.first + run.count; ++pc) {
      if (!map_.leads[pc]) continue;
      const uint32_t block = map_.block_of[pc];
      if (until != kNowhere && block != until) continue;
      until = kNowhere;
      const auto waits = of_block.find(block);
      if (waits != of_block.end()) {
        auto& [missed, next] = waits->second;
        if (next < missed.size() && missed[next++]) {
          until = block;
          continue;
        }
      }
      visits_[block].push_back(count_++);
    }
  }
}

int64_t Walk::next_visit(const Map::Piece& piece, int64_t after) const {
  int64_t first = kNever;
  for (const int home : piece.homes) first = std::min(first, next_visit(home, after));
  return first;
}

int64_t Walk::next_visit(int block, int64_t after) const {
  const auto& all = visits_[static_cast<size_t>(block)];
  const auto found = std::upper_bound(all.begin(), all.end(), after);
  return found == all.end() ? kNever : *found;
}

// Returns the visit that the way through `op` would lead to next, coming from the piece `from`.
int64_t Walk::position(uint32_t op, uint32_t from, uint32_t* copies) const {
  *copies = 1;
  for (int hops = 0; hops < 16 && op < map_.program.ops.size(); ++hops) {
    const uint32_t k = map_.piece_of[op];
    const Map::Piece& piece = map_.pieces[k];
    if (!piece.homes.empty()) {
      *copies = static_cast<uint32_t>(piece.copies);
      // The rest of the block that the walk is in, unless it would do the same lines again. One
      // line of PTX may be arithmetic in one piece and its access or product in the next.
      const bool fixed = piece.fixed || map_.pieces[from].fixed;
      const auto& here = fixed ? map_.fixed_lines[from] : map_.lines[from];
      const auto& there = fixed ? map_.fixed_lines[k] : map_.lines[k];
      const bool again = k <= from || std::any_of(there.begin(), there.end(), [&](int line) {
                           return std::binary_search(here.begin(), here.end(), line);
                         });
      return next_visit(piece, again ? now_ : now_ - 1);
    }
    const Op& last = map_.program.ops[piece.end - 1];
    if (last.act == Act::exit && !last.guarded) return count_;
    const bool jumps = last.act == Act::branch && !last.guarded;
    op = jumps ? last.target : piece.end;
  }
  return count_;
}

// Arithmetic may have come here from a block that is long over or still to come, so a piece of it
// alone tells where the walk is only if a branch chose it.
void Walk::enter(uint32_t op, uint32_t from, bool chosen) {
  at_ = op;
  if (op >= map_.program.ops.size()) return;
  const Map::Piece& piece = map_.pieces[map_.piece_of[op]];
  if (piece.first != op || piece.homes.empty() || !(piece.fixed || chosen)) return;
  uint32_t copies = 0;
  int64_t visit = position(op, from, &copies);
  if (visit == kNever) return;
  for (uint32_t copy = 1; copy < copies; ++copy) {
    const int64_t more = next_visit(piece, visit);
    if (more == kNever) break;
    visit = more;
  }
  now_ = visit;
}

// Lanes that went another way come to where the others wait for them.
uint32_t Walk::meet(uint32_t at) {
  uint32_t copies = 0;
  const uint32_t from = map_.piece_of[at];
  const int64_t join = position(at + 1, from, &copies);
  while (!other_ways_.empty()) {
    const Way way = other_ways_.back();
    other_ways_.pop_back();
    const int64_t there = position(way.op, from, &copies);
    if (there != kNever && there < join && there > way.since) return way.op;
  }
  return at + 1;
}

// Says whether the way through `op` may come to a wait at `line` before anything else that leaves
// an effect: there a wait that was not over is tried again.
bool Walk::tries_again(uint32_t op, int line, int hops) const {
  constexpr int kMostHops = 8;
  const auto& ops = map_.program.ops;
  for (; hops < kMostHops && op < ops.size(); ++op) {
    const Op& at = ops[op];
    if (at.act == Act::mbarrier_wait) return at.line == line;
    if (at.act == Act::exit && !at.guarded) return false;
    if (at.act == Act::branch) {
      ++hops;
      if (at.guarded && tries_again(op + 1, line, hops)) return true;
      op = at.target - 1;
    } else if (weight(at) > 1 || (effects_.contains(at.line) && at.act != Act::none)) {
      return false;
    }
  }
  return false;
}

// Decides the guarded branch or exit at `at`.
uint32_t Walk::choose(uint32_t at) {
  const Op& op = map_.program.ops[at];
  // The waits of the walk are those that were over, so none is tried again.
  if (waited_ != 0 && op.act == Act::branch && op.target < map_.program.ops.size()) {
    const bool on = tries_again(at + 1, waited_, 0), there = tries_again(op.target, waited_, 0);
    if (on != there) return on ? op.target : at + 1;
  }
  const uint32_t from = map_.piece_of[at];
  uint32_t copies_on = 0, copies_there = 0;
  const int64_t on = position(at + 1, from, &copies_on);
  if (op.act == Act::exit) return on == kNever || on >= count_ ? kNowhere : at + 1;
  if (op.target >= map_.program.ops.size()) return at + 1;
  const int64_t there = position(op.target, from, &copies_there);
  bool jump = there < on;
  if (there == on && there != kNever) {
    // One loop in two pieces, of which one does several rounds at once: it is taken if there are as
    // many rounds without another block between them.
    const uint32_t most = std::max(copies_on, copies_there);
    const Map::Piece& home = map_.pieces[map_.piece_of[op.target]];
    int64_t visit = there, rounds = 1;
    while (rounds < most && next_visit(home, visit) == visit + 1) ++visit, ++rounds;
    jump = copies_there == copies_on ? false : (copies_there > copies_on) == (rounds >= most);
  }
  const int64_t other = jump ? on : there;
  if (other != kNever && other < count_) {
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
  const auto list = effects_.find(op.line);
  if (list != effects_.end() && op.act != Act::branch &&
      (op.unit >= Unit::tensor || op.act != Act::none)) {
    uint32_t& used = used_[op.line];
    step.effect = &trace_.effects[list->second[std::min<size_t>(used, list->second.size() - 1)]];
    ++used;
  }
  if (op.act == Act::mbarrier_wait) {
    waited_ = op.line;
  } else if (step.effect || weight(op) > 1) {
    waited_ = 0;
  }
  uint32_t to = at + 1;
  if (op.act == Act::reconverge) {
    to = meet(at);
  } else if (op.act == Act::exit) {
    to = op.guarded ? choose(at) : kNowhere;
  } else if (op.act == Act::branch) {
    to = op.guarded ? choose(at) : op.target;
  }
  enter(to, map_.piece_of[at], op.guarded);
  return step;
}

}  // namespace sim::clock
