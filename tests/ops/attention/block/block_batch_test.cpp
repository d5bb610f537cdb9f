// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_block, its gradients and delta through the C API: a call for
// the rows of a batch is as many packed ones, bit by bit.
#include "tests/ops/attention/block/block_step.h"

using namespace apitest;

namespace {

void check_rows_of_batch(lathe_dtype dtype) {
  Step step(dtype);
  for (const Names& near : {Names{"ranges"}, Names{"q_pos", "k_pos"}}) {
    for (const char* first : {"0", "1"}) {
      const auto forward = [&] {
        step.run("flash_attention_block", with(kForward, with(near, {"alibi_slopes"})),
                 {{"causal", "1"}, {"first", first}});
      };
      const auto backward = [&] {
        step.run("flash_attention_block_bwd", with(kBackward, near),
                 {{"window_left", "90"}, {"deterministic", "1"}, {"first", first}});
      };
      step.bring(-1);
      forward(), backward();
      std::map<std::string, Values> found, expected;
      const Names all = {"out", "lse", "dq", "dk", "dv"};
      for (const std::string& name : all) found[name] = step.caller.get(name);
      for (int64_t row = 0; row < kRows; ++row) {
        step.bring(row);
        forward(), backward();
        for (const std::string& name : all) {
          expected[name] = joined(expected[name], step.caller.get(name));
        }
      }
      for (const std::string& name : all) CHECK_MESSAGE(found[name] == expected[name], name);
    }
  }
}

}  // namespace

TEST_CASE("rows of a batch: one call is as many packed ones") {
  for (const lathe_dtype dtype : {LATHE_F16, LATHE_BF16, LATHE_F32}) {
    CAPTURE(static_cast<int>(dtype));
    check_rows_of_batch(dtype);
  }
}

TEST_CASE("rows of a batch: delta and its sinks") {
  Caller caller;
  const int64_t cells = kRows * kHeads * kQueries;
  const Values out = random_values(LATHE_BF16, cells * kWidth, 1),
               dout = random_values(LATHE_BF16, cells * kWidth, 2),
               lse = random_values(LATHE_F32, cells, 3), dlse = random_values(LATHE_F32, cells, 4);
  const std::map<std::string, std::string> names = {
      {"out", "out"},     {"dout", "dout"},   {"lse", "lse"},      {"dlse", "dlse"},
      {"sinks", "sinks"}, {"delta", "delta"}, {"dsinks", "dsinks"}};
  caller.put("sinks", LATHE_F32, {kHeads}, {1, 0.5, -1, 0});
  const auto run = [&](int64_t row) {
    const auto some = [&](const Values& all) { return row < 0 ? all : part(all, row, kRows); };
    std::vector<int64_t> wide = {kQueries, kHeads, kWidth}, narrow = {kHeads, kQueries};
    if (row < 0) wide.insert(wide.begin(), kRows), narrow.insert(narrow.begin(), kRows);
    caller.put("out", LATHE_BF16, wide, some(out)),
        caller.put("dout", LATHE_BF16, wide, some(dout));
    caller.put("lse", LATHE_F32, narrow, some(lse)),
        caller.put("dlse", LATHE_F32, narrow, some(dlse));
    caller.put("delta", LATHE_F32, narrow, some(Values(lse.size(), NAN)));
    caller.put("dsinks", LATHE_F32, {kHeads}, Values(kHeads, NAN));
    caller.run("flash_attention_delta", names, {});
  };
  run(-1);
  const Values found = caller.get("delta"), dsinks = caller.get("dsinks");
  Values expected, sums(kHeads);
  for (int64_t row = 0; row < kRows; ++row) {
    run(row);
    expected = joined(expected, caller.get("delta"));
    const Values own = caller.get("dsinks");
    for (int64_t h = 0; h < kHeads; ++h) sums[h] += own[h];
  }
  CHECK(found == expected);
  for (int64_t h = 0; h < kHeads; ++h) CHECK(dsinks[h] == doctest::Approx(sums[h]).epsilon(1e-5));
}

// One range that covers everything: the same products in the same order.
