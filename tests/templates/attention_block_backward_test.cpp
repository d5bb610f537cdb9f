// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The gradients of a block step on the simulator, under every checker, against plain loops in
// double: random pairs and positions on configurations that cover widths, tiles, types and flags.
#include "tests/templates/attention_block_case.h"

using namespace block_case;
using lathe::Dtype;

namespace {

struct Case {
  Setup setup;
  lathe::AttentionBackwardTile tile;
};
const std::vector<Case> kCases = {
    {{Dtype::bf16, 64, 64, {}, "pairs local"}, {64, 128, 2, 8, 1}},
    {{Dtype::f16, 64, 64, {}, "positions local ordered"}, {64, 128, 2, 8, 1}},
    {{Dtype::bf16, 96, 96, {}, "pairs local alibi"}, {64, 128, 1, 8, 1}},
    {{Dtype::f16, 128, 128, {}, "pairs local ordered"}, {64, 128, 1, 8, 1}},
    {{Dtype::bf16, 128, 128, {}, "pairs local softcap alibi"}, {64, 64, 1, 4, 1}},
    {{Dtype::bf16, 128, 128, {}, "positions local softcap alibi"}, {64, 64, 1, 4, 1}},
    {{Dtype::f16, 128, 64, {}, "positions alibi"}, {64, 64, 1, 4, 1}},
    {{Dtype::bf16, 192, 128, {}, "pairs local"}, {64, 64, 1, 8, 2}},
    {{Dtype::f16, 256, 256, {}, "positions local"}, {32, 64, 1, 8, 2}},
    {{Dtype::f32, 64, 64, {}, "pairs local softcap"}, {32, 32, 1, 4, 2}},
    {{Dtype::f32, 64, 64, {}, "positions local"}, {32, 32, 1, 4, 2}},
    {{Dtype::f16, 64, 64, {}, "pairs score mask tiles ordered"}, {32, 64, 1, 4, 1}},
    {{Dtype::bf16, 128, 128, {}, "pairs local alibi score"}, {64, 128, 1, 8, 1}},
    {{Dtype::f16, 128, 64, {}, "positions local score mask tiles"}, {64, 64, 1, 4, 1}},
    {{Dtype::f32, 64, 64, {}, "pairs score mask"}, {32, 32, 1, 4, 2}},
};

// A state that attention over more than this block may have: lse above that of the block's keys, in
// some rows -inf.
struct Rest {
  ref::Array dout, lse, e;
};
Rest random_rest(const ref::AttentionBlock& a, lathe_dtype dtype, std::mt19937& random) {
  const auto cells = static_cast<size_t>(a.rows * a.heads);
  Rest rest;
  rest.dout = random_values(dtype, cells * static_cast<size_t>(a.value_dim), random);
  ref::AttentionForward forward;
  forward.out.assign(rest.dout.size(), 0.0);
  forward.lse.assign(cells, -ref::kInfinity);
  ref::attention_block(a, &forward);
  std::normal_distribution<double> normal;
  for (const double lse : forward.lse) {
    const bool none = random() % 5 == 0;
    const double more = 0.5 + std::abs(normal(random));
    const double whole = lse == -ref::kInfinity ? normal(random) : lse + more;
    rest.lse.push_back(none ? -ref::kInfinity : static_cast<float>(whole));
    rest.e.push_back(static_cast<float>(normal(random)));
  }
  return rest;
}

std::vector<float> random_floats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

ref::AttentionBlockGradients in_double(const Gradients& from) {
  return {{from.dq.begin(), from.dq.end()},
          {from.dk.begin(), from.dk.end()},
          {from.dv.begin(), from.dv.end()}};
}

}  // namespace

