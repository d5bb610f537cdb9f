// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda_decode without a device: every refusal by table, what a problem becomes,
// and calls that end before a launch.
#include "ops/kda/decode/request.h"
#include "templates/params/kda.h"
#include "tests/harness/problems.h"

namespace {

using lathe::Code;
using namespace test;

// H 2, HV 4, K 64, V 32: 2 * 2 * 64 + 4 * 32 channels.
const Tensors kLayer = {{"qkv", LATHE_BF16, {-1, 384}},
                        {"conv_weight", LATHE_F32, {384, 4}},
                        {"conv_pool", LATHE_BF16, {-1, 384, 3}},
                        {"g", LATHE_F32, {-1, 4, 64}},
                        {"beta", LATHE_F16, {-1, 4}},
                        {"state_pool", LATHE_F32, {-1, 4, 64, 32}},
                        {"state_indices", LATHE_I32, {-1}},
                        {"o", LATHE_BF16, {-1, 4, 32}}};
const Tensors kTokens = with(kLayer, {{"qkv", LATHE_BF16, {-1, -1, 384}},
                                      {"g", LATHE_F32, {-1, -1, 4, 64}},
                                      {"beta", LATHE_F16, {-1, -1, 4}},
                                      {"o", LATHE_BF16, {-1, -1, 4, 32}}});
const Tensors kRings = {{"ring_k", LATHE_BF16, {-1, 4, 2, 64}},
                        {"ring_u", LATHE_F32, {-1, 4, 4, 32}},
                        {"ring_g", LATHE_F32, {-1, 4, 4, 64}},
                        {"ring_count", LATHE_I32, {-1}}};
const Tensors kRecorded = with(kLayer, kRings);

const Requests<lathe::KdaDecodeRequest> request = {"kda_decode", lathe::kda_decode_request};

TEST_CASE("kda_decode: tensors that do not fit are refused by name, with what is allowed") {
  for (const char* name : {"qkv", "conv_weight", "conv_pool", "g", "beta", "state_pool"}) {
    request.check_refused({without(kLayer, name), {}, {name, "not declared"}});
  }
  request.check_refused({
      {without(kLayer, "state_indices"), {}, {"state_pool", "without state_indices"}},
      {without(kLayer, "o"), {}, {"nothing to compute", "o"}},
      {with(kLayer, {{"qkv", LATHE_BF16, {-1, 380}}}), {}, {"D is 384", "D is 380"}},
      {with(kLayer, {{"qkv", LATHE_BF16, {-1, 256}},
                     {"conv_weight", LATHE_F32, {256, 4}},
                     {"conv_pool", LATHE_BF16, {-1, 256, 3}},
                     {"g", LATHE_F32, {-1, 3, 64}},
                     {"beta", LATHE_F32, {-1, 3}},
                     {"state_pool", LATHE_F32, {-1, 3, 64, 32}},
                     {"o", LATHE_BF16, {-1, 3, 32}}}),
       {},
       {"qkv has D = 256", "2 * H * K + HV * V", "HV = 3"}},
      {with(kLayer, {{"qkv", LATHE_BF16, {-1, 128}},
                     {"conv_weight", LATHE_F32, {128, 4}},
                     {"conv_pool", LATHE_BF16, {-1, 128, 3}}}),
       {},
       {"qkv has D = 128", "an H that divides HV"}},
      {with(kLayer, {{"conv_pool", LATHE_F32, {-1, 384, 3}}}), {}, {"conv_pool", "f32", "bf16"}},
      {with(kLayer, {{"conv_pool", LATHE_BF16, {-1, 384, 2}}}),
       {},
       {"conv_pool has LS = 2", "3 to 64"}},
      {with(kLayer, {{"conv_pool", LATHE_BF16, {-1, 384, 65}}}), {}, {"LS = 65", "3 to 64"}},
      {with(kLayer, {{"conv_weight", LATHE_F32, {384, 9}}}), {}, {"W = 9", "2 to 8"}},
      {with(kLayer, {{"conv_bias", LATHE_BF16, {384}}}), {}, {"conv_bias", "bf16", "f32"}},
      {with(kLayer, {{"g", LATHE_F32, {-1, -1, 4, 64}}}),
       {},
       {"g has rank 4", "qkv has rank 2", "a dim T in both or in neither"}},
      {with(kTokens, {{"o", LATHE_BF16, {-1, 4, 32}}}), {}, {"o has rank 3", "qkv has rank 3"}},
      {with(kLayer, {{"beta", LATHE_F32, {-1, 2}}}), {}, {"beta", "HV is 2", "HV is 4"}},
      {with(kLayer, {{"norm_weight", LATHE_F16, {32}}}),
       {},
       {"norm_weight has dtype f16", "f32 and bf16"}},
      {with(kLayer, {{"norm_weight", LATHE_F32, {64}}}), {}, {"norm_weight", "V is 64", "V is 32"}},
      {with(kLayer, {{"source_indices", LATHE_I64, {-1}}}),
       {},
       {"source_indices", "i64", "of state_indices"}},
      {with(kLayer, {{"ring_k", LATHE_BF16, {-1, 4, 2, 64}}}), {}, {"ring_k", "without ring_u"}},
      {with(kRecorded, {{"source_indices", LATHE_I32, {-1}}}),
       {},
       {"source_indices", "with ring_k"}},
      {with(kRecorded, {{"ring_u", LATHE_F16, {-1, 4, 4, 32}}}),
       {},
       {"ring_u has dtype f16", "f32 and bf16"}},
      {with(kRecorded, {{"ring_k", LATHE_BF16, {-1, 4, 4, 64}}}),
       {},
       {"ring_k has H = 4", "channels of H = 2"}},
      {with(kTokens, with(kRings, {{"qkv", LATHE_BF16, {-1, 5, 384}}})), {}, {"T = 5", "L = 4"}},
  });
  request.check_refused(
      {with(kTokens, {{"qkv", LATHE_BF16, {-1, 17, 384}}}), {}, {"T = 17", "0 to 16", "kda"}},
      Code::unsupported);
}

TEST_CASE("kda_decode: options out of range, and options that need another, are refused") {
  request.check_refused({
      {kLayer, {{"activation", "relu"}}, {"activation", "'relu'", "silu|none"}},
      {kLayer, {{"gate_activation", "none"}}, {"gate_activation", "'none'", "sigmoid|silu"}},
      {kLayer, {{"norm_eps", "-1"}}, {"norm_eps", "'-1'", ">=0"}},
      {kLayer, {{"append", "0"}}, {"append is 0", "ring_k"}},
      {kRecorded, {{"update_state", "0"}}, {"update_state is 0", "ring_k"}},
      {kLayer, {{"use_gate_in_kernel", "1"}}, {"A_log", "lower_bound"}},
      {with(kLayer, {{"A_log", LATHE_F32, {4}}}), {}, {"A_log", "use_gate_in_kernel is 0"}},
      {with(kLayer, {{"dt_bias", LATHE_F32, {255}}}),
       {{"use_gate_in_kernel", "1"}, {"lower_bound", "-5"}},
       {"dt_bias", "255", "4 * 64 = 256"}},
      {kLayer, {{"allow_neg_eigval", "1"}}, {"allow_neg_eigval", "use_beta_sigmoid_in_kernel"}},
      {kLayer, {{"output_final_state", "1"}}, {"no option 'output_final_state'"}},
  });
}

TEST_CASE("kda_decode: a problem becomes flags of the code and numbers of the launch") {
  const lathe::KdaDecodeRequest plain = request.accepted(kLayer);
  CHECK(plain.problem.conv_silu);
  CHECK_FALSE(plain.problem.norm);
  CHECK(plain.problem.tokens == 1);
  CHECK(plain.problem.kda.states == lathe::kKdaStatesPool);
  CHECK(plain.norm_eps == 1e-5f);
  const lathe::KdaDecodeRequest all = request.accepted(
      with(with(kTokens, kRings),
           {{"output_gate", LATHE_F16, {-1, -1, 4, 32}}, {"norm_weight", LATHE_BF16, {32}}}),
      {{"activation", "none"}, {"gate_activation", "silu"}, {"null_slot", "0"}, {"append", "0"}});
  CHECK_FALSE(all.problem.conv_silu);
  CHECK(all.problem.norm_weight == lathe::Dtype::bf16);
  CHECK(all.problem.output_gate_type == lathe::Dtype::f16);
  CHECK(all.problem.output_gate_silu);
  CHECK(all.problem.tokens == lathe::kKdaDecodeMostTokens);
  CHECK(all.problem.kda.states == lathe::kKdaStatesRings);
  CHECK(all.numbers.null_slot == 0);
  CHECK_FALSE(all.numbers.append);
}

struct Fixture : ExecutorCall {
  explicit Fixture(const Tensors& tensors) : ExecutorCall("kda_decode", tensors, {}) {}
  void fill(int64_t batch) {
    arrays["qkv"] = Array(LATHE_BF16, {batch, 384});
    arrays["conv_weight"] = Array(LATHE_F32, {384, 4});
    arrays["conv_pool"] = Array(LATHE_BF16, {8, 384, 3});
    arrays["g"] = Array(LATHE_F32, {batch, 4, 64});
    arrays["beta"] = Array(LATHE_F16, {batch, 4});
    arrays["state_pool"] = Array(LATHE_F32, {8, 4, 64, 32});
    arrays["state_indices"] = Array(LATHE_I32, {batch});
    arrays["o"] = Array(LATHE_BF16, {batch, 4, 32});
  }
};

TEST_CASE(
    "kda_decode: calls without rows end before a launch, and those that do not fit are refused") {
  Fixture fixture(kLayer);
  fixture.fill(0);
  CHECK(fixture.run().ok());
  fixture.fill(3);
  fixture.arrays["beta"] = Array(LATHE_F16, {2, 4});
  fixture.check_refused({"beta has shape [2, 4]", "B is 2", "B = 3"});
  fixture.fill(1 << 30);
  fixture.check_refused({"sequences", "split the batch"}, lathe::Code::unsupported);
}

}  // namespace
