// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check which states ranks exchange: against a plain definition token by token, and
// with numbers for states, which must come out as those of one rank.
#include "collective/plans/kda_states.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tests/collective/cases.h"

using namespace lathe;

namespace {

Layout layout_of(const std::vector<int64_t>& cu, const std::vector<int64_t>& bounds) {
  LayoutOptions options;
  options.world = static_cast<int>(bounds.size()) - 1;
  options.length = cu.back(), options.cu_seqlens = cu, options.bounds = bounds;
  return *make_layout(options);
}

struct World {
  Layout layout;
  std::vector<KdaStatesPlan> plans;

  World(const std::vector<int64_t>& cu, const std::vector<int64_t>& bounds)
      : layout(layout_of(cu, bounds)) {
    for (int rank = 0; rank < layout.world(); ++rank) {
      plans.push_back(kda_states_plan(layout, rank));
    }
  }
  int rank_of(int64_t position) const {
    for (int rank = 0; rank < layout.world(); ++rank) {
      const Interval part = layout.partition.part(rank);
      if (part.begin <= position && position < part.end) return rank;
    }
    return -1;
  }
};

// Every result of a sequence has one owner, the one that the contract names.
void check_owners(const World& world) {
  const auto& cu = world.layout.cu_seqlens;
  const int64_t length = cu.back();
  for (size_t n = 0; n + 1 < cu.size(); ++n) {
    int64_t front = cu[n], back = cu[n + 1] - 1;
    if (cu[n] == cu[n + 1]) front = back = std::min(cu[n], length - 1);
    for (int rank = 0; rank < world.layout.world(); ++rank) {
      const KdaStatesPlan& plan = world.plans[rank];
      const int64_t local = static_cast<int64_t>(n) - plan.first;
      const bool here = local >= 0 && local < plan.sequences();
      const bool has_initial = here && !(plan.carried && local == 0);
      const bool has_final = here && !(plan.open && local == plan.sequences() - 1);
      CHECK(has_initial == (length == 0 || world.rank_of(front) == rank));
      CHECK(has_final == (length == 0 || world.rank_of(back) == rank));
    }
  }
}

// Every token is one of a local sequence, at its place in it.
void check_tokens(const World& world) {
  const auto& cu = world.layout.cu_seqlens;
  for (const KdaStatesPlan& plan : world.plans) {
    CHECK(plan.cu_seqlens.front() == 0);
    CHECK(plan.cu_seqlens.back() == plan.part.size());
    for (int64_t s = 0; s < plan.sequences(); ++s) {
      const int64_t n = plan.first + s, begin = plan.part.begin + plan.cu_seqlens[s];
      const int64_t end = plan.part.begin + plan.cu_seqlens[s + 1];
      if (begin == end) continue;
      CHECK(begin == std::max(cu[n], plan.part.begin));
      CHECK(end == std::min(cu[n + 1], plan.part.end));
      if (s == 0) CHECK(plan.carried_tokens == begin - cu[n]);
    }
  }
}

// A token makes 3 x + position + 1 of a state x, modulo a prime, and 3 x + 2 position of what comes
// back; sequences begin with 7 n and end with 11 n.
constexpr int64_t kPrime = 1000003;
int64_t forth(int64_t x, int64_t position) { return (3 * x + position + 1) % kPrime; }
int64_t back(int64_t x, int64_t position) { return (3 * x + 2 * position) % kPrime; }

struct Wire {
  std::map<std::tuple<int, int, bool, int>, int64_t> sent;  // from, to, forth, kind
};

void send(const World& world, int rank, Wire* wire) {
  const KdaStatesPlan& plan = world.plans[rank];
  const auto& cu = world.layout.cu_seqlens;
  int64_t state = 0, map = 1, grad = 0;
  const int64_t last = plan.first + plan.sequences() - 1;
  if (plan.open) {
    const int64_t from = std::max(cu[last], plan.part.begin);
    state = cu[last] >= plan.part.begin ? 7 * last : 0;
    for (int64_t t = from; t < plan.part.end; ++t) {
      state = forth(state, t), map = map * 3 % kPrime;
    }
  }
  if (plan.carried) {
    const int64_t until = std::min(cu[plan.first + 1], plan.part.end);
    grad = cu[plan.first + 1] <= plan.part.end ? 11 * plan.first : 0;
    for (int64_t t = until - 1; t >= plan.part.begin; --t) grad = back(grad, t);
  }
  const std::map<KdaMessage::Kind, int64_t> what = {
      {KdaMessage::end, state}, {KdaMessage::map, map}, {KdaMessage::grad, grad}};
  for (const KdaMessage& message : kda_messages(plan, true, true).sends) {
    CHECK(message.peer != rank);
    const bool fresh =
        wire->sent
            .insert({{rank, message.peer, message.forth, message.kind}, what.at(message.kind)})
            .second;
    CHECK(fresh);
  }
}

// The chain in the order of the slots, against the walk through all tokens.
void check_chain(const World& world, int rank, Wire* wire) {
  const KdaStatesPlan& plan = world.plans[rank];
  const auto& cu = world.layout.cu_seqlens;
  std::map<std::tuple<bool, int, int>, int64_t> got;
  for (const KdaMessage& message : kda_messages(plan, true, true).receives) {
    const auto found = wire->sent.find({message.peer, rank, message.forth, message.kind});
    REQUIRE(found != wire->sent.end());
    got[{message.forth, message.slot, message.kind}] = found->second;
    wire->sent.erase(found);
  }
  if (plan.carried) {
    int64_t state = got.at({true, 0, KdaMessage::end}), exact = 7 * plan.first;
    for (size_t i = 1; i < plan.before.size(); ++i) {
      const int slot = static_cast<int>(i);
      state =
          (got.at({true, slot, KdaMessage::map}) * state + got.at({true, slot, KdaMessage::end})) %
          kPrime;
    }
    for (int64_t t = cu[plan.first]; t < plan.part.begin; ++t) exact = forth(exact, t);
    CHECK(state == exact);
  }
  if (plan.open) {
    const int64_t last = plan.first + plan.sequences() - 1;
    int slot = static_cast<int>(plan.after.size()) - 1;
    int64_t grad = got.at({false, slot, KdaMessage::grad}), exact = 11 * last;
    while (--slot >= 0) {
      grad = (got.at({false, slot, KdaMessage::map}) * grad +
              got.at({false, slot, KdaMessage::grad})) %
             kPrime;
    }
    for (int64_t t = cu[last + 1] - 1; t >= plan.part.end; --t) exact = back(exact, t);
    CHECK(grad == exact);
  }
}

void check_world_of(const std::vector<int64_t>& cu, const std::vector<int64_t>& bounds) {
  CAPTURE(cases::words(cu));
  CAPTURE(cases::words(bounds));
  const World world(cu, bounds);
  check_owners(world);
  check_tokens(world);
  Wire wire;
  for (int rank = 0; rank < world.layout.world(); ++rank) send(world, rank, &wire);
  for (int rank = 0; rank < world.layout.world(); ++rank) check_chain(world, rank, &wire);
  CHECK(wire.sent.empty());  // whatever is sent is received
}

}  // namespace

