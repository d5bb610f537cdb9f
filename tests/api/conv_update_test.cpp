// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update: against float64, and bit for bit against the forward on the same tokens, by
// each of its kernels.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/api/conv_case.h"
#include "tests/compare.h"
#include "tests/numbers.h"

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
class Decoder {
 public:
  Decoder(lathe_context* context, const ConvCase& conv, const ref::Conv& inputs)
      : context_(context), conv_(conv) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, "causal_conv1d_update"));
    const Problem owner(problem);
    API(lathe_problem_set_string(problem, "activation", conv.silu ? "silu" : "none"));
    if (conv.alignment) API(lathe_problem_alignment(problem, conv.alignment));
    const int64_t b = conv.batch, d = conv.channels, w = conv.width;
    // Rows of x, residual and y may lie apart: the gap between tokens is one between rows here.
    const Placement rows{.token_gap = conv.placement.token_gap, .offset = conv.placement.offset};
    add(problem, "x", conv.x, {b, d}, {-1, d}, rows);
    add(problem, "weight", conv.weight, {d, w}, {d, w});
    if (conv.bias) add(problem, "bias", conv.weight, {d}, {d});
    if (conv.residual) add(problem, "residual", conv.x, {b, d}, {-1, d}, rows);
    add(problem, "state", conv.x, {b, d, w}, {-1, d, w});
    add(problem, "y", conv.x, {b, d}, {-1, d}, rows);
    at("weight").upload(inputs.weight);
    if (conv.bias) at("bias").upload(inputs.bias);
    at("state").upload(inputs.initial_state);

    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context, problem));
    plan_.reset(plan);
    slots_.assign(lathe_plan_slot_count(plan), nullptr);
    for (const auto& [name, tensor] : tensors_) {
      size_t slot = 0;
      API(lathe_plan_slot(plan, name.c_str(), &slot));
      slots_.at(slot) = tensor->dl();
    }
  }

  std::vector<double> step(const std::vector<double>& x, const std::vector<double>& residual) {
    at("x").upload(x);
    if (conv_.residual) at("residual").upload(residual);
    at("y").poison();
    API(lathe_plan_run(plan_.get(), slots_.data(), nullptr, 0, nullptr));
    API(lathe_stream_synchronize(context_, nullptr));
    return at("y").download();
  }
  std::string kernel() const {
    lathe_kernel_info info = {};
    info.size = sizeof(info);
    API(lathe_plan_kernel(plan_.get(), 0, &info));
    return info.name;
  }
  std::vector<double> state() const { return tensors_.at("state")->download(); }

 private:
  void add(lathe_problem* problem, const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
           std::vector<int64_t> declared, const Placement& placement = {}) {
    API(lathe_problem_tensor(problem, name, dtype, static_cast<int>(shape.size()),
                             declared.data()));
    tensors_[name] = std::make_unique<Tensor>(context_, dtype, std::move(shape), placement);
  }
  Tensor& at(const std::string& name) { return *tensors_.at(name); }

  lathe_context* context_;
  ConvCase conv_;
  Plan plan_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<const DLTensor*> slots_;
};

// Token t of [B, T, D].
std::vector<double> token(const std::vector<double>& all, const ConvCase& conv, int64_t t) {
  std::vector<double> row;
  for (int64_t b = 0; b < conv.batch && !all.empty(); ++b) {
    const auto from = all.begin() + (b * conv.tokens + t) * conv.channels;
    row.insert(row.end(), from, from + conv.channels);
  }
  return row;
}

void check_kernel(const Decoder& decoder, bool row) {
  if (!on_simulator()) return;  // nothing is chosen for the device there is
  CHECK(decoder.kernel() == (row ? "causal_conv1d_update_row" : "causal_conv1d_update"));
}

void follow_forward(const ConvCase& conv, bool row) {
  INFO(conv.text());
  INFO("row " << row);
  const auto inputs = make_inputs(conv);
  auto forward = run_conv(update_context(false), conv, inputs);
  Decoder decoder(update_context(row), conv, inputs);
  check_kernel(decoder, row);
  for (int64_t t = 0; t < conv.tokens; ++t) {
    INFO("token " << t);
    const auto y = decoder.step(token(inputs.x, conv, t), token(inputs.residual, conv, t));
    check_same({{"y", y}}, {{"y", token(forward.at("y"), conv, t)}}, {"y"});
  }
  check_same({{"state", decoder.state()}}, {{"state", forward.at("final_state")}}, {"state"});
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
      Decoder decoder(update_context(row), conv, inputs);
      check_kernel(decoder, row);
      const auto y = decoder.step(inputs.x, inputs.residual);
      const auto verdict =
          compare::compare("y", y, expected.y, {conv.batch, conv.channels},
                           {compare::Rule::kRms, numbers::half_ulp(dtype) + 1e-5, 0});
      CHECK_MESSAGE(verdict.ok, verdict.text);
      check_same({{"state", decoder.state()}}, {{"state", expected.state}}, {"state"});
      check_no_findings();
    }
  }
}

}  // namespace
