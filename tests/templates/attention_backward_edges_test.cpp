// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the attention backward promises whatever the numbers are: bitwise repeatability, exact
// zeros, no NaN across a boundary, no product outside the mask.
#include <memory>
#include <optional>

#include "tests/templates/attention_backward_case.h"

using namespace backward;

namespace {

const Setup kPlain = {LATHE_BF16, 128, 128, 64, 128, 1, 1, 8, ""};
const Setup kOrdered = {LATHE_F16, 128, 128, 64, 128, 1, 1, 8, "local sinks ordered"};
const Setup kPackedApart = {
    LATHE_F16, 128, 128, 64, 128, 1, 2, 8, "packed local softcap alibi apart ordered"};
const Setup kPacked = {LATHE_BF16, 96, 96, 64, 128, 2, 1, 8, "packed wide local sinks dlse"};

std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

struct Schedule {
  uint64_t seed;
  int policy, threads;
};

Outcome run_once(const lathe::Compiler& compiler, const Setup& s, const Call& c,
                 const ref::Attention& a, const ref::AttentionForward& forward,
                 const Schedule& schedule, const std::string& arch = "sm_80") {
  sim::test::Device device(arch);
  device.settings.seed = schedule.seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(schedule.policy);
  device.settings.threads = schedule.threads;
  return Launch(device, kernels_of(compiler, s, arch), s, c).run(a, forward);
}

// Words of the tokens [begin, end).
std::vector<uint16_t> tokens(const std::vector<uint16_t>& words, int row, int64_t begin,
                             int64_t end) {
  return {words.begin() + begin * row, words.begin() + end * row};
}
bool all_zero(const std::vector<uint16_t>& words) {
  return std::all_of(words.begin(), words.end(), [](uint16_t word) { return word << 1 == 0; });
}

}  // namespace

TEST_CASE("attention_backward: ten schedules give the same bits") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const Setup& s : {kOrdered, kPackedApart, kPlain}) {
    Call c;
    c.rows = {100}, c.keys = {190};
    if (s.has("packed")) c.rows = {40, 0, 70}, c.keys = {140, 3, 90}, c.padding_q = 5;
    c.kv_heads = 1, c.group = 2, c.head_dim = 128, c.value_dim = 120;
    c.softcap = 3, c.slices = 2;
    if (s.has("local")) c.left = 90, c.right = 0;
    const ref::Attention a = make_input(s, c);
    const ref::AttentionForward forward = ref::attention_forward(a);
    std::optional<Outcome> first;
    for (uint64_t turn = 0; turn < (s.has("ordered") ? 10 : 4); ++turn) {
      CAPTURE(turn);
      const Schedule schedule = {100 + turn, static_cast<int>(turn % 3), turn % 2 == 0 ? 1 : 2};
      const Outcome outcome = run_once(*nvrtc, s, c, a, forward, schedule);
      if (!first) first = outcome;
      if (s.has("ordered")) CHECK(outcome.dq == first->dq);
      CHECK(outcome.dk == first->dk);
      CHECK(outcome.dv == first->dv);
      CHECK(outcome.dsinks == first->dsinks);
    }
    expect_gradients(s, a, forward, *first);
  }
}

TEST_CASE("attention_backward: NaN of one sequence stays in it") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  Call c;
  c.rows = {65, 33, 70}, c.keys = {100, 29, 140}, c.padding_q = c.padding_k = 3;
  c.kv_heads = 1, c.group = 2, c.head_dim = 128, c.value_dim = 128, c.softcap = 3;
  c.right = 0;
  ref::Attention a = make_input(kPackedApart, c);
  ref::AttentionForward forward = ref::attention_forward(a);
  const Schedule schedule = {3, 0, 1};
  const Outcome clean = run_once(*nvrtc, kPackedApart, c, a, forward, schedule);
  const auto poison = [](Array* x, int64_t row, const std::vector<int64_t>& begin) {
    std::fill(x->begin() + begin[1] * row, x->begin() + begin[2] * row, std::nan(""));
  };
  const int q_row = 2 * 128, k_row = 128;
  poison(&a.q, q_row, a.begin_q), poison(&a.dout, q_row, a.begin_q);
  poison(&forward.out, q_row, a.begin_q);
  poison(&a.k, k_row, a.begin_k), poison(&a.v, k_row, a.begin_k);
  for (int h = 0; h < 2; ++h) {
    const auto at = forward.lse.begin() + h * a.rows();
    std::fill(at + a.begin_q[1], at + a.begin_q[2], std::nan(""));
  }
  const Outcome outcome = run_once(*nvrtc, kPackedApart, c, a, forward, schedule);
  for (const int n : {0, 2}) {
    const auto same = [n](const auto& x, const auto& y, int row,
                          const std::vector<int64_t>& begin) {
      return tokens(x, row, begin[n], begin[n + 1]) == tokens(y, row, begin[n], begin[n + 1]);
    };
    CHECK(same(outcome.dq, clean.dq, q_row, a.begin_q));
    CHECK(same(outcome.dk, clean.dk, k_row, a.begin_k));
    CHECK(same(outcome.dv, clean.dv, k_row, a.begin_k));
  }
  CHECK(all_zero(tokens(outcome.dq, q_row, a.begin_q[3], a.rows())));
  CHECK(all_zero(tokens(outcome.dk, k_row, a.begin_k[3], a.begin_k[3] + 3)));
  CHECK(all_zero(tokens(outcome.dv, k_row, a.begin_k[3], a.begin_k[3] + 3)));
}

