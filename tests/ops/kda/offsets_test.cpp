// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda where counts are large: rows more than 2^31 elements apart, more sequences
// than a grid's second dimension could hold, and offsets that change from call to call without a
// new plan.
#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "tests/ops/kda/case.h"

namespace {

using namespace apitest;

constexpr int64_t k2to31 = int64_t{1} << 31;

KdaCase small() {
  KdaCase kda;
  kda.heads = 2, kda.group = 1;
  kda.key_dim = 16, kda.value_dim = 8;
  kda.gate_dtype = LATHE_BF16;
  kda.l2norm = true;
  kda.states = KdaCase::none;
  kda.backward = true;
  kda.gradients = "dq,dk,dv,dg";
  return kda;
}

// RowCopies tensors to where the entries of their first dims lie far apart.
void spread(Call* call, const std::vector<std::string>& names,
            const std::vector<int64_t>& strides) {
  for (const std::string& name : names) {
    CallTensor& tensor = call->tensors.at(name);
    tensor.strides.assign(tensor.shape.size(), 1);
    for (size_t i = tensor.shape.size() - 1; i-- > 0;) {
      tensor.strides[i] =
          i < strides.size() ? strides[i] : tensor.strides[i + 1] * tensor.shape[i + 1];
    }
  }
}

void check_far(int64_t batch, int64_t tokens, int64_t token_stride, int64_t batch_stride) {
  KdaCase kda = small();
  kda.batch = batch, kda.tokens = tokens;
  INFO("token stride " << token_stride << ", batch stride " << batch_stride);
  const KdaInputs inputs = make_kda_inputs(kda);
  Call call = kda_call(kda, inputs);
  spread(&call, {"q", "k", "v", "g", "do", "o", "dq", "dk", "dv", "dg"},
         {batch_stride, token_stride});
  check_kda(kda, inputs, run_kda_call(kda, call));
}

TEST_CASE("offsets: tokens and batch rows more than 2^31 elements apart") {
  check_far(1, 3, k2to31 + 64, 3 * (k2to31 + 64));
  check_far(2, 5, 64, 2 * k2to31 + 64);
}

TEST_CASE("offsets: tokens and slots of kda_recurrent more than 2^32 elements apart") {
  constexpr int64_t kStride = k2to31 + 4;
  KdaCase kda;
  kda.element = kda.beta_dtype = LATHE_F32;
  kda.tokens = 3, kda.states = KdaCase::pool;
  KdaInputs inputs = make_kda_inputs(kda);
  inputs.pool.indices = {2};
  Call call = kda_recurrent_call(kda, inputs);
  spread(&call, {"q", "k", "v", "g", "beta", "o"}, {3 * kStride, kStride});
  spread(&call, {"state_pool"}, {kStride});
  check_kda_recurrent(kda, inputs, run_kda_call(kda, call));
}

// The gradients of A_log and dt_bias are summed over the slots of all sequences.
TEST_CASE("offsets: sums over any number of slots and columns") {
  for (const auto& [sequences, heads, keys] :
       {std::tuple<int, int, int>{1, 1, 8}, {129, 3, 20}, {200, 2, 64}, {8, 33, 8}}) {
    KdaCase kda = small();
    kda.heads = heads, kda.key_dim = keys;
    kda.gate = 3, kda.dt_bias = true;
    kda.forward = false, kda.gradients = "dA_log,ddt_bias";
    for (int64_t n = 0; n <= sequences; ++n) kda.cu_seqlens.push_back(n);
    const KdaInputs inputs = make_kda_inputs(kda);
    INFO(kda.key_dim << " keys, " << sequences << " sequences");
    check_kda(kda, inputs);
  }
}

TEST_CASE("offsets: more sequences times heads than 65535") {
  KdaCase kda = small();
  kda.key_dim = 8;
  kda.gate = 3, kda.dt_bias = true;
  kda.gradients += ",dA_log,ddt_bias";
  kda.cu_seqlens.assign(33'001, 0);
  std::fill(kda.cu_seqlens.begin() + 32'000, kda.cu_seqlens.end(), 9);
  kda.cu_seqlens.back() = 20;
  const KdaInputs inputs = make_kda_inputs(kda);
  check_kda(kda, inputs);
}

TEST_CASE("offsets: a plan serves other offsets, which no host reads") {
  KdaCase kda = small();
  kda.states = KdaCase::both;
  kda.dht = true;
  kda.cu_seqlens = {0, 40, 100, 150};
  KdaInputs inputs = make_kda_inputs(kda);
  PlannedCall call(shared_context(), kda_call(kda, inputs));
  for (const auto& begin : {kda.cu_seqlens, {0, 0, 149, 150}, {0, 50, 100, 150}}) {
    kda.cu_seqlens = begin;
    inputs.kda.begin = begin;
    call.upload("cu_seqlens", Values(begin.begin(), begin.end()));
    INFO(kda.text());
    call.run();
    check_kda(kda, inputs, call.outputs());
  }
  check_no_findings();
}

}  // namespace
