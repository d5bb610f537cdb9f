// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/conv/case.h"

#include <bit>
#include <random>
#include <sstream>

#include "tests/compare.h"
#include "tests/harness/ranks.h"
#include "tests/numbers.h"

namespace apitest {
namespace {

const char* word(lathe_dtype dtype) {
  static const char* words[] = {"f32", "f16", "bf16", "i32", "i64"};
  return words[dtype];
}

}  // namespace

std::string ConvCase::text() const {
  std::ostringstream out;
  out << word(x) << '/' << word(weight) << " B" << batch << " T" << tokens << " D" << channels
      << " W" << width << (silu ? " silu" : "") << (bias ? " bias" : "")
      << (residual ? " residual" : "") << (states ? " states" : "") << " cu[";
  for (int64_t offset : cu_seqlens) out << ' ' << offset;
  out << " ] gaps " << placement.token_gap << ',' << placement.batch_gap << " offset "
      << placement.offset << " alignment " << alignment;
  return out.str();
}

ref::Conv make_inputs(const ConvCase& conv, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto draw = [&](lathe_dtype dtype, int64_t size, double scale) {
    ref::Array values(static_cast<size_t>(size));
    for (double& value : values) value = numbers::rounded(dtype, normal(random) * scale);
    return values;
  };
  ref::Conv inputs;
  inputs.channels = conv.channels;
  inputs.width = conv.width;
  inputs.silu = conv.silu;
  inputs.begin = conv.cu_seqlens;
  if (inputs.begin.empty()) {
    for (int64_t b = 0; b <= conv.batch; ++b) inputs.begin.push_back(b * conv.tokens);
  }
  const int64_t elements = conv.batch * conv.tokens * conv.channels;
  const int64_t states = conv.sequences() * conv.channels * conv.width;
  inputs.x = draw(conv.x, elements, conv.scale);
  inputs.weight = draw(conv.weight, conv.channels * conv.width, 0.5);
  if (conv.bias) inputs.bias = draw(conv.weight, conv.channels, 1);
  if (conv.residual) inputs.residual = draw(conv.x, elements, 1);
  if (conv.states) inputs.initial_state = draw(conv.x, states, conv.scale);
  if (conv.backward) inputs.dy = draw(conv.x, elements, 1);
  if (conv.backward && conv.states) inputs.dfinal_state = draw(conv.x, states, 1);
  return inputs;
}

Call call_of(const char* op, const ConvCase& conv) {
  Call call;
  call.op = op;
  call.options["activation"] = conv.silu ? "silu" : "none";
  call.alignment = conv.alignment;
  return call;
}

Outputs reference(const ConvCase& conv, const ref::Conv& inputs) {
  Outputs out;
  const auto forward = ref::conv_forward(inputs);
  out["y"] = forward.y;
  if (conv.states) out["final_state"] = forward.final_state;
  if (!conv.backward) return out;
  const auto backward = ref::conv_backward(inputs);
  out["dx"] = backward.dx;
  out["dweight"] = backward.dweight;
  if (conv.bias) out["dbias"] = backward.dbias;
  if (conv.states) out["dinitial_state"] = backward.dinitial_state;
  return out;
}

Call conv_call(const ConvCase& c, const ref::Conv& inputs) {
  Call call = call_of("causal_conv1d", c);
  if (c.any_shape) call.open = {"D"};
  const std::vector<int64_t> activation = {c.batch, c.tokens, c.channels};
  const std::vector<int64_t> state = {c.sequences(), c.channels, c.width};
  const std::vector<int64_t> taps = {c.channels, c.width};
  call.put("x", c.x, activation, inputs.x, c.placement);
  call.put("weight", c.weight, taps, inputs.weight);
  if (c.bias) call.put("bias", c.weight, {c.channels}, inputs.bias);
  if (c.residual) call.put("residual", c.x, activation, inputs.residual, c.placement);
  if (c.states) call.put("initial_state", c.x, state, inputs.initial_state);
  if (!c.cu_seqlens.empty()) {
    call.put("cu_seqlens", c.cu_dtype, {c.sequences() + 1},
             Values(c.cu_seqlens.begin(), c.cu_seqlens.end()));
  }
  call.want("y", c.x, activation, c.placement);
  if (c.states) call.want("final_state", c.x, state);
  if (!c.backward) return call;
  call.put("dy", c.x, activation, inputs.dy, c.placement);
  if (c.states) call.put("dfinal_state", c.x, state, inputs.dfinal_state);
  call.want("dx", c.x, activation, c.placement);
  call.want("dweight", c.weight, taps);
  if (c.bias) call.want("dbias", c.weight, {c.channels});
  if (c.states) call.want("dinitial_state", c.x, state);
  return call;
}

Call conv_update_call(const ConvCase& c, const ref::Conv& inputs) {
  Call call = call_of("causal_conv1d_update", c);
  // Rows of x, residual and y may lie apart: the gap between tokens is one between rows here.
  const Placement rows{.token_gap = c.placement.token_gap, .offset = c.placement.offset};
  const std::vector<int64_t> row = {c.batch, c.channels};
  call.put("x", c.x, row, inputs.x, rows);
  call.put("weight", c.weight, {c.channels, c.width}, inputs.weight);
  if (c.bias) call.put("bias", c.weight, {c.channels}, inputs.bias);
  if (c.residual) call.put("residual", c.x, row, inputs.residual, rows);
  call.put("state", c.x, {c.batch, c.channels, c.width}, inputs.initial_state);
  call.tensors.at("state").changed = true;
  call.want("y", c.x, row, rows);
  return call;
}

Answer run_conv_call(const Call& call) {
  Answer answer = execute(shared_context(), call);
  check_findings(answer);
  return answer;
}

Outputs run_conv(const ConvCase& conv, const ref::Conv& inputs) {
  return run_conv_call(conv_call(conv, inputs)).outputs;
}

Outputs run_conv_ranks(const ConvCase& conv, const ref::Conv& inputs,
                       const std::vector<int64_t>& parts, unsigned flags, bool offsets) {
  Ranks ranks;
  ranks.world = static_cast<int>(parts.size()), ranks.flags = flags, ranks.offsets = offsets;
  ranks.bounds = {0};
  for (const int64_t part : parts) ranks.bounds.push_back(ranks.bounds.back() + part);
  return run_conv_ranks(conv, inputs, ranks).outputs;
}

RanksAnswer run_conv_ranks(const ConvCase& conv, const ref::Conv& inputs, const Ranks& ranks) {
  return run_ranks(conv_call(conv, inputs), ranks);
}

void check_conv(const ConvCase& conv, const Outputs& actual, const Outputs& expected,
                int roundings) {
  INFO(conv.text());
  for (const auto& [name, values] : expected) {
    const bool parameter = name == "dweight" || name == "dbias";
    const lathe_dtype dtype = parameter ? conv.weight : conv.x;
    // One rounding to the dtype, on top of the float32 sums and the approximate exponential.
    compare::Rule rule{compare::Rule::kRms, roundings * numbers::half_ulp(dtype) + 1e-5, 1e-30};
    if (name == "final_state") rule = {compare::Rule::kExact, 0, 0};
    std::vector<int64_t> shape = {conv.batch, conv.tokens, conv.channels};
    if (name == "dweight") shape = {conv.channels, conv.width};
    if (name == "dbias") shape = {conv.channels};
    if (name == "final_state" || name == "dinitial_state") {
      shape = {conv.sequences(), conv.channels, conv.width};
    }
    REQUIRE(Call::count(shape) == values.size());
    REQUIRE(actual.count(name) == 1);
    const auto verdict = compare::compare(name, actual.at(name), values, shape, rule);
    CHECK_MESSAGE(verdict.ok, verdict.text);
  }
}

void check_equal(const Outputs& actual, const Outputs& expected,
                 const std::vector<std::string>& names) {
  const auto bits = [](double value) {
    return std::isnan(value) ? ~uint64_t{0} : std::bit_cast<uint64_t>(value);
  };
  for (const auto& name : names) {
    const auto &a = actual.at(name), &e = expected.at(name);
    REQUIRE(a.size() == e.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (bits(a[i]) == bits(e[i])) continue;
      FAIL_CHECK(name << "[" << i << "] is " << a[i] << ", expected " << e[i] << " bit for bit");
      break;
    }
  }
}

}  // namespace apitest
