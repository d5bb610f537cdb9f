// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Views whose rows lie more than 2^32 elements apart: an offset in 32 bits would wrap and find
// other bytes.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/harness/far_memory.h"
#include "tests/harness/session.h"
#include "tests/numbers.h"
#include "tests/ref/conv.h"

using namespace apitest;

namespace {

constexpr int64_t kChannels = 8, kWidth = 3;

// A [B, T, D] bf16 view over a range of its own.
struct View {
  View(lathe_context* context, int64_t* shape, int64_t* strides)
      : context_(context),
        range(context, static_cast<size_t>(2 * ((shape[0] - 1) * strides[0] +
                                                (shape[1] - 1) * strides[1] + shape[2]))) {
    tensor.data = range.data();
    tensor.device = {kDLCUDA, 0};
    tensor.ndim = 3;
    tensor.dtype = {kDLBfloat, 16, 1};
    tensor.shape = shape;
    tensor.strides = strides;
  }
  char* row(int64_t b, int64_t t) const {
    return range.data() + 2 * (b * tensor.strides[0] + t * tensor.strides[1]);
  }
  void upload(const ref::Array& values) {
    size_t at = 0;
    for_rows([&](char* row) {
      uint16_t bits[kChannels];
      for (auto& value : bits) value = numbers::to_bf16(static_cast<float>(values[at++]));
      API(lathe_copy_to_device(context_, row, bits, sizeof bits, nullptr));
    });
  }
  ref::Array download() {
    ref::Array values;
    for_rows([&](const char* row) {
      uint16_t bits[kChannels];
      API(lathe_copy_to_host(context_, bits, row, sizeof bits, nullptr));
      for (auto& value : bits) values.push_back(numbers::decode(LATHE_BF16, &value));
    });
    return values;
  }
  template <typename Work>
  void for_rows(Work work) {
    for (int64_t b = 0; b < tensor.shape[0]; ++b) {
      for (int64_t t = 0; t < tensor.shape[1]; ++t) work(row(b, t));
    }
  }

  lathe_context* context_;
  FarMemory range;
  DLTensor tensor{};
};

void check_view(int64_t batch, int64_t tokens, int64_t batch_stride, int64_t token_stride) {
  INFO("B" << batch << " T" << tokens << " strides " << batch_stride << ", " << token_stride);
  const auto context = make_context();
  int64_t shape[] = {batch, tokens, kChannels}, taps[] = {kChannels, kWidth};
  int64_t strides[] = {batch_stride, token_stride, 1};
  const int64_t any[] = {-1, -1, kChannels};

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

  View x(context.get(), shape, strides), dy(context.get(), shape, strides),
      y(context.get(), shape, strides), dx(context.get(), shape, strides);
  x.upload(conv.x);
  dy.upload(conv.dy);
  Tensor weight(context.get(), LATHE_BF16, {kChannels, kWidth});
  weight.upload(conv.weight);

  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, "causal_conv1d"));
  const Problem owner(problem);
  lathe_plan* made = nullptr;
  for (const char* name : {"x", "y", "dy", "dx"}) {
    API(lathe_problem_tensor(problem, name, LATHE_BF16, 3, any));
  }
  API(lathe_problem_tensor(problem, "weight", LATHE_BF16, 2, taps));
  API(lathe_plan_create(&made, context.get(), problem));
  const Plan plan(made);
  const DLTensor* slots[5] = {};
  REQUIRE(lathe_plan_slot_count(made) == 5);
  const std::pair<const char*, const DLTensor*> tensors[] = {{"x", &x.tensor},
                                                             {"y", &y.tensor},
                                                             {"dy", &dy.tensor},
                                                             {"dx", &dx.tensor},
                                                             {"weight", weight.dl()}};
  for (const auto& [name, tensor] : tensors) {
    size_t slot = 0;
    API(lathe_plan_slot(made, name, &slot));
    slots[slot] = tensor;
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(made, slots, nullptr, &bytes));
  const Memory workspace(context.get(), bytes);
  API(lathe_plan_run(made, slots, workspace.data(), bytes, nullptr));
  API(lathe_stream_synchronize(context.get(), nullptr));
  CHECK(y.download() == ref::conv_forward(conv).y);
  CHECK(dx.download() == ref::conv_backward(conv).dx);
  for (const auto& finding : take_report().findings) FAIL_CHECK(finding);
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
