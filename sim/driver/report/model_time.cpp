// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/driver/report/model_time.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

namespace sim::driver {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNothing = 1e-9;        // microseconds, or a share
constexpr size_t kMostBusySpans = 4096;  // of a device; older ones are forgotten

}  // namespace

double alone_on_device(const Timed& work) {
  double sum = 0;
  for (const Phase& phase : work.phases) sum += phase.microseconds;
  return sum;
}

// A piece of work that runs.
struct ModelTime::Run {
  TimedPtr work;
  size_t phase = 0;
  double left = 0;       // microseconds of the phase, alone on the device
  bool over = false;     // the phase
  bool waiting = false;  // for the primary launch
  double since = 0;      // when that began
  uint64_t place = 0;    // in the order of those that want room; 0: has not asked yet
  double speed = 0, room = 0;
};

class ModelTime::Settling {
 public:
  Settling(ModelTime* all, const std::vector<TimedPtr>& work) : all_(*all) {
    for (const TimedPtr& each : work) {
      size_t open = 0;
      const auto wait = [&](const TimedPtr& other, auto& list) {
        if (other->settled) return;
        list[other.get()].push_back(each);
        ++open;
      };
      for (const TimedPtr& other : each->own) wait(other, after_end_);
      for (const TimedPtr& other : each->others) wait(other, after_end_);
      if (each->primary) wait(each->primary, after_trigger_);
      open_[each.get()] = open;
      if (open == 0) make_ready(each);
    }
  }

  void run() {
    while (true) {
      set_speeds();
      double next = ready_.empty() ? kNever : ready_.top().begin;
      for (const Run& run : runs_) {
        if (run.speed > 0) next = std::min(next, time_ + run.left / run.speed);
        const TimedPtr& primary = run.work->primary;
        if (run.waiting && primary->settled) next = std::min(next, primary->end);
      }
      next = std::min(next, next_busy_edge());
      if (next == kNever) return;
      advance(std::max(next, time_));
      begin_ready();
      // A phase that is over may let another begin at the same moment.
      while (end_phases()) begin_ready();
    }
  }

 private:
  struct Ready {
    double begin;
    uint64_t number;
    TimedPtr work;
    bool operator<(const Ready& other) const {
      return begin != other.begin ? begin > other.begin : number > other.number;
    }
  };

  void make_ready(const TimedPtr& work) {
    Timed& w = *work;
    w.earliest = w.not_before;
    for (const TimedPtr& other : w.own) w.earliest = std::max(w.earliest, other->end);
    if (w.primary) w.earliest = std::max(w.earliest, w.primary->trigger_time);
    w.begin = w.earliest;
    for (const TimedPtr& other : w.others) w.begin = std::max(w.begin, other->end);
    ready_.push({w.begin, ++numbers_, work});
  }

  // Sums what earlier settled work has of a device at this time.
  BusySpan busy_at(uint64_t device) const {
    BusySpan sum;
    const auto found = all_.busy_.find(device);
    if (found == all_.busy_.end()) return sum;
    for (const BusySpan& busy : found->second) {
      if (busy.begin > time_ + kNothing || busy.end <= time_ + kNothing) continue;
      sum.room += busy.room;
      for (const auto& [name, share] : busy.uses) sum.uses[name] += share;
    }
    return sum;
  }

  // Returns the next time at which earlier settled work begins or ends on a device in use.
  double next_busy_edge() const {
    double next = kNever;
    for (const Run& run : runs_) {
      const auto found = all_.busy_.find(run.work->device);
      if (found == all_.busy_.end()) continue;
      for (const BusySpan& busy : found->second) {
        for (const double edge : {busy.begin, busy.end}) {
          if (edge > time_ + kNothing) next = std::min(next, edge);
        }
      }
    }
    return next;
  }

  static const Phase& phase_of(const Run& run) { return run.work->phases[run.phase]; }

  void set_speeds() {
    std::map<uint64_t, std::vector<Run*>> by_device;
    for (Run& run : runs_) {
      if (!run.work->phases.empty()) by_device[run.work->device].push_back(&run);
    }
    for (auto& [device, runs] : by_device) {
      std::sort(runs.begin(), runs.end(),
                [](const Run* a, const Run* b) { return a->place < b->place; });
      share(busy_at(device), runs);
    }
  }

