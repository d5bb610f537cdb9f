// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests compare causal_conv1d on one rank with float64, where inputs are awkward.
#include <doctest/doctest.h>

#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

const lathe_dtype kDtypes[] = {LATHE_F32, LATHE_F16, LATHE_BF16};

void run_and_check(const ConvCase& conv, uint64_t seed = 1) {
  INFO(conv.text() << " seed " << seed);
  const auto inputs = make_inputs(conv, seed);
  check_conv(conv, run_conv(conv, inputs), reference(conv, inputs));
}

TEST_CASE("conv: widths, dtypes and options") {
  int mask = 0;
  for (int64_t width = 2; width <= 8; ++width) {
    for (lathe_dtype dtype : kDtypes) {
      // Walks through the sixteen sets of options, and through batches and tile edges.
      mask = (mask + 5) % 16;
      ConvCase conv{.x = dtype, .weight = dtype, .batch = 1 + mask % 3, .channels = 40};
      conv.tokens = 61 + 2 * width + mask;
      conv.width = width;
      conv.silu = mask & 1;
      conv.bias = mask & 2;
      conv.residual = mask & 4;
      conv.states = mask & 8;
      run_and_check(conv);
      conv.silu = conv.bias = conv.residual = conv.states = true;
      run_and_check(conv);
    }
  }
}

TEST_CASE("conv: a weight of another dtype") {
  for (lathe_dtype x : kDtypes) {
    for (lathe_dtype weight : kDtypes) {
      ConvCase conv{.x = x, .weight = weight, .batch = 2, .tokens = 70, .channels = 24};
      conv.silu = conv.bias = conv.residual = conv.states = true;
      run_and_check(conv);
    }
  }
}

TEST_CASE("conv: fewer tokens than taps") {
  for (int64_t width : {2, 3, 4, 8}) {
    for (bool states : {false, true}) {
      for (int64_t tokens = 0; tokens <= width + 1; ++tokens) {
        ConvCase conv{.batch = 2, .tokens = tokens, .channels = 12, .width = width};
        conv.silu = conv.bias = true;
        conv.states = states;
        run_and_check(conv);
      }
    }
  }
}

TEST_CASE("conv: channels that fill no vector, and many") {
  for (int64_t channels : {1, 7, 60, 100, 2056}) {
    for (lathe_dtype dtype : {LATHE_F32, LATHE_BF16}) {
      ConvCase conv{.x = dtype, .weight = dtype, .tokens = 67, .channels = channels};
      if (channels > 2000) conv.tokens = 9;
      conv.silu = conv.bias = conv.states = true;
      run_and_check(conv);
      conv.placement.guard = 64;  // poison within the allocation, where no checker looks
      run_and_check(conv, 2);
    }
  }
}

TEST_CASE("conv: packed sequences, empty ones among them") {
  const std::vector<std::vector<int64_t>> packs = {
      {0, 0},
      {0, 1},
      {0, 5, 5, 6, 9, 9, 9, 33},
      {0, 0, 0, 64, 65, 128, 128},
      {0, 63, 64, 66, 127, 191},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
      {0, 200},
  };
  for (const auto& pack : packs) {
    for (int64_t width : {2, 4, 8}) {
      for (bool states : {false, true}) {
        ConvCase conv{.x = LATHE_BF16, .weight = LATHE_F32, .channels = 24, .width = width};
        conv.tokens = pack.back();
        conv.cu_seqlens = pack;
        conv.cu_dtype = width == 4 ? LATHE_I64 : LATHE_I32;
        conv.silu = conv.bias = true;
        conv.states = states;
        conv.scale = 100;  // a token of the wrong sequence would stand out
        run_and_check(conv);
      }
    }
  }
}

TEST_CASE("conv: views with gaps, and every alignment") {
  struct View {
    lathe_dtype dtype;
    int alignment;
    Placement placement;
  };
  const View views[] = {
      {LATHE_F32, 16, {.token_gap = 8, .batch_gap = 16, .offset = 4}},
      {LATHE_F32, 8, {.token_gap = 2, .batch_gap = 6, .offset = 2}},
      {LATHE_F32, 4, {.token_gap = 3, .batch_gap = 1, .offset = 1}},
      {LATHE_BF16, 16, {.token_gap = 8, .batch_gap = 0, .offset = 8}},
      {LATHE_BF16, 4, {.token_gap = 2, .batch_gap = 10, .offset = 2}},
      {LATHE_BF16, 2, {.token_gap = 1, .batch_gap = 5, .offset = 3}},
      {LATHE_F16, 8, {.token_gap = 4, .batch_gap = 4, .offset = 4, .guard = 4}},
  };
  for (const auto& view : views) {
    for (bool any_shape : {false, true}) {
      ConvCase conv{
          .x = view.dtype, .weight = view.dtype, .batch = 3, .tokens = 66, .channels = 48};
      conv.silu = conv.residual = true;
      conv.alignment = view.alignment;
      conv.placement = view.placement;
      conv.any_shape = any_shape;
      run_and_check(conv);
    }
  }
}

