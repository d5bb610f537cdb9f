// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests compare what attention over ranks sends, as the simulator's NCCL counts it, with the
// formulas of the methods, and check that an estimate says the same before the run.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

struct Traffic {
  int64_t hops = 0, bytes = 0;
  bool operator==(const Traffic&) const = default;
};

// Returns, for each rank, its groups with messages and the bytes sent in them.
std::map<int, Traffic> messages_of(const RanksAnswer& answer) {
  std::map<int, Traffic> out;
  for (const HopCount& hop : answer.hops) {
    if (hop.sends + hop.receives == 0) continue;  // not these methods'
    ++out[hop.rank].hops;
    out[hop.rank].bytes += hop.sent;
  }
  return out;
}

constexpr int64_t kTokens = 96, kWidth = 32, kValueWidth = 64, kKeyHeads = 2;

AttentionCase sample(bool backward) {
  AttentionCase c{.head_dim = kWidth, .value_dim = kValueWidth, .kv_heads = kKeyHeads, .group = 2};
  c.queries = c.keys = {kTokens};
  c.backward = backward;
  return c;
}

// Every rank sends the same.
void check_traffic(const AttentionCase& c, const Ranks& ranks, const Traffic& expected) {
  INFO(c.text() << " " << ranks.text());
  const RanksAnswer answer = run_attention_ranks(c, make_inputs(c), ranks);
  const std::map<int, Traffic> found = messages_of(answer);
  uint64_t launches = 0;
  for (int rank = 0; rank < ranks.world; ++rank) {
    CAPTURE(rank);
    CHECK((found.count(rank) ? found.at(rank) : Traffic{}) == expected);
    const lathe_estimate& estimate = answer.estimates.at(static_cast<size_t>(rank));
    CHECK(estimate.exchanges == static_cast<uint64_t>(expected.hops));
    CHECK(estimate.exchange_bytes == static_cast<uint64_t>(expected.bytes));
    launches += estimate.launches;
  }
  CHECK(answer.launches == launches);
}

// Bytes of keys and values of `tokens` tokens, `size` an element.
int64_t block(int64_t tokens, int64_t size) {
  return tokens * kKeyHeads * (kWidth + kValueWidth) * size;
}

TEST_CASE("rings: W - 1 hops forward, W + 1 backward, each of a shard") {
  for (const int64_t world : {1, 2, 3, 4}) {
    const int64_t share = kTokens / world, others = world - 1;
    for (const bool causal : {false, true}) {
      AttentionCase c = sample(false);
      c.causal = causal;
      Ranks options = {.world = static_cast<int>(world), .balance = LATHE_BALANCE_HEAD_TAIL};
      check_traffic(c, options, {others, others * block(share, 2)});
      c.backward = true;
      // Keys twice, and gradients, which also go home.
      Traffic both = {2 * world, 2 * others * block(share, 2) + world * block(share, 4)};
      if (world == 1) both = {};
      check_traffic(c, options, both);
      options.flags = LATHE_NARROW_GRADIENTS;
      if (world > 1) both.bytes -= world * block(share, 2);
      check_traffic(c, options, both);
    }
  }
}

TEST_CASE("gathered keys: one group forward, one backward") {
  for (const int64_t world : {2, 3, 4}) {
    const int64_t sent = (world - 1) * (kTokens / world);
    AttentionCase c = sample(false);
    Ranks options = {.world = static_cast<int>(world), .flags = LATHE_ALLGATHER};
    check_traffic(c, options, {1, block(sent, 2)});
    c.backward = true;
    check_traffic(c, options, {2, block(sent, 2) + block(sent, 4)});
    c.saved_forward = true;  // gathered again
    check_traffic(c, options, {3, 2 * block(sent, 2) + block(sent, 4)});
    c.saved_forward = false;
    options.flags |= LATHE_NARROW_GRADIENTS;
    check_traffic(c, options, {2, 2 * block(sent, 2)});
    options.flags = LATHE_ALLGATHER;
    c.options["gather_heads"] = "1";  // of two: keys come for either direction, twice each
    check_traffic(c, options, {6, 2 * block(sent, 2) + block(sent, 4)});
  }
}

TEST_CASE("a window sends keys no further than to who sees them") {
  AttentionCase c = sample(true);
  c.causal = true;
  c.left = 10;  // less than a shard: the next rank's rows, and nobody's after them
  const auto found = messages_of(run_attention_ranks(c, make_inputs(c), {.world = 4}));
  const int64_t keys = block(24, 2), gradients = block(24, 4);
  // One hop forward; backward keys, sums that go on, sums that come home.
  CHECK(found.at(0) == Traffic{4, 2 * keys + gradients});
  CHECK(found.at(1) == Traffic{4, 2 * keys + 2 * gradients});
  CHECK(found.at(2) == Traffic{4, 2 * keys + 2 * gradients});
  CHECK(found.at(3) == Traffic{4, gradients});
}

TEST_CASE("documents inside a rank need no exchange") {
  AttentionCase c = sample(true);
  c.packed = true;
  c.queries = c.keys = {20, 28, 30, 18};
  for (const unsigned flags : {0u, unsigned{LATHE_ALLGATHER}}) {
    check_traffic(c, {.world = 2, .flags = flags}, {});
  }
}

}  // namespace