TEST_CASE("attention_backward: empty sequences, and nothing but padding") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  struct Lengths {
    std::vector<int> rows, keys;
  };
  for (const Lengths& lengths : {Lengths{{0, 5, 0, 17, 0}, {0, 0, 9, 40, 0}},
                                 Lengths{{0, 0}, {0, 0}}, Lengths{{4}, {0}}, Lengths{{0}, {6}}}) {
    Call c;
    c.rows = lengths.rows, c.keys = lengths.keys, c.padding_q = 2, c.padding_k = 130;
    c.head_dim = 96, c.value_dim = 88, c.right = 0, c.seed = 4;
    ref::Attention a = make_input(kPacked, c);
    ref::AttentionForward forward = ref::attention_forward(a);
    const Outcome outcome = run_once(*nvrtc, kPacked, c, a, forward, {1, 2, 1});
    expect_gradients(kPacked, a, forward, outcome);
    if (std::count(c.keys.begin(), c.keys.end(), 0) == std::ptrdiff_t(c.keys.size())) {
      CHECK(all_zero(outcome.dq));
      CHECK(all_zero(outcome.dk));
    }
  }
}

TEST_CASE("attention_backward: causal rows above the first key have no gradient at all") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  Call c;
  c.rows = {190}, c.keys = {60}, c.head_dim = c.value_dim = 128, c.right = 0, c.seed = 2;
  ref::Attention a = make_input(kOrdered, c);
  const ref::AttentionForward forward = ref::attention_forward(a);
  const Outcome outcome = run_once(*nvrtc, kOrdered, c, a, forward, {1, 1, 1});
  CHECK(all_zero(tokens(outcome.dq, 128, 0, 130)));
  CHECK(!all_zero(tokens(outcome.dq, 128, 131, 190)));
  expect_gradients(kOrdered, a, forward, outcome);
}

TEST_CASE("attention_backward: scores far below zero do not overflow behind the last key") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  Call c;
  c.rows = {70}, c.keys = {70}, c.head_dim = c.value_dim = 128, c.scale = 1;
  ref::Attention a = make_input(kPlain, c);
  for (double& x : a.q) x = numbers::rounded(kPlain.element, 4 + x / 64);
  for (double& x : a.k) x = numbers::rounded(kPlain.element, x / 64 - 4);
  const ref::AttentionForward forward = ref::attention_forward(a);
  REQUIRE(forward.lse[0] < -1000);
  expect_gradients(kPlain, a, forward, run_once(*nvrtc, kPlain, c, a, forward, {1, 0, 1}));
}

TEST_CASE("attention_backward: five products for each tile that the mask leaves, on sm_90a too") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  Call c;
  c.rows = {256}, c.keys = {256}, c.head_dim = c.value_dim = 128, c.right = 0;
  // Of 4 by 2 tiles of 64 by 128 the diagonal leaves 4 and 2.
  const uint64_t expected = 5ull * 6 * 2 * 64 * 128 * 128;
  Setup unordered = kOrdered;
  unordered.flags = "local";
  for (const bool ordered : {true, false}) {
    const Setup& s = ordered ? kOrdered : unordered;
    const std::string arch = ordered ? "sm_80" : "sm_90a";
    const ref::Attention input = make_input(s, c);
    const ref::AttentionForward given = ref::attention_forward(input);
    const Outcome outcome = run_once(*nvrtc, s, c, input, given, {1, 2, 2}, arch);
    CHECK(outcome.counters.tensor_ops == expected);
    CHECK(outcome.counters.local_load.requests == 0);
    CHECK(outcome.counters.shared_load.conflicts == 0);
    CHECK(outcome.counters.shared_store.conflicts == 0);
    expect_gradients(s, input, given, outcome);
  }
}
