// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/launch_cases.h"

#include <fstream>

#include "tests/numbers.h"

namespace bench {
namespace {

using Tensors = std::vector<LaunchCase::Tensor>;
constexpr lathe_dtype kType = LATHE_BF16;
constexpr int64_t kRows = 128, kHeads = 8, kWidth = 64;

void append(Tensors* to, const Tensors& more) { to->insert(to->end(), more.begin(), more.end()); }

Tensors attention(bool backward) {
  const std::vector<int64_t> q = {-1, -1, kHeads, kWidth}, k = {-1, -1, 2, kWidth};
  const std::vector<int64_t> query = {1, kRows, kHeads, kWidth}, key = {1, kRows, 2, kWidth};
  Tensors tensors = {{"q", kType, q, query},
                     {"k", kType, k, key},
                     {"v", kType, k, key},
                     {"out", kType, q, query},
                     {"lse", LATHE_F32, {-1, kHeads, -1}, {1, kHeads, kRows}}};
  if (backward) {
    append(&tensors, {{"dout", kType, q, query},
                      {"dq", kType, q, query},
                      {"dk", kType, k, key},
                      {"dv", kType, k, key}});
  }
  return tensors;
}

Tensors decode() {
  return {{"q", kType, {-1, 1, kHeads, kWidth}, {4, 1, kHeads, kWidth}},
          {"k_cache", kType, {-1, 16, 2, kWidth}, {64, 16, 2, kWidth}},
          {"v_cache", kType, {-1, 16, 2, kWidth}, {64, 16, 2, kWidth}},
          {"block_table", LATHE_I32, {-1, -1}, {4, 16}},
          {"cache_seqlens", LATHE_I32, {-1}, {4}},
          {"out", kType, {-1, 1, kHeads, kWidth}, {4, 1, kHeads, kWidth}},
          {"lse", LATHE_F32, {-1, kHeads, 1}, {4, kHeads, 1}}};
}

Tensors sparse() {
  const std::vector<int64_t> q = {-1, -1, 16, kWidth}, query = {1, kRows, 16, kWidth};
  return {{"q", kType, q, query},
          {"k", kType, {-1, -1, 1, kWidth}, {1, kRows, 1, kWidth}},
          {"v", kType, {-1, -1, 1, kWidth}, {1, kRows, 1, kWidth}},
          {"indices", LATHE_I32, {-1, -1, 1, -1}, {1, kRows, 1, 64}},
          {"out", kType, q, query},
          {"lse", LATHE_F32, {-1, 16, -1}, {1, 16, kRows}}};
}

// Makes the tensors of `tokens` in each of `batch` rows.
Tensors kda(int64_t batch, int64_t tokens) {
  Tensors tensors = {
      {"beta", kType, {-1, -1, kHeads}, {batch, tokens, kHeads}},
  };
  for (const char* name : {"q", "k", "v", "g", "o"}) {
    tensors.push_back({name, kType, {-1, -1, kHeads, kWidth}, {batch, tokens, kHeads, kWidth}});
  }
  return tensors;
}

Tensors recurrent() {
  Tensors tensors = kda(4, 1);
  append(&tensors,
         {{"state_pool", LATHE_F32, {-1, kHeads, kWidth, kWidth}, {8, kHeads, kWidth, kWidth}},
          {"state_indices", LATHE_I32, {-1}, {4}}});
  return tensors;
}

Tensors decode_layer() {
  const int64_t channels = 3 * kHeads * kWidth;
  return {{"qkv", kType, {-1, channels}, {4, channels}},
          {"conv_weight", kType, {channels, 4}, {channels, 4}},
          {"conv_pool", kType, {-1, channels, 3}, {8, channels, 3}},
          {"g", kType, {-1, kHeads, kWidth}, {4, kHeads, kWidth}},
          {"beta", kType, {-1, kHeads}, {4, kHeads}},
          {"state_pool", LATHE_F32, {-1, kHeads, kWidth, kWidth}, {8, kHeads, kWidth, kWidth}},
          {"state_indices", LATHE_I32, {-1}, {4}},
          {"o", kType, {-1, kHeads, kWidth}, {4, kHeads, kWidth}}};
}

// A kernel of one's own, from examples/own_kernels. The plan outlives the operator's handle.
std::unique_ptr<LaunchCase> example(lathe_context* context, const std::string& name,
                                    Tensors tensors) {
  std::ifstream file(std::string(LATHE_SOURCE_DIR) + "/examples/own_kernels/" + name);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  lathe_operator* made = nullptr;
  API(lathe_operator_parse(&made, text.data(), text.size(), name.c_str()));
  const std::unique_ptr<lathe_operator, apitest::Destroy<lathe_operator_destroy>> owner(made);
  return std::make_unique<LaunchCase>(context, lathe_operator_describe(made)->name,
                                      std::move(tensors), std::vector<LaunchCase::Option>{});
}

}  // namespace

LaunchCase::LaunchCase(lathe_context* context, const char* op, std::vector<Tensor> tensors,
                       const std::vector<Option>& options)
    : tensors_(std::move(tensors)), views_(tensors_.size()) {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, op));
  const apitest::Problem owner(problem);
  for (const Option& option : options)
    API(lathe_problem_set_string(problem, option.name, option.value));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const int rank = static_cast<int>(tensor.shape.size());
    API(lathe_problem_tensor(problem, tensor.name, tensor.dtype, rank, tensor.declared.data()));
    size_t bytes = numbers::bytes_of(tensor.dtype);
    for (const int64_t extent : tensor.shape) bytes *= static_cast<size_t>(extent);
    memory_.push_back(std::make_unique<apitest::Memory>(context, bytes));
    views_[i] = apitest::describe(memory_.back()->data(), tensor.dtype, tensor.shape);
  }
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, problem));
  plan_.reset(plan);
  order_.assign(lathe_plan_slot_count(plan), nullptr);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    size_t slot = 0;
    API(lathe_plan_slot(plan, tensors_[i].name, &slot));
    order_.at(slot) = &views_[i];
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, order_.data(), nullptr, &bytes));
  workspace_ = std::make_unique<apitest::Memory>(context, bytes);
}

