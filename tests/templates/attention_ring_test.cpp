// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rings on one device: the ranks' steps one after another, by pairs and by positions, against whole
// attention in double. Shards are contiguous, head-tail and per document; the ring's order and any
// other give the same result, the same order the same bits.
#include <numeric>

#include "tests/templates/attention_block_case.h"

using namespace block_case;
using lathe::AttentionProblem;
using lathe::Dtype;

namespace {

constexpr lathe_dtype kType = LATHE_BF16;

// Tokens [begin, end) of the whole axis, all of one document.
struct Interval {
  int64_t begin, end, document;
  int64_t size() const { return end - begin; }
};
using Shard = std::vector<Interval>;

enum class Balance { none, head_tail, per_document };

// Part c of `parts` of [begin, end).
std::pair<int64_t, int64_t> chunk(int64_t c, int64_t begin, int64_t end, int64_t parts) {
  const int64_t length = end - begin;
  return {begin + c * length / parts, begin + (c + 1) * length / parts};
}

// The intervals of a rank in the order in which it holds them, cut where documents end.
Shard shard_of(Balance balance, int64_t rank, int64_t ranks,
               const std::vector<int64_t>& documents) {
  Shard shard;
  const auto count = static_cast<int64_t>(documents.size()) - 1;
  const auto add = [&](std::pair<int64_t, int64_t> part) {
    for (int64_t d = 0; d < count; ++d) {
      const int64_t begin = std::max(part.first, documents[static_cast<size_t>(d)]);
      const int64_t end = std::min(part.second, documents[static_cast<size_t>(d) + 1]);
      if (begin < end) shard.push_back({begin, end, d});
    }
  };
  if (balance == Balance::none) add(chunk(rank, 0, documents.back(), ranks));
  if (balance == Balance::head_tail) {
    add(chunk(rank, 0, documents.back(), 2 * ranks));
    add(chunk(2 * ranks - 1 - rank, 0, documents.back(), 2 * ranks));
  }
  for (int64_t d = 0; balance == Balance::per_document && d < count; ++d) {
    const int64_t begin = documents[static_cast<size_t>(d)];
    const int64_t end = documents[static_cast<size_t>(d) + 1];
    add(chunk(rank, begin, end, 2 * ranks));
    add(chunk(2 * ranks - 1 - rank, begin, end, 2 * ranks));
  }
  return shard;
}

std::vector<int64_t> tokens_of(const Shard& shard) {
  std::vector<int64_t> tokens;
  for (const Interval& part : shard) {
    for (int64_t t = part.begin; t < part.end; ++t) tokens.push_back(t);
  }
  return tokens;
}

struct Ring {
  Balance balance;
  int64_t ranks;
  std::vector<int64_t> documents;
  int window_left, window_right;
  bool softcap = false, alibi = false, sinks = false;
  bool local() const { return window_left >= 0 || window_right >= 0; }
};

Step pairs_of(const Ring& ring, const Shard& rows, const Shard& keys) {
  Step step;
  step.window_left = ring.window_left, step.window_right = ring.window_right;
  int64_t qa = 0;
  for (const Interval& q : rows) {
    int64_t ka = 0;
    for (const Interval& k : keys) {
      const int64_t shift = q.begin - k.begin;  // as many keys as rows in a document: no offset
      const int64_t least = k.begin - (q.end - 1), most = k.end - 1 - q.begin;
      const bool none = q.document != k.document ||
                        (ring.window_right >= 0 && least > ring.window_right) ||
                        (ring.window_left >= 0 && most < -ring.window_left);
      if (!none) step.pairs.push_back({{qa, qa + q.size(), ka, ka + k.size(), shift}});
      ka += k.size();
    }
    qa += q.size();
  }
  return step;
}

// For one document alone: positions know of no others.
Step positions_of(const Ring& ring, const Shard& rows, const Shard& keys) {
  Step step;
  step.window_left = ring.window_left, step.window_right = ring.window_right;
  for (const int64_t t : tokens_of(rows)) step.q_positions.push_back(static_cast<int>(t));
  for (const int64_t t : tokens_of(keys)) step.k_positions.push_back(static_cast<int>(t));
  return step;
}

ref::Attention whole_of(const Ring& ring, uint32_t seed) {
  ref::Attention a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = 64, a.value_dim = 64;
  a.begin_q = a.begin_k = ring.documents;
  a.scale = 0.125, a.softcap = ring.softcap ? 5 : 0;
  a.window_left = ring.window_left, a.window_right = ring.window_right;
  std::mt19937 random(seed);
  const auto tokens = static_cast<size_t>(ring.documents.back());
  a.q = random_values(kType, tokens * 4 * 64, random);
  a.k = random_values(kType, tokens * 2 * 64, random);
  a.v = random_values(kType, tokens * 2 * 64, random);
  if (ring.alibi) a.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  return a;
}

ref::Array rows_of(const ref::Array& all, const std::vector<int64_t>& tokens, int64_t columns) {
  ref::Array some;
  for (const int64_t t : tokens) {
    some.insert(some.end(), all.begin() + t * columns, all.begin() + (t + 1) * columns);
  }
  return some;
}
// [H, all rows] -> [H, rows].
ref::Array lse_of(const ref::Array& all, const std::vector<int64_t>& tokens, int64_t heads) {
  ref::Array some;
  const auto total = static_cast<int64_t>(all.size()) / heads;
  for (int64_t h = 0; h < heads; ++h) {
    for (const int64_t t : tokens) some.push_back(all[static_cast<size_t>(h * total + t)]);
  }
  return some;
}

ref::AttentionBlock block_of(const ref::Attention& whole, const Shard& rows, const Shard& keys) {
  const std::vector<int64_t> q = tokens_of(rows), k = tokens_of(keys);
  ref::AttentionBlock a;
  a.heads = whole.heads, a.kv_heads = whole.kv_heads;
  a.head_dim = whole.head_dim, a.value_dim = whole.value_dim;
  a.rows = static_cast<int64_t>(q.size()), a.keys = static_cast<int64_t>(k.size());
  a.scale = whole.scale, a.softcap = whole.softcap;
  a.slopes = whole.alibi_slopes;
  a.q = rows_of(whole.q, q, a.heads * a.head_dim);
  a.k = rows_of(whole.k, k, a.kv_heads * a.head_dim);
  a.v = rows_of(whole.v, k, a.kv_heads * a.value_dim);
  return a;
}

AttentionProblem problem_of(const Ring& ring, bool positions) {
  AttentionProblem problem;
  problem.element = Dtype::bf16;
  problem.head_dim = problem.value_dim = 64;
  problem.local = ring.local(), problem.softcap = ring.softcap, problem.alibi = ring.alibi;
  problem.positions = positions, problem.pairs = !positions;
  problem.forward = true;
  return problem;
}

// One rank's steps over the owners in this order.
State forward_of(const Forward& forward, const Ring& ring, const ref::Attention& whole,
                 bool positions, int64_t rank, const std::vector<int64_t>& owners, uint32_t seed) {
  const Shard rows = shard_of(ring.balance, rank, ring.ranks, ring.documents);
  State state;
  const size_t count = tokens_of(rows).size() * static_cast<size_t>(whole.heads);
  state.out.assign(std::max<size_t>(count * 64, 8), NAN);
  state.lse.assign(std::max<size_t>(count, 8), NAN);
  bool first = true;
  for (const int64_t owner : owners) {
    const Shard keys = shard_of(ring.balance, owner, ring.ranks, ring.documents);
    const ref::AttentionBlock a = block_of(whole, rows, keys);
    if (a.rows == 0 || (a.keys == 0 && !first)) continue;
    const Step step = positions ? positions_of(ring, rows, keys) : pairs_of(ring, rows, keys);
    forward.run(a, step, first, ++seed, &state);
    first = false;
  }
  state.out.resize(count * 64), state.lse.resize(count);
  return state;
}

// All ranks' steps in the ring's order: dq of each where its rows are, dk and dv of each block
// where its keys are, whoever adds to them. [tokens, heads, width] of the whole axis.
Gradients backward_of(const Backward& backward, const Ring& ring, const ref::Attention& whole,
                      const ref::AttentionForward& forward, bool positions, uint32_t seed) {
  const int64_t heads = whole.heads, kv_heads = whole.kv_heads, width = 64;
  ref::Array e;  // [H, tokens]
  const auto tokens = whole.begin_q.back();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < tokens; ++t) {
      const size_t row = static_cast<size_t>((t * heads + h) * width);
      e.push_back(ref::dot(&whole.dout[row], &forward.out[row], width) -
                  whole.dlse[static_cast<size_t>(h * tokens + t)]);
    }
  }
  Gradients all;
  all.dq.resize(whole.q.size()), all.dk.resize(whole.k.size()), all.dv.resize(whole.v.size());
  // Between the whole axis and the tokens of a shard.
  const auto move = [](std::vector<float>& from, std::vector<float>& to, int64_t columns,
                       const std::vector<int64_t>& at, bool gather) {
    for (size_t i = 0; i < at.size(); ++i) {
      const int64_t there = at[i] * columns, here = static_cast<int64_t>(i) * columns;
      std::copy_n(from.begin() + (gather ? there : here), columns,
                  to.begin() + (gather ? here : there));
    }
  };
  for (int64_t step = 0; step < ring.ranks; ++step) {
    for (int64_t rank = 0; rank < ring.ranks; ++rank) {
      const Shard rows = shard_of(ring.balance, rank, ring.ranks, ring.documents);
      const Shard keys = shard_of(ring.balance, (rank - step + ring.ranks) % ring.ranks, ring.ranks,
                                  ring.documents);
      const ref::AttentionBlock a = block_of(whole, rows, keys);
      if (a.rows == 0 || a.keys == 0) continue;
      const std::vector<int64_t> q_at = tokens_of(rows), k_at = tokens_of(keys);
      Gradients part;
      part.dq.resize(a.q.size()), part.dk.resize(a.k.size()), part.dv.resize(a.v.size());
      move(all.dq, part.dq, heads * width, q_at, true);
      move(all.dk, part.dk, kv_heads * width, k_at, true);
      move(all.dv, part.dv, kv_heads * width, k_at, true);
      backward.run(a, positions ? positions_of(ring, rows, keys) : pairs_of(ring, rows, keys),
                   rows_of(whole.dout, q_at, heads * width), lse_of(forward.lse, q_at, heads),
                   lse_of(e, q_at, heads), ++seed, &part);
      move(part.dq, all.dq, heads * width, q_at, false);
      move(part.dk, all.dk, kv_heads * width, k_at, false);
      move(part.dv, all.dv, kv_heads * width, k_at, false);
    }
  }
  return all;
}

