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

// Of the step that goes on from `state`.
ref::AttentionForward expected_of(const ref::AttentionBlock& a, const State& state, bool first) {
  ref::AttentionForward expected;
  expected.out.assign(state.out.begin(), state.out.end());
  expected.lse.assign(state.lse.begin(), state.lse.end());
  if (first) {
    std::fill(expected.out.begin(), expected.out.end(), 0.0);
    std::fill(expected.lse.begin(), expected.lse.end(), -ref::kInfinity);
  }
  ref::attention_block(a, &expected);
  return expected;
}

const std::vector<Setup> kSetups = {
    {Dtype::bf16, 64, 64, {128, 64, 2, 4}, "pairs"},
    {Dtype::f16, 64, 64, {128, 64, 2, 4}, "pairs local alibi"},
    {Dtype::bf16, 96, 96, {128, 64, 2, 4}, "positions local"},
    {Dtype::f16, 128, 128, {128, 64, 2, 4}, "pairs local"},
    {Dtype::bf16, 128, 128, {128, 64, 2, 8}, "pairs local softcap alibi"},
    {Dtype::bf16, 128, 128, {128, 64, 2, 4}, "positions local"},
    {Dtype::f16, 128, 128, {128, 64, 2, 8}, "positions local softcap alibi"},
    {Dtype::f16, 128, 64, {64, 64, 1, 4}, "positions alibi"},
    {Dtype::f16, 192, 128, {128, 64, 1, 8}, "pairs local"},
    {Dtype::bf16, 256, 256, {128, 64, 1, 8}, "positions local"},
    {Dtype::f32, 64, 64, {64, 64, 1, 4}, "pairs local alibi"},
    {Dtype::f32, 64, 64, {64, 64, 1, 4}, "positions local softcap"},
    {Dtype::bf16, 64, 64, {64, 64, 2, 4}, "pairs local mask"},
    {Dtype::f16, 64, 64, {64, 64, 2, 4}, "pairs score mask tiles"},
    {Dtype::f16, 128, 64, {64, 64, 1, 4}, "positions local score mask tiles"},
    {Dtype::f32, 64, 64, {64, 32, 1, 4}, "pairs score mask"},
};

}  // namespace

TEST_CASE("attention_block: pairs that nobody has checked read and write nothing beyond") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const Setup s = {Dtype::bf16, 64, 64, {64, 64, 2, 4}, "pairs local"};
  const Forward forward(*nvrtc, problem_of(s), s.tile);
  const Backward backward(*nvrtc, problem_of(s), {64, 64, 1, 4, 1});
  for (uint32_t seed = 1; seed < 9; ++seed) {
    std::mt19937 random(seed);
    ref::AttentionBlock a = random_block(s, random);
    if (a.keys == 0) continue;
    Step step = random_step(s, a.rows, a.keys, random);
    for (int i = 0; i < 12; ++i) {
      const auto word = [&] {
        const int wild[] = {0, -1, -70, 64, 100, 1000, 0x7fffffff, -0x7fffffff - 1};
        return wild[random() % 8];
      };
      step.pairs.push_back({{word(), word(), word(), word(), word()}, word(), word(), word()});
    }
    std::shuffle(step.pairs.begin(), step.pairs.end(), random);
    State state = random_state(a, random);
    forward.run(a, step, seed % 2 == 0, seed, &state);  // no finding is all that is asked
    const ref::Array rows(static_cast<size_t>(a.rows * a.heads), 1.0);
    Gradients sums = {std::vector<float>(a.q.size()), std::vector<float>(a.k.size()),
                      std::vector<float>(a.v.size())};
    backward.run(a, step, ref::Array(rows.size() * static_cast<size_t>(a.value_dim), 1.0), rows,
                 rows, seed, &sums);
  }
}

TEST_CASE("attention_block: more blocks than lanes, of which few are seen") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const char* flags : {"positions local", "pairs local"}) {
    const Setup s = {Dtype::bf16, 64, 64, {64, 64, 2, 4}, flags};
    std::mt19937 random(31);
    ref::AttentionBlock a;
    a.head_dim = a.value_dim = 64, a.rows = 70, a.keys = 2500, a.scale = 0.125;
    a.q = random_values(LATHE_BF16, 70 * 64, random);
    a.k = random_values(LATHE_BF16, 2500 * 64, random);
    a.v = random_values(LATHE_BF16, 2500 * 64, random);
    Step step;
    step.window_left = 40, step.window_right = 0;
    if (s.has("pairs")) {
      for (int64_t i = 0; i < 40; ++i) {  // two of them in reach of the rows
        step.pairs.push_back({{0, 70, i * 60, i * 60 + 60, 2210 - i * 60}});
      }
    } else {
      for (int i = 0; i < 70; ++i) step.q_positions.push_back(i < 35 ? 100 + i : 2300 + i);
      for (int j = 0; j < 2500; ++j) step.k_positions.push_back(j);
    }
    a.ahead = step.ahead();
    ref::AttentionForward expected;
    expected.out.assign(70 * 64, 0.0);
    expected.lse.assign(70, -ref::kInfinity);
    ref::attention_block(a, &expected);
    State state = {std::vector<float>(70 * 64, NAN), std::vector<float>(70, NAN)};
    Forward(*nvrtc, problem_of(s), s.tile).run(a, step, true, 4, &state);
    expect_near(state, expected, LATHE_BF16, largest(a.v));
  }
}

