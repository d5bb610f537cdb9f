// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run the plan of states over pieces with small matrices for maps, and hold it against
// the sequences token by token: all tables of a small axis for all worlds to 6, and random ones.
#include "collective/plans/piece_states.h"

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <set>

#include "tests/collective/pieces_world.h"

using namespace lathe;
using namespace pieces_test;

namespace {

// Numbers are exact, modulo a prime; products of matrices do not commute.
constexpr uint64_t kPrime = 1000003;
using State = std::array<uint64_t, 2>;
using Matrix = std::array<uint64_t, 4>;

State times(const Matrix& m, const State& s, bool transposed) {
  const uint64_t off = transposed ? m[2] : m[1], other = transposed ? m[1] : m[2];
  return {(m[0] * s[0] + off * s[1]) % kPrime, (other * s[0] + m[3] * s[1]) % kPrime};
}
Matrix times(const Matrix& a, const Matrix& b) {
  return {(a[0] * b[0] + a[1] * b[2]) % kPrime, (a[0] * b[1] + a[1] * b[3]) % kPrime,
          (a[2] * b[0] + a[3] * b[2]) % kPrime, (a[2] * b[1] + a[3] * b[3]) % kPrime};
}
State plus(const State& a, const State& b) {
  return {(a[0] + b[0]) % kPrime, (a[1] + b[1]) % kPrime};
}

// Holds what a piece makes of states: some numbers that differ from piece to piece.
struct Summary {
  Matrix m;
  State e, d;
};
Summary summary_of(const SequencePiece& piece) {
  const auto x = static_cast<uint64_t>(piece.sequence * 101 + piece.before * 17 + 3);
  return {{x % 97, x % 89 + 1, x % 83 + 2, x % 79}, {x * x % 71, x % 67}, {x % 61, x * x % 59}};
}
State given(const SequencePiece& piece, uint64_t seed) {
  return {seed + static_cast<uint64_t>(piece.sequence), seed * 5 + 7};
}
constexpr uint64_t kInitial = 11, kFinal = 23;

// A slot holds a value that a rank has, or nothing: what is read must be there.
struct Elements {
  std::map<int, State> ends, grads;
  std::map<int, Matrix> maps;
};

struct Rank {
  PieceStatesPlan plan;
  Elements elements;
  std::map<int, State> states, gradients;  // by piece
};

// Runs walks of one direction. `ends` are E or D, `found` the states of pieces.
void run(const PieceWalks& walks, bool back, std::map<int, State>* ends,
         std::map<int, Matrix>* maps, std::map<int, State>* found) {
  for (const PieceWalk& walk : walks.walks) {
    const PieceStep* steps = walks.steps.data() + walk.first_step;
    const int first = steps[0].element;
    State state = first < 0 ? found->at(-1 - first) : ends->at(first);
    Matrix map = walk.map ? maps->at(first) : Matrix{};
    if (steps[0].piece >= 0) (*found)[steps[0].piece] = state;
    for (int i = 1; i < walk.steps; ++i) {
      const Matrix& m = maps->at(steps[i].element);
      state = plus(times(m, state, back), ends->at(steps[i].element));
      // The whole map is that of the tokens in their order, whichever way the walk goes.
      map = back ? times(map, m) : times(m, map);
      if (steps[i].piece >= 0) (*found)[steps[i].piece] = state;
    }
    CHECK(walk.steps <= (walk.element >= 0 ? kPieceRadix : walk.steps));
    if (walk.element < 0) continue;
    (*ends)[walk.element] = state;
    if (walk.map) (*maps)[walk.element] = map;
  }
}

// Gives every rank what others send it: the messages of two ranks match in their order.
void deliver(std::vector<Rank>* ranks) {
  const int world = static_cast<int>(ranks->size());
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) {
      std::vector<PieceMessage> sends, receives;
      for (const PieceMessage& each : (*ranks)[from].plan.sends) {
        if (each.peer == to) sends.push_back(each);
      }
      for (const PieceMessage& each : (*ranks)[to].plan.receives) {
        if (each.peer == from) receives.push_back(each);
      }
      REQUIRE(sends.size() == receives.size());
      for (size_t i = 0; i < sends.size(); ++i) {
        REQUIRE(sends[i].kind == receives[i].kind);
        const Elements& own = (*ranks)[from].elements;
        Elements& other = (*ranks)[to].elements;
        const int at = sends[i].element, slot = receives[i].element;
        switch (sends[i].kind) {
          case PieceMessage::end:
            CHECK(other.ends.emplace(slot, own.ends.at(at)).second);
            break;
          case PieceMessage::map:
            CHECK(other.maps.emplace(slot, own.maps.at(at)).second);
            break;
          case PieceMessage::grad:
            CHECK(other.grads.emplace(slot, own.grads.at(at)).second);
            break;
        }
      }
    }
  }
}