// More documents than lanes: pairs are searched 32 at a time.
std::vector<int64_t> many_documents() {
  std::vector<int64_t> begin = {0};
  for (int64_t i = 0; i < 45; ++i) begin.push_back(begin.back() + 2 + i * 7 % 6);
  return begin;
}

const std::vector<Ring> kRings = {
    {Balance::head_tail, 4, {0, 403}, -1, 0},
    {Balance::none, 3, {0, 217}, 50, 0},
    {Balance::per_document, 4, {0, 37, 37, 160, 330}, -1, 0, false, false, true},
    {Balance::head_tail, 2, {0, 5, 140, 270}, 64, 20},
    {Balance::head_tail, 2, {0, 200}, -1, 0, true, true},
    {Balance::per_document, 2, {0, 130, 133}, -1, -1},
    {Balance::per_document, 2, many_documents(), -1, 0},
};

}  // namespace

TEST_CASE("rings: every shard, by pairs and by positions, equals whole attention") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 100;
  for (const Ring& ring : kRings) {
    const ref::Attention whole = whole_of(ring, ++seed);
    const ref::AttentionForward expected = ref::attention_forward(whole);
    for (const bool positions : {false, true}) {
      if (positions && ring.documents.size() > 2) continue;
      const AttentionProblem problem = problem_of(ring, positions);
      const Forward forward(*nvrtc, problem, {64, 64, 2, 4});
      for (int64_t rank = 0; rank < ring.ranks; ++rank) {
        CAPTURE(ring.documents.back());
        CAPTURE(positions);
        CAPTURE(rank);
        std::vector<int64_t> owners;
        for (int64_t i = 0; i < ring.ranks; ++i) {
          owners.push_back((rank - i + ring.ranks) % ring.ranks);
        }
        const std::vector<int64_t> tokens =
            tokens_of(shard_of(ring.balance, rank, ring.ranks, ring.documents));
        const ref::AttentionForward own = {rows_of(expected.out, tokens, whole.heads * 64),
                                           lse_of(expected.lse, tokens, whole.heads)};
        const double most = largest(whole.v), steps = static_cast<double>(ring.ranks);
        const State state = forward_of(forward, ring, whole, positions, rank, owners, seed);
        expect_near(state, own, kType, most, steps);
        if (rank != 0) continue;
        const State again = forward_of(forward, ring, whole, positions, rank, owners, seed + 7);
        CHECK(again.out == state.out);
        CHECK(again.lse == state.lse);
        std::mt19937 random(seed);
        std::shuffle(owners.begin(), owners.end(), random);
        expect_near(forward_of(forward, ring, whole, positions, rank, owners, seed), own, kType,
                    most, steps);
      }
    }
  }
}