TEST_CASE("attention_block: rows of a batch, to the bit as each by itself") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 70;
  for (const Setup& s : {kSetups[1], kSetups[5], kSetups[10]}) {
    const Forward forward(*nvrtc, problem_of(s), s.tile);
    for (const bool first : {false, true}) {
      CAPTURE(++seed);
      CAPTURE(forward.spec().text());
      std::mt19937 random(seed);
      std::vector<ref::AttentionBlock> batch = {random_block(s, random)};
      batch.front().rows = 70, batch.front().keys = 130;
      State state;
      for (int b = 0; b < 3; ++b) {
        if (b > 0) batch.push_back(batch.front());
        draw(tested(s.element), random, &batch.back());
        const State own = random_state(batch.back(), random);
        state.out.insert(state.out.end(), own.out.begin(), own.out.end());
        state.lse.insert(state.lse.end(), own.lse.begin(), own.lse.end());
      }
      const Step step = random_step(s, 70, 130, random);
      State found = state;
      forward.run(batch, step, first, seed, &found);
      const auto part = [&](const std::vector<float>& all, size_t b) {
        const size_t size = all.size() / 3;
        const auto from = all.begin() + static_cast<long>(b * size);
        return std::vector<float>(from, from + static_cast<long>(size));
      };
      for (size_t b = 0; b < 3; ++b) {
        State own = {part(state.out, b), part(state.lse, b)};
        forward.run(batch[b], step, first, seed + 10, &own);
        const std::vector<float> out = part(found.out, b), lse = part(found.lse, b);
        CHECK(std::memcmp(out.data(), own.out.data(), out.size() * sizeof(float)) == 0);
        CHECK(lse == own.lse);
      }
    }
  }
}

TEST_CASE("attention_block: tiles that take turns give the same bits") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 90;
  for (Setup s : {kSetups[6], kSetups[13]}) {
    const Forward each(*nvrtc, problem_of(s), s.tile);
    s.flags += " turns";
    const Forward turns(*nvrtc, problem_of(s), s.tile);
    for (const bool first : {false, true}) {
      CAPTURE(++seed);
      CAPTURE(turns.spec().text());
      std::mt19937 random(seed);
      std::vector<ref::AttentionBlock> batch(2, random_block(s, random));
      batch[1].rows = batch[0].rows = 260, batch[1].keys = batch[0].keys = 203;
      State expected;
      for (ref::AttentionBlock& a : batch) {
        draw(tested(s.element), random, &a);
        const State own = random_state(a, random);
        expected.out.insert(expected.out.end(), own.out.begin(), own.out.end());
        expected.lse.insert(expected.lse.end(), own.lse.begin(), own.lse.end());
      }
      const Step step = random_step(s, 260, 203, random);
      State found = expected;
      each.run(batch, step, first, seed, &expected);
      turns.run(batch, step, first, seed + 1, &found);
      const size_t bytes = found.out.size() * sizeof(float);
      CHECK(std::memcmp(found.out.data(), expected.out.data(), bytes) == 0);
      CHECK(found.lse == expected.lse);
    }
  }
}

TEST_CASE("attention_block: random pairs and positions on every configuration") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Forward forward(*nvrtc, problem_of(s), s.tile);
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      CAPTURE(seed);
      CAPTURE(forward.spec().text());
      std::mt19937 random(seed);
      ref::AttentionBlock a = random_block(s, random);
      const Step step = random_step(s, a.rows, a.keys, random);
      a.ahead = step.ahead();
      put_snippets(s, step, &a);
      CAPTURE(a.rows);
      CAPTURE(a.keys);
      const bool first = turn % 3 == 0;
      State state = random_state(a, random);
      const State before = state;
      ref::AttentionForward expected = expected_of(a, state, first);
      poison_unseen(step, &a, nullptr);
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
