// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the plan against brute force, and whole exchanges of all ranks with kernels
// played on the CPU. Rows are identified, not computed: a halo is right if it holds the rows that
// it should.
#include "collective/plans/conv_halo.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "collective/exchange.h"
#include "tests/collective/cases.h"
#include "tests/collective/halo_world.h"

using namespace lathe;

namespace {

bool within(const Interval& part, int64_t position) {
  return part.begin <= position && position < part.end;
}

int count_of(const fakes::Outcome& outcome, int rank, const std::string& name) {
  int out = 0;
  for (const auto& event : outcome.events) {
    out += event.kind == fakes::Event::step && event.rank == rank && event.name == name;
  }
  return out;
}

// Messages that had reached `rank` when its step ran; -1 if it never ran.
int arrived_before(const fakes::Outcome& outcome, int rank, const std::string& name) {
  int arrived = 0;
  for (const auto& event : outcome.events) {
    if (event.rank != rank) continue;
    if (event.kind == fakes::Event::transfer) ++arrived;
    if (event.kind == fakes::Event::step && event.name == name) return arrived;
  }
  return -1;
}

void check_quiet(const HaloWorld& world) {
  for (const fakes::Rank& rank : world.ranks) {
    for (const std::string& what : rank.violations) FAIL_CHECK(what);
    CHECK(rank.depth == 0);
  }
}

bool has_peers(const HaloPlan& plan) { return !plan.sources.empty() || !plan.destinations.empty(); }

// A CheckRank checks one rank behind an exchange; `lazy` is true if messages moved only when
// nothing else could.
using CheckRank = void (*)(const HaloWorld& world, const fakes::Outcome& outcome, int rank,
                           bool lazy);

// Exchanges of random worlds, every third of them with lazy messages. Each halo row is the one that
// it should be, and so are the sums where `gradients` are added.
void check_exchanges(uint32_t seed, int worlds, bool gradients, void (*enqueue)(HaloWorld& world),
                     CheckRank check) {
  std::mt19937 random(seed);
  for (int repeat = 0; repeat < worlds; ++repeat) {
    HaloWorld world(random);
    CAPTURE(world.words());
    enqueue(world);
    const bool lazy = repeat % 3 == 0;
    const fakes::Outcome outcome = fakes::replay(world.ranks, random, lazy);
    REQUIRE(outcome.finished);
    check_quiet(world);
    if (gradients) CHECK(world.added == world.expected_sums());
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK(world.seen_halo[rank] == world.expected_halo(rank));
      check(world, outcome, rank, lazy);
    }
  }
}

}  // namespace

TEST_CASE("a plan names exactly the ranks with a token in the window, both ways") {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 4000; ++repeat) {
    const int world = static_cast<int>(random() % 9) + 1,
              width = static_cast<int>(random() % 7) + 2;
    const Partition cut{cases::random_offsets(random, random() % 25, world)};
    CAPTURE(cases::words(cut.bounds));
    CAPTURE(width);
    std::set<std::pair<int, int>> sources, destinations;
    for (int rank = 0; rank < world; ++rank) {
      const HaloPlan plan = halo_plan(cut, rank, width);
      CHECK(plan.part == cut.part(rank));
      std::set<int> wanted;
      for (int64_t t = plan.part.begin - (width - 1); t < plan.part.begin; ++t) {
        for (int j = 0; j < world && plan.part.size() > 0; ++j) {
          if (within(cut.part(j), t)) wanted.insert(j);
        }
      }
      CHECK(plan.sources.size() == wanted.size());
      int previous = rank;
      for (const HaloPeer& peer : plan.sources) {
        CHECK(wanted.count(peer.rank) == 1);
        CHECK(peer.rank < previous);
        CHECK(peer.part == cut.part(peer.rank));
        previous = peer.rank;
        sources.insert({peer.rank, rank});
      }
      previous = rank;
      for (const HaloPeer& peer : plan.destinations) {
        CHECK(peer.rank > previous);
        CHECK(peer.part == cut.part(peer.rank));
        previous = peer.rank;
        destinations.insert({rank, peer.rank});
      }
      const bool alone = plan.sources.size() == 1;
      CHECK(plan.aligned == alone);
      if (alone) {
        // The rows of the one source are those of the halo, also before the start of the axis.
        CHECK(plan.sources[0].part.end == plan.part.begin);
        CHECK((plan.sources[0].part.begin <= plan.part.begin - (width - 1) ||
               plan.sources[0].part.begin == 0));
      }
    }
    CHECK(sources == destinations);
  }
}

