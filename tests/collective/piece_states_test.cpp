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

// Numbers are exact, modulo a prime; products of matrices do not commute. A trace tells in which
// order a number was made: of the same products in another order it differs, as bits of float32 do.
constexpr uint64_t kPrime = 1000003;
struct State {
  std::array<uint64_t, 2> value = {};
  uint64_t trace = 0;
  bool operator==(const State& other) const { return value == other.value; }
};
struct Matrix {
  std::array<uint64_t, 4> value = {};
  uint64_t trace = 0;
};

uint64_t traced(uint64_t a, uint64_t b, uint64_t how) {
  return (a * 0x9e3779b97f4a7c15u ^ (b + how) * 0xc2b2ae3d27d4eb4fu) * 0x165667b19e3779f9u + how;
}
State times(const Matrix& m, const State& s, bool transposed) {
  const uint64_t off = m.value[transposed ? 2 : 1], other = m.value[transposed ? 1 : 2];
  return {{(m.value[0] * s.value[0] + off * s.value[1]) % kPrime,
           (other * s.value[0] + m.value[3] * s.value[1]) % kPrime},
          traced(m.trace, s.trace, 1)};
}
Matrix times(const Matrix& a, const Matrix& b) {
  const auto& [x, y] = std::pair(a.value, b.value);
  return {{(x[0] * y[0] + x[1] * y[2]) % kPrime, (x[0] * y[1] + x[1] * y[3]) % kPrime,
           (x[2] * y[0] + x[3] * y[2]) % kPrime, (x[2] * y[1] + x[3] * y[3]) % kPrime},
          traced(a.trace, b.trace, 2)};
}
State plus(const State& a, const State& b) {
  return {{(a.value[0] + b.value[0]) % kPrime, (a.value[1] + b.value[1]) % kPrime},
          traced(a.trace, b.trace, 3)};
}

