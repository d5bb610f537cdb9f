// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Work in model time: when pieces of work begin and end on devices that they share.
//
// A piece of work begins when what it comes after is over. What runs on one device at the same time
// shares it. First the places for blocks: who came first has as many as it can use, and the next
// one gets what is left, as hardware hands out blocks. Then the rates: where the work that runs
// would together use more than all of a resource, everything that uses the resource slows down by
// as much.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sim::driver {

// Names a resource of a device, and what share of it is used.
using Uses = std::map<std::string, double>;

// A Phase is a part of a piece of work. Alone on a device it takes so long.
struct Phase {
  double microseconds = 0;
  double room = 0;  // share of the places for blocks
  Uses uses;
};

struct Timed;
using TimedPtr = std::shared_ptr<Timed>;

// A piece of work in model time, in microseconds.
struct Timed {
  std::vector<Phase> phases;     // one after the other
  std::vector<TimedPtr> own;     // it comes after these, in its stream or graph,
  std::vector<TimedPtr> others;  // and after these of other streams
  double not_before = 0;
  uint64_t device = 0;  // work of the same device shares it
  // Programmatic dependent launch, in CUDA's words: the secondary launch may begin once the primary
  // one has triggered it. This launch triggers after so many of its phases; -1: at its end.
  int triggers_after = -1;
  TimedPtr primary;     // this one may begin when `primary` triggers it; null: none
  int waits_after = 0;  // of this one's phases: the next begins when `primary` is over

  bool settled = false;
  double earliest = 0;  // it could begin then, but for the others
  double begin = 0, end = 0;
  double trigger_time = 0;  // when it triggers its secondary
  double primary_wait = 0;  // how long it waited for `primary` in the middle
};

// Returns how long the work takes with a device to itself.
double alone_on_device(const Timed& work);

// Work that was settled earlier keeps its share of the devices; later work takes what is left.
class ModelTime {
 public:
  // Settles the work, which includes whatever it comes after that is not settled yet.
  void settle(const std::vector<TimedPtr>& work);
  void clear() { busy_.clear(); }

 private:
  // A BusySpan is what a device was busy with for a while.
  struct BusySpan {
    double begin = 0, end = 0, room = 0;
    Uses uses;
  };
  struct Run;
  class Settling;
  std::map<uint64_t, std::vector<BusySpan>> busy_;  // by device
};

}  // namespace sim::driver
