// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file checks copies and fills against launches of other streams.
#include <cstdio>
#include <set>

#include "sim/check/race_shadow.h"

namespace sim {
namespace {

class Mover {
 public:
  Mover(RaceWorld& world, const Move& move) : world_(world), shadow_(world), move_(move) {
    self_->name = move.name;
    self_->order = move.order;
    self_->agents = 1 + kLaunchAgents;
  }

  std::vector<Finding> run() {
    if (!world_.add(self_)) return {};
    mine_ = Stamp{self_->origin, 1, 0, ~0u};
    if (move_.from) read();
    if (move_.to) write();
    return std::move(findings_);
  }

 private:
  void read() {
    shadow_.each(move_.from, move_.bytes, [&](Granule& g, uint64_t at, uint32_t size) {
      check(g.write, at, size, "read of");
      if (shadow_.is_many(g)) {
        for (const Stamp& s : shadow_.many(g)) {
          if (s.place & kHiddenWrite) check(s, at, size, "read of");
        }
      }
      shadow_.add_read(g, mine_);
    });
  }

  void write() {
    shadow_.each(move_.to, move_.bytes, [&](Granule& g, uint64_t at, uint32_t size) {
      check(g.write, at, size, "write to");
      if (shadow_.is_many(g)) {
        for (const Stamp& s : shadow_.many(g)) check(s, at, size, "write to");
      } else {
        check(g.read, at, size, "write to");
      }
      shadow_.drop_reads(g);
      g.write = mine_;
    });
  }

  void check(const Stamp& s, uint64_t at, uint32_t bytes, const char* what) {
    if (!s.clock || self_->owns(s.agent)) return;
    const RaceLaunch* const other = world_.launch_of(s.agent);
    if (!other || self_->order.covers(other->order)) return;
    if (!reported_.insert({other, s.place >> 8}).second) return;
    const RaceParty party = race_party(*other, slice(s, static_cast<uint32_t>(at % kGranule), 1));
    Finding f = race_finding("", {}, party, at, bytes);
    if (other->function) f.other_kernel = other->name;
    f.text = std::string("the ") + move_.name + "'s " + what + " global address " + hex(at) +
             " races with the " + race_other_text(*other, party) + ": " +
             race_remedy(self_->order, *other);
    findings_.push_back(std::move(f));
  }

  RaceWorld& world_;
  Shadow shadow_;
  const Move& move_;
  std::shared_ptr<RaceLaunch> self_ = std::make_shared<RaceLaunch>();
  Stamp mine_;
  std::set<std::pair<const RaceLaunch*, uint32_t>> reported_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> race_move(RaceWorld& world, const Move& move) {
  return Mover(world, move).run();
}

}  // namespace sim
