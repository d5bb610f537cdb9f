// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ranks equals one rank: every balance, rings and gathered keys, forward and
// backward, against float64 by the rule of one rank.
#include "tests/api/attention_ranks.h"

#include <doctest/doctest.h>

using namespace apitest;

namespace {

void equals_one_rank(const AttentionCase& attention, const RankOptions& options) {
  INFO(attention.text() << " " << options.text());
  const ref::Attention inputs = make_inputs(attention);
  check_attention(attention, inputs, run_attention_ranks(attention, inputs, options));
}

AttentionCase causal(int64_t tokens) {
  AttentionCase out{.head_dim = 64, .value_dim = 64, .queries = {tokens}, .keys = {tokens}};
  out.causal = true;
  return out;
}

TEST_CASE("ranks: forward rings") {
  for (const int world : {2, 3}) {
    for (const auto balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL}) {
      equals_one_rank(causal(97), {.world = world, .balance = balance});
    }
  }
}

}  // namespace
