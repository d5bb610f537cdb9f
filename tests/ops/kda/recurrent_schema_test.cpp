// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda_recurrent without a device: every refusal by table, what a problem becomes,
// and calls that end before a launch.
#include <doctest/doctest.h>

#include "templates/params/kda.h"
#include "tests/ops/kda/problems.h"

namespace {

using lathe::Code;
using namespace test;

const Tensors kPlain = kKda;
const Declaration kPool = {"state_pool", LATHE_F32, {-1, 4, 64, 32}};
const Declaration kSlots = {"state_indices", LATHE_I32, {-1}};
const Declaration kColumns = {"state_indices", LATHE_I32, {-1, -1}};
const Tensors kRings = {kPool,
                        {"ring_k", LATHE_BF16, {-1, 4, 2, 64}},
                        {"ring_u", LATHE_F32, {-1, 4, 4, 32}},
                        {"ring_g", LATHE_F32, {-1, 4, 4, 64}},
                        {"ring_count", LATHE_I32, {-1}}};
const Declaration kAlog = {"A_log", LATHE_F32, {4}};
const Declaration kFinal = {"final_state", LATHE_F32, {-1, 4, 64, 32}};

const Requests<lathe::KdaRequest> request = {"kda_recurrent", lathe::kda_recurrent_request};

TEST_CASE("kda_recurrent: tensors that do not fit are refused by name, with what is allowed") {
  request.check_refused(bad_tensors());
  request.check_refused({
      {with(kPlain, {kPool}), {}, {"state_pool", "without state_indices"}},
      {with(kPlain, {{"state_pool", LATHE_I32, {-1, 4, 64, 32}}, kSlots}),
       {},
       {"state_pool", "i32", "f32|f16|bf16"}},
      {with(kPlain, {kSlots}), {}, {"state_indices", "without state_pool"}},
      {with(kPlain, {kPool, kSlots, kFinal}), {}, {"final_state", "with state_pool"}},
      {with(kPlain, {kPool, kSlots, {"initial_state", LATHE_F32, {-1, 4, 64, 32}}}),
       {},
       {"initial_state", "with state_pool"}},
      {with(kPlain, {kPool, kSlots, {"num_accepted_tokens", LATHE_I32, {-1}}}),
       {},
       {"num_accepted_tokens", "rank 1", "[N,spec]"}},
      {with(kPlain, {kPool, kColumns, {"num_accepted_tokens", LATHE_I64, {-1}}}),
       {},
       {"num_accepted_tokens", "i64", "i32", "of state_indices"}},
      {with(kPlain, {kPool, {"state_indices", LATHE_F32, {-1}}}), {}, {"state_indices", "f32"}},
      {with(kPlain, {kPool, kSlots, {"source_indices", LATHE_I64, {-1}}}),
       {},
       {"source_indices", "i64", "of state_indices"}},
      {with(kPlain, {{"source_indices", LATHE_I32, {-1}}}),
       {},
       {"source_indices", "state_indices"}},
      {with(kPlain, {{"has_initial_state", LATHE_I32, {-1}}}),
       {},
       {"has_initial_state", "without"}},
      {with(kPlain, {kPool, kSlots, {"has_initial_state", LATHE_I64, {-1}}}),
       {},
       {"has_initial_state", "i64", "i32"}},
      {with(kPlain, {kPool,
                     kColumns,
                     {"num_accepted_tokens", LATHE_I32, {-1}},
                     {"source_indices", LATHE_I32, {-1}}}),
       {},
       {"num_accepted_tokens", "source_indices", "one of them"}},
      {with(kPlain, with(kRings, {kColumns})), {}, {"ring_k", "rank 2", "[N]"}},
      {with(kPlain, with(kRings, {kSlots, {"source_indices", LATHE_I32, {-1}}})),
       {},
       {"source_indices", "with ring_k"}},
      {with(kPlain, with(kRings, {kSlots, {"ring_u", LATHE_F16, {-1, 4, 4, 32}}})),
       {},
       {"ring_u", "f16", "f32 and bf16"}},
      {with(kPlain, with(kRings, {kSlots, {"q", LATHE_BF16, {-1, 5, 2, 64}}})),
       {},
       {"T = 5", "L = 4"}},
      {with(kPlain,
            {kPool, {"state_indices", LATHE_I32, {-1, 3}}, {"q", LATHE_BF16, {-1, 5, 2, 64}}}),
       {},
       {"T = 5", "spec = 3"}},
  });
}

TEST_CASE("kda_recurrent: options out of range, and options that need another, are refused") {
  request.check_refused(bad_options());
  request.check_refused({{kPlain, {{"chunk_size", "64"}}, {"no option 'chunk_size'"}},
                         {kPlain, {{"append", "0"}}, {"append is 0", "ring_k"}},
                         {with(kPlain, with(kRings, {kSlots})),
                          {{"update_state", "0"}},
                          {"update_state is 0", "ring_k"}},
                         {kPlain, {{"null_slot", "0"}}, {"null_slot is 0", "state_pool"}},
                         {kPlain, {{"update_state", "0"}}, {"update_state is 0", "state_pool"}},
                         {kPlain, {{"update_state", "2"}}, {"update_state", "'2'", "1|0"}}});
}

TEST_CASE("kda_recurrent: a problem becomes flags of the code and numbers of the launch") {
  const auto plain = request.accepted(kPlain, {{"safe_gate", "1"}, {"lower_bound", "unset"}});
  CHECK(plain.problem.element == lathe::Dtype::bf16);
  CHECK(plain.problem.gate == lathe::Dtype::f32);
  CHECK(plain.problem.beta == lathe::Dtype::f16);
  CHECK(plain.problem.key_dim == 64);
  CHECK(plain.problem.value_dim == 32);
  CHECK(plain.problem.gate_kind == lathe::kKdaGateGiven);
  CHECK(plain.problem.states == lathe::kKdaStatesPlain);
  CHECK_FALSE(plain.problem.packed);
  CHECK(plain.scale == 0.125f);
  CHECK(plain.beta_factor == 1);
  CHECK_FALSE(plain.final_state);

  const auto rich = request.accepted(with(kPlain, {kAlog,
                                                   {"dt_bias", LATHE_F32, {256}},
                                                   {"cu_seqlens", LATHE_I64, {-1}},
                                                   {"state_pool", LATHE_F32, {-1, 4, 32, 64}},
                                                   kColumns}),
                                     {{"use_gate_in_kernel", "1"},
                                      {"lower_bound", "-5"},
                                      {"safe_gate", "1"},
                                      {"use_qk_l2norm_in_kernel", "1"},
                                      {"use_beta_sigmoid_in_kernel", "1"},
                                      {"allow_neg_eigval", "1"},
                                      {"state_v_first", "1"},
                                      {"scale", "0.1"}});
  CHECK(rich.problem.gate_kind == lathe::kKdaGateBounded);
  CHECK(rich.problem.states == lathe::kKdaStatesColumns);
  CHECK(rich.problem.cu_seqlens == lathe::Dtype::i64);
  check_flags(true, {rich.problem.packed, rich.problem.A_log, rich.problem.dt_bias,
                     rich.problem.l2norm, rich.problem.sigmoid, rich.problem.state_v_first});
  CHECK(rich.lower_bound == -5);
  CHECK(rich.beta_factor == 2);
  CHECK(rich.scale == 0.1f);
  const auto soft = request.accepted(with(kPlain, {kAlog}), {{"use_gate_in_kernel", "1"}});
  CHECK(soft.problem.gate_kind == lathe::kKdaGateSoftplus);
}

struct Fixture : KdaFixture {
  explicit Fixture(const Tensors& tensors, const Options& options = {})
      : KdaFixture("kda_recurrent", tensors, options) {}
};

TEST_CASE("kda_recurrent: nothing to write, no launch") {
  Fixture pool(with(kPlain, {kPool, kSlots}));
  pool.fill(3, 0);
  pool.arrays["state_pool"] = Array(LATHE_F32, {7, 4, 64, 32});
  pool.arrays["state_indices"] = Array(LATHE_I32, {3});
  CHECK(pool.run().ok());
}

TEST_CASE("kda_recurrent: calls that do not fit are refused before a launch") {
  check_calls(Fixture(kPlain));

  Tensors open = kPlain;
  for (auto& each : open) {
    if (each.name == "v" || each.name == "g" || each.name == "o") each.shape[2] = -1;
    if (each.name == "beta") each.shape[2] = -1;
  }
  open = with(open, {{"A_log", LATHE_F32, {-1}},
                     {"dt_bias", LATHE_F32, {-1}},
                     {"state_pool", LATHE_F32, {-1, -1, 64, 32}},
                     kColumns});
  Fixture heads(open, {{"use_gate_in_kernel", "1"}});
  const auto fill = [&](int64_t value_heads, int64_t bias, int64_t columns) {
    heads.fill(2, 5, value_heads);
    heads.arrays["A_log"] = Array(LATHE_F32, {value_heads});
    heads.arrays["dt_bias"] = Array(LATHE_F32, {bias});
    heads.arrays["state_pool"] = Array(LATHE_F32, {9, value_heads, 64, 32});
    heads.arrays["state_indices"] = Array(LATHE_I32, {2, columns});
  };
  fill(5, 5 * 64, 5);
  heads.check_refused({"HV = 5", "H = 2"});
  fill(4, 4 * 32, 5);
  heads.check_refused({"dt_bias", "128", "4 * 64 = 256"});
  fill(4, 4 * 64, 4);
  heads.check_refused({"T = 5", "spec = 4"});
  // beta goes element by element, whatever its strides; a pool may have slots with gaps.
  fill(4, 4 * 64, 4);
  heads.arrays["beta"].strides = {5 * 7, 7, 1};
  heads.arrays["state_pool"].strides = {4 * 64 * 32 + 4, 64 * 32, 32, 1};
  heads.check_refused({"T = 5", "spec = 4"});
  heads.arrays["state_pool"].strides = {4 * 64 * 32 + 2, 64 * 32, 32, 1};
  heads.check_refused({"state_pool", "multiples of 16 bytes"});
}

}  // namespace