TEST_CASE("forward: every halo row is the token or state slot it should be") {
  check_exchanges(
      3, 1500, false, [](HaloWorld& world) { world.forward(); },
      [](const HaloWorld& world, const fakes::Outcome& outcome, int rank, bool lazy) {
        const HaloPlan& plan = world.plans[rank];
        CHECK(world.ranks[rank].groups == (has_peers(plan) ? 1 : 0));
        CHECK(count_of(outcome, rank, "pack") == (plan.destinations.empty() ? 0 : 1));
        CHECK(count_of(outcome, rank, "interior") == 1);
        CHECK(count_of(outcome, rank, "join") == (plan.sources.empty() ? 0 : 1));
        CHECK(count_of(outcome, rank, "boundary") == 1);
        if (lazy) CHECK(arrived_before(outcome, rank, "interior") == 0);
        if (has_peers(plan)) {
          CHECK(arrived_before(outcome, rank, "boundary") == static_cast<int>(plan.sources.size()));
        }
      });
}

TEST_CASE("backward: every gradient row reaches its token or state slot once, in rank order") {
  check_exchanges(
      4, 1500, true, [](HaloWorld& world) { world.backward(); },
      [](const HaloWorld& world, const fakes::Outcome& outcome, int rank, bool lazy) {
        const HaloPlan& plan = world.plans[rank];
        const int rows = static_cast<int>(plan.sources.size());
        const int gradients = static_cast<int>(plan.destinations.size());
        CHECK(world.ranks[rank].groups == (has_peers(plan) ? 2 : 0));
        CHECK(count_of(outcome, rank, "second half") == 1);
        CHECK(count_of(outcome, rank, "add") == (gradients > 0 ? 1 : 0));
        if (lazy) {
          CHECK(arrived_before(outcome, rank, "first half") == 0);
          CHECK(arrived_before(outcome, rank, "second half") == rows);
        }
        if (gradients > 0) CHECK(arrived_before(outcome, rank, "add") == rows + gradients);
      });
}

TEST_CASE("backward behind forward: one exchange of rows, the same halo and gradients") {
  check_exchanges(
      6, 500, true, [](HaloWorld& world) { world.forward_then_backward(); },
      [](const HaloWorld& world, const fakes::Outcome&, int rank, bool) {
        CHECK(world.ranks[rank].groups == (has_peers(world.plans[rank]) ? 2 : 0));
      });
}

TEST_CASE("several exchanges one after another reuse the same buffers and events") {
  check_exchanges(
      5, 300, true,
      [](HaloWorld& world) {
        world.forward();
        world.backward();
        world.forward();
      },
      [](const HaloWorld&, const fakes::Outcome&, int, bool) {});
}

TEST_CASE("bytes: whole messages, one per peer, into consecutive slots") {
  const Partition cut{{0, 5, 6, 6, 7, 20}};
  HaloWorld world({0, 20}, cut, 4);
  fakes::Rank& rank = world.ranks[4];
  fakes::current = &rank;
  char send[1], receive[1];
  const HaloBuffers rows{send, receive, 123};
  REQUIRE(conv_halo_forward(*world.groups[4], world.plans[4], rows, {}, {}, {}, {}, nullptr).ok());
  std::vector<fakes::Message> messages;
  for (auto& [stream, ops] : rank.streams) {
    for (auto& op : ops) messages.insert(messages.end(), op.messages.begin(), op.messages.end());
  }
  REQUIRE(messages.size() == 3);
  const int peers[] = {3, 1, 0};
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(messages[i].sends);
    CHECK(messages[i].peer == peers[i]);
    CHECK(messages[i].bytes == 123);
    CHECK(messages[i].data == receive + 123 * i);
  }
}