// Counts messages as the definition has them, pair by pair of pieces.
int64_t messages_of(const PieceLayout& layout, bool states, bool grads) {
  int64_t out = 0;
  for (const auto& chain : layout.chains) {
    std::set<std::tuple<int, int, int>> sent;  // piece, peer, kind
    for (const SequencePiece& piece : chain) {
      for (const SequencePiece& other : chain) {
        if (other.rank == piece.rank) continue;
        const bool forth = states && other.position > piece.position;
        const bool back = grads && other.position < piece.position;
        if (forth) sent.insert({piece.position, other.rank, 0});
        if (back) sent.insert({piece.position, other.rank, 1});
        const bool is_end = forth ? layout.is_first(piece) : layout.is_last(piece);
        if ((forth || back) && !is_end) sent.insert({piece.position, other.rank, 2});
      }
    }
    out += std::ssize(sent);
  }
  return out;
}

void check_states(const Layout& layout, bool with_states, bool with_grads) {
  const PieceLayout pieces = piece_layout(layout);
  std::vector<Rank> ranks(static_cast<size_t>(layout.world()));
  int64_t messages = 0;
  for (int r = 0; r < layout.world(); ++r) {
    Rank& rank = ranks[r];
    rank.plan = piece_states_plan(pieces, r, with_states, with_grads);
    messages += std::ssize(rank.plan.sends);
    for (const SequencePiece& piece : rank.plan.pieces) {
      if (pieces.is_first(piece)) rank.states[piece.number] = given(piece, kInitial);
      if (pieces.is_last(piece)) rank.gradients[piece.number] = given(piece, kFinal);
      if (!rank.plan.cut[piece.number]) continue;
      const Summary summary = summary_of(piece);
      rank.elements.maps[piece.number] = summary.m;
      rank.elements.ends[piece.number] = summary.e, rank.elements.grads[piece.number] = summary.d;
    }
    Elements& own = rank.elements;
    run(rank.plan.given_states, false, &own.ends, &own.maps, &rank.states);
    run(rank.plan.given_grads, true, &own.grads, &own.maps, &rank.gradients);
  }
  deliver(&ranks);
  CHECK(messages == messages_of(pieces, with_states, with_grads));
  for (Rank& rank : ranks) {
    Elements& own = rank.elements;
    run(rank.plan.forward, false, &own.ends, &own.maps, &rank.states);
    run(rank.plan.back, true, &own.grads, &own.maps, &rank.gradients);
  }
  for (const auto& chain : pieces.chains) {
    State state = given(chain.front(), kInitial), gradient = given(chain.back(), kFinal);
    for (size_t i = 0; i < chain.size(); ++i) {
      const SequencePiece &piece = chain[i], &last = chain[chain.size() - 1 - i];
      if (with_states) CHECK(ranks[piece.rank].states.at(piece.number) == state);
      if (with_grads) CHECK(ranks[last.rank].gradients.at(last.number) == gradient);
      const Summary forth = summary_of(piece), back = summary_of(last);
      state = plus(times(forth.m, state, false), forth.e);
      gradient = plus(times(back.m, gradient, true), back.d);
    }
  }
}

void check_all(const Layout& layout) {
  check_states(layout, true, true);
  check_states(layout, true, false);
  check_states(layout, false, true);
}

}  // namespace

TEST_CASE("states over pieces: every table of a small axis, for all worlds to 6") {
  for (int world = 1; world <= 6; ++world) each_table(world, 4, check_all);
  for (int world = 2; world <= 3; ++world) each_table(world, 6, check_all);
}

TEST_CASE("states over pieces: random tables with long chains") {
  each_random_table(1, 500, check_all);
}

TEST_CASE("states over pieces: no token at all") {
  Layout layout = layout_of({}, 3, {0, 0, 0});
  check_all(layout);
  for (int rank = 0; rank < 3; ++rank) CHECK(piece_layout(layout).ranks[rank].size() == 2);
}

TEST_CASE("states over pieces: contiguous parts send what the plan of parts sends") {
  // Each rank hands E on, and M where the sequence goes through it whole.
  const PieceLayout pieces = piece_layout(layout_of({0, 0, 1, 1, 2, 2, 3}, 4, {0, 7}));
  const PieceStatesPlan plan = piece_states_plan(pieces, 1, true, true);
  CHECK(plan.sends == std::vector<PieceMessage>{{0, PieceMessage::map, 0},
                                                {0, PieceMessage::grad, 0},
                                                {2, PieceMessage::end, 0},
                                                {2, PieceMessage::map, 0},
                                                {3, PieceMessage::end, 0},
                                                {3, PieceMessage::map, 0}});
  CHECK(piece_states_plan(pieces, 0, true, true).sends.size() == 3);
}

TEST_CASE("pieces: where they lie, and who has empty sequences") {
  const Layout layout = layout_of({0, 1, 1, 0, 0, 2, 0}, 3, {0, 0, 4, 4, 6, 7, 7});
  const PieceLayout pieces = piece_layout(layout);
  REQUIRE(pieces.ranks[0].size() == 7);
  CHECK(pieces.ranks[0][1] == SequencePiece{0, 1, 1, 1, 1, 3, 2});
  CHECK(pieces.ranks[0][2] == SequencePiece{0, 2, 3, 2, 1, 0, 0});
  CHECK(pieces.offsets(0) == std::vector<int32_t>{0, 1, 2, 3, 4, 4, 4, 4});
  CHECK(pieces.chains[1].size() == 3);
  CHECK(pieces.ranks[1].size() == 1);
  CHECK(pieces.ranks[2].size() == 1);
}