TEST_CASE("attention_block_backward: random pairs and positions on every configuration") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 500;
  for (const auto& [setup, tile] : kCases) {
    lathe::AttentionProblem problem = problem_of(setup);
    problem.deterministic = setup.has("ordered");
    const Backward backward(*nvrtc, problem, tile);
    const lathe_dtype dtype = tested(setup.element);
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      CAPTURE(seed);
      CAPTURE(backward.spec().text());
      std::mt19937 random(seed);
      ref::AttentionBlock a = random_block(setup, random);
      const Step step = random_step(setup, a.rows, a.keys, random);
      a.ahead = step.ahead();
      put_snippets(setup, step, &a);
      CAPTURE(a.rows);
      CAPTURE(a.keys);
      if (a.keys == 0) continue;  // nothing to launch
      Rest rest = random_rest(a, dtype, random);
      poison_unseen(step, &a, &rest.dout);
      const Gradients before = {random_floats(a.q.size(), random),
                                random_floats(a.k.size(), random),
                                random_floats(a.v.size(), random)};
      ref::AttentionBlockGradients exact = in_double(before), plain = exact;
      ref::attention_block_backward(a, rest.dout, rest.lse, rest.e, &exact);
      ref::attention_block_backward(a, rest.dout, rest.lse, rest.e, &plain,
                                    [&](double x) { return numbers::rounded(dtype, x); });
      Gradients found = before;
      backward.run(a, step, rest.dout, rest.lse, rest.e, seed, &found);
      expect_gradient(found.dq, exact.dq, plain.dq);
      expect_gradient(found.dk, exact.dk, plain.dk);
      expect_gradient(found.dv, exact.dv, plain.dv);
      if (turn > 0) continue;
      Gradients again = before;
      backward.run(a, step, rest.dout, rest.lse, rest.e, seed + 1000, &again);
      CHECK(again.dk == found.dk);
      CHECK(again.dv == found.dv);
      if (problem.deterministic) CHECK(again.dq == found.dq);
    }
  }
}

TEST_CASE("attention_block_backward: rows of a batch, added or written") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 700;
  for (const auto& [setup, tile] : {kCases[1], kCases[3], kCases[4]}) {
    lathe::AttentionProblem problem = problem_of(setup);
    problem.deterministic = setup.has("ordered");
    const Backward backward(*nvrtc, problem, tile);
    const lathe_dtype dtype = tested(setup.element);
    for (const Writes writes : {Writes{false, false}, Writes{true, true}, Writes{false, true}}) {
      CAPTURE(++seed);
      CAPTURE(backward.spec().text());
      CAPTURE(writes.dq);
      CAPTURE(writes.keys);
      std::mt19937 random(seed);
      std::vector<ref::AttentionBlock> batch = {random_block(setup, random)};
      batch.front().rows = 70, batch.front().keys = 150;
      const Step step = random_step(setup, 70, 150, random);
      batch.front().ahead = step.ahead();
      Rest rest;
      Gradients found;
      ref::AttentionBlockGradients exact, plain;
      const auto append = [](auto* to, const auto& from) {
        to->insert(to->end(), from.begin(), from.end());
      };
      for (int b = 0; b < 3; ++b) {
        if (b > 0) batch.push_back(batch.front());
        ref::AttentionBlock& a = batch.back();
        draw(dtype, random, &a);
        const Rest own = random_rest(a, dtype, random);
        const Gradients before = {random_floats(a.q.size(), random),
                                  random_floats(a.k.size(), random),
                                  random_floats(a.v.size(), random)};
        ref::AttentionBlockGradients sums = in_double(before);
        if (writes.dq) sums.dq.assign(sums.dq.size(), 0.0);
        if (writes.keys) sums.dk.assign(sums.dk.size(), 0.0), sums.dv.assign(sums.dv.size(), 0.0);
        ref::AttentionBlockGradients rounded = sums;
        ref::attention_block_backward(a, own.dout, own.lse, own.e, &sums);
        ref::attention_block_backward(a, own.dout, own.lse, own.e, &rounded,
                                      [&](double x) { return numbers::rounded(dtype, x); });
        append(&rest.dout, own.dout), append(&rest.lse, own.lse), append(&rest.e, own.e);
        // What is not read may be anything.
        append(&found.dq, writes.dq ? std::vector<float>(a.q.size(), NAN) : before.dq);
        append(&found.dk, writes.keys ? std::vector<float>(a.k.size(), NAN) : before.dk);
        append(&found.dv, writes.keys ? std::vector<float>(a.v.size(), NAN) : before.dv);
        append(&exact.dq, sums.dq), append(&exact.dk, sums.dk), append(&exact.dv, sums.dv);
        append(&plain.dq, rounded.dq), append(&plain.dk, rounded.dk);
        append(&plain.dv, rounded.dv);
      }
      backward.run(batch, step, rest.dout, rest.lse, rest.e, seed, &found, writes);
      expect_gradient(found.dq, exact.dq, plain.dq);
      expect_gradient(found.dk, exact.dk, plain.dk);
      expect_gradient(found.dv, exact.dv, plain.dv);
    }
  }
}

