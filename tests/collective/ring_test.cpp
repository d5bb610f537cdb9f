// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Schedules against brute force: what is computed, what travels, and that nobody waits for ever.
#include "collective/ring.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "collective/balance.h"
#include "tests/collective/cases.h"

using namespace lathe;

namespace {

// Positions of a rank that a span of its shard stands for.
std::vector<int64_t> positions(const ShardLayout& layout, int rank, Span span, bool head_tail,
                               int world, int64_t length) {
  std::vector<int64_t> out;
  if (span == Span::none) return out;
  const Interval low = chunk(rank, 0, length, 2 * world);
  for (const Interval& interval : layout[rank]) {
    const bool front = head_tail && interval == low;
    if (span == Span::low && !front) continue;
    if (span == Span::high && front) continue;
    for (int64_t t = interval.begin; t < interval.end; ++t) out.push_back(t);
  }
  return out;
}

}  // namespace

TEST_CASE("ring: every query meets exactly the keys it sees, once, whatever the length") {
  for (int world = 1; world <= 8; ++world) {
    for (const int64_t length : {0, 1, 7, 16, 31, 48, 59}) {
      for (const bool causal : {false, true}) {
        for (const bool head_tail : {false, true}) {
          const auto layout = shard_layout(head_tail ? Balance::head_tail : Balance::none,
                                           {0, length}, world, 1, false);
          REQUIRE(layout.ok());
          std::set<std::pair<int64_t, int64_t>> met;
          for (const RingStep& step : ring_schedule(world, causal, head_tail)) {
            for (const int64_t q :
                 positions(*layout, step.rank, step.q, head_tail, world, length)) {
              for (const int64_t k :
                   positions(*layout, step.owner, step.kv, head_tail, world, length)) {
                if (step.mask == StepMask::causal && k > q) continue;
                REQUIRE(step.mask != StepMask::skip);
                REQUIRE((!causal || k <= q));
                REQUIRE(met.insert({q, k}).second);
              }
            }
          }
          const int64_t all = causal ? length * (length + 1) / 2 : length * length;
          REQUIRE(static_cast<int64_t>(met.size()) == all);
        }
      }
    }
  }
}

TEST_CASE("ring: who sends is expected, blocks arrive in time, gradients come home") {
  for (int world = 1; world <= 8; ++world) {
    const auto steps = ring_schedule(world, true, false);
    const auto at = [&](int rank, int step) -> const RingStep& {
      return steps[rank * world + step];
    };
    int hops = 0, gradient_hops = 0;
    for (int rank = 0; rank < world; ++rank) {
      for (int step = 0; step < world; ++step) {
        const RingStep& own = at(rank, step);
        CHECK(own.rank == rank);
        CHECK(own.step == step);
        if (own.send_to != kNoRank) {
          ++hops;
          CHECK(at(own.send_to, step).recv_from == rank);
          CHECK(at(own.send_to, step + 1).owner == own.owner);  // what was sent is worked on next
        }
        if (own.dkv_send_to != kNoRank) {
          ++gradient_hops;
          const RingStep& other = at(own.dkv_send_to, step);
          CHECK(other.dkv_recv_from == rank);
          CHECK(other.dkv_recv_owner == own.owner);
          if (step == world - 1) CHECK(own.owner == own.dkv_send_to);  // home
        }
      }
    }
    CHECK(hops == world * (world - 1));
    CHECK(gradient_hops == (world > 1 ? world * world : 0));
  }
}

TEST_CASE("ring: a causal head-tail ring is a causal block and half blocks on every rank") {
  for (const int world : {2, 4, 8}) {
    const int64_t length = 6 * world, own = length / world;
    const auto layout = shard_layout(Balance::head_tail, {0, length}, world, 1, true);
    REQUIRE(layout.ok());
    for (const RingStep& step : ring_schedule(world, true, true)) {
      const auto rows = positions(*layout, step.rank, step.q, true, world, length).size() *
                        positions(*layout, step.owner, step.kv, true, world, length).size();
      CHECK(static_cast<int64_t>(rows) == (step.step == 0 ? own * own : own * own / 2));
    }
  }
}

