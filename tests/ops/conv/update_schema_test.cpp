// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover causal_conv1d_update without a device: every refusal by table, and which
// implementation a problem gets.
#include "ops/conv/run.h"
#include "tests/harness/problems.h"

namespace {

using namespace test;
using lathe::ConvProblem;

const Tensors kStep = {{"x", LATHE_BF16, {-1, 96}},
                       {"weight", LATHE_F32, {96, 4}},
                       {"state", LATHE_BF16, {-1, 96, 4}},
                       {"y", LATHE_BF16, {-1, 96}}};
const Tensors kTokens =
    with(kStep, {{"x", LATHE_BF16, {-1, -1, 96}}, {"y", LATHE_BF16, {-1, -1, 96}}});
const Tensors kSlots = with(kStep, {{"state_indices", LATHE_I32, {-1}}});
const Tensors kDrafts =
    with(kTokens, {{"num_accepted_tokens", LATHE_I32, {-1}}, {"state", LATHE_BF16, {-1, 96, 6}}});

const Requests<ConvProblem> request = {
    "causal_conv1d_update", [](const lathe::Resolved& resolved) -> lathe::Result<ConvProblem> {
      return lathe::conv_update_problem(resolved);
    }};

TEST_CASE("causal_conv1d_update: what does not fit is refused by name, with what is allowed") {
  request.check_refused({
      {with(kStep, {{"state", LATHE_BF16, {-1, 96, 2}}}), {}, {"state has LS = 2", "3 to 65536"}},
      {with(kStep, {{"state", LATHE_BF16, {-1, 96, -1}}}), {}, {"state has LS = -1"}},
      {with(kStep, {{"y", LATHE_BF16, {-1, -1, 96}}}), {}, {"y has rank 3", "[B,D]"}},
      {with(kTokens, {{"residual", LATHE_BF16, {-1, 96}}}), {}, {"residual has rank 2"}},
      {with(kTokens, {{"cu_seqlens", LATHE_I32, {-1}}}), {}, {"x has rank 3", "cu_seqlens"}},
      {with(kStep, {{"source_indices", LATHE_I32, {-1}}}),
       {},
       {"source_indices", "without state_indices"}},
      {with(kSlots, {{"source_indices", LATHE_I64, {-1}}}), {}, {"source_indices", "i64", "i32"}},
      {with(kDrafts, {{"cache_seqlens", LATHE_I32, {-1}}}),
       {},
       {"cache_seqlens is declared with num_accepted_tokens"}},
      {with(kDrafts, {{"x", LATHE_BF16, {2, 5, 96}}}), {}, {"x has T = 5", "LS = 6", "= 7"}},
      {with(kSlots, {{"x", LATHE_BF16, {4, 96}}, {"state_indices", LATHE_I32, {3}}}),
       {},
       {"state_indices has N = 3", "B = 4"}},
      {with(kStep, {{"x", LATHE_BF16, {4, 96}}, {"state", LATHE_BF16, {5, 96, 4}}}),
       {},
       {"state has S = 5", "allowed without state_indices is 4"}},
      {kSlots, {{"null_slot", "2147483648"}}, {"null_slot", "2147483648"}},
  });
}

TEST_CASE("causal_conv1d_update: one token for each state has kernels of its own") {
  CHECK_FALSE(request.accepted(kStep).slots);
  CHECK(request.accepted(kTokens).slots);
  CHECK(request.accepted(kStep, {{"update_state", "0"}}).slots);
  CHECK(request.accepted(with(kStep, {{"state", LATHE_BF16, {-1, 96, 3}}})).slots);
  const ConvProblem slots =
      request.accepted(with(kSlots, {{"cu_seqlens", LATHE_I64, {-1}}}), {{"null_slot", "0"}});
  CHECK((slots.slots && slots.indexed && slots.packed && !slots.ring && !slots.drafts));
  CHECK(slots.cu_seqlens == lathe::Dtype::i64);
  CHECK(slots.null_slot == 0);
  CHECK(request.accepted(kDrafts).drafts);
}

}  // namespace
