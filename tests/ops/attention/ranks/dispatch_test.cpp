// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks by dispatch equals one rank, to the rounding of partial sums, and
// itself bit for bit from run to run. A rank and one alone take kernels of the same family.
#include "collective/plans/dispatch_plan.h"
#include "tests/ops/attention/ranks/calls.h"

using namespace apitest;

namespace {

Ranks ranks_of(int world, lathe_balance balance) {
  return {
      .world = world, .balance = balance, .flags = LATHE_DISPATCH | LATHE_REDUCE_PARAMETER_GRADS};
}

// Checks the rms of all values together: a sum of rounded products has no better bound for each
// alone.
void check_rms(const std::string& name, const Values& found, const Values& expected, double bound) {
  CAPTURE(name);
  REQUIRE(found.size() == expected.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // infinities
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
  }
  for (const double value : expected) size += std::isfinite(value) ? value * value : 0;
  CHECK(std::sqrt(error) <= bound * std::sqrt(size) + 1e-30);
}

RanksAnswer equals_one_rank(const Call& call, const Ranks& ranks) {
  INFO(ranks.text());
  const Answer one = run(call);
  RanksAnswer many = run_ranks(call, ranks);
  REQUIRE(one.outputs.size() == many.outputs.size());
  const bool exact = call.tensors.at("q").dtype == LATHE_F32;
  for (const auto& [name, values] : one.outputs) {
    const bool rounded = !exact && name != "lse" && name != "dsinks";
    check_rms(name, many.outputs.at(name), values, rounded ? 0x1p-7 : 1e-5);
  }
  return many;
}

CallShape packed(std::vector<int64_t> lengths) {
  CallShape s{.heads = 4, .kv_heads = 2, .cu_q = {0}};
  for (const int64_t length : lengths) s.cu_q.push_back(s.cu_q.back() + length);
  s.queries = s.keys = s.cu_q.back();
  return s;
}

Call causal(const CallShape& s, const char* dispatch = "always") {
  Call call = make_call(s);
  call.options["causal"] = "1";
  call.options["dispatch"] = dispatch;
  return call;
}

}  // namespace

FAMILY_CASE("portable",
            "dispatch: one document, skewed ones and tiny ones over worlds and balances") {
  CallShape one = packed({97});
  one.sinks = one.dlse = true;
  CallShape skewed = packed({70, 3, 1, 0, 20, 9});
  std::vector<int64_t> lengths(100, 1);
  lengths[7] = 5, lengths[50] = 0;
  const CallShape tiny = packed(lengths);
  for (const int world : {2, 3, 8}) {
    equals_one_rank(causal(one), ranks_of(world, LATHE_BALANCE_NONE));
    equals_one_rank(causal(skewed), ranks_of(world, LATHE_BALANCE_HEAD_TAIL));
  }
  equals_one_rank(causal(tiny), ranks_of(3, LATHE_BALANCE_NONE));
  equals_one_rank(causal(skewed, "home"), ranks_of(4, LATHE_BALANCE_NONE));
  equals_one_rank(causal(skewed, "auto"), ranks_of(4, LATHE_BALANCE_PER_DOCUMENT));
  equals_one_rank(causal(tiny), ranks_of(2, LATHE_BALANCE_PER_DOCUMENT));  // packed messages
}

FAMILY_CASE("portable", "dispatch: a batch, rows with gaps, again and again the same bits") {
  CallShape s{.heads = 6, .kv_heads = 3, .batch = 3, .queries = 33, .keys = 33};
  s.sinks = s.dlse = true;
  Call call = causal(s);
  call.draw("alibi_slopes", LATHE_F32, {3, 6}, 8);
  Ranks ranks = ranks_of(3, LATHE_BALANCE_NONE);
  ranks.runs = 3;
  equals_one_rank(call, ranks);
  CallShape p = packed({40, 25});
  ranks = ranks_of(2, LATHE_BALANCE_NONE);
  ranks.runs = 2;
  ranks.flags |= LATHE_NARROW_GRADIENTS;
  Call spaced = causal(p);
  spaced.place({.token_gap = 8, .guard = 32});
  equals_one_rank(spaced, ranks);
}

FAMILY_CASE("portable", "dispatch: windows, every key, float32") {
  CallShape s = packed({50, 31});
  Call window = make_call(s);
  window.options["window_left"] = "13", window.options["window_right"] = "4";
  window.options["softcap"] = "5";
  window.options["dispatch"] = "always";
  equals_one_rank(window, ranks_of(3, LATHE_BALANCE_NONE));
  Call all = make_call(s);
  all.options["dispatch"] = "always";
  equals_one_rank(all, ranks_of(4, LATHE_BALANCE_NONE));
  s.dtype = LATHE_F32;
  s.sinks = true;
  equals_one_rank(causal(s), ranks_of(3, LATHE_BALANCE_NONE));
}

