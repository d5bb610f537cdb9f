// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_block on the simulator, under every checker, against plain loops in double: random
// pairs and positions on a set of configurations that covers widths, tiles, types and flags.
#include "tests/templates/attention_block_case.h"

using namespace block_case;
using lathe::AttentionProblem;
using lathe::AttentionTile;
using lathe::Dtype;

namespace {

struct Setup {
  Dtype element;
  int width, value_width;
  AttentionTile tile;
  std::string flags;  // of pairs, positions, local, softcap, alibi
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

AttentionProblem problem_of(const Setup& s) {
  AttentionProblem problem;
  problem.element = s.element;
  problem.head_dim = s.width, problem.value_dim = s.value_width;
  problem.local = s.has("local"), problem.softcap = s.has("softcap"),
  problem.alibi = s.has("alibi");
  problem.pairs = s.has("pairs"), problem.positions = s.has("positions");
  problem.forward = true;
  return problem;
}

// Rows in intervals, some of them nobody's; each sees disjoint intervals of the keys.
std::vector<Pair> random_pairs(int64_t rows, int64_t keys, std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  std::vector<Pair> pairs;
  for (int64_t qa = up_to(rows / 4); qa < rows;) {
    const int64_t qb = std::min(rows, qa + 1 + up_to(rows));
    for (int64_t ka = up_to(keys / 3); ka < keys;) {
      const int64_t kb = std::min(keys, ka + up_to(keys));
      pairs.push_back({qa, qb, ka, kb, up_to(2 * keys) - keys});
      ka = kb + 1 + up_to(keys / 8);
    }
    qa = qb + (random() % 3 == 0 ? up_to(5) : 0);
  }
  return pairs;
}

Step random_step(const Setup& s, int64_t rows, int64_t keys, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Step step;
  if (s.has("local")) {
    step.window_left = one_of({-1, -1, 0, 5, 64, 300});
    step.window_right = one_of({-1, 0, 0, 3, 70});
  }
  if (s.has("pairs")) {
    step.pairs = random_pairs(rows, keys, random);
    return step;
  }
  // Runs of a random permutation of chunks, so that tiles are skipped, masked and whole.
  const auto positions = [&](int64_t count) {
    std::vector<int> list;
    while (static_cast<int64_t>(list.size()) < count) {
      const int from = one_of({0, 0, 40, 200, 300, 500, -100});
      for (int i = one_of({1, 30, 64, 130}); i > 0; --i) list.push_back(from + i);
    }
    list.resize(static_cast<size_t>(count));
    return list;
  };
  step.q_positions = positions(rows), step.k_positions = positions(keys);
  return step;
}

ref::AttentionBlock random_block(const Setup& s, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  ref::AttentionBlock a;
  a.rows = one_of({1, 5, 64, 113, 150, 260}), a.keys = one_of({0, 1, 64, 130, 203, 320});
  a.kv_heads = one_of({1, 2}), a.heads = a.kv_heads * one_of({1, 3});
  a.head_dim = s.width - one_of({0, 8, 24}), a.value_dim = s.value_width - one_of({0, 8, 24});
  a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  a.softcap = s.has("softcap") ? one_of({1, 3, 30}) : 0;
  const auto count = [](int64_t x, int64_t y, int64_t z) { return static_cast<size_t>(x * y * z); };
  const lathe_dtype dtype = tested(s.element);
  a.q = random_values(dtype, count(a.rows, a.heads, a.head_dim), random);
  a.k = random_values(dtype, count(a.keys, a.kv_heads, a.head_dim), random);
  a.v = random_values(dtype, count(a.keys, a.kv_heads, a.value_dim), random);
  for (int h = 0; s.has("alibi") && h < a.heads; ++h) a.slopes.push_back(std::exp2(-3.0 - h));
  return a;
}

// A partial result of some rows; the others have none, and NaN in out.
State random_state(const ref::AttentionBlock& a, std::mt19937& random) {
  std::normal_distribution<double> normal;
  State state;
  state.out.resize(static_cast<size_t>(a.rows * a.heads * a.value_dim));
  state.lse.resize(static_cast<size_t>(a.rows * a.heads));
  for (float& value : state.out) value = static_cast<float>(normal(random));
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.rows; ++i) {
      const bool none = random() % 3 == 0;
      state.lse[static_cast<size_t>(h * a.rows + i)] =
          none ? -INFINITY : static_cast<float>(2 + 3 * normal(random));
      if (none) {
        std::fill_n(state.out.begin() + (i * a.heads + h) * a.value_dim, a.value_dim, NAN);
      }
    }
  }
  return state;
}

const std::vector<Setup> kSetups = {
    {Dtype::bf16, 64, 64, {128, 64, 2, 4}, "pairs"},
    {Dtype::f16, 64, 64, {128, 64, 2, 4}, "pairs local alibi"},
    {Dtype::bf16, 96, 96, {128, 64, 2, 4}, "positions local"},
    {Dtype::f16, 128, 128, {128, 64, 2, 4}, "pairs local"},
    {Dtype::bf16, 128, 128, {128, 64, 2, 4}, "pairs local softcap alibi"},
    {Dtype::bf16, 128, 128, {128, 64, 2, 4}, "positions local"},
    {Dtype::f16, 128, 128, {128, 64, 2, 8}, "positions local softcap alibi"},
    {Dtype::f16, 128, 64, {64, 64, 1, 4}, "positions alibi"},
    {Dtype::f16, 192, 128, {128, 64, 1, 8}, "pairs local"},
    {Dtype::bf16, 256, 256, {128, 64, 1, 8}, "positions local"},
};

}  // namespace

TEST_CASE("attention_block: random pairs and positions on every configuration") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Forward forward(*nvrtc, problem_of(s), s.tile);
    for (int turn = 0; turn < 6; ++turn, ++seed) {
      CAPTURE(seed);
      CAPTURE(forward.spec().text());
      std::mt19937 random(seed);
      ref::AttentionBlock a = random_block(s, random);
      const Step step = random_step(s, a.rows, a.keys, random);
      a.ahead = step.ahead();
      CAPTURE(a.rows);
      CAPTURE(a.keys);
      const bool first = turn % 3 == 0;
      State state = random_state(a, random);
      const State before = state;
      ref::AttentionForward expected;
      expected.out.assign(state.out.begin(), state.out.end());
      expected.lse.assign(state.lse.begin(), state.lse.end());
      if (first) {
        std::fill(expected.out.begin(), expected.out.end(), 0.0);
        std::fill(expected.lse.begin(), expected.lse.end(), -ref::kInfinity);
      }
      ref::attention_block(a, &expected);
      forward.run(a, step, first, seed, &state);
      // A row that sees no key is not written, to the bit, unless it is the first step.
      size_t touched = 0;
      for (int64_t h = 0; !first && h < a.heads; ++h) {
        for (int64_t i = 0; i < a.rows; ++i) {
          const auto row = static_cast<size_t>(h * a.rows + i);
          if (expected.lse[row] != before.lse[row]) continue;
          const size_t out = a.query(i, h) * static_cast<size_t>(a.value_dim);
          const size_t bytes = static_cast<size_t>(a.value_dim) * sizeof(float);
          touched += state.lse[row] != before.lse[row] ||
                     std::memcmp(&state.out[out], &before.out[out], bytes) != 0;
          std::fill_n(&state.out[out], a.value_dim, 0.0f);
          std::fill_n(&expected.out[out], a.value_dim, 0.0);
        }
      }
      CHECK(touched == 0);
      expect_near(state, expected, tested(s.element), std::max(largest(a.v), 5.0));
    }
  }
}