// Holds what a piece makes of states: some numbers that differ from piece to piece.
struct Summary {
  Matrix m;
  State e, d;
};
Summary summary_of(const SequencePiece& piece) {
  const auto x = static_cast<uint64_t>(piece.sequence * 101 + piece.before * 17 + 3);
  return {{{x % 97, x % 89 + 1, x % 83 + 2, x % 79}, x},
          {{x * x % 71, x % 67}, x + 1},
          {{x % 61, x * x % 59}, x + 2}};
}
State given(const SequencePiece& piece, uint64_t seed) {
  return {{seed + static_cast<uint64_t>(piece.sequence), seed * 5 + 7}, seed};
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
    if (walk.steps == 0) continue;  // of a list of a fixed length
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
        REQUIRE(sends[i].elements == receives[i].elements);
        for (int n = 0; n < sends[i].elements; ++n) {
          const int at = sends[i].element + n, slot = receives[i].element + n;
          // Some of a fixed number of pieces are of no cut sequence, or none at all.
          if (sends[i].elements > 1 && !own.maps.contains(at)) continue;
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

using Planner = PieceStatesPlan (*)(const PieceLayout&, int, bool, bool);

int most_pieces(const PieceLayout& layout) {
  size_t most = 2;  // so that all messages have several elements
  for (const auto& pieces : layout.ranks) most = std::max(most, pieces.size());
  return static_cast<int>(most);
}
PieceStatesPlan fixed_plan(const PieceLayout& layout, int rank, bool states, bool grads) {
  return fixed_states_plan(layout, rank, states, grads, most_pieces(layout));
}

// The counts of a capacity are those of any of its layouts, here one without tokens. Walks of a
// level lie where that one has room for them.
void check_fixed(const PieceLayout& layout, int rank) {
  const int most = most_pieces(layout), world = static_cast<int>(layout.ranks.size());
  const PieceLayout none = piece_layout(layout_of({}, world, {0, 0}));
  const PieceStatesPlan found = fixed_states_plan(layout, rank, true, true, most),
                        other = fixed_states_plan(none, rank, true, true, most);
  CHECK(found.pieces.size() == other.pieces.size());
  CHECK(found.cut == other.cut);
  CHECK(found.first_pieces.size() == other.first_pieces.size());
  CHECK(found.last_sequences.size() == other.last_sequences.size());
  CHECK(found.sends == other.sends);
  CHECK(found.receives == other.receives);
  CHECK(found.elements == other.elements);
  for (const auto& [one, two] : {std::pair(&found.given_states, &other.given_states),
                                 {&found.given_grads, &other.given_grads},
                                 {&found.forward, &other.forward},
                                 {&found.back, &other.back}}) {
    CHECK(one->levels == two->levels);
    CHECK(one->walks.size() == two->walks.size());
    CHECK(one->steps.size() == two->steps.size());
    for (const PieceWalk& walk : one->walks) {
      CHECK(walk.first_step + walk.steps <= std::ssize(one->steps));
      CHECK(walk.element < found.elements);
    }
  }
}

// Returns how the states and gradients of all pieces were made, in the order of the chains.
std::vector<uint64_t> check_states(const PieceLayout& pieces, Planner planner, bool with_states,
                                   bool with_grads) {
  const int world = static_cast<int>(pieces.ranks.size());
  std::vector<Rank> ranks(static_cast<size_t>(world));
  int64_t messages = 0;
  for (int r = 0; r < world; ++r) {
    Rank& rank = ranks[r];
    rank.plan = planner(pieces, r, with_states, with_grads);
    messages += std::ssize(rank.plan.sends);
    for (const SequencePiece& piece : rank.plan.pieces) {
      if (pieces.is_first(piece)) rank.states[piece.number] = given(piece, kInitial);
      if (pieces.is_last(piece)) rank.gradients[piece.number] = given(piece, kFinal);
      if (!rank.plan.cut[piece.number] || piece.tokens == 0) continue;
      const Summary summary = summary_of(piece);
      rank.elements.maps[piece.number] = summary.m;
      rank.elements.ends[piece.number] = summary.e, rank.elements.grads[piece.number] = summary.d;
    }
    Elements& own = rank.elements;
    run(rank.plan.given_states, false, &own.ends, &own.maps, &rank.states);
    run(rank.plan.given_grads, true, &own.grads, &own.maps, &rank.gradients);
    run(rank.plan.joined_forward, false, &own.ends, &own.maps, &rank.states);
    run(rank.plan.joined_back, true, &own.grads, &own.maps, &rank.gradients);
  }
  deliver(&ranks);
  if (planner == piece_states_plan) CHECK(messages == messages_of(pieces, with_states, with_grads));
  for (Rank& rank : ranks) {
    Elements& own = rank.elements;
    run(rank.plan.forward, false, &own.ends, &own.maps, &rank.states);
    run(rank.plan.back, true, &own.grads, &own.maps, &rank.gradients);
  }
  std::vector<uint64_t> traces;
  for (const auto& chain : pieces.chains) {
    State state = given(chain.front(), kInitial), gradient = given(chain.back(), kFinal);
    for (size_t i = 0; i < chain.size(); ++i) {
      const SequencePiece &piece = chain[i], &last = chain[chain.size() - 1 - i];
      if (with_states) {
        CHECK(ranks[piece.rank].states.at(piece.number) == state);
        traces.push_back(ranks[piece.rank].states.at(piece.number).trace);
      }
      if (with_grads) {
        CHECK(ranks[last.rank].gradients.at(last.number) == gradient);
        traces.push_back(ranks[last.rank].gradients.at(last.number).trace);
      }
      const Summary forth = summary_of(piece), back = summary_of(last);
      state = plus(times(forth.m, state, false), forth.e);
      gradient = plus(times(back.m, gradient, true), back.d);
    }
  }
  return traces;
}

// Returns the layout of one rank with the same sequences.
Layout alone(const Layout& layout) {
  return layout_of(std::vector<int>(static_cast<size_t>(layout.length)), 1, layout.cu_seqlens);
}

// Checks pieces as they lie, and canonical ones of one token each: these are made in the same order
// as on one rank.
void check_all(const Layout& layout) {
  for (const auto& [states, grads] : {std::pair(true, true), {true, false}, {false, true}}) {
    const PieceLayout pieces = piece_layout(layout);
    // With the counts of a capacity states are made in the same order.
    CHECK(check_states(pieces, piece_states_plan, states, grads) ==
          check_states(pieces, fixed_plan, states, grads));
    const auto canonical = [states, grads](const Layout& of) {
      return check_states(*canonical_pieces(of, 1), canonical_states_plan, states, grads);
    };
    CHECK(canonical(layout) == canonical(alone(layout)));
  }
  for (int rank = 0; rank < layout.world(); ++rank) check_fixed(piece_layout(layout), rank);
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

TEST_CASE("states over canonical pieces: a run of pieces is few messages") {
  // Rank 1 has pieces 5 to 18 of 24: nodes 5, 6-7, 8-15, 16-17 and 18.
  std::vector<int> owners(24, 0);
  std::fill(owners.begin() + 5, owners.begin() + 19, 1),
      std::fill(owners.begin() + 19, owners.end(), 2);
  const Layout layout = layout_of(owners, 3, {0, 24});
  const PieceLayout pieces = *canonical_pieces(layout, 1);
  const PieceStatesPlan plan = canonical_states_plan(pieces, 1, true, false);
  CHECK(plan.sends.size() == 10);    // E and M of each, to rank 2
  CHECK(plan.receives.size() == 3);  // E of 0-3; E and M of 4
  CHECK(plan.joined_forward.walks.size() == 9);
}

TEST_CASE("canonical pieces: cut at every 64 tokens of a sequence; other bounds are refused") {
  LayoutOptions options;
  options.world = 2, options.length = 300, options.cu_seqlens = {0, 10, 200, 300};
  options.ranges = {{{0, 74}, {138, 200}}, {{74, 138}, {200, 300}}};
  const PieceLayout pieces = *canonical_pieces(*make_layout(options));
  CHECK(pieces.ranks[0].size() == 3);
  CHECK(pieces.chains[1].size() == 3);
  CHECK(pieces.chains[2][1] == SequencePiece{1, 2, 2, 128, 36, 64, 1});
  options.ranges = {{{0, 75}, {138, 200}}, {{75, 138}, {200, 300}}};
  const auto refused = canonical_pieces(*make_layout(options));
  REQUIRE(refused.status().code() == Code::invalid_argument);
  CHECK(refused.status().text().find("75 is 65 tokens into sequence 1") != std::string::npos);
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
