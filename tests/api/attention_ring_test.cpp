// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A ring as a caller of the C API writes it: flash_attention_block step by step, lse_merge for the
// sinks and the rounding, flash_attention_delta once, flash_attention_block_bwd step by step.
// Against whole attention in double, with every buffer's surroundings watched.
#include <doctest/doctest.h>

#include <random>

#include "tests/api/caller.h"
#include "tests/numbers.h"
#include "tests/ref/attention.h"

using namespace apitest;

namespace {

constexpr int64_t kHeads = 4, kKeyHeads = 2, kWidth = 72, kValueWidth = 64, kRanks = 2;
constexpr int64_t kTokens = 205;
constexpr lathe_dtype kType = LATHE_BF16;

// Head and tail of the sequence, cut into 2 * kRanks chunks.
std::vector<std::pair<int64_t, int64_t>> shard(int64_t rank) {
  const auto cut = [](int64_t c) { return c * kTokens / (2 * kRanks); };
  return {{cut(rank), cut(rank + 1)}, {cut(2 * kRanks - 1 - rank), cut(2 * kRanks - rank)}};
}
std::vector<int64_t> tokens_of(int64_t rank) {
  std::vector<int64_t> tokens;
  for (const auto& [begin, end] : shard(rank)) {
    for (int64_t t = begin; t < end; ++t) tokens.push_back(t);
  }
  return tokens;
}
Values pairs_of(int64_t rank, int64_t owner) {
  Values words;
  int64_t qa = 0;
  for (const auto& [q, q_end] : shard(rank)) {
    int64_t ka = 0;
    for (const auto& [k, k_end] : shard(owner)) {
      for (const int64_t word : {qa, qa + q_end - q, ka, ka + k_end - k, q - k, q, k}) {
        words.push_back(static_cast<double>(word));
      }
      ka += k_end - k;
    }
    qa += q_end - q;
  }
  return words;
}

Values gather(const Values& all, const std::vector<int64_t>& tokens, int64_t columns) {
  Values some;
  for (const int64_t t : tokens) {
    some.insert(some.end(), all.begin() + t * columns, all.begin() + (t + 1) * columns);
  }
  return some;
}
// [H, all] -> [H, tokens].
Values gather_rows(const Values& all, const std::vector<int64_t>& tokens) {
  Values some;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (const int64_t t : tokens) some.push_back(all[static_cast<size_t>(h * kTokens + t)]);
  }
  return some;
}

