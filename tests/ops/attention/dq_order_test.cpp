// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the deterministic backward by warpgroups, whose blocks take turns at the sums
// of dq: every gradient has the same bits whatever the order of warps and of asynchronous
// operations, and whatever the number of multiprocessors, by which more or fewer blocks run beside
// each other.
#include <cstdlib>
#include <functional>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

Answer run_once(const AttentionCase& c, const ref::Attention& inputs, uint64_t number) {
  constexpr const char* kMultiprocessors[] = {"132", "1", "2", "3"};
  constexpr const char* kPolicies[] = {"lazy", "eager", "random"};
  Schedule schedule = schedule_number(number);
  schedule.async = kPolicies[number % 3];
  const auto answers = in_child(schedule, [&](const Give& give) {
    setenv("LATHE_SIM_MULTIPROCESSORS", kMultiprocessors[number % 4], 1);
    give([&] { return run_attention(make_context().get(), c, inputs); });
  });
  return answers.empty() ? Answer() : answers.front();
}

using Mask = std::function<bool(int64_t, int64_t, int64_t, int64_t)>;

void check_bits(AttentionCase c, const Mask& mask = nullptr) {
  c.backward = c.deterministic = true;
  CAPTURE(c.text());
  ref::Attention inputs = make_inputs(c);
  inputs.mask_mod = mask;
  Answer first;
  for (uint64_t number = 0; number < 12; ++number) {
    CAPTURE(number);
    const Answer answer = run_once(c, inputs, number);
    check_clean(answer);
    if (number == 0) {
      first = answer;
      REQUIRE(!first.outputs.empty());
      check_attention(c, inputs, first);
    }
    for (const auto& [name, values] : first.outputs) {
      CAPTURE(name);
      CHECK(same_bits(values, answer.at(name)));
    }
  }
}

}  // namespace

FAMILY_CASE("sm90", "backward in order: packed sequences with sinks, groups of heads") {
  AttentionCase c{.kv_heads = 1, .group = 2};
  c.queries = {400, 0, 130, 3}, c.keys = {300, 5, 390, 129};
  c.padding_q = 5, c.padding_k = 3;
  c.packed = c.sinks = c.dlse = true;
  check_bits(c);
}

FAMILY_CASE("sm90", "backward in order: causal, wider heads, a block for each head of a group") {
  AttentionCase c{.head_dim = 128, .value_dim = 128, .group = 2};
  c.queries = {300, 300}, c.keys = {400, 400};
  c.causal = c.fixed_lengths = true;
  check_bits(c);
}

FAMILY_CASE("sm90", "backward in order: a part of dq that two warpgroups share") {
  AttentionCase c{.head_dim = 192, .value_dim = 128};
  c.queries = {150}, c.keys = {400};
  c.causal = true;
  check_bits(c);
}

FAMILY_CASE("sm90",
            "backward in order: windows, in which tiles of keys have other queries in common") {
  AttentionCase c{.dtype = LATHE_F16, .kv_heads = 2};
  c.queries = {700}, c.keys = {600};
  c.left = 150, c.right = 70, c.slopes = Slopes::per_head;
  check_bits(c);
  c.left = 40, c.right = -1, c.head_dim = c.value_dim = 120, c.softcap = 5;
  check_bits(c);
}

FAMILY_CASE("sm90",
            "backward in order: lists of a mask, by which tiles of keys share few queries") {
  AttentionCase c{.kv_heads = 2};
  c.queries = {500, 0, 200}, c.keys = {600, 5, 390};
  c.packed = true;
  c.texts["mask_mod"] =
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
      "  return (q_idx / 128 + kv_idx / 128 * (head + 1)) % 3 == 0 && (q_idx + kv_idx) % 7 != 3;\n"
      "}\n";
  check_bits(c, [](int64_t, int64_t h, int64_t i, int64_t j) {
    return (i / 128 + j / 128 * (h + 1)) % 3 == 0 && (i + j) % 7 != 3;
  });
}
