// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover causal_conv1d_update: against float64, and bit for bit against the forward on
// the same tokens, by each implementation that supports the case.
#include "ops/conv/update/step.h"
#include "ops/resolve.h"
#include "tests/numbers.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

// Returns the first tile of every implementation that supports the case, as the tuner names it.
std::vector<std::string> tiles_of(const ConvCase& conv) {
  lathe::ConvProblem problem;
  problem.update = true;
  problem.x = static_cast<lathe::Dtype>(conv.x);
  problem.weight = static_cast<lathe::Dtype>(conv.weight);
  problem.width = static_cast<int>(conv.width);
  const int alignment = conv.alignment != 0 ? conv.alignment : 16;
  problem.vector_bytes = lathe::vector_bytes(problem.x, alignment, conv.channels);
  problem.silu = conv.silu, problem.bias = conv.bias, problem.residual = conv.residual;
  const lathe::DeviceFacts facts = *lathe::facts_of_arch("sm_90a");
  std::vector<std::string> tiles;
  for (const lathe::ConvUpdateStep* update : lathe::conv_updates()) {
    if (!update->refusal(problem, facts).empty()) continue;
    const lathe::KernelSpec spec = update->candidates(problem, facts).front();
    tiles.push_back((tiles.empty() ? "" : "kernel=" + spec.kernel + " ") +
                    "warps=" + std::to_string(spec.threads / 32));
  }
  REQUIRE(tiles.size() >= 2);
  return tiles;
}

Call update_call(const ConvCase& conv, const ref::Conv& inputs, const std::string& tile) {
  Call call = conv_update_call(conv, inputs);
  call.tiles = {{"causal_conv1d_update", tile}};
  return call;
}

// One decode step at a time; the state stays on the device.
Outputs step(PlannedCall* call, const Values& x, const Values& residual) {
  call->upload("x", x);
  if (!residual.empty()) call->upload("residual", residual);
  call->enqueue();
  call->synchronize();
  return call->outputs();
}

// Token t of [B, T, D].
std::vector<double> token(const std::vector<double>& all, const ConvCase& conv, int64_t t) {
  std::vector<double> row;
  for (int64_t b = 0; b < conv.batch && !all.empty(); ++b) {
    const auto from = all.begin() + (b * conv.tokens + t) * conv.channels;
    row.insert(row.end(), from, from + conv.channels);
  }
  return row;
}

void follow_forward(const ConvCase& conv, const std::string& tile) {
  INFO(conv.text(), " ", tile);
  const auto inputs = make_inputs(conv);
  const Outputs forward = run_conv(conv, inputs);
  ref::Conv first = inputs;
  first.x = token(inputs.x, conv, 0), first.residual = token(inputs.residual, conv, 0);
  PlannedCall call(shared_context(), update_call(conv, first, tile));
  call.reset();
  Outputs out;
  for (int64_t t = 0; t < conv.tokens; ++t) {
    INFO("token " << t);
    out = step(&call, token(inputs.x, conv, t), token(inputs.residual, conv, t));
    check_equal(out, {{"y", token(forward.at("y"), conv, t)}}, {"y"});
  }
  check_equal(out, {{"state", forward.at("final_state")}}, {"state"});
  check_no_findings();
}
void follow_forward(const ConvCase& conv) {
  for (const std::string& tile : tiles_of(conv)) follow_forward(conv, tile);
}

TEST_CASE("update: token by token it is the forward") {
  int mask = 0;
  for (int64_t width = 2; width <= 8; ++width) {
    for (lathe_dtype dtype : {LATHE_F32, LATHE_F16, LATHE_BF16}) {
      mask = (mask + 3) % 8;
      ConvCase conv{.x = dtype, .weight = dtype, .batch = 3, .tokens = width + 2, .channels = 40};
      conv.width = width;
      conv.states = true;
      conv.backward = false;
      conv.silu = mask & 1;
      conv.bias = mask & 2;
      conv.residual = mask & 4;
      follow_forward(conv);
    }
  }
}

TEST_CASE("update: odd channels, a weight of another dtype, rows apart") {
  for (int64_t channels : {1, 7, 51, 60, 100}) {
    ConvCase conv{.x = LATHE_BF16, .weight = LATHE_F32, .batch = 2, .tokens = 5};
    conv.channels = channels;
    conv.silu = conv.bias = conv.residual = conv.states = true;
    conv.backward = false;
    follow_forward(conv);
  }
  ConvCase conv{.x = LATHE_F16, .weight = LATHE_F16, .batch = 4, .tokens = 5, .channels = 24};
  conv.states = true;
  conv.backward = false;
  conv.alignment = 4;
  conv.placement = {.token_gap = 2, .offset = 6};
  follow_forward(conv);
}

TEST_CASE("update: against float64, with a NaN in the slot that leaves") {
  for (lathe_dtype dtype : {LATHE_F32, LATHE_F16, LATHE_BF16}) {
    ConvCase conv{.x = dtype, .weight = LATHE_F32, .batch = 5, .tokens = 1, .channels = 33};
    conv.silu = conv.bias = conv.residual = conv.states = true;
    conv.backward = false;
    auto inputs = make_inputs(conv);
    for (size_t i = 0; i < inputs.initial_state.size(); i += 4) {
      inputs.initial_state[i] = std::nan("");
    }
    const auto expected = ref::conv_update(inputs, inputs.initial_state);
    for (const std::string& tile : tiles_of(conv)) {
      INFO(tile);
      PlannedCall call(shared_context(), update_call(conv, inputs, tile));
      call.run();
      const Outputs out = call.outputs();
      check_rms("y", out.at("y"), expected.y, numbers::half_ulp(dtype) + 1e-5);
      check_equal(out, {{"state", expected.state}}, {"state"});
      check_no_findings();
    }
  }
}

}  // namespace