void check_near(const char* what, const Values& found, const Values& expected, double tolerance) {
  INFO(std::string(what));
  REQUIRE(found.size() == expected.size());
  double worst = 0, most = 1;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // infinities
    const double error = std::abs(found[i] - expected[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
    most = std::max(most, std::abs(expected[i]));
  }
  CHECK(worst <= tolerance * most);
}

ref::Attention whole_attention() {
  ref::Attention a;
  a.heads = kHeads, a.kv_heads = kKeyHeads, a.head_dim = kWidth, a.value_dim = kValueWidth;
  a.begin_q = a.begin_k = {0, kTokens};
  a.scale = std::pow(static_cast<double>(kWidth), -0.5);
  a.causal = true;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const auto fill = [&](ref::Array* to, int64_t count, lathe_dtype dtype) {
    for (int64_t i = 0; i < count; ++i) to->push_back(numbers::rounded(dtype, normal(random)));
  };
  fill(&a.q, kTokens * kHeads * kWidth, kType);
  fill(&a.k, kTokens * kKeyHeads * kWidth, kType);
  fill(&a.v, kTokens * kKeyHeads * kValueWidth, kType);
  fill(&a.dout, kTokens * kHeads * kValueWidth, kType);
  fill(&a.dlse, kTokens * kHeads, LATHE_F32);
  fill(&a.sinks, kHeads, LATHE_F32);
  return a;
}

struct Totals {
  Values dk = Values(kTokens * kKeyHeads * kWidth), dv = Values(kTokens * kKeyHeads * kValueWidth);
  Values dsinks = Values(kHeads);
};

// Everything that one rank does; what it adds to blocks of others goes into `totals`.
void run_rank(lathe_context* context, const ref::Attention& a, const ref::AttentionForward& forward,
              const ref::AttentionBackward& exact, int64_t rank, bool positions, Totals* totals) {
  Caller caller(context);
  const std::vector<int64_t> rows = tokens_of(rank);
  const auto count = static_cast<int64_t>(rows.size());
  const auto scatter = [](Values* all, const Values& some, const std::vector<int64_t>& tokens,
                          int64_t columns) {
    for (size_t i = 0; i < some.size(); ++i) {
      const auto token = static_cast<size_t>(tokens[i / columns]);
      (*all)[token * columns + i % columns] += some[i];
    }
  };
  caller.put("q", kType, {count, kHeads, kWidth}, gather(a.q, rows, kHeads * kWidth));
  caller.put("out", LATHE_F32, {count, kHeads, kValueWidth},
             Values(count * kHeads * kValueWidth, NAN));
  caller.put("lse", LATHE_F32, {kHeads, count}, Values(count * kHeads, NAN));
  caller.put("sinks", LATHE_F32, {kHeads}, a.sinks);
  caller.put("q_pos", LATHE_I32, {count}, Values(rows.begin(), rows.end()));
  std::map<std::string, std::string> near = {{"pairs", "pairs"}};
  if (positions) near = {{"q_pos", "q_pos"}, {"k_pos", "k_pos"}};
  const auto bring = [&](int64_t owner) {  // a block arrives
    const std::vector<int64_t> keys = tokens_of(owner);
    const auto length = static_cast<int64_t>(keys.size());
    caller.put("k", kType, {length, kKeyHeads, kWidth}, gather(a.k, keys, kKeyHeads * kWidth));
    caller.put("v", kType, {length, kKeyHeads, kValueWidth},
               gather(a.v, keys, kKeyHeads * kValueWidth));
    caller.put("pairs", LATHE_I32, {4, 7}, pairs_of(rank, owner));
    caller.put("k_pos", LATHE_I32, {length}, Values(keys.begin(), keys.end()));
    return keys;
  };
  const auto with = [&](std::map<std::string, std::string> names) {
    names.insert(near.begin(), near.end());
    return names;
  };
  for (int64_t step = 0; step < kRanks; ++step) {
    bring((rank - step + kRanks) % kRanks);
    caller.run("flash_attention_block",
               with({{"q", "q"}, {"k", "k"}, {"v", "v"}, {"out", "out"}, {"lse", "lse"}}),
               {{"causal", "1"}, {"first", step == 0 ? "1" : "0"}});
  }
  caller.put("rounded", kType, {count, kHeads, kValueWidth}, Values(count * kHeads * kValueWidth));
  caller.run("lse_merge",
             {{"out", "out"}, {"lse", "lse"}, {"sinks", "sinks"}, {"rounded", "rounded"}}, {});
  check_near("out", caller.get("out"), gather(forward.out, rows, kHeads * kValueWidth), 0x1p-8);
  check_near("lse", caller.get("lse"), gather_rows(forward.lse, rows), 1e-5);
  Values rounded = caller.get("out");
  for (double& value : rounded) value = numbers::rounded(kType, value);
  CHECK(caller.get("rounded") == rounded);

  caller.put("dout", kType, {count, kHeads, kValueWidth},
             gather(a.dout, rows, kHeads * kValueWidth));
  caller.put("dlse", LATHE_F32, {kHeads, count}, gather_rows(a.dlse, rows));
  caller.put("delta", LATHE_F32, {kHeads, count}, Values(count * kHeads, NAN));
  caller.put("dsinks", LATHE_F32, {kHeads}, Values(kHeads, NAN));
  caller.run("flash_attention_delta",
             {{"out", "rounded"},
              {"dout", "dout"},
              {"lse", "lse"},
              {"dlse", "dlse"},
              {"sinks", "sinks"},
              {"delta", "delta"},
              {"dsinks", "dsinks"}},
             {});
  const Values dsinks = caller.get("dsinks");
  for (int64_t h = 0; h < kHeads; ++h) totals->dsinks[h] += dsinks[h];
  caller.put("dq", LATHE_F32, {count, kHeads, kWidth}, Values(count * kHeads * kWidth));
  for (int64_t step = 0; step < kRanks; ++step) {
    const std::vector<int64_t> keys = bring((rank - step + kRanks) % kRanks);
    const auto length = static_cast<int64_t>(keys.size());
    caller.put("dk", LATHE_F32, {length, kKeyHeads, kWidth}, Values(length * kKeyHeads * kWidth));
    caller.put("dv", LATHE_F32, {length, kKeyHeads, kValueWidth},
               Values(length * kKeyHeads * kValueWidth));
    caller.run("flash_attention_block_bwd",
               with({{"q", "q"},
                     {"k", "k"},
                     {"v", "v"},
                     {"dout", "dout"},
                     {"lse", "lse"},
                     {"delta", "delta"},
                     {"dq", "dq"},
                     {"dk", "dk"},
                     {"dv", "dv"}}),
               {{"causal", "1"}, {"deterministic", positions ? "1" : "0"}});
    scatter(&totals->dk, caller.get("dk"), keys, kKeyHeads * kWidth);
    scatter(&totals->dv, caller.get("dv"), keys, kKeyHeads * kValueWidth);
  }
  check_near("dq", caller.get("dq"), gather(exact.dq, rows, kHeads * kWidth), 0x1p-7);
}

}  // namespace