TEST_CASE("rings: gradients of every shard, by pairs and by positions, equal whole attention's") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 200;
  for (const Ring& ring : kRings) {
    ref::Attention whole = whole_of(ring, ++seed);
    std::mt19937 random(seed);
    whole.dout = random_values(kType, whole.q.size(), random);
    whole.dlse = random_values(kType, whole.q.size() / 64, random);
    if (ring.sinks) whole.sinks = {1, -ref::kInfinity, 0.5, 2};
    const ref::AttentionForward forward = ref::attention_forward(whole);
    const ref::AttentionBackward exact = ref::attention_backward(whole, forward);
    for (const bool positions : {false, true}) {
      if (positions && ring.documents.size() > 2) continue;
      CAPTURE(ring.documents.back());
      CAPTURE(positions);
      AttentionProblem problem = problem_of(ring, positions);
      problem.deterministic = ring.ranks == 4;
      const Backward backward(*nvrtc, problem, {64, 64, 1, 4, 1});
      const Gradients found = backward_of(backward, ring, whole, forward, positions, seed);
      // Of weights and gradients of scores, each rounded once to the element type.
      const auto near = [](const std::vector<float>& values, const ref::Array& expected) {
        double worst = 0, most = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
          const double error = std::abs(values[i] - expected[i]);
          if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
          most = std::max(most, std::abs(expected[i]));
        }
        CHECK(worst <= 2 * numbers::half_ulp(kType) * most);
      };
      near(found.dq, exact.dq);
      near(found.dk, exact.dk);
      near(found.dv, exact.dv);
    }
  }
}

