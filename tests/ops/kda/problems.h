// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests declare these problems of the KDA operators, as they are or with a change, and make calls
// of them that are never launched.
#pragma once

#include "ops/kda/request.h"
#include "tests/harness/problems.h"

namespace test {

inline const Tensors kKda = {
    {"q", LATHE_BF16, {-1, -1, 2, 64}}, {"k", LATHE_BF16, {-1, -1, 2, 64}},
    {"v", LATHE_BF16, {-1, -1, 4, 32}}, {"g", LATHE_F32, {-1, -1, 4, 64}},
    {"beta", LATHE_F16, {-1, -1, 4}},   {"o", LATHE_BF16, {-1, -1, 4, 32}}};

// These inputs have everything made in the kernel, for launches.
inline const Tensors kKdaGated = {
    {"q", LATHE_BF16, {-1, -1, 2, 64}}, {"k", LATHE_BF16, {-1, -1, 2, 64}},
    {"v", LATHE_BF16, {-1, -1, 4, 32}}, {"g", LATHE_F32, {-1, -1, 4, 64}},
    {"beta", LATHE_BF16, {-1, -1, 4}},  {"A_log", LATHE_F32, {4}},
    {"dt_bias", LATHE_F32, {256}},      {"initial_state", LATHE_F32, {-1, 4, 64, 32}},
};

// Returns tensors that both operators refuse.
inline std::vector<Bad> bad_tensors() {
  const auto all = [](int64_t keys) {
    return Tensors{{"q", LATHE_BF16, {-1, -1, 2, keys}},
                   {"k", LATHE_BF16, {-1, -1, 2, keys}},
                   {"g", LATHE_F32, {-1, -1, 4, keys}}};
  };
  const auto values = [](int64_t width) {
    return Tensors{{"v", LATHE_BF16, {-1, -1, 4, width}}, {"o", LATHE_BF16, {-1, -1, 4, width}}};
  };
  const char* const kWidths = "multiples of 4 from 8 to 256";
  return {
      {without(kKda, "g"), {}, {"g is not declared"}},
      {without(kKda, "beta"), {}, {"beta is not declared"}},
      {without(kKda, "o"), {}, {"nothing to compute", "o"}},
      {with(kKda, {{"beta", LATHE_F16, {-1, -1, 2}}}), {}, {"beta", "HV is 2", "HV is 4"}},
      {with(kKda, {{"g", LATHE_F32, {-1, -1, 2, 64}}}), {}, {"g", "HV is 2", "HV is 4"}},
      {with(kKda, {{"g", LATHE_F32, {-1, -1, 4, 32}}}), {}, {"g", "K is 32", "K is 64"}},
      {with(kKda, {{"k", LATHE_F16, {-1, -1, 2, 64}}}), {}, {"k", "f16", "bf16", "of q"}},
      {with(kKda, {{"v", LATHE_F32, {-1, -1, 4, 32}}}), {}, {"v", "f32", "bf16", "of q"}},
      {with(kKda, {{"g", LATHE_I32, {-1, -1, 4, 64}}}), {}, {"g", "i32", "f32|f16|bf16"}},
      {with(kKda, {{"q", LATHE_BF16, {-1, 2, 64}}}), {}, {"q", "rank 3", "[B,T,H,K]"}},
      {with(kKda, all(62)), {}, {"q has K = 62", kWidths}},
      {with(kKda, all(260)), {}, {"q has K = 260", kWidths}},
      {with(kKda, all(-1)), {}, {"q has K = -1", "must be given"}},
      {with(kKda, values(4)), {}, {"v has V = 4", kWidths}},
      {with(kKda, values(260)), {}, {"v has V = 260", kWidths}},
      {with(kKda, {{"q", LATHE_BF16, {-1, -1, 3, 64}}, {"k", LATHE_BF16, {-1, -1, 3, 64}}}),
       {},
       {"HV = 4", "H = 3", "multiple of H"}},
      {with(kKda, {{"q", LATHE_BF16, {2, -1, 2, 64}}, {"cu_seqlens", LATHE_I32, {-1}}}),
       {},
       {"B = 2", "B = 1"}},
      // States are float32, in the layout that the options say.
      {with(kKda, {{"initial_state", LATHE_BF16, {-1, 4, 64, 32}}}),
       {},
       {"initial_state", "bf16", "f32"}},
      {with(kKda, {{"initial_state", LATHE_F32, {-1, 4, 32, 64}}}),
       {},
       {"initial_state", "K is 32", "K is 64"}},
      {with(kKda, {{"initial_state", LATHE_F32, {-1, 4, 64, 32}}}),
       {{"state_v_first", "1"}},
       {"initial_state", "[N,HV,V,K]", "V is 64", "V is 32"}},
      {with(kKda,
            {{"q", LATHE_BF16, {3, -1, 2, 64}}, {"initial_state", LATHE_F32, {2, 4, 64, 32}}}),
       {},
       {"N = 2", "B = 3"}},
  };
}

// Returns options that both operators refuse.
inline std::vector<Bad> bad_options() {
  const Tensors gated = with(kKda, {{"A_log", LATHE_F32, {4}}});
  const Tensors biased = with(kKda, {{"dt_bias", LATHE_F32, {256}}});
  const Tensors final_state = with(kKda, {{"final_state", LATHE_F32, {-1, 4, 64, 32}}});
  const char* const kBound = "unset|[-5,0)";
  return {
      {kKda, {{"lower_bound", "-5.5"}}, {"lower_bound", "'-5.5'", kBound}},
      {kKda, {{"lower_bound", "0"}}, {"lower_bound", "'0'", kBound}},
      {kKda, {{"lower_bound", "1"}}, {"lower_bound", "'1'"}},
      {kKda, {{"lower_bound", "nan"}}, {"lower_bound", "'nan'"}},
      {kKda, {{"lower_bound", "-1e-60"}}, {"lower_bound", "float32"}},
      {kKda, {{"lower_bound", ""}}, {"lower_bound", kBound}},
      {kKda, {{"scale", "0"}}, {"scale", "'0'", "K^-0.5|>0"}},
      {kKda, {{"scale", "-1"}}, {"scale", "'-1'", "K^-0.5|>0"}},
      {kKda, {{"scale", "inf"}}, {"scale", "'inf'"}},
      {kKda, {{"scale", "1e60"}}, {"scale", "float32"}},
      {kKda, {{"safe_gate", "2"}}, {"safe_gate", "'2'", "0|1"}},
      {kKda, {{"use_gate_in_kernel", "1"}}, {"A_log", "use_gate_in_kernel", "lower_bound"}},
      {gated, {}, {"A_log", "use_gate_in_kernel is 0"}},
      {biased, {}, {"dt_bias", "use_gate_in_kernel is 0"}},
      {gated,
       {{"use_gate_in_kernel", "1"}, {"safe_gate", "1"}},
       {"safe_gate", "lower_bound is unset"}},
      {with(gated, {{"dt_bias", LATHE_F32, {255}}}),
       {{"use_gate_in_kernel", "1"}},
       {"dt_bias", "255", "4 * 64 = 256"}},
      {with(kKda, {{"A_log", LATHE_F32, {2}}}),
       {{"use_gate_in_kernel", "1"}},
       {"A_log", "HV is 2", "HV is 4"}},
      {kKda, {{"allow_neg_eigval", "1"}}, {"allow_neg_eigval", "use_beta_sigmoid_in_kernel"}},
      {kKda, {{"output_final_state", "1"}}, {"output_final_state is 1", "not declared"}},
      {final_state, {{"output_final_state", "0"}}, {"output_final_state is 0"}},
  };
}

// A KdaFixture is a call that is never launched.
struct KdaFixture : ExecutorCall {
  using ExecutorCall::ExecutorCall;
  void fill(int64_t batch, int64_t tokens, int64_t value_heads = 4) {
    arrays["q"] = arrays["k"] = Array(LATHE_BF16, {batch, tokens, 2, 64});
    arrays["v"] = arrays["o"] = Array(LATHE_BF16, {batch, tokens, value_heads, 32});
    arrays["g"] = Array(LATHE_F32, {batch, tokens, value_heads, 64});
    arrays["beta"] = Array(LATHE_F16, {batch, tokens, value_heads});
  }
};

// Checks that calls without rows end before a launch, and those that fit no plan of either operator
// are refused.
template <class Fixture>
void check_calls(Fixture&& fixture) {
  fixture.fill(0, 5);
  CHECK(fixture.run().ok());
  fixture.fill(3, 0);
  CHECK(fixture.run().ok());
  fixture.fill(2, 5);
  fixture.arrays["g"] = Array(LATHE_F32, {2, 4, 4, 64});
  fixture.check_refused({"g has shape [2, 4, 4, 64]", "T is 4", "T = 5"});
  fixture.fill(2, 5);
  fixture.arrays["q"].strides = {5 * 130, 130, 65, 1};
  fixture.check_refused({"q", "stride 650", "multiples of 16 bytes"});
  fixture.fill(1 << 29, 5);
  fixture.check_refused({"value heads", "split the batch"}, lathe::Code::unsupported);
  fixture.fill(1, (int64_t{1} << 30) + 1);
  fixture.check_refused({"q has T = 1073741825"}, lathe::Code::unsupported);
}

}  // namespace test
