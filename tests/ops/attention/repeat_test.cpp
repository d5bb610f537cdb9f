// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention over ten schedules: the order of warps, of blocks' additions
// and of what is asynchronous differs, results must not.
#include "tests/harness/repeat.h"

#include <cstdlib>

#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

// Float32 sums of another order, rounded to bf16: at most one step, and rounding errors near 0.
bool within_two_roundings(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const double larger = std::max(std::abs(a[i]), std::abs(b[i]));
    if (!(std::abs(a[i] - b[i]) <= larger * 0x1p-7 + 1e-6)) return false;
  }
  return true;
}

// No schedule changes a bit of any output, `but` one, which may differ by its last place.
void check_schedules(const AttentionCase& c, const std::string& but = "") {
  INFO(c.text());
  const ref::Attention inputs = make_inputs(c);
  const Answer answer = check_repeats(
      10, [&] { return run_attention(make_context().get(), c, inputs); }, but,
      within_two_roundings);
  check_attention(c, inputs, answer);
}

AttentionCase sample() {
  AttentionCase c{.kv_heads = 1, .group = 3};
  c.queries = {130, 130}, c.keys = {300, 300};
  c.causal = c.sinks = c.backward = c.dlse = true;
  return c;
}

EVERY_FAMILY_CASE("attention: deterministic gradients are the same bits under ten schedules") {
  AttentionCase c = sample();
  c.deterministic = true;
  check_schedules(c);
  c.group = 1;
  c.head_dim = 96, c.value_dim = 40;
  c.softcap = 5;
  check_schedules(c);
}

EVERY_FAMILY_CASE("attention: packed and with every option they are too") {
  AttentionCase c{.dtype = LATHE_F16, .head_dim = 128, .value_dim = 120, .group = 2};
  c.queries = {40, 0, 70}, c.keys = {140, 3, 90}, c.padding_q = 5;
  c.left = 90, c.right = 0, c.softcap = 3, c.slopes = Slopes::per_head;
  c.packed = c.backward = c.deterministic = true;
  check_schedules(c);
}

EVERY_FAMILY_CASE("attention: one sequence of wide heads in a window, with sinks, is too") {
  AttentionCase c{.dtype = LATHE_F16, .head_dim = 128, .value_dim = 120, .group = 2};
  c.queries = {100}, c.keys = {190}, c.left = 90, c.right = 0;
  c.sinks = c.backward = c.deterministic = true;
  check_schedules(c);
}

EVERY_FAMILY_CASE("attention: without asking for it all but dq are") {
  check_schedules(sample(), "dq");
  AttentionCase c{.head_dim = 128, .value_dim = 120, .group = 2, .queries = {100}, .keys = {190}};
  c.backward = true;
  check_schedules(c, "dq");
}

// A persistent kernel deals its tiles out to as many blocks as there are multiprocessors.
EVERY_FAMILY_CASE("attention: grids of one, two, three and many blocks give the same bits") {
  AttentionCase packed{.kv_heads = 2, .queries = {130, 3, 0, 200}, .keys = {260, 0, 5, 390}};
  packed.packed = true;
  AttentionCase causal{.head_dim = 128, .value_dim = 128, .kv_heads = 3};
  causal.queries = {300}, causal.keys = {460}, causal.causal = true;
  for (const AttentionCase& c : {packed, causal}) {
    INFO(c.text());
    const ref::Attention inputs = make_inputs(c);
    Answer first;
    for (const char* multiprocessors : {"1", "2", "3", "132"}) {
      CAPTURE(multiprocessors);
      const auto answers = in_child(schedule_number(0), [&](const Give& give) {
        setenv("LATHE_SIM_MULTIPROCESSORS", multiprocessors, 1);
        give([&] { return run_attention(make_context().get(), c, inputs); });
      });
      REQUIRE(answers.size() == 1);
      if (first.outputs.empty()) {
        first = answers.front();
        check_attention(c, inputs, first);
      }
      check_clean(answers.front());
      for (const auto& [name, values] : first.outputs) {
        CHECK(same_bits(values, answers.front().at(name)));
      }
    }
  }
}

EVERY_FAMILY_CASE("attention over ranks: any interleaving of ranks gives the same bits") {
  AttentionCase c = sample();
  c.queries = {70, 70}, c.keys = {90, 90};
  c.deterministic = true;
  const ref::Attention inputs = make_inputs(c);
  for (const unsigned flags : {0u, unsigned{LATHE_ALLGATHER | LATHE_REDUCE_PARAMETER_GRADS}}) {
    const Ranks ranks = {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = flags};
    INFO(ranks.text());
    const Answer answer = check_repeats(6, [&] {
      Answer own;
      own.outputs = run_attention_ranks(c, inputs, ranks).outputs;
      return own;
    });
    check_attention(c, inputs, answer);
  }
}

}  // namespace