TEST_CASE("rings: a block outside the window writes nothing") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const Ring ring = {Balance::none, 4, {0, 400}, 20, 0};
  const ref::Attention whole = whole_of(ring, 5);
  const Shard rows = shard_of(ring.balance, 3, ring.ranks, ring.documents);
  for (const bool positions : {false, true}) {
    const Forward forward(*nvrtc, problem_of(ring, positions), {64, 64, 2, 4});
    for (const int64_t owner : {0, 1, 2}) {
      const Shard keys = shard_of(ring.balance, owner, ring.ranks, ring.documents);
      const ref::AttentionBlock a = block_of(whole, rows, keys);
      Step step = positions ? positions_of(ring, rows, keys) : pairs_of(ring, rows, keys);
      // Pairs that are all masked may be left out, or not.
      if (!positions && step.pairs.empty()) {
        step.pairs = {{{0, a.rows, 0, a.keys, rows[0].begin - keys[0].begin}}};
      }
      State state;
      state.out.assign(static_cast<size_t>(a.rows * a.heads * 64), NAN);
      state.lse.assign(static_cast<size_t>(a.rows * a.heads), 2.5f);
      const State before = state;
      forward.run(a, step, false, 3, &state);
      size_t changed = 0;
      for (size_t i = 0; i < state.lse.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) % a.rows;
        const bool near = owner == 2 && row < 20;  // whose window reaches into the block
        if (!near) changed += state.lse[i] != before.lse[i];
        for (int64_t c = 0; !near && c < 64; ++c) {
          const size_t at =
              static_cast<size_t>((row * a.heads + static_cast<int64_t>(i) / a.rows) * 64 + c);
          changed += !std::isnan(state.out[at]);
        }
      }
      CHECK(changed == 0);
    }
  }
}