void LaunchCase::run() const {
  API(lathe_plan_run(plan_.get(), order_.data(), workspace_->data(), workspace_->bytes(), nullptr));
}

uint64_t LaunchCase::launches() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan_.get(), order_.data(), nullptr, &estimate));
  return estimate.launches;
}

std::vector<NamedCase> attention_cases(lathe_context* context) {
  const std::vector<LaunchCase::Option> causal = {{"causal", "1"}};
  std::vector<NamedCase> out;
  for (const bool backward : {false, true}) {
    out.push_back(
        {backward ? "flash_attention forward and backward" : "flash_attention forward",
         std::make_unique<LaunchCase>(context, "flash_attention", attention(backward), causal)});
  }
  return out;
}

std::vector<NamedCase> launch_cases(lathe_context* context) {
  std::vector<NamedCase> out = attention_cases(context);
  const auto add = [&](const char* name, const char* op, Tensors tensors,
                       const std::vector<LaunchCase::Option>& options) {
    out.push_back({name, std::make_unique<LaunchCase>(context, op, std::move(tensors), options)});
  };
  add("flash_attention_decode", "flash_attention_decode", decode(), {});
  add("sparse_flash_attention forward", "sparse_flash_attention", sparse(),
      {{"scale", "0.125"}, {"num_splits", "1"}});
  add("kda forward", "kda", kda(1, kRows), {{"segments", "1"}});
  add("kda_recurrent", "kda_recurrent", recurrent(), {});
  add("kda_decode", "kda_decode", decode_layer(), {});
  const Tensors rows = {{"x", kType, {-1, kWidth}, {kRows, kWidth}},
                        {"weight", kType, {kWidth}, {kWidth}},
                        {"y", kType, {-1, kWidth}, {kRows, kWidth}}};
  out.push_back({"own kernel rms_norm", example(context, "rms_norm.cuh", rows)});
  const Tensors product = {{"a", kType, {-1, -1}, {kRows, kWidth}},
                           {"b", kType, {-1, -1}, {kRows, kWidth}},
                           {"c", kType, {-1, -1}, {kRows, kRows}}};
  out.push_back({"own kernel matmul", example(context, "matmul.cuh", product)});
  out.push_back({"own kernel matmul_sm90", example(context, "matmul_sm90.cuh", product)});
  return out;
}

}  // namespace bench
