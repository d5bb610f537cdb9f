// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover rings as a caller of the C API writes them: flash_attention_block step by step,
// lse_merge for the sinks and the rounding, flash_attention_delta once, flash_attention_block_bwd
// step by step, by attention ranges and by positions. Against whole attention in double, with every
// buffer's surroundings watched.
#include <algorithm>
#include <random>

#include "reference/attention.h"
#include "tests/harness/caller.h"
#include "tests/numbers.h"
#include "tests/ops/attention/block/ring_tokens.h"

using namespace apitest;

namespace {

constexpr int64_t kHeads = 4, kKeyHeads = 2, kValueWidth = 64;
constexpr lathe_dtype kType = LATHE_BF16;

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
  const auto total = static_cast<int64_t>(all.size()) / kHeads;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (const int64_t t : tokens) some.push_back(all[static_cast<size_t>(h * total + t)]);
  }
  return some;
}

void check_close(const char* what, const Values& found, const Values& expected, double tolerance) {
  double most = 1;
  for (const double value : expected) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  check_near(found, expected, tolerance * most, 0, what);
}

ref::Attention whole_attention(const Ring& ring) {
  ref::Attention a;
  a.heads = kHeads, a.kv_heads = kKeyHeads, a.head_dim = ring.width, a.value_dim = kValueWidth;
  a.begin_q = a.begin_k = ring.documents;
  a.scale = std::pow(static_cast<double>(ring.width), -0.5), a.softcap = ring.softcap ? 5 : 0;
  a.window_left = ring.window_left, a.window_right = ring.window_right;
  const int64_t tokens = ring.tokens();
  a.q = random_values(kType, tokens * kHeads * ring.width, 3);
  a.k = random_values(kType, tokens * kKeyHeads * ring.width, 4);
  a.v = random_values(kType, tokens * kKeyHeads * kValueWidth, 5);
  a.dout = random_values(kType, tokens * kHeads * kValueWidth, 6);
  a.dlse = random_values(LATHE_F32, tokens * kHeads, 7);
  if (ring.sinks) a.sinks = {1, -ref::kInfinity, 0.5, 2};
  if (ring.alibi) a.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  return a;
}

// One rank of a ring: its tensors, and its steps.
class Rank {
 public:
  Rank(const Ring& ring, const ref::Attention& a, int64_t rank, bool positions)
      : ring_(ring), a_(a), rank_(rank), positions_(positions), rows_(tokens_of(ring, rank)) {
    near_ = {"ranges"};
    if (positions) near_ = {"q_pos", "k_pos"};
    if (ring.alibi)
      near_.push_back("alibi_slopes"),
          caller.put("alibi_slopes", LATHE_F32, {kHeads}, a.alibi_slopes);
    caller.put("q", kType, {rows(), kHeads, ring.width}, gather(a.q, rows_, kHeads * ring.width));
    caller.put("q_pos", LATHE_I32, {rows()}, Values(rows_.begin(), rows_.end()));
    if (ring.sinks) caller.put("sinks", LATHE_F32, {kHeads}, a.sinks);
  }
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  const std::vector<int64_t>& tokens() const { return rows_; }

  // A block arrives.
  std::vector<int64_t> bring(int64_t owner, bool all_pairs = false) {
    const std::vector<int64_t> keys = tokens_of(ring_, owner);
    const auto length = static_cast<int64_t>(keys.size());
    caller.put("k", kType, {length, kKeyHeads, ring_.width},
               gather(a_.k, keys, kKeyHeads * ring_.width));
    caller.put("v", kType, {length, kKeyHeads, kValueWidth},
               gather(a_.v, keys, kKeyHeads * kValueWidth));
    const Values ranges = pairs_of(ring_, rank_, owner, all_pairs);
    caller.put("ranges", LATHE_I32, {static_cast<int64_t>(ranges.size()) / 7, 7}, ranges);
    caller.put("k_pos", LATHE_I32, {length}, Values(keys.begin(), keys.end()));
    return keys;
  }
  void step(bool first) {
    run("flash_attention_block", {"q", "k", "v", "out", "lse"}, {{"first", first ? "1" : "0"}});
  }
  void forward(const std::vector<int64_t>& owners) {
    put_state(Values(static_cast<size_t>(rows() * kHeads * kValueWidth), NAN),
              Values(static_cast<size_t>(rows() * kHeads), NAN));
    for (const int64_t owner : owners) bring(owner), step(owner == owners.front());
  }
  void put_state(const Values& out, const Values& lse) {
    caller.put("out", LATHE_F32, {rows(), kHeads, kValueWidth}, out);
    caller.put("lse", LATHE_F32, {kHeads, rows()}, lse);
  }
  // Sinks, and what the element type leaves of out.
  void finish() {
    caller.put("rounded", kType, {rows(), kHeads, kValueWidth},
               Values(static_cast<size_t>(rows() * kHeads * kValueWidth)));
    std::vector<std::string> names = {"out", "lse", "rounded"};
    if (ring_.sinks) names.push_back("sinks");
    caller.run("lse_merge", names, {});
    Values rounded = caller.get("out");
    for (double& value : rounded) value = numbers::rounded(kType, value);
    CHECK(caller.get("rounded") == rounded);
  }
  void delta() {
    caller.put("dout", kType, {rows(), kHeads, kValueWidth},
               gather(a_.dout, rows_, kHeads * kValueWidth));
    caller.put("dlse", LATHE_F32, {kHeads, rows()}, gather_rows(a_.dlse, rows_));
    caller.put("delta", LATHE_F32, {kHeads, rows()},
               Values(static_cast<size_t>(rows() * kHeads), NAN));
    caller.put("dsinks", LATHE_F32, {kHeads}, Values(kHeads, NAN));
    std::map<std::string, std::string> names = {{"out", "rounded"}, {"delta", "delta"}};
    for (const char* name : {"dout", "lse", "dlse"}) names[name] = name;
    for (const char* name : {"sinks", "dsinks"}) {
      if (ring_.sinks) names[name] = name;
    }
    caller.run("flash_attention_delta", names, {});
  }
  void run(const std::string& op, std::vector<std::string> names,
           const std::map<std::string, std::string>& more) {
    names.insert(names.end(), near_.begin(), near_.end());
    auto options = ring_.options();
    options.insert(more.begin(), more.end());
    caller.run(op, names, options);
  }

