// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one case of causal_conv1d, described in a line of a table: its inputs, its calls,
// and the comparison with the double reference.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reference/conv.h"
#include "tests/harness/check.h"
#include "tests/harness/ranks.h"

namespace apitest {

struct ConvCase {
  lathe_dtype x = LATHE_F32, weight = LATHE_F32;
  int64_t batch = 1, tokens = 1, channels = 8, width = 4;
  bool silu = false, bias = false, residual = false;
  bool states = false;  // initial_state, final_state and both their gradients
  bool backward = true;
  std::vector<int64_t> cu_seqlens;  // empty: not packed
  lathe_dtype cu_dtype = LATHE_I32;
  Placement placement;     // of x, residual, dy, y and dx
  int alignment = 0;       // promise in bytes; 0: the default
  bool any_shape = false;  // D is not declared
  double scale = 1;        // of x

  int64_t sequences() const { return cu_seqlens.empty() ? batch : std::ssize(cu_seqlens) - 1; }
  std::string text() const;
};

// Returns a case of 8 channels of float32, with silu and a bias.
inline ConvCase packed_case(std::vector<int64_t> cu_seqlens, int64_t width, bool states) {
  ConvCase conv{.x = LATHE_F32, .weight = LATHE_F32, .channels = 8, .width = width};
  conv.tokens = cu_seqlens.back();
  conv.cu_seqlens = std::move(cu_seqlens);
  conv.silu = conv.bias = true;
  conv.states = states;
  return conv;
}

// Makes inputs from `seed`; every value is one of its dtype.
ref::Conv make_inputs(const ConvCase& conv, uint64_t seed = 1);
// Returns the reference's values, under the names of the outputs.
Outputs reference(const ConvCase& conv, const ref::Conv& inputs);

Call conv_call(const ConvCase& conv, const ref::Conv& inputs);
// Makes the call of one step of causal_conv1d_update: x and residual are [B, D] of one token, the
// state is the initial one.
Call conv_update_call(const ConvCase& conv, const ref::Conv& inputs);

// Runs a call and requires that there are no findings. Channels that fill no vector may have bank
// conflicts.
Answer run_conv_call(const Call& call);
// These functions run so on one rank and on parts.size() ranks, of which rank r has parts[r]
// tokens, whose shard is told the offsets or not: it takes none that leave rows out.
Outputs run_conv(const ConvCase& conv, const ref::Conv& inputs);
Outputs run_conv_ranks(const ConvCase& conv, const ref::Conv& inputs,
                       const std::vector<int64_t>& parts, unsigned flags, bool offsets = true);
RanksAnswer run_conv_ranks(const ConvCase& conv, const ref::Conv& inputs, const Ranks& ranks);

// Checks outputs against the reference by the rules of tests/compare.h. `roundings` is the number
// of roundings allowed in 16-bit gradients.
void check_conv(const ConvCase& conv, const Outputs& actual, const Outputs& expected,
                int roundings = 1);
// Checks that outputs are equal bit for bit (any NaN equals any NaN).
void check_equal(const Outputs& actual, const Outputs& expected,
                 const std::vector<std::string>& names);

}  // namespace apitest
