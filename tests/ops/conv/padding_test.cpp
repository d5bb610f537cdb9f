// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover packed rows past the last offset, which belong to no sequence: y and dx are 0
// there, and whatever they hold, NaN here, enters no other result. On one rank and on several.
#include <doctest/doctest.h>

#include <limits>

#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

ConvCase padded(std::vector<int64_t> cu_seqlens, int64_t tokens, int64_t width) {
  ConvCase conv{.channels = 8, .width = width, .silu = true, .bias = true, .residual = true};
  conv.cu_seqlens = std::move(cu_seqlens);
  conv.tokens = tokens;
  return conv;
}

// The reference sees the rows of the sequences alone.
Outputs expected_of(const ConvCase& conv, ref::Conv inputs) {
  const auto used = static_cast<size_t>(conv.cu_seqlens.back() * conv.channels);
  for (ref::Array* rows : {&inputs.x, &inputs.residual, &inputs.dy}) {
    if (!rows->empty()) rows->resize(used);
  }
  Outputs out = reference(conv, inputs);
  for (const char* name : {"y", "dx"}) {
    if (out.contains(name)) out.at(name).resize(static_cast<size_t>(conv.tokens * conv.channels));
  }
  return out;
}

ref::Conv inputs_with_nan(const ConvCase& conv) {
  ref::Conv inputs = make_inputs(conv);
  const auto used = static_cast<std::ptrdiff_t>(conv.cu_seqlens.back() * conv.channels);
  for (ref::Array* rows : {&inputs.x, &inputs.residual, &inputs.dy}) {
    if (!rows->empty()) std::fill(rows->begin() + used, rows->end(), kNaN);
  }
  return inputs;
}

void check_padding(const ConvCase& conv) {
  const ref::Conv inputs = inputs_with_nan(conv);
  check_conv(conv, run_conv(conv, inputs), expected_of(conv, inputs));
}

TEST_CASE("conv: rows past the last offset are 0 and enter nothing") {
  for (const bool states : {false, true}) {
    for (const int64_t width : {2, 4, 8}) {
      ConvCase conv = padded({0, 10, 25, 33}, 40, width);
      conv.states = states;
      check_padding(conv);
    }
    // Padding that begins with a run of tokens, and one that is many runs long.
    ConvCase conv = padded({0, 64}, 67, 4);
    conv.states = states;
    check_padding(conv);
    conv.cu_seqlens = {0, 5, 5}, conv.tokens = 1200, conv.cu_dtype = LATHE_I64;
    check_padding(conv);
  }
}

TEST_CASE("conv: rows past the last offset in 16 bits, without activation or residual") {
  ConvCase conv = padded({0, 3, 130}, 140, 3);
  conv.x = conv.weight = LATHE_BF16, conv.channels = 72;
  check_padding(conv);
  conv.silu = conv.residual = conv.bias = false;
  check_padding(conv);
  conv.states = true;
  check_padding(conv);
}

TEST_CASE("conv: nothing but rows past the last offset") {
  for (ConvCase conv : {padded({0, 0, 0}, 21, 4), padded({0}, 21, 4)}) {
    conv.states = conv.sequences() > 0;
    check_padding(conv);
  }
}

TEST_CASE("conv: some of the gradients, with rows past the last offset") {
  const ConvCase conv = padded({0, 10, 25, 33}, 340, 4);
  const ref::Conv inputs = inputs_with_nan(conv);
  for (const std::string wanted : {"dx", "dweight"}) {
    Call call = conv_call(conv, inputs);
    for (const char* other : {"y", "dx", "dweight", "dbias"}) {
      if (other != wanted) call.tensors.erase(other);
    }
    const Outputs outputs = run_conv_call(call).outputs;
    Outputs expected = expected_of(conv, inputs);
    std::erase_if(expected, [&](const auto& each) { return each.first != wanted; });
    check_conv(conv, outputs, expected);
  }
}

TEST_CASE("ranks: rows past the last offset, wherever the cuts lie") {
  for (const std::vector<int64_t>& parts :
       {std::vector<int64_t>{20, 20}, {33, 7}, {35, 5}, {32, 1, 2, 5}, {30, 4, 6}}) {
    for (const bool states : {false, true}) {
      ConvCase conv = padded({0, 10, 25, 33}, 40, 4);
      conv.states = states;
      const ref::Conv inputs = inputs_with_nan(conv);
      check_conv(conv, run_conv_ranks(conv, inputs, parts, LATHE_REDUCE_PARAMETER_GRADS, false),
                 expected_of(conv, inputs), 1 + static_cast<int>(parts.size()));
    }
  }
}

}  // namespace
