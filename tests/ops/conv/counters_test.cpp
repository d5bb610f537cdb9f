// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator counts the bytes that kernels move at B 1, T 8192, D 4096, bf16, W 4: they stay
// near the least that the tensors have, and every access is fully coalesced.
#include <doctest/doctest.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "reference/conv.h"
#include "tests/harness/session.h"
#include "tests/numbers.h"

using namespace apitest;

namespace {

constexpr int64_t kTokens = 8192, kChannels = 4096, kWidth = 4;
constexpr int64_t kElements = kTokens * kChannels;
constexpr double kTensorBytes = 2.0 * static_cast<double>(kElements);

// Period-free enough for a tile of another place to differ; cheap to make.
std::vector<uint16_t> draw(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> table(65521), values(static_cast<size_t>(count));
  std::normal_distribution<float> normal;
  for (auto& value : table) value = numbers::to_bf16(normal(random));
  for (size_t i = 0; i < values.size(); ++i) values[i] = table[i % table.size()];
  return values;
}

DLTensor describe(const Memory& memory, int64_t* shape, int rank) {
  DLTensor tensor{};
  tensor.data = memory.data();
  tensor.device = {kDLCUDA, 0};
  tensor.ndim = rank;
  tensor.dtype = {kDLBfloat, 16, 1};
  tensor.shape = shape;
  return tensor;
}

// The large problem: `names` are the tensors that are declared.
struct Large {
  Context context = make_context();
  std::vector<uint16_t> x = draw(1, kElements), dy = draw(2, kElements),
                        weight = draw(3, kChannels*kWidth);
  int64_t activation[3] = {1, kTokens, kChannels}, taps[2] = {kChannels, kWidth};
  std::map<std::string, std::unique_ptr<Memory>> memory;
  Plan plan;

  explicit Large(const std::vector<std::string>& names) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, "causal_conv1d"));
    const Problem owner(problem);
    API(lathe_problem_set_string(problem, "activation", "silu"));
    std::map<std::string, DLTensor> tensors;
    for (const auto& name : names) {
      const bool is_taps = name.find("weight") != std::string::npos;
      const size_t bytes = 2 * static_cast<size_t>(is_taps ? kChannels * kWidth : kElements);
      memory[name] = std::make_unique<Memory>(context.get(), bytes);
      int64_t declared[3] = {-1, -1, kChannels};
      API(lathe_problem_tensor(problem, name.c_str(), LATHE_BF16, is_taps ? 2 : 3,
                               is_taps ? taps : declared));
      tensors[name] = describe(*memory[name], is_taps ? taps : activation, is_taps ? 2 : 3);
      const auto* values = name == "x"        ? &x
                           : name == "dy"     ? &dy
                           : name == "weight" ? &weight
                                              : nullptr;
      if (values == nullptr) continue;
      API(lathe_copy_to_device(context.get(), memory[name]->data(), values->data(), bytes,
                               nullptr));
    }
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context.get(), problem));
    plan.reset(made);
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(made), nullptr);
    for (const auto& [name, tensor] : tensors) {
      size_t slot = 0;
      API(lathe_plan_slot(made, name.c_str(), &slot));
      slots.at(slot) = &tensor;
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(made, slots.data(), nullptr, &bytes));
    const Memory workspace(context.get(), bytes);
    take_report();
    API(lathe_plan_run(made, slots.data(), workspace.data(), bytes, nullptr));
    API(lathe_stream_synchronize(context.get(), nullptr));
  }

  std::vector<uint16_t> read(const std::string& name) {
    std::vector<uint16_t> values(memory.at(name)->bytes() / 2);
    API(lathe_copy_to_host(context.get(), values.data(), memory.at(name)->data(),
                           memory.at(name)->bytes(), nullptr));
    return values;
  }
};

double widen(uint16_t bits) { return numbers::decode(LATHE_BF16, &bits); }

// `from` .. `to` of the tokens, channels c..c+3, as a problem of its own.
ref::Conv window(const Large& large, int64_t from, int64_t to, int64_t channel) {
  ref::Conv conv;
  conv.channels = 4;
  conv.width = kWidth;
  conv.silu = true;
  conv.begin = {0, to - from};
  for (int64_t t = from; t < to; ++t) {
    for (int64_t c = channel; c < channel + 4; ++c) {
      conv.x.push_back(widen(large.x[static_cast<size_t>(t * kChannels + c)]));
      conv.dy.push_back(widen(large.dy[static_cast<size_t>(t * kChannels + c)]));
    }
  }
  for (int64_t i = channel * kWidth; i < (channel + 4) * kWidth; ++i) {
    conv.weight.push_back(widen(large.weight[static_cast<size_t>(i)]));
  }
  return conv;
}