  Caller caller;

 private:
  const Ring& ring_;
  const ref::Attention& a_;
  int64_t rank_;
  bool positions_;
  std::vector<int64_t> rows_;
  std::vector<std::string> near_;
};

struct Totals {
  Values dk, dv, dsinks = Values(kHeads);
};
void scatter(Values* all, const Values& some, const std::vector<int64_t>& tokens, int64_t columns) {
  for (size_t i = 0; i < some.size(); ++i) {
    const auto token = static_cast<size_t>(tokens[i / static_cast<size_t>(columns)]);
    (*all)[token * static_cast<size_t>(columns) + i % static_cast<size_t>(columns)] += some[i];
  }
}

// Everything that one rank does; what it adds to blocks of others goes into `totals`.
void run_rank(const Ring& ring, const ref::Attention& a, const ref::AttentionForward& forward,
              const ref::AttentionBackward& exact, int64_t number, bool positions, Totals* totals) {
  Rank rank(ring, a, number, positions);
  std::vector<int64_t> owners;
  for (int64_t i = 0; i < ring.ranks; ++i) owners.push_back((number - i + ring.ranks) % ring.ranks);
  const auto check_forward = [&] {
    rank.finish();
    check_close("out", rank.caller.get("out"),
                gather(forward.out, rank.tokens(), kHeads * kValueWidth), 0x1p-8);
    check_close("lse", rank.caller.get("lse"), gather_rows(forward.lse, rank.tokens()), 1e-5);
  };
  rank.forward(owners);
  const Values out = rank.caller.get("out"), lse = rank.caller.get("lse");
  if (number == 0) {  // the same order gives the same bits, and any other the same result
    rank.forward(owners);
    CHECK(same_bits(rank.caller.get("out"), out));
    CHECK(rank.caller.get("lse") == lse);
    std::vector<int64_t> shuffled = owners;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(9));
    rank.forward(shuffled);
    check_forward();
    rank.put_state(out, lse);
  }
  check_forward();
  rank.delta();
  for (int64_t h = 0; ring.sinks && h < kHeads; ++h) {
    totals->dsinks[static_cast<size_t>(h)] += rank.caller.get("dsinks")[static_cast<size_t>(h)];
  }
  const auto zeros = [&](const char* name, int64_t tokens, int64_t heads, int64_t width) {
    rank.caller.put(name, LATHE_F32, {tokens, heads, width},
                    Values(static_cast<size_t>(tokens * heads * width)));
  };
  zeros("dq", rank.rows(), kHeads, ring.width);
  for (const int64_t owner : owners) {
    const std::vector<int64_t> keys = rank.bring(owner);
    const auto length = static_cast<int64_t>(keys.size());
    zeros("dk", length, kKeyHeads, ring.width), zeros("dv", length, kKeyHeads, kValueWidth);
    rank.run("flash_attention_block_bwd", {"q", "k", "v", "dout", "lse", "delta", "dq", "dk", "dv"},
             {{"deterministic", positions || ring.ranks == 4 ? "1" : "0"}});
    scatter(&totals->dk, rank.caller.get("dk"), keys, kKeyHeads * ring.width);
    scatter(&totals->dv, rank.caller.get("dv"), keys, kKeyHeads * kValueWidth);
  }
  check_close("dq", rank.caller.get("dq"), gather(exact.dq, rank.tokens(), kHeads * ring.width),
              0x1p-7);
}

}  // namespace