  void share(const BusySpan& busy, const std::vector<Run*>& runs) const {
    double free = std::max(0.0, 1 - busy.room);
    Uses wanted;
    for (Run* run : runs) {
      // A launch that waits in its middle keeps its places.
      const Phase& phase = phase_of(*run);
      run->room = std::min(phase.room, free);
      free -= run->room;
      run->speed = phase.room > 0 ? run->room / phase.room : 1;
      if (run->over) run->speed = 0;
      for (const auto& [name, use] : phase.uses) wanted[name] += use * run->speed;
    }
    for (Run* run : runs) {
      double slowest = 1;
      for (const auto& [name, use] : phase_of(*run).uses) {
        const auto held = busy.uses.find(name);
        const double left = std::max(0.0, 1 - (held == busy.uses.end() ? 0 : held->second));
        if (use > kNothing && wanted[name] > left) slowest = std::min(slowest, left / wanted[name]);
      }
      run->speed *= slowest;
    }
  }

  void advance(double to) {
    for (Run& run : runs_) {
      if (run.work->phases.empty()) continue;
      run.left -= run.speed * (to - time_);
      const Phase& phase = phase_of(run);
      if (to - time_ < kNothing || (phase.room == 0 && phase.uses.empty())) continue;
      BusySpan busy = {time_, to, run.room, {}};
      for (const auto& [name, use] : phase.uses) {
        if (run.speed > 0) busy.uses[name] = use * run.speed;
      }
      added_[run.work->device].push_back(std::move(busy));
    }
    time_ = to;
  }

  void begin_ready() {
    while (!ready_.empty() && ready_.top().begin <= time_ + kNothing) {
      const TimedPtr work = ready_.top().work;
      ready_.pop();
      Run run;
      run.work = work;
      runs_.push_back(run);
      begin_phase(&runs_.back());
    }
  }

  // The phase of the run begins, if it has one.
  void begin_phase(Run* run) {
    const Timed& w = *run->work;
    run->over = w.phases.empty();
    if (run->over) return;
    run->left = phase_of(*run).microseconds;
    if (run->place == 0 && phase_of(*run).room > 0) run->place = ++places_;
  }

  // Says whether the work has to wait for its primary launch before it goes on, or ends.
  bool needs_primary(const Run& run) const {
    const Timed& w = *run.work;
    if (!w.primary || (w.primary->settled && w.primary->end <= time_ + kNothing)) return false;
    return run.phase + 1 >= w.phases.size() || static_cast<int>(run.phase) >= w.waits_after;
  }

  // Ends the phases that are over, and the work whose last they are. Says whether anything
  // happened.
  bool end_phases() {
    bool any = false;
    for (size_t k = 0; k < runs_.size();) {
      Run& run = runs_[k];
      Timed& w = *run.work;
      if (!run.over && run.left <= kNothing) {
        run.over = any = true;
        trigger(w, static_cast<int>(run.phase));
      }
      if (run.over && !run.waiting && needs_primary(run)) {
        run.waiting = true;
        run.since = time_;
      }
      if (!run.over || needs_primary(run)) {
        ++k;
        continue;
      }
      any = true;
      if (run.waiting) w.primary_wait = time_ - run.since;
      run.waiting = false;
      if (run.phase + 1 < w.phases.size()) {
        ++run.phase;
        begin_phase(&run);
        ++k;
        continue;
      }
      const TimedPtr work = run.work;
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(k));
      end(*work);
    }
    return any;
  }

  void trigger(Timed& w, int phase) {
    if (w.triggers_after != phase) return;
    w.trigger_time = time_;
    release(&after_trigger_, w);
  }

  void end(Timed& w) {
    w.end = time_;
    w.settled = true;
    if (w.triggers_after < 0) w.trigger_time = time_;
    release(&after_trigger_, w);
    release(&after_end_, w);
    w.own.clear();
    w.others.clear();
    w.primary = nullptr;
  }

  using Waiting = std::unordered_map<const Timed*, std::vector<TimedPtr>>;
  void release(Waiting* list, const Timed& w) {
    const auto found = list->find(&w);
    if (found == list->end()) return;
    const std::vector<TimedPtr> all = std::move(found->second);
    list->erase(found);
    for (const TimedPtr& each : all) {
      if (--open_[each.get()] == 0) make_ready(each);
    }
  }

 public:
  void keep_busy_spans() {
    for (auto& [device, spans] : added_) {
      auto& all = all_.busy_[device];
      all.insert(all.end(), spans.begin(), spans.end());
      if (all.size() > kMostBusySpans) {
        all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(kMostBusySpans));
      }
    }
  }

 private:
  ModelTime& all_;
  double time_ = -kNever;
  std::priority_queue<Ready> ready_;
  std::vector<Run> runs_;
  Waiting after_end_, after_trigger_;
  std::unordered_map<const Timed*, size_t> open_;
  std::map<uint64_t, std::vector<BusySpan>> added_;
  uint64_t numbers_ = 0, places_ = 0;
};

void ModelTime::settle(const std::vector<TimedPtr>& work) {
  Settling settling(this, work);
  settling.run();
  settling.keep_busy_spans();
}

}  // namespace sim::driver