TEST_CASE("kda's states: every cut of sequences over small worlds") {
  std::mt19937 random(1);
  for (int world = 1; world <= 8; ++world) {
    for (int draw = 0; draw < 150; ++draw) {
      const auto length = static_cast<int64_t>(random() % 30);
      const int sequences = 1 + static_cast<int>(random() % 6);
      check_world_of(cases::random_offsets(random, length, sequences),
                     cases::random_offsets(random, length, world));
    }
  }
}

TEST_CASE("kda's states: one sequence over all ranks") {
  const World world({0, 40}, {0, 10, 20, 20, 30, 40});
  const KdaStatesPlan& third = world.plans[3];
  CHECK(third.before == std::vector<int>{0, 1});
  CHECK(third.after == std::vector<int>{4});
  CHECK(third.whole());
  // E of both and M of the second; D alone, the sequence ends there.
  CHECK(kda_messages(third, true, true).receives ==
        std::vector<KdaMessage>{{0, KdaMessage::end, true, 0},
                                {1, KdaMessage::end, true, 1},
                                {1, KdaMessage::map, true, 1},
                                {4, KdaMessage::grad, false, 0}});
  CHECK(kda_messages(third, false, true).sends.size() == 4);  // D and M to two
  // The one that begins sends no map, the empty one nothing at all.
  CHECK(kda_messages(world.plans[0], true, true).sends.size() == 3);
  CHECK(kda_messages(world.plans[2], true, true).sends.empty());
  CHECK(world.plans[2].sequences() == 0);
}

TEST_CASE("kda's states: cuts between sequences need no message") {
  const World world({0, 8, 8, 16}, {0, 8, 16});
  for (const KdaStatesPlan& plan : world.plans) {
    CHECK(kda_messages(plan, true, true).sends.empty());
    CHECK(kda_messages(plan, true, true).receives.empty());
  }
  CHECK(world.plans[1].first == 1);  // the empty one is where its offset is
}
