// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d on several ranks equals one rank: y and states bit for bit, dx within one more
// rounding, parameter gradients within the rms rule.
#include <doctest/doctest.h>

#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

using Parts = std::vector<int64_t>;

std::string text(const Parts& parts) {
  std::string out = "parts";
  for (int64_t part : parts) out += " " + std::to_string(part);
  return out;
}

void equals_one_rank(const ConvCase& conv, const Parts& parts, unsigned flags = 0) {
  INFO(conv.text() << " " << text(parts) << " flags " << flags);
  const auto inputs = make_inputs(conv);
  const auto one = run_conv(conv, inputs);
  const auto many = run_conv_ranks(conv, inputs, parts, flags);
  std::vector<std::string> exact = {"y"};
  if (conv.states) exact.push_back("final_state");
  check_equal(many, one, exact);
  // Partial sums of parameter gradients are each rounded by their rank.
  const int roundings = 1 + static_cast<int>(parts.size());
  check_conv(conv, many, reference(conv, inputs), conv.backward ? roundings : 1);
}

TEST_CASE("ranks: cuts beside the starts of sequences") {
  // Tokens of the wrong sequence would stand out by their size.
  for (const Parts& parts :
       {Parts{257, 255, 257, 255}, Parts{257, 253, 257, 257}, Parts{257, 1, 253, 257, 1, 253, 2}}) {
    for (bool states : {false, true}) {
      ConvCase conv = packed_case({0, 256, 512, 768, 1024}, 4, states);
      conv.scale = 100;
      equals_one_rank(conv, parts);
      conv.cu_seqlens = {0, 255, 257, 258, 510, 511, 1024};
      equals_one_rank(conv, parts);
    }
  }
}

TEST_CASE("ranks: parts shorter than the window") {
  for (bool states : {false, true}) {
    equals_one_rank(packed_case({0, 20}, 8, states), {1, 1, 1, 17, 0});
    equals_one_rank(packed_case({0, 2, 20}, 8, states), {1, 1, 1, 17, 0});
    equals_one_rank(packed_case({0, 0, 1, 3, 3, 20, 20}, 8, states), {1, 1, 1, 17, 0});
    equals_one_rank(packed_case({0, 9}, 8, states), {1, 1, 1, 1, 1, 2, 2});
    equals_one_rank(packed_case({0, 3, 9}, 4, states), {0, 1, 2, 1, 0, 2, 3});
    equals_one_rank(packed_case({0, 7}, 4, states), {2, 1, 2, 2});
    equals_one_rank(packed_case({0, 5}, 8, states), {0, 0, 5});
    equals_one_rank(packed_case({0, 5, 5}, 8, states), {5, 0, 0});
  }
}

TEST_CASE("ranks: even cuts of batches, in every dtype") {
  for (int world : {2, 3, 4, 7}) {
    for (lathe_dtype dtype : {LATHE_F32, LATHE_F16, LATHE_BF16}) {
      ConvCase conv{.x = dtype, .weight = dtype, .batch = 2, .tokens = 151, .channels = 24};
      conv.silu = conv.bias = conv.residual = conv.states = true;
      Parts parts;
      for (int r = 0; r < world; ++r) {
        parts.push_back((r + 1) * conv.tokens / world - r * conv.tokens / world);
      }
      equals_one_rank(conv, parts);
    }
  }
}

TEST_CASE("ranks: parameter gradients are summed on request") {
  ConvCase conv = packed_case({0, 30, 31, 100}, 4, true);
  equals_one_rank(conv, {40, 20, 40}, LATHE_REDUCE_PARAMETER_GRADS);
  conv.x = LATHE_BF16;
  conv.weight = LATHE_BF16;
  equals_one_rank(conv, {40, 60}, LATHE_REDUCE_PARAMETER_GRADS);
  conv.x = conv.weight = LATHE_F32;
  equals_one_rank(conv, {100}, LATHE_REDUCE_PARAMETER_GRADS);
}

TEST_CASE("ranks: forward alone, and no tokens at all") {
  ConvCase conv = packed_case({0, 5, 12}, 4, true);
  conv.backward = false;
  equals_one_rank(conv, {6, 6});
  equals_one_rank(packed_case({0, 0, 0}, 4, true), {0, 0});
}

}  // namespace
