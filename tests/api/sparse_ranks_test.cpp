// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention on several ranks equals one rank: rows bit for bit, for what a list names
// is the same in the same order; gradients of keys and sinks to the order of float32 sums. And what
// is sent is what rows may see, in one group each way.
#include <doctest/doctest.h>

#include "tests/api/rank_calls.h"
#include "tests/ref/sparse_inputs.h"

namespace {

using namespace apitest;

struct Case {
  sparse_case::Shape shape;
  bool backward = true;
  uint32_t seed = 1;
};

lathe_context* context() {
  static const Context made = make_context();
  return made.get();
}

std::vector<int64_t> offsets(const std::vector<int>& lengths) {
  std::vector<int64_t> out = {0};
  for (const int length : lengths) out.push_back(out.back() + length);
  return out;
}

class Whole {
 public:
  explicit Whole(const Case& c) : case_(c), a_(sparse_case::make(c.shape, LATHE_BF16, c.seed)) {
    const sparse_case::Shape& s = c.shape;
    put("q", false, a_.heads, a_.head_dim, a_.q);
    put("k", true, a_.kv_heads, a_.head_dim, a_.k);
    if (!s.values_in_keys) put("v", true, a_.kv_heads, a_.value_dim, a_.v);
    if (s.rope_dim > 0) {
      put("q_rope", false, a_.heads, a_.rope_dim, a_.q_rope);
      put("k_rope", true, a_.kv_heads, a_.rope_dim, a_.k_rope);
    }
    call.put("indices", LATHE_I32, shape(false, a_.kv_heads, a_.topk),
             {a_.indices.begin(), a_.indices.end()});
    if (s.q_pos) {
      auto own = shape(false, 1, 1);
      own.resize(own.size() - 2);
      call.put("q_pos", LATHE_I32, own, {a_.q_pos.begin(), a_.q_pos.end()});
    }
    if (s.packed) {
      for (const auto& [name, lengths] :
           {std::pair("cu_seqlens_q", s.rows), std::pair("cu_seqlens_k", s.keys)}) {
        const auto cu = offsets(lengths);
        call.put(name, LATHE_I32, {static_cast<int64_t>(cu.size())}, {cu.begin(), cu.end()});
      }
    }
    if (s.sinks) call.put("sinks", LATHE_F32, {a_.heads}, a_.sinks);
    call.op = "sparse_flash_attention";
    call.options = {{"scale", std::to_string(a_.scale)},
                    {"deterministic", "1"},
                    {"sparse_mode", s.causal ? "3" : "0"},
                    {"block_size", std::to_string(s.block)},
                    {"index_space", s.absolute ? "absolute" : "sequence"}};
    want("out", false, a_.heads, a_.value_dim);
    statistics();
    if (c.backward) gradients();
  }

  Ranks ranks(int world, lathe_balance balance) const {
    const sparse_case::Shape& s = case_.shape;
    Ranks out;
    out.world = world, out.balance = balance;
    out.flags = LATHE_REDUCE_PARAMETER_GRADS;
    out.length = s.packed ? offsets(s.rows).back() : s.rows[0];
    out.key_length = s.packed ? offsets(s.keys).back() : s.keys[0];
    if (s.packed) out.cu_seqlens = offsets(s.rows), out.cu_seqlens_k = offsets(s.keys);
    return out;
  }

  AttentionCall call;

 private:
  std::vector<int64_t> shape(bool keys, int64_t heads, int64_t width) const {
    const auto& lengths = keys ? case_.shape.keys : case_.shape.rows;
    if (case_.shape.packed) return {offsets(lengths).back(), heads, width};
    return {static_cast<int64_t>(lengths.size()), lengths[0], heads, width};
  }
  void put(const char* name, bool keys, int64_t heads, int64_t width, const ref::Array& values) {
    call.put(name, LATHE_BF16, shape(keys, heads, width), values);
  }
  void want(const char* name, bool keys, int64_t heads, int64_t width) {
    call.want(name, LATHE_BF16, shape(keys, heads, width));
  }
  void statistics() {
    const auto rows = shape(false, 1, 1);
    const int64_t kv = a_.kv_heads, g = a_.group();
    if (case_.shape.packed) {
      call.want("lse", LATHE_F32, {a_.heads, rows[0]});
      call.want("softmax_max", LATHE_F32, {kv, rows[0], g});
      call.want("softmax_sum", LATHE_F32, {kv, rows[0], g});
    } else {
      call.want("lse", LATHE_F32, {rows[0], a_.heads, rows[1]});
      call.want("softmax_max", LATHE_F32, {rows[0], kv, rows[1], g});
      call.want("softmax_sum", LATHE_F32, {rows[0], kv, rows[1], g});
    }
  }
  void gradients() {
    const sparse_case::Shape& s = case_.shape;
    put("dout", false, a_.heads, a_.value_dim, a_.dout);
    want("dq", false, a_.heads, a_.head_dim);
    want("dk", true, a_.kv_heads, a_.head_dim);
    if (!s.values_in_keys) want("dv", true, a_.kv_heads, a_.value_dim);
    if (s.rope_dim > 0) {
      want("dq_rope", false, a_.heads, a_.rope_dim);
      want("dk_rope", true, a_.kv_heads, a_.rope_dim);
    }
    if (s.sinks) call.want("dsinks", LATHE_F32, {a_.heads});
  }