TEST_CASE("attention_block_backward: tiles that take turns give the same bits") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 800;
  for (const size_t which : {3, 11}) {
    Setup s = kCases[which].setup;
    lathe::AttentionProblem problem = problem_of(s);
    problem.deterministic = s.has("ordered");
    const Backward each(*nvrtc, problem, kCases[which].tile);
    problem.persistent = true;
    const Backward turns(*nvrtc, problem, kCases[which].tile);
    CAPTURE(++seed);
    CAPTURE(turns.spec().text());
    std::mt19937 random(seed);
    ref::AttentionBlock a = random_block(s, random);
    a.rows = 150, a.keys = 320, a.heads = 6, a.kv_heads = 2;
    draw(tested(s.element), random, &a);
    const Step step = random_step(s, a.rows, a.keys, random);
    a.ahead = step.ahead();
    const Rest rest = random_rest(a, tested(s.element), random);
    Gradients expected = {random_floats(a.q.size(), random), random_floats(a.k.size(), random),
                          random_floats(a.v.size(), random)};
    Gradients found = expected;
    each.run(a, step, rest.dout, rest.lse, rest.e, seed, &expected);
    turns.run(a, step, rest.dout, rest.lse, rest.e, seed + 1, &found);
    CHECK(found.dk == expected.dk);
    CHECK(found.dv == expected.dv);
    if (problem.deterministic) CHECK(found.dq == expected.dq);
  }
}

TEST_CASE("attention_block_backward: more blocks than lanes, of which few are seen") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(32);
  ref::AttentionBlock a;
  a.head_dim = a.value_dim = 64, a.rows = 2500, a.keys = 70, a.scale = 0.125;
  a.q = random_values(LATHE_BF16, 2500 * 64, random);
  a.k = random_values(LATHE_BF16, 70 * 64, random);
  a.v = random_values(LATHE_BF16, 70 * 64, random);
  Step step;
  step.window_left = 40, step.window_right = 0;
  for (int i = 0; i < 2500; ++i) step.q_positions.push_back(i);
  for (int j = 0; j < 70; ++j) step.k_positions.push_back(j < 35 ? 100 + j : 2300 + j);
  a.ahead = step.ahead();
  const Rest rest = random_rest(a, LATHE_BF16, random);
  Gradients found = {std::vector<float>(a.q.size()), std::vector<float>(a.k.size()),
                     std::vector<float>(a.v.size())};
  ref::AttentionBlockGradients exact = in_double(found), plain = exact;
  ref::attention_block_backward(a, rest.dout, rest.lse, rest.e, &exact);
  ref::attention_block_backward(a, rest.dout, rest.lse, rest.e, &plain,
                                [](double x) { return numbers::rounded(LATHE_BF16, x); });
  const Setup s = {Dtype::bf16, 64, 64, {}, "positions local"};
  Backward(*nvrtc, problem_of(s), {64, 64, 1, 4, 1})
      .run(a, step, rest.dout, rest.lse, rest.e, 4, &found);
  expect_gradient(found.dq, exact.dq, plain.dq);
  expect_gradient(found.dk, exact.dk, plain.dk);
  expect_gradient(found.dv, exact.dv, plain.dv);
}