TEST_CASE("pairs: class, shift and count of 4000 random pairs, pair by pair") {
  std::mt19937 random(4);
  for (int draw = 0; draw < 4000; ++draw) {
    const auto any = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
    const Interval q = {any(20), 0}, kv = {any(20), 0};
    const Interval rows = {q.begin, q.begin + any(12)}, keys = {kv.begin, kv.begin + any(12)};
    const int64_t offset = any(21) - 10, left = any(12) - 1, right = any(12) - 1;
    int64_t seen = 0;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        const int64_t away = j - (i + offset);
        seen += (left < 0 || away >= -left) && (right < 0 || away <= right) ? 1 : 0;
      }
    }
    const PairRule rule = pair_rule(rows, keys, offset, left, right);
    CAPTURE(draw);
    CHECK(rule.visible == seen);
    CHECK(rule.shift == rows.begin + offset - keys.begin);
    const bool all = seen == rows.size() * keys.size() && seen > 0;
    CHECK((rule.kind == PairKind::full) == all);
    if (rule.kind == PairKind::none) CHECK(seen == 0);
  }
}

TEST_CASE("merge: parts of a sum of exponentials, in any order, and parts of nothing") {
  const double nothing = -std::numeric_limits<double>::infinity();
  const PartialResult dead = {std::nan(""), nothing};
  CHECK(merge_partials({}).lse == nothing);
  CHECK(merge_partials({dead, dead}).out == 0);
  const PartialResult one = merge_partials({dead, {2, 5}, dead});
  CHECK(one.out == 2);
  CHECK(one.lse == 5);
  const std::vector<PartialResult> parts = {{1, 0.5}, {-3, 2}, {7, -1}, {0.25, 1}};
  double weight = 0, sum = 0;
  for (const auto& part : parts) weight += std::exp(part.lse), sum += std::exp(part.lse) * part.out;
  const PartialResult found = merge_partials(parts);
  CHECK(found.out == doctest::Approx(sum / weight).epsilon(1e-14));
  CHECK(found.lse == doctest::Approx(std::log(weight)).epsilon(1e-14));
  CHECK(merge_partials({{2, -1e4}, {4, -1e4}}).lse == doctest::Approx(-1e4 + std::log(2.0)));
}

TEST_CASE("gather: a slice holds the keys of its rows, aligned to the last one") {
  std::mt19937 random(5);
  for (int draw = 0; draw < 500; ++draw) {
    const auto cu = cases::random_offsets(random, random() % 60, 1 + random() % 6);
    const int world = 1 + static_cast<int>(random() % 6);
    for (const bool causal : {false, true}) {
      const auto slices = gather_slices(cu, world, causal);
      REQUIRE(slices.ok());
      for (int rank = 0; rank < world; ++rank) {
        const GatherSlice& slice = (*slices)[rank];
        const Interval own = chunk(rank, 0, cu.back(), world);
        int64_t row = own.begin;
        for (size_t i = 0; i < slice.seq_ids.size(); ++i) {
          const int n = slice.seq_ids[i];
          const int64_t rows = slice.cu_seqlens_q[i + 1] - slice.cu_seqlens_q[i];
          const int64_t keys = slice.cu_seqlens_k[i + 1] - slice.cu_seqlens_k[i];
          CHECK(slice.keys.begin + slice.cu_seqlens_k[i] == cu[n]);  // from the document's start
          for (int64_t r = 0; r < rows; ++r, ++row) {
            const int64_t last = causal ? keys - rows + r : keys - 1;  // bottom-right aligned
            CHECK(cu[n] + last == (causal ? row : cu[n + 1] - 1));
          }
        }
        CHECK(row == own.end);
      }
    }
  }
}
