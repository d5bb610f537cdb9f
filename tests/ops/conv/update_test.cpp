// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update: against float64, and bit for bit against the forward on the same tokens, by
// each of its kernels.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/numbers.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

// Choices of the row kernel for every problem of this file, on the devices that tests simulate.
std::string row_choices() {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("lathe-update-" + std::to_string(getpid()) + ".txt");
  std::ofstream out(path);
  out << "lathe-tuned 1\n";
  const char* const dtypes[] = {"f32", "f16", "bf16"};
  for (const char* device : {"gpu=h100 arch=sm_90a sms=132", "gpu=a100 arch=sm_80 sms=108"}) {
    for (int i = 0; i < 9 * 7 * 3 * 8; ++i) {
      const int flags = i % 8, vector = 2 << (i / 8 % 3), width = 2 + i / 24 % 7, types = i / 168;
      out << "causal_conv1d_update | x=" << dtypes[types / 3] << " weight=" << dtypes[types % 3]
          << " width=" << width << " vector=" << vector << " silu=" << flags % 2
          << " bias=" << flags / 2 % 2 << " residual=" << flags / 4
          << " | kernel=causal_conv1d_update_row warps=4 | " << device
          << " shape=any us=1 default_us=2 by=model\n";
    }
  }
  return path;
}

// The default's context, or one in which updates are computed by the row kernel.
lathe_context* update_context(bool row) {
  static const Context usual = make_context();
  static const Context chosen = [] {
    const std::string path = row_choices();
    setenv("LATHE_TUNED", path.c_str(), 1);
    Context made = make_context();
    unsetenv("LATHE_TUNED");
    std::filesystem::remove(path);
    return made;
  }();
  return row ? chosen.get() : usual.get();
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

// The plan has the default's kernel or the row kernel. Nothing is chosen for a device that is
// there.
void check_kernel(const PlannedCall& call, bool row) {
  if (!on_simulator()) return;
  CHECK(call.kernels().at(0).spec.starts_with(row ? "causal_conv1d_update_row "
                                                  : "causal_conv1d_update "));
}

void follow_forward(const ConvCase& conv, bool row) {
  INFO(conv.text(), " row ", row);
  const auto inputs = make_inputs(conv);
  const Outputs forward = run_conv(conv, inputs);
  ref::Conv first = inputs;
  first.x = token(inputs.x, conv, 0), first.residual = token(inputs.residual, conv, 0);
  PlannedCall call(update_context(row), conv_update_call(conv, first));
  check_kernel(call, row);
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
  for (const bool row : {false, true}) follow_forward(conv, row);
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
    for (const bool row : {false, true}) {
      PlannedCall call(update_context(row), conv_update_call(conv, inputs));
      check_kernel(call, row);
      call.run();
      const Outputs out = call.outputs();
      check_rms("y", out.at("y"), expected.y, numbers::half_ulp(dtype) + 1e-5);
      check_equal(out, {{"state", expected.state}}, {"state"});
      check_no_findings();
    }
  }
}

}  // namespace