TEST_CASE("a ring through the C API equals whole attention") {
  const Context context = make_context();
  const ref::Attention a = whole_attention();
  const ref::AttentionForward forward = ref::attention_forward(a);
  const ref::AttentionBackward exact = ref::attention_backward(a, forward);
  for (const bool positions : {false, true}) {
    CAPTURE(positions);
    Totals totals;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      run_rank(context.get(), a, forward, exact, rank, positions, &totals);
    }
    check_near("dk", totals.dk, exact.dk, 0x1p-7);
    check_near("dv", totals.dv, exact.dv, 0x1p-7);
    // A sum over all rows of what the rounding of each row's out leaves.
    check_near("dsinks", totals.dsinks, exact.dsinks, 0x1p-5);
    const Report report = take_report();
    CHECK(report.findings == std::vector<std::string>{});
  }
}

TEST_CASE("steps without rows, keys or pairs") {
  const Context context = make_context();
  Caller caller(context.get());
  const auto step = [&](int64_t rows, int64_t keys, int64_t pairs, const char* first) {
    const Values out(rows * kHeads * kValueWidth, 3.5), lse(rows * kHeads, 1.25);
    caller.put("q", kType, {rows, kHeads, kWidth}, Values(rows * kHeads * kWidth, 1));
    caller.put("k", kType, {keys, kKeyHeads, kWidth}, Values(keys * kKeyHeads * kWidth, 1));
    caller.put("v", kType, {keys, kKeyHeads, kValueWidth},
               Values(keys * kKeyHeads * kValueWidth, 1));
    caller.put("pairs", LATHE_I32, {pairs, 7}, Values(pairs * 7, 0));
    caller.put("out", LATHE_F32, {rows, kHeads, kValueWidth}, out);
    caller.put("lse", LATHE_F32, {kHeads, rows}, lse);
    caller.put("dout", kType, {rows, kHeads, kValueWidth}, Values(rows * kHeads * kValueWidth, 1));
    caller.put("dq", LATHE_F32, {rows, kHeads, kWidth}, Values(rows * kHeads * kWidth, 2));
    caller.put("dk", LATHE_F32, {keys, kKeyHeads, kWidth}, Values(keys * kKeyHeads * kWidth, 2));
    caller.put("dv", LATHE_F32, {keys, kKeyHeads, kValueWidth},
               Values(keys * kKeyHeads * kValueWidth, 2));
    const std::map<std::string, std::string> inputs = {
        {"q", "q"}, {"k", "k"}, {"v", "v"}, {"pairs", "pairs"}, {"lse", "lse"}};
    std::map<std::string, std::string> forward = inputs, backward = inputs;
    forward["out"] = "out";
    caller.run("flash_attention_block", forward, {{"first", first}});
    const bool fresh = std::string(first) == "1";
    CHECK(caller.get("out") == (fresh ? Values(out.size(), 0.0) : out));
    CHECK(caller.get("lse") == (fresh ? Values(lse.size(), -ref::kInfinity) : lse));
    caller.put("lse", LATHE_F32, {kHeads, rows}, lse);
    for (const char* name : {"dout", "dq", "dk", "dv"}) backward[name] = name;
    backward["delta"] = "delta";
    caller.put("delta", LATHE_F32, {kHeads, rows}, lse);
    for (const char* deterministic : {"0", "1"}) {
      caller.run("flash_attention_block_bwd", backward, {{"deterministic", deterministic}});
      CHECK(caller.get("dq") == Values(rows * kHeads * kWidth, 2));
      CHECK(caller.get("dk") == Values(keys * kKeyHeads * kWidth, 2));
      CHECK(caller.get("dv") == Values(keys * kKeyHeads * kValueWidth, 2));
    }
  };
  for (const char* first : {"0", "1"}) {
    step(5, 7, 0, first);  // no pair
    step(5, 7, 1, first);  // an empty one
    step(5, 0, 1, first);
    step(0, 7, 1, first);
  }
  CHECK(take_report().findings == std::vector<std::string>{});
}
