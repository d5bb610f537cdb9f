// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/track.h"

#include <algorithm>

namespace sim::clock {
namespace {

struct Visit {
  uint32_t block = 0, lanes = 0;
  bool dropped = false;
  uint32_t to = kNowhere;  // the block after it
  bool parts = false;      // lanes go different ways from it
};

struct Event {  // an execution of an instruction that is an anchor
  uint32_t visit, pc, effect;
};

// Reads a trace as visits of blocks and what happened in them.
class Reader {
 public:
  Reader(const SassMap& map, const WarpTrace& trace) : map_(map), trace_(trace) {}

  void read() {
    size_t effect = 0;
    for (const TraceRun& run : trace_.runs) {
      for (uint32_t pc = run.first; pc < run.first + run.count; ++pc) {
        if (map_.leads[pc] || visits.empty()) {
          leave(run.lanes, map_.ptx_block_of[pc]);
          visits.push_back({map_.ptx_block_of[pc], run.lanes});
        }
        uint32_t own = kNowhere;
        const bool touches = effect < trace_.effects.size() && trace_.effects[effect].pc == pc;
        if (touches) own = static_cast<uint32_t>(effect++);
        const AnchorKind kind = map_.kind_of[pc];
        if (kind == AnchorKind::none) continue;
        const auto at = visit_of(run.lanes);
        if (kind != AnchorKind::branch) settle(at, pc, run.lanes);
        if (kind == AnchorKind::wait && own != kNowhere && trace_.effects[own].missed) {
          misses_.push_back({at, pc, run.lanes});
        }
        events.push_back({at, pc, own});
      }
    }
  }

  std::vector<Visit> visits;
  std::vector<Event> events;

 private:
  struct Miss {
    uint32_t visit, pc, lanes;
  };
  // The last visit of some lanes.
  uint32_t visit_of(uint32_t lanes) const {
    for (size_t k = visits.size(); k-- > 0;) {
      if ((visits[k].lanes & lanes) != 0) return static_cast<uint32_t>(k);
    }
    return static_cast<uint32_t>(visits.size() - 1);
  }
  // Tells the visit that lanes leave where they go.
  void leave(uint32_t lanes, uint32_t block) {
    if (visits.empty()) return;
    Visit& last = visits[visit_of(lanes)];
    if ((last.lanes & lanes) == 0) return;
    last.parts |= last.to != kNowhere && last.to != block;
    last.to = block;
  }
  // After a wait that missed its phase, the same one without anything between is another try: what
  // lies between them is left out.
  void settle(uint32_t at, uint32_t pc, uint32_t lanes) {
    for (size_t k = 0; k < misses_.size();) {
      const Miss& miss = misses_[k];
      if ((miss.lanes & lanes) == 0) {
        ++k;
        continue;
      }
      if (miss.pc == pc) {
        for (uint32_t v = miss.visit; v < at; ++v) {
          if ((visits[v].lanes & ~miss.lanes) == 0) visits[v].dropped = true;
        }
      } else if (map_.ptx_block_of[pc] == map_.ptx_block_of[miss.pc] && pc < miss.pc) {
        ++k;  // the beginning of the block that is tried again
        continue;
      }
      misses_.erase(misses_.begin() + static_cast<ptrdiff_t>(k));
    }
  }

  const SassMap& map_;
  const WarpTrace& trace_;
  std::vector<Miss> misses_;
};

// Puts the visits in the order that a multiprocessor has.
struct Strands {
  struct Strand {
    uint32_t lanes;
    std::vector<uint32_t> visits;
  };
  std::vector<Visit>& all;
  std::vector<Strand> apart;
  std::vector<uint32_t> order;