  const Case case_;
  const ref::SparseAttention a_;
};

// Sums of the same terms in another order, rounded to bf16 where they were.
void check_sums(const std::string& name, const Values& found, const Values& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const double relative = name == "dsinks" ? 1e-5 : 1.0 / 128;
  for (size_t i = 0; i < found.size(); ++i) {
    const double allowed = relative * std::abs(expected[i]) + 1e-5 * largest;
    if (std::abs(found[i] - expected[i]) <= allowed) continue;
    FAIL_CHECK(name << "[" << i << "] is " << found[i] << ", of one rank " << expected[i]);
    return;
  }
}

void check_equal(const RanksAnswer& many, const AttentionAnswer& one) {
  REQUIRE(many.outputs.size() == one.outputs.size());
  for (const auto& [name, expected] : one.outputs) {
    const Values& found = many.outputs.at(name);
    if (name == "dk" || name == "dv" || name == "dk_rope" || name == "dsinks") {
      check_sums(name, found, expected);
    } else {
      CHECK_MESSAGE(found == expected, name);
    }
  }
}

std::string text(const Ranks& ranks) {
  std::string out = "world " + std::to_string(ranks.world) + " balance " +
                    std::to_string(ranks.balance) + " flags " + std::to_string(ranks.flags);
  for (const int64_t bound : ranks.bounds) out += " " + std::to_string(bound);
  return out;
}

sparse_case::Shape batch(int count, int rows, int keys) {
  sparse_case::Shape shape;
  shape.rows.assign(static_cast<size_t>(count), rows);
  shape.keys.assign(static_cast<size_t>(count), keys);
  shape.kv_heads = 2, shape.group = 4, shape.topk = 40;
  return shape;
}

sparse_case::Shape packed(std::vector<int> rows, std::vector<int> keys) {
  sparse_case::Shape shape = batch(1, 0, 0);
  shape.rows = std::move(rows), shape.keys = std::move(keys), shape.packed = true;
  return shape;
}

constexpr lathe_balance kBalances[] = {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL,
                                       LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR};

void equals_one_rank(const Case& c, const std::vector<Ranks>& all) {
  const Whole whole(c);
  const AttentionAnswer one = run(context(), whole.call);
  for (const Ranks& ranks : all) {
    INFO(text(ranks));
    check_equal(run_ranks(whole.call, ranks), one);
  }
}

void equals_one_rank(const Case& c, std::initializer_list<int> worlds) {
  const Whole whole(c);
  std::vector<Ranks> all;
  for (const int world : worlds) {
    for (const lathe_balance balance : kBalances) {
      if (world == 1 && balance != LATHE_BALANCE_NONE) continue;
      all.push_back(whole.ranks(world, balance));
    }
  }
  equals_one_rank(c, all);
}

TEST_CASE("sparse ranks: a batch, by positions derived and given") {
  for (const bool given : {false, true}) {
    Case c{batch(2, 13, 29)};
    c.shape.causal = true, c.shape.q_pos = given, c.shape.sinks = true;
    equals_one_rank(c, {1, 2, 3, 8});
  }
}

TEST_CASE("sparse ranks: packed sequences of every length, with rotary columns") {
  Case c{packed({5, 0, 1, 17, 2}, {9, 3, 1, 30, 0})};
  c.shape.causal = c.shape.sinks = true, c.shape.rope_dim = 16;
  equals_one_rank(c, {2, 4});
}

TEST_CASE("sparse ranks: rows before the first key, fewer rows than ranks, and none") {
  Case c{packed({11, 6}, {4, 9})};
  c.shape.causal = true;
  equals_one_rank(c, {3});
  equals_one_rank({batch(1, 3, 20)}, {8});
  Case empty{batch(1, 0, 6)};
  empty.shape.causal = true;
  equals_one_rank(empty, {2});
}

TEST_CASE("sparse ranks: blocks of keys, absolute entries, values in keys") {
  Case blocks{packed({7, 12}, {40, 21})};
  blocks.shape.block = 4, blocks.shape.topk = 12, blocks.shape.causal = true;
  equals_one_rank(blocks, {3});
  for (const bool causal : {false, true}) {
    Case absolute{packed({7, 12, 3}, {11, 21, 8})};
    absolute.shape.absolute = true, absolute.shape.causal = causal;
    equals_one_rank(absolute, {3});
    Case latent{batch(2, 9, 17)};
    latent.shape.absolute = latent.shape.values_in_keys = true, latent.shape.causal = causal;
    latent.shape.rope_dim = 16;
    equals_one_rank(latent, {4});
  }
}

TEST_CASE("sparse ranks: parts as the caller cuts them, some empty") {
  Case c{packed({5, 20, 1}, {5, 20, 1})};
  c.shape.causal = true, c.shape.sinks = true;
  const Whole whole(c);
  std::vector<Ranks> all;
  for (const std::vector<int64_t>& bounds :
       {std::vector<int64_t>{0, 26, 26}, {0, 0, 4, 4, 6, 26}, {0, 25, 26}}) {
    all.push_back(whole.ranks(static_cast<int>(bounds.size()) - 1, LATHE_BALANCE_NONE));
    all.back().bounds = bounds;
    all.back().runs = 2;  // the second finds the buffers of the first
  }
  equals_one_rank(c, all);
}

TEST_CASE("sparse ranks: keys with gaps between rows and heads") {
  for (const bool tokens : {false, true}) {
    Case c{tokens ? packed({9, 14}, {9, 20}) : batch(2, 9, 13)};
    c.shape.causal = true, c.shape.rope_dim = 16;
    const Whole whole(c);
    Ranks ranks = whole.ranks(3, LATHE_BALANCE_HEAD_TAIL);
    ranks.placement = {.token_gap = 24, .batch_gap = 48, .offset = 8, .guard = 64};
    equals_one_rank(c, {ranks});
  }
}

TEST_CASE("sparse ranks: captured once, replayed") {
  Case c{packed({9, 14}, {9, 20})};
  c.shape.causal = c.shape.sinks = true;
  const Whole whole(c);
  const Ranks once = whole.ranks(3, LATHE_BALANCE_HEAD_TAIL);
  Ranks ranks = once;
  ranks.graph = true, ranks.runs = 3;
  equals_one_rank(c, {ranks});
  // Sums over ranks too repeat bit for bit, however their threads are scheduled.
  CHECK(run_ranks(whole.call, ranks).outputs == run_ranks(whole.call, once).outputs);
}

// A backward on its own gathers once more.
TEST_CASE("sparse ranks: saved forward, and sums in any order") {
  Case c{packed({9, 14}, {9, 14})};
  c.shape.causal = c.shape.sinks = true;
  Whole whole(c);
  Ranks ranks = whole.ranks(3, LATHE_BALANCE_HEAD_TAIL);
  const AttentionAnswer one = run(context(), whole.call);
  AttentionCall saved = whole.call;
  saved.options["saved_forward"] = "1";
  for (const char* name : {"out", "lse"}) saved.tensors.at(name).values = one.outputs.at(name);
  for (const char* name : {"softmax_max", "softmax_sum"}) saved.tensors.erase(name);
  const RanksAnswer answer = run_ranks(saved, ranks);
  CHECK(answer.hops.size() == 6);
  for (const auto& [name, values] : answer.outputs) {
    if (name.starts_with("dq")) {
      CHECK(values == one.outputs.at(name));
    } else {
      check_sums(name, values, one.outputs.at(name));
    }
  }
  whole.call.options["deterministic"] = "0";
  whole.call.options["num_splits"] = "1";
  check_equal(run_ranks(whole.call, ranks), one);
}

// Sinks that are not summed on request are shares; gradients that travel narrow are rounded once
// more for each rank.
TEST_CASE("sparse ranks: shares of sinks, narrow gradients, gradients one by one") {
  Case c{packed({9, 14}, {9, 14})};
  c.shape.causal = c.shape.sinks = true, c.shape.rope_dim = 16;
  const Whole whole(c);
  const AttentionAnswer one = run(context(), whole.call);
  Ranks ranks = whole.ranks(3, LATHE_BALANCE_HEAD_TAIL);
  ranks.flags = 0;
  check_equal(run_ranks(whole.call, ranks), one);
  ranks.flags = LATHE_ALLGATHER | LATHE_NARROW_GRADIENTS;
  const RanksAnswer narrow = run_ranks(whole.call, ranks);
  for (const char* name : {"dk", "dv", "dk_rope"}) {
    double most = 0;
    for (const double value : one.outputs.at(name)) most = std::max(most, std::abs(value));
    check_near(narrow.outputs.at(name), one.outputs.at(name), most / 64);
  }
  for (const char* alone : {"dq", "dk", "dv", "dk_rope", "dsinks"}) {
    CAPTURE(alone);
    Whole few(c);
    for (const char* name : {"dq", "dk", "dv", "dq_rope", "dk_rope", "dsinks"}) {
      if (std::string(name) != alone) few.call.tensors.erase(name);
    }
    ranks.flags = LATHE_REDUCE_PARAMETER_GRADS;
    const AttentionAnswer expected = run(context(), few.call);
    const RanksAnswer answer = run_ranks(few.call, ranks);
    check_equal(answer, expected);
    // Gradients of rows stay where they are.
    CHECK(answer.hops.size() == (std::string(alone) == "dq" ? 3u : 6u));
  }
}

// What a rank's rows may see, by looking at each of them: keys of the whole axis.
std::vector<bool> visible(const Case& c, const std::vector<std::pair<int64_t, int64_t>>& rows) {
  const bool packed = c.shape.packed;
  const auto cu = packed ? offsets(c.shape.rows) : std::vector<int64_t>{0, c.shape.rows[0]};
  const auto cu_k = packed ? offsets(c.shape.keys) : std::vector<int64_t>{0, c.shape.keys[0]};
  std::vector<bool> seen(static_cast<size_t>(cu_k.back()), false);
  for (const auto& [begin, end] : rows) {
    for (int64_t row = begin; row < end; ++row) {
      size_t n = 0;
      while (cu[n + 1] <= row) ++n;
      const int64_t keys = cu_k[n + 1] - cu_k[n];
      const bool all = !c.shape.causal || c.shape.q_pos;
      const int64_t last = all ? keys - 1 : keys - (cu[n + 1] - cu[n]) + row - cu[n];
      for (int64_t j = 0; j <= last && j < keys; ++j) seen[static_cast<size_t>(cu_k[n] + j)] = true;
    }
  }
  return seen;
}

// Of each rank: tokens of keys that come from others and go to them.
struct Traffic {
  std::vector<int64_t> received, sent;
};
Traffic traffic(const Case& c, const RanksAnswer& answer) {
  const size_t world = answer.keys.size();
  Traffic out{std::vector<int64_t>(world), std::vector<int64_t>(world)};
  for (size_t reader = 0; reader < world; ++reader) {
    const auto seen = visible(c, answer.queries[reader]);
    for (size_t owner = 0; owner < world; ++owner) {
      if (owner == reader) continue;
      for (const auto& [begin, end] : answer.keys[owner]) {
        const auto count = std::count(seen.begin() + begin, seen.begin() + end, true);
        out.received[reader] += count, out.sent[owner] += count;
      }
    }
  }
  return out;
}

TEST_CASE("sparse ranks: one group each way, with what rows may see and no more") {
  for (const int kind : {0, 1, 2, 3}) {
    CAPTURE(kind);
    Case c{kind == 3 ? batch(2, 16, 16) : packed({5, 11, 16}, {9, 11, 16})};
    c.shape.causal = kind != 0, c.shape.q_pos = kind == 1, c.shape.rope_dim = 16;
    const Whole whole(c);
    for (const lathe_balance balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL}) {
      const RanksAnswer answer = run_ranks(whole.call, whole.ranks(4, balance));
      const Traffic tokens = traffic(c, answer);
      REQUIRE(answer.hops.size() == 8);
      std::vector<int> groups(4);
      const int64_t columns = 2 * (64 + 16 + 64) * (kind == 3 ? 2 : 1);
      for (const HopCount& hop : answer.hops) {
        const auto r = static_cast<size_t>(hop.rank);
        const bool back = groups[r]++ == 1;
        CHECK(hop.collectives == 0);
        CHECK(hop.received == columns * (back ? 4 * tokens.sent[r] : 2 * tokens.received[r]));
        CHECK(hop.sent == columns * (back ? 4 * tokens.received[r] : 2 * tokens.sent[r]));
      }
    }
  }
}

}  // namespace
