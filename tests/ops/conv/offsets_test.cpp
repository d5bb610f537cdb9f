// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover views whose rows lie more than 2^32 elements apart: an offset in 32 bits would
// wrap and find other bytes.
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

constexpr int64_t kChannels = 8, kWidth = 3;

void check_view(int64_t batch, int64_t tokens, int64_t batch_stride, int64_t token_stride) {
  INFO("B" << batch << " T" << tokens << " strides " << batch_stride << ", " << token_stride);
  // Small integers are exact in bf16, and every row has its own.
  ref::Conv conv;
  conv.channels = kChannels;
  conv.width = kWidth;
  for (int64_t b = 0; b <= batch; ++b) conv.begin.push_back(b * tokens);
  for (int64_t i = 0; i < batch * tokens * kChannels; ++i) {
    conv.x.push_back(static_cast<double>(i % 61 - 30));
    conv.dy.push_back(static_cast<double>(i % 47 - 23));
  }
  for (int64_t i = 0; i < kChannels * kWidth; ++i) conv.weight.push_back(i % 3 - 1.0);

  Call call;
  call.op = "causal_conv1d";
  const std::vector<int64_t> shape = {batch, tokens, kChannels};
  call.put("x", LATHE_BF16, shape, conv.x);
  call.put("dy", LATHE_BF16, shape, conv.dy);
  call.want("y", LATHE_BF16, shape);
  call.want("dx", LATHE_BF16, shape);
  for (auto& [name, tensor] : call.tensors) tensor.strides = {batch_stride, token_stride, 1};
  call.put("weight", LATHE_BF16, {kChannels, kWidth}, conv.weight);
  const Answer answer = run_conv_call(call);
  CHECK(answer.at("y") == ref::conv_forward(conv).y);
  CHECK(answer.at("dx") == ref::conv_backward(conv).dx);
}

constexpr int64_t k2to31 = int64_t{1} << 31, k2to32 = int64_t{1} << 32;

TEST_CASE("offsets: batch rows more than 2^32 elements apart") {
  check_view(2, 5, k2to32 + 64, kChannels);
  check_view(2, 5, k2to32, kChannels + 8);
}

TEST_CASE("offsets: tokens 2^31 and 2^32 elements apart") {
  check_view(1, 4, 0, k2to31 + 64);
  check_view(1, 3, 0, k2to32);
}

}  // namespace