  void flush() {
    std::stable_sort(apart.begin(), apart.end(), [](const Strand& a, const Strand& b) {
      return a.visits.size() > b.visits.size();
    });
    for (const Strand& strand : apart) {
      order.insert(order.end(), strand.visits.begin(), strand.visits.end());
    }
    apart.clear();
  }
  void add(uint32_t visit) {
    const uint32_t lanes = all[visit].lanes;
    const auto meets = [&](const Strand& strand) { return (strand.lanes & lanes) != 0; };
    if (std::count_if(apart.begin(), apart.end(), meets) > 1) flush();
    const auto found = std::find_if(apart.begin(), apart.end(), meets);
    if (found == apart.end()) {
      apart.push_back({lanes, {visit}});
    } else if (apart.size() == 1 && (lanes & ~found->lanes) == 0 && lanes != found->lanes) {
      flush();  // some of the lanes leave the others
      apart.push_back({lanes, {visit}});
    } else {
      found->lanes |= lanes;
      found->visits.push_back(visit);
    }
  }
};

Track::Token::Goes goes_from(const SassMap& map, uint32_t pc, const Visit& visit) {
  using Goes = Track::Token::Goes;
  const Inst& in = map.function.code[pc];
  if (map.kind_of[pc] != AnchorKind::branch || in.kind == Kind::branch_table) return Goes::unknown;
  if (visit.parts) return Goes::both;
  const uint32_t on = map.ptx_block_of[std::min<size_t>(pc + 1, map.ptx_block_of.size() - 1)];
  const uint32_t there = in.kind == Kind::branch ? map.ptx_block_of[in.aux] : kNowhere;
  if (on == there) return Goes::unknown;
  return visit.to == on ? Goes::on : visit.to == there ? Goes::jumps : Goes::unknown;
}

bool ends_warp(const Inst& in) {
  return in.kind == Kind::exit || in.kind == Kind::ret || in.kind == Kind::trap;
}

}  // namespace

Track::Track(const SassMap& map, const WarpTrace& trace) : first(map.anchors.size(), kNowhere) {
  for (const TraceRun& run : trace.runs) executed += run.count;
  if (!trace.runs.empty()) {
    const TraceRun& last = trace.runs.back();
    cut = !ends_warp(map.function.code[last.first + last.count - 1]);
  }
  Reader reader(map, trace);
  reader.read();
  auto& visits = reader.visits;
  Strands strands{visits, {}, {}};
  for (uint32_t v = 0; v < visits.size(); ++v) {
    if (!visits[v].dropped) strands.add(v);
  }
  strands.flush();
  // The events of each visit, in the order of the visits.
  std::vector<uint32_t> starts(visits.size() + 1);
  for (const Event& event : reader.events) ++starts[event.visit + 1];
  for (size_t v = 0; v < visits.size(); ++v) starts[v + 1] += starts[v];
  std::vector<uint32_t> sorted(reader.events.size()), next(starts);
  for (uint32_t e = 0; e < reader.events.size(); ++e) sorted[next[reader.events[e].visit]++] = e;

  std::vector<uint32_t> last(map.anchors.size(), kNowhere);
  weight.push_back(0);
  const auto add = [&](uint32_t anchor, uint32_t effect, Token::Goes goes) {
    const auto at = static_cast<uint32_t>(tokens.size());
    Token token = {anchor, effect, kNowhere, false, goes};
    if (effect != kNowhere) {
      const Effect& e = trace.effects[effect];
      token.empty = e.lanes == 0 || e.missed;
    }
    (last[anchor] == kNowhere ? first[anchor] : tokens[last[anchor]].next) = at;
    last[anchor] = at;
    tokens.push_back(token);
    weight.push_back(weight.back() + weight_of(map, at));
  };
  for (const uint32_t v : strands.order) {
    blocks.push_back(visits[v].block);
    const uint32_t own = map.anchor_of_ptx_block[visits[v].block];
    if (own != kNowhere) add(own, kNowhere, Token::Goes::unknown);
    for (uint32_t k = starts[v]; k < starts[v + 1]; ++k) {
      const Event& event = reader.events[sorted[k]];
      const uint32_t anchor = map.anchor_of[event.pc];
      if (anchor != kNowhere) add(anchor, event.effect, goes_from(map, event.pc, visits[v]));
    }
  }
}

}  // namespace sim::clock