FAMILY_CASE("portable",
            "dispatch: mods are told of sequences, heads and positions as on one rank") {
  const char* score_mod =
      "__device__ float score_mod(float score, int b, int h, int q, int k) {\n"
      "  return score + 0.25f * h + 0.0625f * (b + 1) * (k - q); }\n"
      "__device__ float score_mod_bwd(float dscore, float, int, int, int, int) {\n"
      "  return dscore; }\n";
  const char* mask_mod =
      "__device__ bool mask_mod(int b, int h, int q, int k, const Captures& captures) {\n"
      "  return (q + k) % (h + 2) != 0 || captures.get<0>(b) == h; }\n";
  CallShape batch{.heads = 4, .kv_heads = 2, .batch = 2, .queries = 41, .keys = 41};
  for (const CallShape& s : {packed({40, 0, 25}), batch}) {
    Call call = causal(s);
    call.texts["score_mod"] = score_mod, call.texts["mask_mod"] = mask_mod;
    call.put("capture_0", LATHE_I32, {3}, {0, 1, 2});
    equals_one_rank(call, ranks_of(3, LATHE_BALANCE_NONE));
  }
}

FAMILY_CASE("portable", "dispatch: a backward of its own") {
  CallShape s = packed({60, 20});
  s.sinks = true;
  CallShape forward_only = s;
  forward_only.backward = false;
  const Call forward = causal(forward_only);
  Call backward = causal(s);
  const Ranks ranks = ranks_of(3, LATHE_BALANCE_NONE);
  equals_one_rank(forward, ranks);
  const Answer one = run(forward);
  for (const char* name : {"out", "lse"}) {
    backward.tensors.at(name).values = one.outputs.at(name);
  }
  backward.options["saved_forward"] = "1";
  equals_one_rank(backward, ranks);
}

FAMILY_CASE(
    "portable",
    "dispatch: two groups whatever the plan, the bytes of its copies, none if nothing leaves") {
  CallShape s = packed({70, 3, 24});
  const auto hops = equals_one_rank(causal(s), ranks_of(3, LATHE_BALANCE_NONE)).hops;
  lathe::LayoutOptions options;
  options.world = 3, options.length = s.queries, options.cu_seqlens = s.cu_q;
  lathe::DispatchRules rules;
  rules.choice = lathe::DispatchChoice::always;
  rules.limits = {1, 20, lathe::dispatch_alignment(s.queries, 3)};
  rules.limits.q_bytes = s.heads * (s.width + s.value_width) * 2 * 2;
  rules.limits.kv_bytes = s.kv_heads * (s.width + s.value_width) * 2;
  const auto plan = lathe::plan_dispatch(*lathe::make_layout(options), rules);
  REQUIRE(plan.ok());
  REQUIRE(plan->moved);
  const auto rows = [](const lathe::RowCopies& copies) {
    uint64_t sum = 0;
    for (const lathe::RowCopy& move : copies) sum += move.from == move.to ? 0 : move.rows;
    return sum;
  };
  const uint64_t width = s.width + s.value_width;
  // q, dout and, back, dq, out in 16 bits and lse; k and v once; dk and dv in float32.
  const uint64_t expected = rows(plan->queries) * s.heads * (2 * width * 2 + 4) +
                            rows(plan->keys) * s.kv_heads * width * 2 +
                            rows(plan->gradients) * s.kv_heads * width * 4;
  int64_t sent = 0, received = 0;
  std::map<int, int> groups;
  for (const HopCount& hop : hops) {
    sent += hop.sent, received += hop.received;
    ++groups[hop.rank];
    CHECK(hop.collectives == 0);
  }
  CHECK(static_cast<uint64_t>(sent) == expected);
  CHECK(static_cast<uint64_t>(received) == expected);
  for (const auto& [rank, count] : groups) CHECK(count <= 2);

  CallShape even = packed({20, 20, 20});
  CHECK(equals_one_rank(causal(even), ranks_of(3, LATHE_BALANCE_NONE)).hops.empty());
}

FAMILY_CASE("portable", "dispatch: what it does not cover is refused by name") {
  const auto refused = [](const Call& call, const Ranks& ranks) {
    std::string message;
    try {
      run_ranks(call, ranks);
    } catch (const std::exception& error) {
      message = error.what();
    }
    return message;
  };
  const auto has = [](const std::string& message, const char* part) {
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  };
  CallShape s = packed({20});
  Ranks ranks = ranks_of(2, LATHE_BALANCE_NONE);
  Call call = causal(s);
  call.draw("alibi_slopes", LATHE_F32, {1, 4}, 8);
  has(refused(call, ranks), "alibi_slopes are [B,H]");
  call = causal(s);
  call.options["dispatch_tokens"] = "3";
  has(refused(call, ranks), "the limit is 3");
  CallShape longer{.heads = 2, .kv_heads = 2, .queries = 8, .keys = 12};
  ranks = ranks_of(2, LATHE_BALANCE_NONE);
  has(refused(causal(longer), ranks), "keys are 12 tokens and queries 8");
}