TEST_CASE("a ring through the C API equals whole attention") {
  for (const Ring& ring : kRings) {
    CAPTURE(&ring - kRings.data());
    const ref::Attention a = whole_attention(ring);
    const ref::AttentionForward forward = ref::attention_forward(a);
    const ref::AttentionBackward exact = ref::attention_backward(a, forward);
    for (const bool positions : {false, true}) {
      if (positions && ring.documents.size() > 2) continue;  // positions know of no documents
      CAPTURE(positions);
      Totals totals{Values(a.k.size()), Values(a.v.size())};
      for (int64_t rank = 0; rank < ring.ranks; ++rank) {
        run_rank(ring, a, forward, exact, rank, positions, &totals);
      }
      check_close("dk", totals.dk, exact.dk, 0x1p-7);
      check_close("dv", totals.dv, exact.dv, 0x1p-7);
      // A sum over all rows of what the rounding of each row's out leaves.
      if (ring.sinks) check_close("dsinks", totals.dsinks, exact.dsinks, 0x1p-5);
    }
  }
}

TEST_CASE("a block outside the window writes nothing") {
  const Ring ring = {Balance::none, 4, {0, 400}, 20, 0};
  const ref::Attention a = whole_attention(ring);
  for (const bool positions : {false, true}) {
    for (const int64_t owner : {0, 1, 2}) {
      Rank rank(ring, a, 3, positions);
      rank.put_state(Values(static_cast<size_t>(rank.rows() * kHeads * kValueWidth), NAN),
                     Values(static_cast<size_t>(rank.rows() * kHeads), 2.5));
      rank.bring(owner, true);
      rank.step(false);
      const Values out = rank.caller.get("out"), lse = rank.caller.get("lse");
      size_t changed = 0;
      for (int64_t i = 0; i < rank.rows() * kHeads; ++i) {
        const int64_t row = i % rank.rows(), head = i / rank.rows();
        if (owner == 2 && row < 20) continue;  // whose window reaches into the block
        changed += lse[static_cast<size_t>(i)] != 2.5;
        for (int64_t c = 0; c < kValueWidth; ++c) {
          changed += !std::isnan(out[static_cast<size_t>((row * kHeads + head) * kValueWidth + c)]);
        }
      }
      CHECK(changed == 0);
    }
  }
}

TEST_CASE("steps without rows, keys or ranges") {
  Caller caller;
  const auto step = [&](int64_t rows, int64_t keys, int64_t ranges, const char* first) {
    constexpr int64_t kWidth = 72;
    const auto put = [&](const char* name, lathe_dtype dtype, int64_t tokens, int64_t heads,
                         int64_t width, double value) {
      caller.put(name, dtype, {tokens, heads, width},
                 Values(static_cast<size_t>(tokens * heads * width), value));
    };
    const auto cells = static_cast<size_t>(rows * kHeads);
    const Values lse(cells, 1.25);
    put("q", kType, rows, kHeads, kWidth, 1), put("dout", kType, rows, kHeads, kValueWidth, 1);
    put("k", kType, keys, kKeyHeads, kWidth, 1), put("v", kType, keys, kKeyHeads, kValueWidth, 1);
    put("out", LATHE_F32, rows, kHeads, kValueWidth, 3.5);
    put("dq", LATHE_F32, rows, kHeads, kWidth, 2), put("dk", LATHE_F32, keys, kKeyHeads, kWidth, 2);
    put("dv", LATHE_F32, keys, kKeyHeads, kValueWidth, 2);
    caller.put("ranges", LATHE_I32, {ranges, 7}, Values(static_cast<size_t>(ranges * 7), 0));
    caller.put("lse", LATHE_F32, {kHeads, rows}, lse);
    caller.put("delta", LATHE_F32, {kHeads, rows}, lse);
    caller.run("flash_attention_block", {"q", "k", "v", "ranges", "lse", "out"},
               {{"first", first}});
    const bool fresh = std::string(first) == "1";
    CHECK(caller.get("out") == Values(cells * kValueWidth, fresh ? 0.0 : 3.5));
    CHECK(caller.get("lse") == (fresh ? Values(cells, -ref::kInfinity) : lse));
    caller.put("lse", LATHE_F32, {kHeads, rows}, lse);
    for (const char* deterministic : {"0", "1"}) {
      caller.run("flash_attention_block_bwd",
                 {"q", "k", "v", "ranges", "lse", "dout", "delta", "dq", "dk", "dv"},
                 {{"deterministic", deterministic}});
      for (const char* name : {"dq", "dk", "dv"}) {
        const int64_t tokens = std::string(name) == "dq" ? rows * kHeads : keys * kKeyHeads;
        const int64_t width = std::string(name) == "dv" ? kValueWidth : kWidth;
        CHECK(caller.get(name) == Values(static_cast<size_t>(tokens * width), 2));
      }
    }
  };
  for (const char* first : {"0", "1"}) {
    step(5, 7, 0, first);  // no pair
    step(5, 7, 1, first);  // an empty one
    step(5, 0, 1, first);
    step(0, 7, 1, first);
  }
}