TEST_CASE("nothing to move is no NCCL call and no event") {
  struct Quiet {
    Partition cut;
    size_t bytes;
  };
  for (const Quiet& quiet : {Quiet{{{0, 9}}, 8}, Quiet{{{0, 0, 9, 9}}, 8}, Quiet{{{0, 4, 9}}, 0}}) {
    HaloWorld world({0, 9}, quiet.cut, 4);
    for (int r = 0; r < world.size(); ++r) {
      fakes::current = &world.ranks[r];
      Group& group = *world.groups[r];
      const HaloBuffers none{nullptr, nullptr, quiet.bytes};
      REQUIRE(conv_halo_forward(group, world.plans[r], none, {}, {}, {}, {}, nullptr).ok());
      REQUIRE(conv_halo_backward(group, world.plans[r], none, none, {}, {}, {}, {}, {}, {}, nullptr)
                  .ok());
      CHECK(world.ranks[r].groups == 0);
      CHECK(world.ranks[r].streams.empty());
    }
  }
}

TEST_CASE("a failing step ends the exchange with its status, and the streams are joined") {
  const Step fails{[](void*, CUstream) { return Status(Code::cuda, "the step's words"); }, nullptr};
  for (int where = 0; where < 6; ++where) {
    HaloWorld world({0, 12}, {{0, 4, 8, 12}}, 4);
    fakes::current = &world.ranks[1];
    char bytes[64];
    const HaloBuffers buffers{bytes, bytes + 16, 8};
    Step steps[6] = {};
    steps[where] = fails;
    const Status status =
        conv_halo_backward(*world.groups[1], world.plans[1], buffers, buffers, steps[0], steps[1],
                           steps[2], steps[3], steps[4], steps[5], nullptr);
    CHECK(status.code() == Code::cuda);
    CHECK(status.text() == "the step's words");
    CHECK(world.ranks[1].depth == 0);
    CHECK(world.ranks[1].groups == (where == 0 ? 0 : where <= 3 ? 1 : 2));
    // The last thing the caller's stream was given is to wait for the exchange's last record.
    auto& streams = world.ranks[1].streams;
    if (where == 0) continue;
    const auto& mine = streams[nullptr];
    const auto& exchange = streams[world.groups[1]->exchange_stream()];
    REQUIRE_FALSE(mine.empty());
    CHECK(fakes::waits_for(mine.back(), exchange.back()));
  }
}

TEST_CASE("a plan of another group, null buffers and an aborted group are refused") {
  HaloWorld world({0, 12}, {{0, 4, 8, 12}}, 4);
  char bytes[64];
  fakes::current = &world.ranks[0];
  Group& group = *world.groups[0];
  const HaloPlan wide = halo_plan({{0, 4, 8, 9, 10, 12}}, 4, 4);
  const auto forward = [&](const HaloPlan& plan, const HaloBuffers& rows) {
    return conv_halo_forward(group, plan, rows, {}, {}, {}, {}, nullptr);
  };
  CHECK(forward(wide, {bytes, bytes, 8}).code() == Code::invalid_argument);
  CHECK(forward(world.plans[0], {nullptr, bytes, 8}).code() == Code::invalid_argument);
  CHECK(forward(world.plans[0], {bytes, nullptr, 8}).ok());  // rank 0 receives nothing
  CHECK(world.ranks[0].groups == 1);
}

TEST_CASE("all-reduce: one call between the caller's work before and after, none for one rank") {
  HaloWorld world({0, 12}, {{0, 6, 12}}, 4);
  fakes::current = &world.ranks[0];
  Group& group = *world.groups[0];
  float data[8];
  REQUIRE(all_reduce_f32(group, data, 8, nullptr).ok());
  REQUIRE(all_reduce_f32(group, data, 0, nullptr).ok());
  CHECK(world.ranks[0].reductions == 1);
  const auto& exchange = world.ranks[0].streams[group.exchange_stream()];
  const auto& mine = world.ranks[0].streams[nullptr];
  REQUIRE(exchange.size() == 3);
  REQUIRE(mine.size() == 2);
  CHECK(fakes::waits_for(exchange[0], mine[0]));
  CHECK(exchange[1].kind == fakes::Op::reduce);
  CHECK(exchange[1].messages[0].bytes == 32);
  CHECK(fakes::waits_for(mine[1], exchange[2]));
  CHECK(world.ranks[0].violations.empty());

  HaloWorld alone({0, 12}, {{0, 12}}, 4);
  fakes::current = &alone.ranks[0];
  REQUIRE(all_reduce_f32(*alone.groups[0], data, 8, nullptr).ok());
  CHECK(alone.ranks[0].reductions == 0);
}
