// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Work that shares a device, against times worked by hand.
#include "sim/driver/report/model_time.h"

#include <doctest/doctest.h>

using namespace sim::driver;

namespace {

TimedPtr work(std::vector<Phase> phases, std::vector<TimedPtr> own = {}) {
  auto timed = std::make_shared<Timed>();
  timed->phases = std::move(phases);
  timed->own = std::move(own);
  return timed;
}

// A kernel that starts in no time.
TimedPtr kernel(double microseconds, double room, const Uses& uses = {}) {
  return work({{microseconds, room, uses}});
}

void check(const TimedPtr& timed, double begin, double end) {
  REQUIRE(timed->settled);
  CHECK(timed->begin == doctest::Approx(begin));
  CHECK(timed->end == doctest::Approx(end));
}

void settle(const std::vector<TimedPtr>& all) {
  ModelTime time;
  time.settle(all);
}

}  // namespace

TEST_CASE("work comes after its stream, what it waits for, and the host") {
  const TimedPtr first = work({{2, 0, {}}, {3, 1, {}}}), other = kernel(9, 0);
  const TimedPtr event = work({}, {first}), last = work({{1, 0, {}}}, {event});
  last->others = {other};
  const TimedPtr late = kernel(1, 0);
  late->not_before = 20;
  settle({first, other, event, last, late});
  check(first, 0, 5);
  check(event, 5, 5);
  CHECK(last->earliest == doctest::Approx(5));
  check(last, 9, 10);
  check(late, 20, 21);
}

TEST_CASE("blocks go where there is room, first come, first served") {
  const TimedPtr a = kernel(10, 1), b = kernel(6, 1), c = kernel(4, 0.5);
  settle({a, b, c});
  check(a, 0, 10);
  check(b, 0, 16);
  check(c, 0, 20);
  // Two halves fit; a third one has what the first leaves.
  const TimedPtr d = kernel(10, 0.5), e = kernel(8, 0.5), f = kernel(5, 0.5);
  settle({d, e, f});
  check(d, 0, 10);
  check(e, 0, 8);
  check(f, 0, 13);
  // Half of the room that it wants: half of the speed.
  const TimedPtr g = kernel(10, 0.6), h = kernel(10, 0.8);
  settle({g, h});
  check(g, 0, 10);
  check(h, 0, 15);
}

TEST_CASE("the last blocks of a grid leave room for another") {
  const TimedPtr a = work({{8, 1, {}}, {4, 0.25, {}}}), b = kernel(6, 0.75);
  settle({a, b});
  check(a, 0, 12);
  check(b, 0, 14);
}

TEST_CASE("what asks together for more than there is slows down alike") {
  const TimedPtr a = kernel(10, 0.5, {{"tensor", 0.8}}), b = kernel(10, 0.5, {{"tensor", 0.8}});
  settle({a, b});
  check(a, 0, 16);
  check(b, 0, 16);
  const TimedPtr c = kernel(10, 0.5, {{"tensor", 0.8}}), d = kernel(10, 0.5, {{"DRAM", 0.9}});
  settle({c, d});
  check(c, 0, 10);
  check(d, 0, 10);
  // A copy has no blocks, but takes the bandwidth.
  const TimedPtr e = kernel(10, 1, {{"DRAM", 0.5}}), copy = kernel(2, 0, {{"DRAM", 1}});
  settle({e, copy});
  check(copy, 0, 3);
  check(e, 0, 11);
}

TEST_CASE("devices share nothing") {
  const TimedPtr a = kernel(10, 1, {{"DRAM", 1}}), b = kernel(10, 1, {{"DRAM", 1}});
  b->device = 1;
  settle({a, b});
  check(a, 0, 10);
  check(b, 0, 10);
}

TEST_CASE("what was settled before stays, and later work has what is left") {
  ModelTime time;
  const TimedPtr a = kernel(10, 0.5, {{"DRAM", 0.6}}), b = kernel(10, 0.5, {{"DRAM", 0.8}});
  time.settle({a});
  time.settle({b});
  check(a, 0, 10);
  check(b, 0, 15);
  const TimedPtr c = kernel(4, 1), d = kernel(4, 1);
  d->not_before = 12;
  time.clear();
  time.settle({c, d});
  check(c, 0, 4);
  check(d, 12, 16);
}

namespace {

// A grid in front that tells dependents to start `told` into its work, and the next one, which
// waits `waits` into its own: each takes 2 to start, and half of the room.
struct Dependents {
  Dependents(double told, double primary_works, double waits, double works) {
    primary = work({{2, 0, {}}, {told, 0.5, {}}, {primary_works - told, 0.5, {}}});
    primary->triggers_after = 1;
    next = work({{2, 0, {}}, {waits, 0.5, {}}, {works - waits, 0.5, {}}});
    next->waits_after = 1;
    next->primary = primary;
  }
  TimedPtr primary, next;
};

}  // namespace

TEST_CASE("a dependent launch begins early, and waits for the one in front") {
  const Dependents at_end(8, 10, 1, 5), at_once(2, 10, 1, 5);
  settle({at_end.primary, at_end.next});
  check(at_end.primary, 0, 12);
  check(at_end.next, 10, 17);
  CHECK(at_end.next->primary_wait == doctest::Approx(0));
  settle({at_once.primary, at_once.next});
  check(at_once.primary, 0, 12);
  check(at_once.next, 4, 16);
  CHECK(at_once.next->primary_wait == doctest::Approx(5));
  // One that never waits does not end before the one in front, nor does what comes after it begin.
  Dependents never(2, 10, 1, 5);
  never.next->waits_after = 3;
  const TimedPtr after = work({{1, 0, {}}}, {never.next});
  settle({never.primary, never.next, after});
  check(never.next, 4, 12);
  check(after, 12, 13);
  // One that does not tell lets the next one begin at its end.
  Dependents silent(2, 10, 1, 5);
  silent.primary->triggers_after = -1;
  settle({silent.primary, silent.next});
  check(silent.next, 12, 19);
}

TEST_CASE("a dependent launch whose front is settled already") {
  ModelTime time;
  const Dependents pair(2, 10, 1, 5);
  time.settle({pair.primary});
  time.settle({pair.next});
  check(pair.next, 4, 16);
}