TEST_CASE("conv: slot 0 of the state is not read, but kept") {
  ConvCase conv{.tokens = 0, .channels = 8, .width = 4};
  conv.cu_seqlens = {0, 0, 1, 6, 6};
  conv.tokens = 6;
  conv.states = true;
  conv.backward = false;
  auto inputs = make_inputs(conv);
  auto poisoned = inputs;
  for (size_t i = 0; i < poisoned.initial_state.size(); i += 4) {
    poisoned.initial_state[i] = std::nan("");
  }
  const auto expected = run_conv(conv, inputs);
  const auto actual = run_conv(conv, poisoned);
  check_equal(actual, expected, {"y"});
  // Empty sequences return it; those with tokens have lost it.
  check_equal(actual, reference(conv, poisoned), {"final_state"});
}

TEST_CASE("conv: saturated activations") {
  for (lathe_dtype dtype : kDtypes) {
    ConvCase conv{.x = dtype, .weight = dtype, .tokens = 40, .channels = 16, .width = 2};
    conv.silu = true;
    auto inputs = make_inputs(conv);
    // z = +-100 and beyond: sigmoid and its derivative are 1 and 0.
    for (size_t i = 0; i < inputs.weight.size(); ++i) inputs.weight[i] = i % 2 ? 1 : 0;
    for (size_t i = 0; i < inputs.x.size(); ++i) {
      inputs.x[i] = (i % 2 ? 1 : -1) * (i % 3 ? 100 : 1000);
    }
    check_conv(conv, run_conv(conv, inputs), reference(conv, inputs));
  }
}

TEST_CASE("conv: equal runs are equal bit for bit") {
  ConvCase conv{.x = LATHE_BF16, .weight = LATHE_F32, .batch = 2, .tokens = 300, .channels = 40};
  conv.silu = conv.bias = conv.states = true;
  const auto inputs = make_inputs(conv);
  PlannedCall call(shared_context(), conv_call(conv, inputs));
  call.run();
  const Outputs first = call.outputs();
  for (int i = 1; i < 50; ++i) {
    call.run();
    check_equal(call.outputs(), first,
                {"y", "final_state", "dx", "dweight", "dbias", "dinitial_state"});
  }
  check_no_findings();
}

TEST_CASE("conv: a new length compiles nothing, a new width does") {
  ConvCase conv{.x = LATHE_BF16, .weight = LATHE_BF16, .tokens = 5, .channels = 16, .width = 3};
  const auto specs = [&] {
    std::vector<std::string> found;
    for (const Kernel& kernel : run_conv_call(conv_call(conv, make_inputs(conv))).kernels) {
      found.push_back(kernel.spec);
    }
    return found;
  };
  const auto first = specs();
  CHECK(first.size() >= 2);
  conv.tokens = 500;
  conv.batch = 3;
  CHECK(specs() == first);
  CHECK(run_conv_call(conv_call(conv, make_inputs(conv))).compiled == 0);
  conv.width = 4;
  CHECK(specs() != first);
  conv.width = 3;
  conv.x = LATHE_F16;
  CHECK(specs() != first);
}

TEST_CASE("conv: bad cu_seqlens on the device stay inside the tensors") {
  for (lathe_dtype dtype : {LATHE_I32, LATHE_I64}) {
    ConvCase conv{.tokens = 130, .channels = 8, .width = 4};
    conv.cu_seqlens = {0, 50, 60, 130};
    conv.cu_dtype = dtype;
    conv.silu = conv.bias = conv.states = true;
    const auto inputs = make_inputs(conv);
    PlannedCall call(shared_context(), conv_call(conv, inputs));
    const double far = dtype == LATHE_I32 ? 2147483647.0 : 4611686018427387904.0;
    const std::vector<std::vector<double>> bad = {
        {0, 1e9, -5, 130}, {130, 60, 50, 0}, {-far, far, -far, far}, {far, far, far, far},
        {5, 50, 60, 131},  {0, 0, 0, 0},     {-1, -1, -1, -1},       {0, 200, 100, 90},
    };
    for (const auto& offsets : bad) {
      call.upload("cu_seqlens", offsets);
      call.run();
      (void)call.outputs();  // throws if a gap was written
      check_no_findings();
    }
    call.upload("cu_seqlens", {0, 50, 60, 130});
    call.run();
    check_conv(conv, call.outputs(), reference(conv, inputs));
  }
}

}  // namespace
