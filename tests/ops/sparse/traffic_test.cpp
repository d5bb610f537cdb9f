// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what ranks of sparse_flash_attention send each other: the keys that rows may
// see, found here by looking at each row, in one group, and their gradients in another.
#include "tests/ops/sparse/ranks_case.h"

namespace {

using namespace apitest;

// Returns, by looking at each row, which keys of the whole axis a rank's rows may see.
std::vector<bool> visible(const SparseCase& c, const Intervals& rows) {
  const ref::SparseAttention a = make_sparse(c);
  const auto& cu = a.begin_q;
  std::vector<int64_t> cu_k = {0};
  cu_k.insert(cu_k.end(), a.end_k.begin(), a.end_k.end());
  if (!c.shape.packed) cu_k.resize(2);  // each row of the batch is cut alike
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

// Holds, for each rank, the number of key tokens that come from other ranks and that go to them.
struct Traffic {
  std::vector<int64_t> received, sent;
};
Traffic traffic(const SparseCase& c, const RanksAnswer& answer) {
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
    SparseCase c = kind == 3 ? batch(2, 16, 16) : packed({5, 11, 16}, {9, 11, 16});
    c.shape.causal = kind != 0, c.shape.q_pos = kind == 1, c.shape.rope_dim = 16;
    const Call call = whole_call(c);
    for (const lathe_balance balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL}) {
      const RanksAnswer answer = run_ranks(call, ranks_of(4, balance));
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
