// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/conv_case.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <sstream>

#include "tests/compare.h"
#include "tests/numbers.h"

namespace apitest {
namespace {

const char* word(lathe_dtype dtype) {
  static const char* words[] = {"f32", "f16", "bf16", "i32", "i64"};
  return words[dtype];
}

size_t count(const std::vector<int64_t>& shape) {
  size_t product = 1;
  for (int64_t extent : shape) product *= static_cast<size_t>(extent);
  return product;
}

// Tokens [begin, end) of every row of [batch, tokens, channels].
std::vector<double> cut(const std::vector<double>& all, const ConvCase& conv, int64_t begin,
                        int64_t end) {
  std::vector<double> part;
  for (int64_t b = 0; b < conv.batch; ++b) {
    const auto row = all.begin() + b * conv.tokens * conv.channels;
    part.insert(part.end(), row + begin * conv.channels, row + end * conv.channels);
  }
  return part;
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

Values reference(const ConvCase& conv, const ref::Conv& inputs) {
  Values out;
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

ConvRun::ConvRun(lathe_context* context, const ConvCase& conv, const ref::Conv& inputs,
                 lathe_group* group, lathe_shard* shard, unsigned flags)
    : context_(context), case_(conv), shard_(shard), stream_(context) {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, "causal_conv1d"));
  problem_.reset(problem);
  API(lathe_problem_set_string(problem, "activation", conv.silu ? "silu" : "none"));
  if (conv.alignment) API(lathe_problem_alignment(problem, conv.alignment));
  if (group != nullptr) API(lathe_problem_group(problem, group, flags));
  int64_t begin = 0, end = conv.tokens;
  if (shard != nullptr) API(lathe_shard_range(shard, &begin, &end));
  add_inputs(inputs, begin, end);
  add_outputs(end - begin);

  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, problem));
  plan_.reset(plan);
  slots_.assign(lathe_plan_slot_count(plan), nullptr);
  for (const auto& [name, tensor] : tensors_) {
    size_t slot = 0;
    API(lathe_plan_slot(plan, name.c_str(), &slot));
    slots_.at(slot) = tensor->dl();
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, slots_.data(), shard_, &bytes));
  workspace_ = std::make_unique<Memory>(context, bytes);
}

void ConvRun::add_inputs(const ref::Conv& inputs, int64_t begin, int64_t end) {
  const ConvCase& c = case_;
  const std::vector<int64_t> activation = {c.batch, end - begin, c.channels};
  const std::vector<int64_t> state = {c.sequences(), c.channels, c.width};
  input("x", c.x, activation, cut(inputs.x, c, begin, end), c.placement);
  input("weight", c.weight, {c.channels, c.width}, inputs.weight);
  if (c.bias) input("bias", c.weight, {c.channels}, inputs.bias);
  if (c.residual) {
    input("residual", c.x, activation, cut(inputs.residual, c, begin, end), c.placement);
  }
  if (c.states) input("initial_state", c.x, state, inputs.initial_state);
  if (!c.cu_seqlens.empty()) {
    const std::vector<double> offsets(c.cu_seqlens.begin(), c.cu_seqlens.end());
    input("cu_seqlens", c.cu_dtype, {c.sequences() + 1}, offsets);
  }
  if (!c.backward) return;
  input("dy", c.x, activation, cut(inputs.dy, c, begin, end), c.placement);
  if (c.states) input("dfinal_state", c.x, state, inputs.dfinal_state);
}

void ConvRun::add_outputs(int64_t tokens) {
  const ConvCase& c = case_;
  const std::vector<int64_t> activation = {c.batch, tokens, c.channels};
  const std::vector<int64_t> state = {c.sequences(), c.channels, c.width};
  output("y", c.x, activation, c.placement);
  if (c.states) output("final_state", c.x, state);
  if (!c.backward) return;
  output("dx", c.x, activation, c.placement);
  output("dweight", c.weight, {c.channels, c.width});
  if (c.bias) output("dbias", c.weight, {c.channels});
  if (c.states) output("dinitial_state", c.x, state);
}

void ConvRun::declare(const char* name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
  // Batch, tokens and sequences vary from run to run; width and, as a promise, channels do not.
  std::vector<int64_t> declared(shape.size(), -1);
  const std::string text = name;
  const bool per_channel = text == "bias" || text == "dbias";
  const bool taps = text == "weight" || text == "dweight";
  const bool state = text.find("state") != std::string::npos;
  const int64_t channels = case_.any_shape ? -1 : case_.channels;
  if (per_channel) declared = {channels};
  if (taps) declared = {channels, case_.width};
  if (state) declared = {-1, channels, case_.width};
  if (!per_channel && !taps && !state && text != "cu_seqlens") declared = {-1, -1, channels};
  API(lathe_problem_tensor(problem_.get(), name, dtype, static_cast<int>(shape.size()),
                           declared.data()));
}

void ConvRun::input(const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
                    const std::vector<double>& values, const Placement& placement) {
  declare(name, dtype, shape);
  auto& tensor = tensors_[name];
  tensor = std::make_unique<Tensor>(context_, dtype, std::move(shape), placement, stream_.get());
  tensor->upload(values);
}

void ConvRun::output(const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
                     const Placement& placement) {
  declare(name, dtype, shape);
  tensors_[name] =
      std::make_unique<Tensor>(context_, dtype, std::move(shape), placement, stream_.get());
  outputs_.push_back(name);
}

void ConvRun::poison_outputs() {
  for (const auto& name : outputs_) at(name).poison();
}

void ConvRun::enqueue() {
  void* workspace = workspace_->bytes() == 0 ? nullptr : workspace_->data();
  if (shard_ != nullptr) {
    API(lathe_plan_run_sharded(plan_.get(), shard_, slots_.data(), workspace, workspace_->bytes(),
                               stream_.get()));
  } else {
    API(lathe_plan_run(plan_.get(), slots_.data(), workspace, workspace_->bytes(), stream_.get()));
  }
}

Values ConvRun::outputs() {
  API(lathe_stream_synchronize(context_, stream_.get()));
  Values out;
  for (const auto& name : outputs_) out[name] = at(name).download();
  return out;
}

Values ConvRun::operator()() {
  poison_outputs();
  enqueue();
  return outputs();
}

lathe_estimate ConvRun::estimate() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan_.get(), slots_.data(), shard_, &estimate));
  return estimate;
}

Values run_conv(lathe_context* context, const ConvCase& conv, const ref::Conv& inputs) {
  return ConvRun(context, conv, inputs)();
}

void check_conv(const ConvCase& conv, const Values& actual, const Values& expected, int roundings) {
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
    REQUIRE(count(shape) == values.size());
    REQUIRE(actual.count(name) == 1);
    const auto verdict = compare::compare(name, actual.at(name), values, shape, rule);
    CHECK_MESSAGE(verdict.ok, verdict.text);
  }
  check_no_findings();
}

void check_same(const Values& actual, const Values& expected,
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