// Values of rows whose neighbours are all within the window.
void check_rows(const std::vector<uint16_t>& actual, const ref::Array& expected, int64_t from,
                int64_t to, int64_t skip, int64_t channel) {
  for (int64_t t = from + (from > 0 ? skip : 0); t < to - (to < kTokens ? skip : 0); ++t) {
    for (int64_t c = 0; c < 4; ++c) {
      const double a = widen(actual[static_cast<size_t>(t * kChannels + channel + c)]);
      const double r = expected[static_cast<size_t>((t - from) * 4 + c)];
      INFO("token " << t << " channel " << channel + c << ": " << a << ", expected " << r);
      REQUIRE(std::abs(a - r) <= 0x1p-8 * std::abs(r) + 1e-4);
    }
  }
}

// Bytes that the launches moved between memory and the SMs; checks each of them on the way.
double moved_bytes() {
  const auto report = take_report();
  for (const auto& finding : report.findings) FAIL_CHECK(finding);
  REQUIRE_FALSE(report.launches.empty());
  double bytes = 0;
  for (const auto& line : report.launches) {
    const auto launch = nlohmann::json::parse(line);
    INFO(line);
    CHECK(launch.at("error") == 0);
    for (const char* kind : {"global_load", "global_store", "global_atomic"}) {
      const std::string name = kind;
      CHECK(launch.at(name + "_sectors") == launch.at(name + "_minimum_sectors"));
      bytes += 32.0 * launch.at(name + "_sectors").get<double>();
    }
    CHECK(launch.at("global_atomic_requests") == 0);
    CHECK(launch.at("local_load_requests") == 0);
    CHECK(launch.at("local_store_requests") == 0);
  }
  return bytes;
}

void print(const char* what, double moved, double minimum) {
  std::cout << what << ": " << moved / 1e6 << " MB moved, minimum " << minimum / 1e6 << " MB, "
            << moved / minimum << " times\n";
}

const int64_t kWindows[][2] = {{0, 12}, {56, 76}, {4090, 4104}, {kTokens - 70, kTokens}};

TEST_CASE("counters: the forward copies at most 1.1 times the minimum") {
  if (!on_simulator()) return;
  Large large({"x", "weight", "y"});
  const double minimum = 2 * kTensorBytes, moved = moved_bytes();
  print("forward", moved, minimum);
  CHECK(moved >= minimum);
  CHECK(moved <= 1.1 * minimum);
  const auto y = large.read("y");
  for (const auto& [from, to] : kWindows) {
    for (int64_t channel : {int64_t{0}, kChannels / 2 - 2, kChannels - 4}) {
      const auto expected = ref::conv_forward(window(large, from, to, channel)).y;
      check_rows(y, expected, from, to, kWidth - 1, channel);
    }
  }
}

TEST_CASE("counters: the backward copies at most 1.15 times the minimum") {
  if (!on_simulator()) return;
  Large large({"x", "weight", "dy", "dx", "dweight"});
  const double minimum = 3 * kTensorBytes, moved = moved_bytes();
  print("backward", moved, minimum);
  CHECK(moved >= minimum);
  CHECK(moved <= 1.15 * minimum);
  const auto dx = large.read("dx");
  for (const auto& [from, to] : kWindows) {
    const auto expected = ref::conv_backward(window(large, from, to, 100)).dx;
    check_rows(dx, expected, from, to, 2 * (kWidth - 1), 100);
  }
  const auto dweight = large.read("dweight");
  const auto whole = ref::conv_backward(window(large, 0, kTokens, 2000)).dweight;
  for (size_t i = 0; i < whole.size(); ++i) {
    const double a = widen(dweight[2000 * kWidth + i]);
    INFO("dweight " << i << ": " << a << ", expected " << whole[i]);
    CHECK(std::abs(a - whole[i]) <= 0x1p-8 * std::abs(whole[i]) + 0.05);
  }
}

}  // namespace
